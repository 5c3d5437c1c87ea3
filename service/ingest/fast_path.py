"""The short way in: a plain POST /events of one event is written in front of the framework.

Only where nothing about a request is doubtful: who sends it, its headers, its size, the one parameter, an object as its
body. In any doubt the request goes on through the framework, with its body as if nobody had read it, and is judged
there from the beginning. What is answered here is answered by the same writer in the same words, and counted as there.
"""

import asyncio
import re

import structlog
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from contracts.errors import MorrowError
from service.ingest.endpoint import STATUSES, Counts, answer_one
from service.ingest.group_commit import Writer
from service.metrics import Metrics
from service.settings import ServiceSettings
from service.web.api_keys import ApiKeys
from service.web.auth import is_admitted, may_be_anonymous
from service.web.error_responses import problem_of

_LARGEST = 65_536
_QUERY = re.compile(rb"(?:task=([A-Za-z0-9_]+))?")
# Headers that change what a body says, or that a page of another site may have sent.
_DOUBTFUL = frozenset({b"content-encoding", b"transfer-encoding", b"expect", b"origin", b"sec-fetch-site"})

log = structlog.get_logger(__name__)


class ShortIngest:
    """What the app asks before the framework; `writer` is the one that the framework's route uses too."""

    def __init__(self, writer: Writer, api_keys: ApiKeys, metrics: Metrics, settings: ServiceSettings) -> None:
        self._writer = writer
        self._api_keys = api_keys
        self._metrics = metrics
        self._may_be_anonymous = may_be_anonymous(settings)
        self._body_seconds = settings.body_seconds
        self._largest = min(_LARGEST, settings.max_body_bytes)
        self._rows = {status: metrics.events.labels(status) for status in STATUSES}

    async def take(self, scope: Scope, receive: Receive, send: Send) -> Receive | None:
        """None where the event is answered, else from where the framework should read the request's body."""
        if scope["type"] != "http" or scope["path"] != "/events" or scope["method"] != "POST":
            return receive
        asked = _QUERY.fullmatch(scope["query_string"])
        if asked is None or not self._is_plain(scope):
            return receive
        if not is_admitted(scope, self._api_keys, may_be_anonymous=self._may_be_anonymous):
            return receive
        try:
            async with asyncio.timeout(self._body_seconds):
                message = await receive()
        except TimeoutError:
            return _wait_no_longer
        task = None if asked[1] is None else asked[1].decode()
        answer = await self._answer(task, message)
        if answer is None:
            return _again(message, receive)
        self._metrics.requests.labels("POST", "/events", str(answer.status_code)).inc()
        await answer(scope, receive, send)
        return None

    def _is_plain(self, scope: Scope) -> bool:
        """Whether the headers tell of a small JSON body and of nothing else that matters."""
        length = b"0"
        for name, value in scope["headers"]:
            if name in _DOUBTFUL or (name == b"content-type" and value != b"application/json"):
                return False
            if name == b"content-length":
                length = value
        return length.isdigit() and len(length) <= 9 and 0 < int(length) <= self._largest

    async def _answer(self, task: str | None, message: Message) -> Response | None:
        """The answer after the commit; None where the framework must judge the body."""
        body: bytes = message.get("body", b"")
        if message["type"] != "http.request" or message.get("more_body", False) or body[:1] != b"{":
            return None
        try:
            one = await self._writer.write(task, body)
        except MorrowError as error:
            return problem_of(error)
        except HTTPException:
            return None
        except Exception as error:  # the route meets it again and makes a problem of it
            log.warning("short_ingest.failed", exc_info=error)
            return None
        counts, answer = answer_one(one)
        self._count(counts)
        return answer

    def _count(self, counts: Counts) -> None:
        for status, number in counts.items():
            self._rows[status].inc(number)


async def _wait_no_longer() -> Message:
    """A `receive` that has waited: the framework says so without waiting for as long again."""
    raise TimeoutError


def _again(message: Message, receive: Receive) -> Receive:
    """A `receive` that begins with a message that was taken already."""
    taken: list[Message] = [message]

    async def replay() -> Message:
        return taken.pop() if taken else await receive()

    return replay
