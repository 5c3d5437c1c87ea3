"""The short way to an answer: a plain GET /predict is answered in front of the framework.

Only where nothing about a request is doubtful: who asks, the parameters, a version that answers, the horizon. In any
doubt the request goes on through the framework to `service.predict` as if nobody had looked at it, and is judged there
from the beginning, so that every refusal has one origin. What is answered here is counted as there.
"""

import time

import structlog
from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

from contracts.keys import id_of, is_key
from service.auth import may_be_anonymous, read_token
from service.keyring import Keyring
from service.metrics import Metrics
from service.predict import Predict
from service.settings import ServiceSettings
from service.short_ingest import ShortIngest

_CONTENT_TYPE = (b"content-type", b"application/json")

log = structlog.get_logger(__name__)


class Shortcut:
    """What the app asks first."""

    def __init__(self, predict: Predict, keyring: Keyring, metrics: Metrics, settings: ServiceSettings) -> None:
        self._predict = predict
        self._keyring = keyring
        self._may_be_anonymous = may_be_anonymous(settings)
        self._answered = metrics.requests.labels("GET", "/predict", "200")
        self._seconds = metrics.predict_seconds.labels("GET")

    async def answers(self, scope: Scope, send: Send) -> bool:
        """Whether the request is answered."""
        if scope["type"] != "http" or scope["path"] != "/predict" or scope["method"] != "GET":
            return False
        started = time.perf_counter()
        if not self._may_ask(scope):
            return False
        try:
            body = await self._predict.answer_plain(scope["query_string"])
        except Exception as error:  # the route meets it again and makes a problem of it
            log.warning("shortcut.failed", exc_info=error)
            return False
        if body is None:
            return False
        headers = [_CONTENT_TYPE, (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})
        self._answered.inc()
        self._seconds.observe(time.perf_counter() - started)
        return True

    def _may_ask(self, scope: Scope) -> bool:
        """Whether there is no doubt: a known key that may ask without a limit, or anyone while there is no key."""
        keys = self._keyring.keys
        if not keys:
            return keys is not None and self._may_be_anonymous
        token = read_token(scope)
        key = None if token is None else keys.get(id_of(token) or "")
        return (
            key is not None and token is not None and key.rate is None and is_key(token, key) and key.allows("predict")
        )


class App(FastAPI):
    """FastAPI's, with the short ways in front of it."""

    shortcut: Shortcut | None = None
    short_ingest: ShortIngest | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.shortcut is not None and await self.shortcut.answers(scope, send):
            return
        rest = receive if self.short_ingest is None else await self.short_ingest.take(scope, receive, send)
        if rest is not None:
            await super().__call__(scope, rest, send)
