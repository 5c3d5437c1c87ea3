"""A path that is an ASGI application of its own: authentication, counting and problems around one handler per method.

The framework takes longer for a request than the hot paths take for an answer, so they do not use it.
"""

import time
from collections.abc import Awaitable, Callable, Mapping

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from contracts.errors import MorrowError
from service.metrics import NO_ROUTE
from service.web.answered_requests import AnsweredRequests
from service.web.auth import Authenticator, refuse
from service.web.error_responses import refuse_method, respond_to

# Answers an admitted request; any exception becomes a problem.
Handler = Callable[[Scope, Receive], Awaitable[Response]]


class RawEndpoint:
    """The application behind one route template, such as `/events/{event_id}`."""

    def __init__(
        self, route: str, handlers: Mapping[str, Handler], authenticator: Authenticator, answered: AnsweredRequests
    ) -> None:
        self._route = route
        self._handlers = handlers
        self._authenticator = authenticator
        self._answered = answered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        try:
            await self._authenticator.admit(scope)
        except Exception as error:  # noqa: BLE001 it becomes a problem
            response = refuse(error, scope) if isinstance(error, MorrowError) else self.respond_to(error, scope)
            await self._answered.note(response, scope, NO_ROUTE, started)(scope, receive, send)
            return
        handler = self._handlers.get(scope["method"], self._refuse_method)
        await self.answer_admitted(handler, started, scope, receive, send)

    async def answer_admitted(
        self, handler: Handler, started: float, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Answer an admitted request that arrived at `started`, in seconds of the performance counter."""
        try:
            response = await handler(scope, receive)
        except Exception as error:  # noqa: BLE001 it becomes a problem
            response = self.respond_to(error, scope)
        await self.note(response, scope, started)(scope, receive, send)

    def respond_to(self, error: Exception, scope: Scope) -> Response:
        """The problem document of an exception."""
        return respond_to(error, scope, self._answered.metrics)

    def note(self, response: Response, scope: Scope, started: float) -> Response:
        """The same response, counted and logged."""
        return self._answered.note(response, scope, self._route, started)

    async def _refuse_method(self, _scope: Scope, _receive: Receive) -> Response:
        return refuse_method([*self._handlers])
