"""Micro-batches without a timer: questions that arrive in one turn of the event loop are one run of the graph.

The first question of a turn that follows a turn with one question is answered at once. All others wait for the end of
their turn, when everything that is ready has been read, and are answered together.

After a lone question, the loop polls for the next one for a moment before it sleeps. A core that rests between two
requests takes a seventh longer for each.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from service.models.answer import Answer
from service.models.forecaster import LoadedForecaster, Question

# How long the loop stays awake after a lone question: about the time that a local client takes to ask again.
AWAKE_SECONDS = 100e-6

# Takes the answer to a question, or the exception that the question raised.
Callback = Callable[[Answer | Exception], None]


@dataclass
class _Batch:
    """Questions to one version, and the callback of each."""

    questions: list[Question] = field(default_factory=list)
    callbacks: list[Callback] = field(default_factory=list)

    def run(self, forecaster: LoadedForecaster) -> None:
        """Answer every question; if the run fails, every callback gets its exception."""
        outcomes: Sequence[Answer | Exception]
        try:
            outcomes = forecaster.answer_each(self.questions)
        except Exception as error:  # noqa: BLE001 each callback gets it
            outcomes = [error] * len(self.callbacks)
        loop = asyncio.get_running_loop()
        for callback, outcome in zip(self.callbacks, outcomes, strict=True):
            loop.call_soon(callback, outcome)  # each in a call of its own: none can fail the others


class MicroBatches:
    """The questions of the current turn of one event loop, by the version that answered when each arrived."""

    def __init__(self) -> None:
        self._batches: dict[LoadedForecaster, _Batch] = {}
        self._num_arrived = 0
        self._is_shared = False
        self._awake_until = 0.0
        self._is_awake = False

    def ask(self, forecaster: LoadedForecaster, question: Question, callback: Callback) -> None:
        """Let this version answer, at once or at the end of the turn. `callback` is called once."""
        self._num_arrived += 1
        if self._num_arrived == 1:
            asyncio.get_running_loop().call_soon(self._end_turn)
            if not self._is_shared:
                callback(_answer(forecaster, question))
                return
        batch = self._batches.get(forecaster)
        if batch is None:
            batch = self._batches[forecaster] = _Batch()
        batch.questions.append(question)
        batch.callbacks.append(callback)

    async def answer(self, forecaster: LoadedForecaster, question: Question) -> Answer:
        """Awaitable version of `ask`. Raises as `LoadedForecaster.answer`."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.ask(forecaster, question, partial(_settle, future))
        return await future

    def _end_turn(self) -> None:
        self._is_shared, self._num_arrived = self._num_arrived > 1, 0
        batches, self._batches = self._batches, {}
        for forecaster, batch in batches.items():
            batch.run(forecaster)
        if not self._is_shared:
            self._awake_until = time.perf_counter() + AWAKE_SECONDS
            if not self._is_awake:
                self._stay_awake()

    def _stay_awake(self) -> None:
        """Reschedule this call until the time is up: a loop does not sleep while a call is due."""
        self._is_awake = time.perf_counter() < self._awake_until
        if self._is_awake:
            asyncio.get_running_loop().call_soon(self._stay_awake)


def _answer(forecaster: LoadedForecaster, question: Question) -> Answer | Exception:
    try:
        return forecaster.answer(question)
    except Exception as error:  # noqa: BLE001 the callback gets it
        return error


def _settle(future: "asyncio.Future[Answer]", outcome: Answer | Exception) -> None:
    """Set the result of a future, unless its client has left."""
    if future.done():
        return
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
