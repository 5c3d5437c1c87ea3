"""The short way to an answer: a plain GET /predict is answered in front of the framework, even of its own task.

Only where nothing about a request is doubtful: who asks, the parameters, a version that answers, the horizon. In any
doubt the request goes on through the framework to `service.predict.endpoint` as if nobody had looked at it, and is
judged there from the beginning, so that every refusal has one origin. What is answered here is counted as there.
"""

import time
from collections.abc import Callable
from functools import partial

import structlog
from starlette.types import Scope

from contracts.errors import MorrowError
from service.metrics import Metrics
from service.models.answer import Answer
from service.models.model import Forecaster, Question
from service.predict.endpoint import Predict
from service.settings import ServiceSettings
from service.web.api_keys import ApiKeys
from service.web.auth import is_admitted, may_be_anonymous

# Takes the body of a 200 in JSON; None where the framework must judge the request.
Then = Callable[[bytes | None], None]

log = structlog.get_logger(__name__)


class ShortPredict:
    """What is asked before the framework; `predict` is what the framework's route uses too."""

    def __init__(self, predict: Predict, api_keys: ApiKeys, metrics: Metrics, settings: ServiceSettings) -> None:
        self._predict = predict
        self._api_keys = api_keys
        self._may_be_anonymous = may_be_anonymous(settings)
        self._answered = metrics.requests.labels("GET", "/predict", "200")
        self._seconds = metrics.predict_seconds.labels("GET")

    def take(self, scope: Scope, then: Then) -> None:
        """Answer a request: at once, or at the end of the loop's turn. `then` is called once."""
        started = time.perf_counter()
        asked = self._read(scope)
        if asked is None:
            then(None)
        else:
            self._predict.together.ask(*asked, partial(self._end, then, started))

    def _read(self, scope: Scope) -> tuple[Forecaster, Question] | None:
        """What a request asks, and what answers it; None where anything is doubtful."""
        if scope["type"] != "http" or scope["path"] != "/predict" or scope["method"] != "GET":
            return None
        if not is_admitted(scope, self._api_keys, may_be_anonymous=self._may_be_anonymous):
            return None
        try:
            return self._predict.read_plain(scope["query_string"])
        except MorrowError:
            return None
        except Exception as error:  # the route meets it again and makes a problem of it
            log.warning("short_predict.failed", exc_info=error)
            return None

    def _end(self, then: Then, started: float, answer: Answer | Exception) -> None:
        if isinstance(answer, Answer):
            body = self._predict.encode(answer)
            # Counted before it is told, so that no client has an answer which a worker that is killed never counted.
            self._answered.inc()
            self._seconds.observe(time.perf_counter() - started)
            then(body)
            return
        if not isinstance(answer, MorrowError):
            log.warning("short_predict.failed", exc_info=answer)
        then(None)
