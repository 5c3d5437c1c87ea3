"""One request to a receiver: the event as CloudEvents 1.0, signed, within limits of time and size.

Only an answer of 2xx takes the event. Redirects are not followed: they could lead anywhere. Of an answer the beginning
is read, for people who look for a mistake.
"""

import asyncio
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from ssl import SSLContext
from urllib.parse import urlsplit

import httpcore
import msgspec

from contracts.clock import format_moment, to_micros
from contracts.hooks.events import MEDIA_TYPE, CloudEvent
from contracts.hooks.receivers import Network
from contracts.hooks.signatures import sign
from store.hooks.outbox import Delivery
from trainer.hooks.guarded_network import GuardedNetwork

# From the lookup of the name to the last byte that is read.
LONGEST_SECONDS = 10.0
_BODY_SECONDS = 1.0
MAX_ANSWER_BYTES = 1024
_MAX_SHOWN = 200
_AGENT = "morrow-hooks/1"
_PHRASES = {int(status): status.phrase for status in HTTPStatus}


@dataclass(frozen=True)
class Outcome:
    """Whether a receiver has taken an event, what it said, and how many seconds it wants to be left alone."""

    is_taken: bool
    answer: str
    retry_after: float | None = None


@dataclass(frozen=True)
class Sender:
    """What requests share: `trust` gives the certificates, which are read when the first receiver needs them."""

    allowed: Sequence[Network]
    source: str
    trust: Callable[[], SSLContext]

    async def send(self, delivery: Delivery, now: datetime) -> Outcome:
        """Send an event once, and say what became of it."""
        try:
            async with asyncio.timeout(LONGEST_SECONDS):
                return await self._ask(delivery, now)
        except TimeoutError:
            return Outcome(False, f"no whole answer within {LONGEST_SECONDS:g} s")
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException) as error:
            return Outcome(False, _shorten(str(error)) or type(error).__name__)
        except (OSError, ValueError) as error:  # certificates that cannot be read, or a URL written past the API
            return Outcome(False, _shorten(f"the request could not be made: {error}"))

    async def _ask(self, delivery: Delivery, now: datetime) -> Outcome:
        is_plain = urlsplit(delivery.url).scheme == "http"
        body = encode_event(delivery, self.source)
        signed = sign(delivery.secret, str(delivery.event_id), int(now.timestamp()), body)
        headers = {"Host": urlsplit(delivery.url).netloc, "Content-Type": MEDIA_TYPE, "User-Agent": _AGENT, **signed}
        headers |= {"Content-Length": str(len(body)), "Connection": "close"}
        network = GuardedNetwork(self.allowed, is_plain=is_plain)
        async with (
            httpcore.AsyncConnectionPool(
                ssl_context=None if is_plain else self.trust(), max_keepalive_connections=0, network_backend=network
            ) as pool,
            pool.stream("POST", delivery.url, headers=list(headers.items()), content=body) as response,
        ):
            return _judge(response, await _read_beginning(response))


def encode_event(delivery: Delivery, source: str) -> bytes:
    """The body of a request."""
    data = msgspec.json.decode(delivery.data)
    event = CloudEvent(
        id=str(delivery.event_id),
        source=source,
        type=delivery.event_type,
        subject=str(data.get("task", "")) or "morrow",
        time=format_moment(to_micros(delivery.at)),
        data=msgspec.Raw(delivery.data.encode()),
    )
    return msgspec.json.encode(event)


async def _read_beginning(response: httpcore.Response) -> bytes:
    """The beginning of a body as far as it comes soon. The status has decided already, so no failure matters."""
    said = b""
    with suppress(TimeoutError, httpcore.NetworkError, httpcore.ProtocolError):
        async with asyncio.timeout(_BODY_SECONDS):
            async for piece in response.aiter_stream():
                said += piece
                if len(said) >= MAX_ANSWER_BYTES:
                    break
    return said


def _judge(response: httpcore.Response, said: bytes) -> Outcome:
    status = response.status
    phrase = _PHRASES.get(status, "")
    text = _shorten(said.decode("utf-8", "replace"))
    answer = f"{status} {phrase}".strip() + (f": {text}" if text else "")
    if 300 <= status < 400:
        answer = f"{status} {phrase}: redirects are not followed, so add a hook for the address that it leads to"
    return Outcome(200 <= status < 300, answer, _read_retry_after(response))


def _read_retry_after(response: httpcore.Response) -> float | None:
    given = next((value for name, value in response.headers if name.lower() == b"retry-after"), b"")
    return float(given) if re.fullmatch(rb"[0-9]{1,6}", given.strip()) else None


def _shorten(text: str) -> str:
    """The beginning of a text on one line, without characters that no terminal and no table can show."""
    line = " ".join("".join(one if one.isprintable() else " " for one in text).split())
    return line if len(line) <= _MAX_SHOWN else f"{line[:_MAX_SHOWN]}…"
