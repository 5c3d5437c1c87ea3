"""Micro-batches without a timer: questions that arrive in one turn of the event loop are one run of the graph.

While each turn brings one question only, it is answered at once, where it stands. When a turn has brought more, those
of the next turns wait for its end, when all that is ready has been read, and are answered together.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from service.answers import Answer
from service.forecaster import Forecaster, Question


@dataclass
class _Waiting:
    """Questions to one version, and who waits for each."""

    questions: list[Question] = field(default_factory=list)
    futures: list["asyncio.Future[Answer]"] = field(default_factory=list)

    def end(self, forecaster: Forecaster) -> None:
        """Hand out the answers, or to all what went wrong for all; a client that has left gets none."""
        answers: Sequence[Answer | Exception]
        try:
            answers = forecaster.answer_each(self.questions)
        except Exception as error:  # noqa: BLE001 each of them raises it where it waits
            answers = [error] * len(self.futures)
        for future, answer in zip(self.futures, answers, strict=True):
            if future.done():
                continue
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)


class Batches:
    """The questions of the present turn of one event loop, by the version that each found when it came."""

    def __init__(self) -> None:
        self._waiting: dict[Forecaster, _Waiting] = {}
        self._num_arrived = 0
        self._is_shared = False

    def note(self) -> bool:
        """Count a question that has come; whether it stands alone: the first of its turn, after a turn of one."""
        self._num_arrived += 1
        if self._num_arrived == 1:
            asyncio.get_running_loop().call_soon(self._end_turn)
        return self._num_arrived == 1 and not self._is_shared

    async def answer(self, forecaster: Forecaster, question: Question) -> Answer:
        """The answer of this very version. Raises as `Forecaster.answer`."""
        self.note()  # once more where it was counted as it was read: that turn has ended
        if not self._is_shared:
            return forecaster.answer(question.row, question.now, question.options)
        waiting = self._waiting.get(forecaster)
        if waiting is None:
            waiting = self._waiting[forecaster] = _Waiting()
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        waiting.questions.append(question)
        waiting.futures.append(future)
        return await future

    def _end_turn(self) -> None:
        self._is_shared, self._num_arrived = self._num_arrived > 1, 0
        turn, self._waiting = self._waiting, {}
        for forecaster, waiting in turn.items():
            waiting.end(forecaster)
