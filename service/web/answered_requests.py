"""What is noted of each answered request: a count by route and status, and a record of the access log."""

import time

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.metrics import NO_ROUTE, Metrics
from service.web.access_log import AccessLog
from service.web.problems import PROBLEM, ProblemResponse


class AnsweredRequests:
    """The counters and the access log of one app."""

    def __init__(self, metrics: Metrics, access_log: AccessLog) -> None:
        self.metrics = metrics
        self.access_log = access_log

    def note(self, response: Response, scope: Scope, route: str, started: float) -> Response:
        """The same response, noted before it is sent, so that a killed worker leaves no answer uncounted.

        `route` is the template of its path; `started` in seconds of the performance counter.
        """
        problem = response.problem if isinstance(response, ProblemResponse) else None
        self.note_status(response.status_code, problem, scope, route, time.perf_counter() - started)
        return response

    def note_status(self, status: int, problem: str | None, scope: Scope, route: str, seconds: float) -> None:
        """Note an answer of this status; `problem` is its type, if it is a refusal."""
        self.metrics.count_answer(scope["method"], route, status, seconds)
        self.access_log.note(scope, route, status, problem, seconds)

    def note_unread(self, status: int, problem: str, detail: str, request_id: str | None = None) -> None:
        """Note the refusal of what could not be read as a request, of which neither path nor method is known."""
        self.metrics.count_answer("other", NO_ROUTE, status, 0.0)
        self.access_log.note_unread(status, problem, detail, request_id)


class NoteAnswers:
    """ASGI middleware: notes the framework's answers."""

    def __init__(self, app: ASGIApp, answered: AnsweredRequests) -> None:
        self._app = app
        self._answered = answered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 500
        started = time.perf_counter()

        async def find_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, find_status)
        finally:
            # A mounted application, such as the files of the pages, has an endpoint and no route.
            route = getattr(scope.get("route") or scope.get("endpoint"), "path_format", NO_ROUTE)
            problem = scope.get("state", {}).get(PROBLEM)
            self._answered.note_status(status, problem, scope, route, time.perf_counter() - started)
