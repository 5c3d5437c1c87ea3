"""Questions of one turn of the loop are one run of the graph, each with its own answer, version and refusal."""

import asyncio
import selectors
from pathlib import Path
from typing import Any

import pytest

from contracts.errors import OutsideHorizon
from service.models.answer import Answer
from service.models.forecaster import LoadedForecaster, Question
from service.models.loader import load_forecaster
from service.predict.batching import MicroBatches
from service.validation.options import Options
from service.validation.question_decoder import Row
from tests.integration.artefacts import CUTOFF, WEEK, write_version

NUM_QUESTIONS = 40


class Counted:
    """A session that counts its runs."""

    def __init__(self, session: Any) -> None:
        self.session, self.sizes = session, list[int]()

    def run(self, names: Any, feed: Any) -> Any:
        self.sizes.append(len(feed["at"]))
        return self.session.run(names, feed)


class Watched(selectors.DefaultSelector):
    """What a loop waits with; it counts how often the loop only glanced at it."""

    num_glances = 0

    def select(self, timeout: float | None = None) -> Any:
        self.num_glances += timeout == 0
        return super().select(timeout)


@pytest.fixture
def forecaster(tmp_path: Path) -> LoadedForecaster:
    folder = write_version(tmp_path / "7", task="flights")
    found = load_forecaster(folder, "flights", "7", threads=1)
    object.__setattr__(found, "session", Counted(found.session))
    return found


def question(place: int, at: int = CUTOFF + WEEK, coverage: float | None = None) -> Question:
    return Question(Row(at, (float(place), 0.0), ("UA",)), at, Options(coverage))


async def ask(
    batches: MicroBatches, forecaster: LoadedForecaster, questions: list[Question]
) -> list[Answer | BaseException]:
    return await asyncio.gather(*(batches.answer(forecaster, one) for one in questions), return_exceptions=True)


def test_a_busy_turn_is_one_run_and_answers_as_alone(forecaster: LoadedForecaster) -> None:
    questions = [question(place) for place in range(NUM_QUESTIONS)]

    async def main() -> list[Answer | BaseException]:
        batches = MicroBatches()
        await ask(batches, forecaster, questions)  # shows that turns are shared
        forecaster.session.sizes.clear()
        return await ask(batches, forecaster, questions)

    together = asyncio.run(main())
    assert forecaster.session.sizes == [NUM_QUESTIONS]
    alone = [forecaster.answer(one) for one in questions]
    for ours, theirs in zip(together, alone, strict=True):
        assert isinstance(ours, Answer)
        assert isinstance(ours.probabilities, dict)
        assert ours.probabilities == pytest.approx(theirs.probabilities, abs=1e-6)


def test_a_lonely_question_is_answered_within_its_turn(forecaster: LoadedForecaster) -> None:
    async def main() -> None:
        batches = MicroBatches()
        for place in range(5):
            await batches.answer(forecaster, question(place))
            await asyncio.sleep(0)

    asyncio.run(main())
    assert forecaster.session.sizes == [1] * 5


@pytest.mark.parametrize("num_questions", [1, 2])
def test_the_loop_stays_awake_for_a_moment_after_a_question_alone(
    forecaster: LoadedForecaster, monkeypatch: pytest.MonkeyPatch, num_questions: int
) -> None:
    monkeypatch.setattr("service.predict.batching.AWAKE_SECONDS", 0.2)
    selector = Watched()

    async def main() -> list[int]:
        batches = MicroBatches()
        for turn in range(2):
            await ask(batches, forecaster, [question(turn)] * num_questions)
            await asyncio.sleep(0)  # the turn of the questions has ended
        glances = []
        for seconds in (0.5, 0.1):
            selector.num_glances = 0
            await asyncio.sleep(seconds)
            glances.append(selector.num_glances)
        return glances

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        soon, later = runner.run(main())
    assert (soon > 20) is (num_questions == 1)
    assert later < 5


def test_one_refusal_refuses_no_other(forecaster: LoadedForecaster) -> None:
    questions = [question(0), question(1, at=CUTOFF + 50 * WEEK), question(2, at=1), question(3)]

    async def main() -> list[Answer | BaseException]:
        batches = MicroBatches()
        await ask(batches, forecaster, questions)
        return await ask(batches, forecaster, questions)

    answers = asyncio.run(main())
    assert [isinstance(answer, OutsideHorizon) for answer in answers] == [False, True, True, False]
    assert [isinstance(answer, Answer) for answer in answers] == [True, False, False, True]


def test_a_client_that_leaves_takes_no_answer_along(forecaster: LoadedForecaster) -> None:
    async def main() -> Answer:
        batches = MicroBatches()
        await ask(batches, forecaster, [question(0), question(1)])
        left = asyncio.create_task(batches.answer(forecaster, question(2)))
        stays = asyncio.create_task(batches.answer(forecaster, question(3)))
        await asyncio.sleep(0)
        left.cancel()
        return await stays

    assert isinstance(asyncio.run(main()), Answer)


def test_a_graph_that_fails_fails_all_that_wait(forecaster: LoadedForecaster) -> None:
    class Broken:
        def run(self, _names: Any, _feed: Any) -> Any:
            raise RuntimeError("out of memory")

    async def main() -> list[Answer | BaseException]:
        batches = MicroBatches()
        await ask(batches, forecaster, [question(0), question(1)])
        object.__setattr__(forecaster, "session", Broken())
        return await asyncio.wait_for(ask(batches, forecaster, [question(0), question(1)]), 10)

    assert all(isinstance(answer, RuntimeError) for answer in asyncio.run(main()))


def test_a_question_stands_alone_where_it_is_the_first_of_its_turn_after_a_turn_of_one(
    forecaster: LoadedForecaster,
) -> None:
    told: list[Answer | Exception] = []

    def ask_at_once(batches: MicroBatches, count: int) -> int:
        """How many of these questions are answered where they stand."""
        told.clear()
        for place in range(count):
            batches.ask(forecaster, question(place), told.append)
        return len(told)

    async def main() -> None:
        batches = MicroBatches()
        for count, num_at_once in ((2, 1), (1, 0), (1, 1), (3, 1), (3, 0), (1, 0)):
            assert ask_at_once(batches, count) == num_at_once
            await asyncio.sleep(0.01)
            assert len(told) == count

    asyncio.run(main())
    assert forecaster.session.sizes == [1, 1, 1, 1, 1, 2, 3, 1]


def test_who_fails_to_take_an_answer_keeps_none_from_the_others(forecaster: LoadedForecaster) -> None:
    told: list[Answer | Exception] = []

    def fail(_answer: Answer | Exception) -> None:
        raise RuntimeError("hung up")

    async def main() -> list[str]:
        failed: list[str] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _loop, context: failed.append(str(context["exception"]))
        )
        batches = MicroBatches()
        for take in (told.append, fail, told.append):
            batches.ask(forecaster, question(0), take)
        await asyncio.sleep(0.01)
        return failed

    assert asyncio.run(main()) == ["hung up"]
    assert [type(answer) for answer in told] == [Answer, Answer]
