"""Micro-batches without a timer: questions that arrive in one turn of the event loop are one run of the graph.

A question that comes first in its turn, after a turn of one, is answered at once, where it stands. All others wait for
the end of their turn, when all that is ready has been read, and are answered together.

After a question alone the loop looks for the next one a moment longer before it sleeps: a core that rests between two
requests takes a seventh longer for each.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from service.models.answer import Answer
from service.models.model import Forecaster, Question

# How long the loop stays awake after a question alone: about as long as a client on this machine takes to ask again.
AWAKE_SECONDS = 100e-6

# Takes the answer of a question, or what went wrong.
Told = Callable[[Answer | Exception], None]


@dataclass
class _Waiting:
    """Questions to one version, and who is to be told of each."""

    questions: list[Question] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)

    def end(self, forecaster: Forecaster) -> None:
        """Tell the answers, or to all what went wrong for all."""
        answers: Sequence[Answer | Exception]
        try:
            answers = forecaster.answer_each(self.questions)
        except Exception as error:  # noqa: BLE001 each of them is told
            answers = [error] * len(self.told)
        loop = asyncio.get_running_loop()
        for told, answer in zip(self.told, answers, strict=True):
            loop.call_soon(told, answer)  # each in a call of its own: none can fail the others


class Batches:
    """The questions of the present turn of one event loop, by the version that each found when it came."""

    def __init__(self) -> None:
        self._waiting: dict[Forecaster, _Waiting] = {}
        self._num_arrived = 0
        self._is_shared = False
        self._awake_until = 0.0
        self._is_awake = False

    def ask(self, forecaster: Forecaster, question: Question, told: Told) -> None:
        """Have this very version answer: at once, or at the end of the turn. `told` is called once."""
        self._num_arrived += 1
        if self._num_arrived == 1:
            asyncio.get_running_loop().call_soon(self._end_turn)
            if not self._is_shared:
                told(_answer(forecaster, question))
                return
        waiting = self._waiting.get(forecaster)
        if waiting is None:
            waiting = self._waiting[forecaster] = _Waiting()
        waiting.questions.append(question)
        waiting.told.append(told)

    async def answer(self, forecaster: Forecaster, question: Question) -> Answer:
        """The same for who can wait. Raises as `Forecaster.answer`."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.ask(forecaster, question, partial(_settle, future))
        return await future

    def _end_turn(self) -> None:
        self._is_shared, self._num_arrived = self._num_arrived > 1, 0
        turn, self._waiting = self._waiting, {}
        for forecaster, waiting in turn.items():
            waiting.end(forecaster)
        if not self._is_shared:
            self._awake_until = time.perf_counter() + AWAKE_SECONDS
            if not self._is_awake:
                self._stay_awake()

    def _stay_awake(self) -> None:
        """A loop does not sleep while there is something to call."""
        self._is_awake = time.perf_counter() < self._awake_until
        if self._is_awake:
            asyncio.get_running_loop().call_soon(self._stay_awake)


def _answer(forecaster: Forecaster, question: Question) -> Answer | Exception:
    try:
        return forecaster.answer(question)
    except Exception as error:  # noqa: BLE001 who asked is told
        return error


def _settle(future: "asyncio.Future[Answer]", answer: Answer | Exception) -> None:
    """Hand over an answer; a client that has left gets none."""
    if future.done():
        return
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)
