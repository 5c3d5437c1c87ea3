"""The short way to an answer: a plain GET /predict is answered in front of the framework, even of its own task.

Only where nothing about a request is doubtful: who asks, the parameters, a version that answers, the horizon. In any
doubt the request goes on through the framework to `service.predict` as if nobody had looked at it, and is judged there
from the beginning, so that every refusal has one origin. What is answered here is counted as there.
"""

import time

import structlog
from starlette.types import Scope, Send

from service.auth import is_admitted, may_be_anonymous
from service.keyring import Keyring
from service.metrics import Metrics
from service.predict import Predict, send_answer
from service.settings import ServiceSettings

# An extension of ASGI: by it a server takes the body of a 200 in JSON, and sends it together with its head.
WHOLE = "morrow.whole"

log = structlog.get_logger(__name__)


class ShortPredict:
    """What the app asks first; `predict` is what the framework's route uses too."""

    def __init__(self, predict: Predict, keyring: Keyring, metrics: Metrics, settings: ServiceSettings) -> None:
        self._predict = predict
        self._keyring = keyring
        self._may_be_anonymous = may_be_anonymous(settings)
        self._answered = metrics.requests.labels("GET", "/predict", "200")
        self._seconds = metrics.predict_seconds.labels("GET")

    def answer_at_once(self, scope: Scope) -> bytes | None:
        """The body of an answer that needs no waiting: to a question that stands alone; None for any other request."""
        if not _is_plain(scope) or not self._predict.together.note():
            return None
        started = time.perf_counter()
        if not self._is_admitted(scope):
            return None
        try:
            body = self._predict.answer_at_once(scope["query_string"])
        except Exception as error:  # the route meets it again and makes a problem of it
            log.warning("short_predict.failed", exc_info=error)
            return None
        if body is not None:
            self._count(started)
        return body

    async def answers(self, scope: Scope, send: Send) -> bool:
        """Whether the request is answered."""
        if not _is_plain(scope):
            return False
        started = time.perf_counter()
        if not self._is_admitted(scope):
            return False
        try:
            body = await self._predict.answer_plain(scope["query_string"])
        except Exception as error:  # the route meets it again and makes a problem of it
            log.warning("short_predict.failed", exc_info=error)
            return False
        if body is None:
            return False
        whole = scope.get("extensions", {}).get(WHOLE)
        await (send_answer(send, body) if whole is None else whole(body))
        self._count(started)
        return True

    def _is_admitted(self, scope: Scope) -> bool:
        return is_admitted(scope, self._keyring, may_be_anonymous=self._may_be_anonymous)

    def _count(self, started: float) -> None:
        self._answered.inc()
        self._seconds.observe(time.perf_counter() - started)


def _is_plain(scope: Scope) -> bool:
    return bool(scope["type"] == "http" and scope["path"] == "/predict" and scope["method"] == "GET")
