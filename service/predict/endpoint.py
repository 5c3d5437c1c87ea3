"""GET and POST /predict, the hot path: an ASGI application without the framework, one compiled decoder, bytes out.

Nothing here waits for the database or the registry once there is a version (`service.predict.cold_start`). A single row
is answered on the event loop, together with the others of its turn. A batch, and a request for rates, is answered in a
thread, a bounded number at a time; a bounded number more may wait for one.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar, TypeVarTuple
from urllib.parse import parse_qsl

import anyio
import anyio.to_thread
import msgspec
from msgspec import UNSET
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from contracts.errors import Fault, InvalidInput, MorrowError
from service.errors import Malformed, Overloaded
from service.models.answer import NO_ID, Answer, join_answers
from service.models.follower import Follower
from service.models.forecaster import LoadedForecaster, Question, make_question
from service.predict.answer_log import AnswerLog
from service.predict.batching import MicroBatches
from service.predict.caching import caching_lines, find_unchanged
from service.predict.cold_start import await_first
from service.settings import MAX_WAITING_PER_THREAD, ServiceSettings
from service.validation.names import printable
from service.validation.options import NAMES, Options, take_options
from service.validation.query_decoder import BAD_ESCAPE, find_task, read_plain
from service.web.answered_requests import AnsweredRequests
from service.web.auth import Authenticator, key_name_of
from service.web.bodies import RequestBody
from service.web.encoded_answer import EncodedAnswer
from service.web.raw_endpoint import RawEndpoint
from store.predictions.ids import PredictionIds, format_id

MAX_PARAMETERS = 1024
MAX_RATE_ROWS = 100
_UNKNOWN = f"is not a parameter of this path; it takes {', '.join(sorted(NAMES))}, and features come in the body"

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

# Takes the application that answers a request; a `Response` is one.
Reply = Callable[[ASGIApp], None]
# The version that answers, and what it is asked.
Asked = tuple[LoadedForecaster, Question]


@dataclass(frozen=True, slots=True)
class AnsweredRows:
    """The answers to the rows of a body, and each of them encoded with its id."""

    answers: Sequence[Answer]
    encoded: Sequence[bytes]


class PredictEndpoint:
    """The ASGI application behind /predict; `now` gives microseconds since the epoch."""

    def __init__(
        self,
        follower: Follower,
        authenticator: Authenticator,
        answered: AnsweredRequests,
        settings: ServiceSettings,
        answer_log: AnswerLog,
        *,
        now: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        self._follower = follower
        self._authenticator = authenticator
        self._metrics = answered.metrics
        self._settings = settings
        self._now = now
        self._endpoint = RawEndpoint("/predict", {"GET": self._get, "POST": self._post}, authenticator, answered)
        self._encode = msgspec.json.Encoder().encode
        self._log = answer_log
        self._ids = PredictionIds()
        self._batches = MicroBatches()
        self._threads = anyio.CapacityLimiter(settings.batch_threads)
        self._num_in_threads = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._endpoint(scope, receive, send)

    def try_fast_path(self, scope: Scope, reply: Reply) -> None:
        """Answer a GET in the turn of the event loop in which it arrived, without a task of its own.

        `reply` is called once: with the response, or with the application that answers a request that must wait.
        """
        started = time.perf_counter()
        if not self._authenticator.admits_at_once(scope):
            reply(self)
            return
        try:
            asked = self._read_plain(scope["query_string"])
            unchanged = None if asked is None else find_unchanged(scope, *asked)
        except Exception as error:  # noqa: BLE001 it becomes a problem
            reply(self._endpoint.note(self._endpoint.respond_to(error, scope), scope, started))
            return
        if asked is None:
            reply(partial(self._endpoint.answer_admitted, self._get_any, started))
        elif unchanged is not None:
            reply(self._endpoint.note(unchanged, scope, started))
        else:
            self._batches.ask(*asked, partial(self._finish, reply, scope, started, asked))

    def _finish(self, reply: Reply, scope: Scope, started: float, asked: Asked, outcome: Answer | Exception) -> None:
        if isinstance(outcome, Answer):
            response: Response = self._respond(scope, *asked, outcome)
        else:
            response = self._endpoint.respond_to(outcome, scope)
        reply(self._endpoint.note(response, scope, started))

    async def _get(self, scope: Scope, receive: Receive) -> Response:
        asked = self._read_plain(scope["query_string"])
        if asked is None:
            return await self._get_any(scope, receive)
        if (unchanged := find_unchanged(scope, *asked)) is not None:
            return unchanged
        return self._respond(scope, *asked, await self._batches.answer(*asked))

    def _read_plain(self, query: bytes) -> Asked | None:
        """The question of a plain query, and the version that answers it; None if the query must be read by pairs."""
        plain = read_plain(query)
        if plain is None:
            return None
        try:
            forecaster = self._follower.find(find_task(plain))
        except MorrowError:
            return None
        row = forecaster.rules.queries.decode_plain(plain)
        return None if row is None else (forecaster, make_question(row, self._now()))

    async def _get_any(self, scope: Scope, _receive: Receive) -> Response:
        """Answer a query pair by pair: one with options, one that breaks a rule, or one that no version answers yet."""
        now = self._now()
        faults: list[Fault] = []
        task, options, pairs = take_options(parse_query(scope["query_string"]), faults)
        forecaster = await self._find(task, faults)
        row = forecaster.rules.read_query(pairs, faults)
        question = make_question(row, now, options)
        if (unchanged := find_unchanged(scope, forecaster, question)) is not None:
            return unchanged
        if options.rate:
            return self._respond(scope, forecaster, question, await self._in_thread(forecaster.answer, question))
        return self._respond(scope, forecaster, question, await self._batches.answer(forecaster, question))

    def _respond(self, scope: Scope, forecaster: LoadedForecaster, question: Question, answer: Answer) -> Response:
        if answer.unseen is not UNSET:
            self._metrics.count_unseen(answer.task, answer.unseen)
        row = question.row
        named = self._name(forecaster, (row.numbers, row.categories), question.at, answer, key_name_of(scope))
        return EncodedAnswer(named, head=caching_lines(forecaster, question))

    def _name(
        self,
        forecaster: LoadedForecaster,
        row: tuple[Sequence[float], Sequence[str]],
        at: int,
        answer: Answer,
        key_name: str | None,
    ) -> bytes:
        """The encoded answer with its id, by which it is logged."""
        prediction_id = self._ids.make(self._now())
        unnamed = self._encode(answer)[: -len(NO_ID)]
        self._log.note(forecaster, prediction_id, row, at=at, key_name=key_name, answer=unnamed + b"}")
        return b'%b,"id":"%b"}' % (unnamed, format_id(prediction_id))

    async def _post(self, scope: Scope, receive: Receive) -> Response:
        faults: list[Fault] = []
        task, options, others = take_options(parse_query(scope["query_string"]), faults)
        faults += [Fault(printable(name), _UNKNOWN) for name, _ in others[:20]]
        body = await RequestBody(scope, receive, self._settings).read()
        now = self._now()
        forecaster = await self._find(task, faults)
        key_name = key_name_of(scope)
        answer = partial(self._answer_body, forecaster, body, options, faults, now=now, key_name=key_name)
        return EncodedAnswer(await self._in_thread(answer))

    async def answer_in_thread(self, task: str | None, work: Callable[[LoadedForecaster, int], T]) -> T:
        """What `work` makes of the version that answers and of the present moment, in a thread for batches.

        Raises as `work`, and if no version answers.
        """
        now = self._now()
        return await self._in_thread(work, await self._find(task, []), now)

    def _answer_body(
        self,
        forecaster: LoadedForecaster,
        body: bytes,
        options: Options,
        faults: list[Fault],
        *,
        now: int,
        key_name: str | None,
    ) -> bytes:
        rows = self.answer_rows(forecaster, body, options, faults, now=now, key_name=key_name)
        return join_answers(rows.encoded)

    def answer_rows(
        self,
        forecaster: LoadedForecaster,
        body: bytes,
        options: Options,
        faults: Sequence[Fault] = (),
        *,
        now: int,
        key_name: str | None,
    ) -> AnsweredRows:
        """The answers to a body of rows, which are logged. Raises InvalidInput with all faults, also those before."""
        questions = forecaster.rules.read_questions(body, self._settings.max_rows, faults)
        if options.rate and len(questions) > MAX_RATE_ROWS:
            reason = f"is given for at most {MAX_RATE_ROWS} rows at once; the body asks for {len(questions)}"
            raise InvalidInput([Fault("rate", reason)])
        answers = forecaster.answers(questions, now, options)
        self._metrics.count_unseen(forecaster.task.name, (name for one in answers for name in one.unseen or ()))
        rows = zip(questions.numbers.tolist(), questions.categories.tolist(), strict=True)
        moments = questions.moments(now).tolist()
        named = [
            self._name(forecaster, row, at, answer, key_name)
            for row, at, answer in zip(rows, moments, answers, strict=True)
        ]
        return AnsweredRows(answers, named)

    async def _find(self, task: str | None, faults: list[Fault]) -> LoadedForecaster:
        """The version that answers, or soon will. If there is none, `faults` are reported first."""
        if self._follower.must_load(task):
            return await self._in_thread(self._follower.load, task)
        try:
            return self._follower.find(task)
        except MorrowError:
            if faults:
                raise InvalidInput(faults) from None
        await await_first(self._follower, self._settings, task)
        return self._follower.find(task)

    async def _in_thread(self, work: Callable[[*Ts], T], *given: *Ts) -> T:
        """The result of `work`, run in a thread. Raises Overloaded, and as `work` does."""
        # Counted here: the limiter counts a waiting task only a turn of the loop later, and many may come in one turn.
        if self._num_in_threads >= (1 + MAX_WAITING_PER_THREAD) * self._settings.batch_threads:
            raise Overloaded
        self._num_in_threads += 1
        try:
            return await anyio.to_thread.run_sync(work, *given, limiter=self._threads)
        finally:
            self._num_in_threads -= 1


_ENCODE_UTF_8 = (
    "write a letter such as ö as its bytes in UTF-8, %C3%B6, and not as %F6. With curl in a terminal of UTF-8, use "
    "--get --data-urlencode 'city=Köln'; names of parameters and features are ASCII"
)


def parse_query(query: bytes) -> list[tuple[str, str]]:
    """Names and values of a query string. Raises Malformed if its encoding is broken."""
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
        reason = f"it is not UTF-8; {_ENCODE_UTF_8}" if isinstance(error, UnicodeError) else str(error)
        raise Malformed(f"The query string cannot be read: {reason}.") from None
