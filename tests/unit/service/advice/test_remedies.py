"""Every warning and every next step names its remedy: a command, or a key with a value."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from contracts.quality.far_values import FarLabels
from contracts.quality.remedies import advise_model, suggest
from contracts.quality.skill import ComparedError, Skill, compare_errors, score
from contracts.task import Task
from contracts.verdict import AgeFigures
from service.advice.advice import advise
from service.advice.next_step import Situation
from service.advice.row_warnings import RowWarnings, warn_of_far_rows, warn_of_rows
from service.advice.task_warnings import warn_of_early_end, warn_of_fit, warn_of_gaps, warn_of_kinds
from service.models.task_states.task_state import RegistryState, TaskState
from store.events.far_rows import FarEvents, FarRows
from store.events.sample import Sample

NOW = datetime(2026, 2, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
# A command of ours, or a key of a task's file or of a setting with its value or a direction.
REMEDY = re.compile(r"morrow \w+|MORROW_\w+|\b[a-z_.]+ = \S|(above|smaller|larger|more) [a-z]+\.?[a-z_]+")


def a_task(*features: dict[str, Any], **changes: Any) -> Task:
    spec: dict[str, Any] = {
        "name": "bikes",
        "features": list(features) or [{"name": "hour", "kind": "number"}],
        "target": {"name": "rented", "kind": "regression"},
        "window": "P7D",
    }
    return Task.model_validate(spec | changes)


def a_skill(ours: float, naive: float, **rivals: float) -> Skill:
    def compare(method: str, error: float) -> ComparedError:
        return ComparedError(method=method, num_windows=20, error=error, ours=ours, skill=score(ours, error))

    return compare_errors("mae", compare("naive", naive), [compare(*rival) for rival in rivals.items()])


def of_rows() -> list[str]:
    texts = {"name": "place", "kind": "category"}
    classes = a_task(texts, target={"name": "rented", "kind": "classification"})
    sample = Sample(["yes", "Yes", "nan"], [()] * 3, [("North",), ("north",), ("null",)])
    codes = Sample([str(k % 5) for k in range(200)], [(float(k % 3),) for k in range(200)], [()] * 200)
    return [*warn_of_rows(classes, sample), *warn_of_rows(a_task(), codes)]


def of_far_rows() -> list[str]:
    events, labels = FarEvents(2, ("a", "b"), 0, 10**15), FarLabels(3, 200, (-9999.0,), 0.0, 50.0)
    return warn_of_far_rows(a_task(), FarRows(events, events, labels))


def of_ages() -> list[str | None]:
    grown = AgeFigures(1, mean=0.3, naive=0.4, increase=0.2, allowed=0.1, reason="grows")
    no_better, large = AgeFigures(0, mean=0.5, naive=0.4, reason="naive"), AgeFigures(0, mean=0.5, reason="limit")
    return [suggest(grown, 0.1, None), suggest(no_better, None, None), suggest(large, None, 0.3)]


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(of_rows(), id="rows"),
        pytest.param(of_far_rows(), id="far rows"),
        pytest.param(of_ages(), id="ages"),
        pytest.param(warn_of_gaps(a_task(guard={"max_age": 1}), HOUR), id="gaps"),
        pytest.param(warn_of_gaps(a_task(), timedelta(days=8), 1), id="gaps of a version"),
        pytest.param(warn_of_fit(a_task().training, 100, 100), id="fit"),
        pytest.param(warn_of_early_end(a_task().training, 9_000, 100, 0.2), id="early end"),
        pytest.param(warn_of_kinds(a_task(), a_task({"name": "hour", "kind": "category"})), id="kinds"),
        pytest.param(advise_model(a_task(), a_skill(0.6, 0.5, base_time=0.3)).advice, id="a rival to train"),
        pytest.param(advise_model(a_task(), a_skill(0.6, 0.5, gbdt=0.3)).advice, id="a rival that is never served"),
    ],
)
def test_a_remedy_is_a_command_or_a_key_with_a_value(said: Sequence[str | None]) -> None:
    assert said
    for sentence in said:
        assert sentence is not None
        assert REMEDY.search(sentence), sentence


def test_warnings_skill_and_next_step_of_a_task_are_decided_together() -> None:
    fed = TaskState(
        defined_at=NOW, champion=None, version=None, released=None, bound=None, recent=(), judged=None, realised=()
    )
    situation = Situation(
        task=a_task(),
        forecaster=None,
        task_state=fed,
        registry=RegistryState(),
        skill=a_skill(0.6, 0.5),
        held=(),
        now=NOW,
        cycle_limit=HOUR,
    )
    rows = RowWarnings(['set kind = "integer"'], ["correct them with morrow events correct bikes"])
    advice = advise(situation, rows)
    assert advice.warnings == [*rows.mistakes, *rows.far]
    assert advice.skill is not None
    assert advice.skill.advice[0] == rows.mistakes[0]
    assert advice.next_step.command == "morrow events import bikes FILE"
