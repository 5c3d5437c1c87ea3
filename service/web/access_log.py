"""The access log: one record `request.answered` for an answer, a sample of them while there are many.

A record costs as much time as an answer of the hot path. So each worker logs at most some successes and some refusals a
second, and each record counts the answers that were passed over before it. Refusals have a budget of their own, so that
a flood of successes hides none. Successful health checks, scrapes and static files are not logged.
"""

import re
import time
from collections.abc import Callable, Sequence
from typing import Literal
from urllib.parse import unquote_plus

import structlog
from starlette.types import Scope

from service.metrics import NO_ROUTE
from service.validation.names import printable
from service.web.auth import KEY_NAME
from service.web.request_ids import request_id_of, trace_id_of

Mode = Literal["all", "sampled", "off"]

EVENT = "request.answered"
# Records of each kind that a worker writes in a second.
RATE = 20
_QUIET = frozenset({"/livez", "/readyz", "/metrics"})
_STATIC = "/static/"
_TASK = re.compile(rb"(?:^|&)task=([^&]*)")

log = structlog.get_logger(__name__)


class _Budget:
    """Records that may still be written in this second, and the answers that were passed over since the last one."""

    __slots__ = ("left", "passed_over")

    def __init__(self) -> None:
        self.left = 0
        self.passed_over = 0


class AccessLog:
    """The access log of one worker; `clock` gives monotonic seconds, `list_tasks` the names of the known tasks."""

    def __init__(
        self, mode: Mode, list_tasks: Callable[[], Sequence[str]], clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._mode = mode
        self._list_tasks = list_tasks
        self._clock = clock
        self._refilled_at = float("-inf")
        self._successes, self._refusals = _Budget(), _Budget()

    def note(self, scope: Scope, route: str, status: int, problem: str | None, seconds: float) -> None:
        """Log an answer, unless it is passed over; `route` is the template of its path."""
        if self._mode == "off":
            return
        budget = self._successes if status < 400 else self._refusals
        if not self._may_log(budget):
            return
        path = scope["path"]
        if status < 400 and (path in _QUIET or path.startswith(_STATIC)):
            return
        self._write(
            budget,
            method=scope["method"],
            route=route,
            path=printable(path) if route == NO_ROUTE else None,
            status=status,
            problem=problem,
            task=self._find_task(scope, route),
            key=scope.get("state", {}).get(KEY_NAME),
            request_id=request_id_of(scope),
            trace_id=trace_id_of(scope),
            ms=round(seconds * 1e3, 2),
        )

    def note_unread(self, status: int, problem: str, detail: str, request_id: str | None = None) -> None:
        """Log the refusal of what could not be read as a request; `detail` is a sentence of ours."""
        if self._mode != "off" and self._may_log(self._refusals):
            self._write(self._refusals, status=status, problem=problem, detail=detail, request_id=request_id)

    def _may_log(self, budget: _Budget) -> bool:
        if not budget.left:
            now = self._clock()
            if now - self._refilled_at < 1.0:
                budget.passed_over += 1
                return False
            self._refilled_at = now
            self._successes.left = self._refusals.left = RATE
        return True

    def _write(self, budget: _Budget, **facts: str | float | None) -> None:
        if self._mode == "sampled":
            budget.left -= 1
        known = {name: value for name, value in facts.items() if value is not None}
        if budget.passed_over:
            known["num_passed_over"] = budget.passed_over
            budget.passed_over = 0
        log.info(EVENT, **known)

    def _find_task(self, scope: Scope, route: str) -> str | None:
        """The task that a request names, or the only task if it may leave the name out."""
        named: str | None = scope.get("path_params", {}).get("task")
        if named is None and (found := _TASK.search(scope["query_string"])):
            named = unquote_plus(found[1].decode("latin-1"))
        if named is None and route.startswith(("/predict", "/events", "/invocations")):
            known = self._list_tasks()
            named = known[0] if len(known) == 1 else None
        return None if named is None else printable(named)
