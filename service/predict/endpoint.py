"""GET and POST /predict, the hot path: a raw route inside the FastAPI app, one compiled validator, bytes out.

Nothing here waits for the database or the registry, once there is a version (`service.predict.cold_start`). One row is
answered on the event loop, together with what came in the same turn of it; a batch, and whatever asks for rates, in a
thread, a bounded number at a time; a bounded number more may wait for one.
"""

import time
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple
from urllib.parse import parse_qsl

import anyio
import anyio.to_thread
import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from contracts.errors import Fault, InvalidInput, MorrowError
from service.errors import Overloaded
from service.models.answer import Answers
from service.models.follower import Follower
from service.models.model import Forecaster, Question, make_question
from service.predict.batching import Batches
from service.predict.cold_start import await_first
from service.settings import MAX_WAITING_PER_THREAD, ServiceSettings
from service.validation.names import printable
from service.validation.options import Options, take_options
from service.validation.query_decoder import BAD_ESCAPE, find_task, read_plain
from service.web.bodies import read_body

MAX_PARAMETERS = 1024
MAX_RATE_ROWS = 100

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_CONTENT_TYPE = (b"content-type", b"application/json")


class _CountedRoute(Route):
    """A raw route that, as FastAPI's own do, names itself in the scope, where metrics read it."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, child_scope = super().matches(scope)
        return match, {**child_scope, "route": self} if match is not Match.NONE else child_scope


class Predict:
    """The ASGI application behind /predict; `now` gives microseconds since the epoch."""

    def __init__(
        self,
        follower: Follower,
        settings: ServiceSettings,
        now: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        self._follower = follower
        self._settings = settings
        self._now = now
        self.encode = msgspec.json.Encoder().encode
        self.together = Batches()
        self._threads = anyio.CapacityLimiter(settings.batch_threads)
        self._num_in_threads = 0

    def route(self) -> Route:
        return _CountedRoute("/predict", self, methods=["GET", "POST"])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "POST":
            response = await self._answer_batch(Request(scope, receive))
            await response(scope, receive, send)
            return
        await send_answer(send, await self._answer_query(scope["query_string"]))

    def read_plain(self, query: bytes) -> tuple[Forecaster, Question] | None:
        """A plain question and what answers it; None where anything is doubtful. Raises as `Follower.find`."""
        plain = read_plain(query)
        if plain is None:
            return None
        forecaster = self._follower.find(find_task(plain))
        row = forecaster.rules.queries.decode_plain(plain)
        if row is None:
            return None
        question = make_question(row, self._now())
        return (forecaster, question) if forecaster.covers(question.at) else None

    async def _answer_query(self, query: bytes) -> bytes:
        now = self._now()
        faults: list[Fault] = []
        task, options, pairs = take_options(parse_query(query), faults)
        forecaster = await self._find(task, faults)
        row = forecaster.rules.read_query(pairs, faults)
        question = make_question(row, now, options)
        if options.rate:
            return self.encode(await self._in_thread(forecaster.answer, question))
        return self.encode(await self.together.answer(forecaster, question))

    async def _answer_batch(self, request: Request) -> Response:
        faults: list[Fault] = []
        task, options, others = take_options(parse_query(request.scope["query_string"]), faults)
        faults += [Fault(printable(name), "is not a parameter of this path") for name, _ in others[:20]]
        body = await read_body(request, self._settings)
        now = self._now()
        forecaster = await self._find(task, faults)
        answered = await self._in_thread(self._answer_body, forecaster, body, now, options, faults)
        return Response(answered, media_type="application/json")

    def _answer_body(
        self, forecaster: Forecaster, body: bytes, now: int, options: Options, faults: list[Fault]
    ) -> bytes:
        questions = forecaster.rules.read_questions(body, self._settings.max_rows, faults)
        if options.rate and len(questions) > MAX_RATE_ROWS:
            reason = f"is given for at most {MAX_RATE_ROWS} rows at once; the body asks for {len(questions)}"
            raise InvalidInput([Fault("rate", reason)])
        return self.encode(Answers(forecaster.answers(questions, now, options)))

    async def _find(self, task: str | None, faults: list[Fault]) -> Forecaster:
        """What answers, or soon will. Where nothing does, faults that were found before are told of first."""
        try:
            return self._follower.find(task)
        except MorrowError:
            if faults:
                raise InvalidInput(faults) from None
        await await_first(self._follower, self._settings, task)
        return self._follower.find(task)

    async def _in_thread(self, work: Callable[[*Ts], T], *given: *Ts) -> T:
        """Have a thread do it. Raises Overloaded, and as the work does."""
        # Counted here, as the limiter counts who waits only a turn of the loop later: many may come in one turn.
        if self._num_in_threads >= (1 + MAX_WAITING_PER_THREAD) * self._settings.batch_threads:
            raise Overloaded
        self._num_in_threads += 1
        try:
            return await anyio.to_thread.run_sync(work, *given, limiter=self._threads)
        finally:
            self._num_in_threads -= 1


async def send_answer(send: Send, body: bytes) -> None:
    """Send an encoded answer."""
    headers = [_CONTENT_TYPE, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def parse_query(query: bytes) -> list[tuple[str, str]]:
    """Names and values of a query string. Raises HTTPException 400 where its encoding is broken."""
    if not query:
        return []
    try:
        text = query.decode("ascii")
        if BAD_ESCAPE.search(text):
            raise ValueError("a % is not followed by two hexadecimal digits")
        return parse_qsl(
            text, keep_blank_values=True, strict_parsing=True, errors="strict", max_num_fields=MAX_PARAMETERS
        )
    except ValueError as error:
        reason = "it is not UTF-8" if isinstance(error, UnicodeError) else str(error)
        raise HTTPException(400, f"The query string cannot be read: {reason}.") from None
