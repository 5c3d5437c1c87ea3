"""Followers for tests, and what they answer."""

from collections.abc import Callable

from service.models.answer import Answer
from service.models.follower import Follower
from service.models.forecaster import Question
from service.validation.question_decoder import Row
from tests.integration.artefacts import CUTOFF

ROW = Row(CUTOFF, (1400.0, 3.5), ("UA",))
QUESTION = Question(ROW, CUTOFF)

MakeFollower = Callable[..., Follower]


def ask(follower: Follower, task: str, at: int = CUTOFF) -> Answer:
    """What a task's version says of one row."""
    return follower.find(task).answer(Question(Row(at, ROW.numbers, ROW.categories), at))
