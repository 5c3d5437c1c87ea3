"""The one step that a task's page recommends, before a version answers."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from contracts.clock import to_micros
from contracts.quality.remedies import advise_model
from contracts.quality.skill import ComparedError, compare_errors, score
from contracts.task import Task
from contracts.verdict import LimitCheck, decode_verdict
from service.advice.import_options import ImportOptions
from service.advice.label_doubts import FormerPromise, LabelDoubts, warn_of_jump
from service.advice.last_import import LastImport
from service.advice.next_step import NextStep, Situation, find_next_step, knows_all_events, settle_verdict
from service.models.forecaster import Forecaster
from service.models.task_states.task_state import RecentAttempt, RegistryState, TaskState
from store.cycles.ledger import Cycle
from store.releases import Release

NOW = datetime(2026, 2, 1, tzinfo=UTC)
CUTOFF = to_micros(datetime(2026, 1, 31, tzinfo=UTC))
TASK = Task.model_validate(
    {
        "name": "flights",
        "features": [{"name": "distance", "kind": "number"}],
        "target": {"name": "outcome", "kind": "classification"},
        "window": "P1D",
    }
)
NEW = TaskState(
    defined_at=NOW, champion=None, version=None, released=None, bound=None, recent=(), judged=None, realised=()
)
FED = replace(NEW, newest=CUTOFF)


def step(task_state: TaskState, *held: Cycle, **found: Any) -> NextStep:
    given: dict[str, Any] = {"registry": RegistryState(), "skill": None, "forecaster": None} | found
    return find_next_step(
        Situation(task=TASK, task_state=task_state, held=held, now=NOW, cycle_limit=timedelta(hours=1), **given)
    )


def held(**verdict: Any) -> Cycle:
    return Cycle(5, 1, CUTOFF, 1, "held", None, None, None, None, 10, "why", decode_verdict(verdict), NOW, NOW, NOW)


def test_a_task_without_events_needs_some() -> None:
    assert step(NEW).command == "morrow events import flights FILE"


def test_an_import_that_is_advised_repeats_the_options_of_the_last_one() -> None:
    options = ImportOptions(columns={"at": "Zeitpunkt"}, timezone="Europe/Berlin")
    found = step(replace(FED, awaited=3), last_import=LastImport(options))
    assert found.command == "morrow events import flights FILE --map at=Zeitpunkt --timezone Europe/Berlin"
    assert "options" not in found.text
    unknown = step(replace(FED, awaited=3), last_import=LastImport(None))
    assert unknown.command == "morrow events import flights FILE"
    assert "use the options of the last one" in unknown.text


def test_a_paused_task_is_resumed_first() -> None:
    assert step(NEW, lifecycle="paused").command == "morrow task resume flights"


def test_a_task_with_too_few_windows_needs_earlier_ones() -> None:
    found = step(replace(FED, awaited=3))
    assert "3 windows with events are still needed" in found.text
    assert found.command == "morrow events import flights FILE"


def test_a_task_with_enough_events_is_retrained() -> None:
    assert (step(FED).command, step(FED).action) == ("morrow cycle flights", "retrain")


def test_a_cycle_under_way_is_waited_for() -> None:
    found = step(replace(FED, recent=(RecentAttempt(CUTOFF, "running", None),)))
    assert found.text.startswith("Wait")
    assert found.command is None


def test_a_cycle_that_failed_is_read_before_the_next() -> None:
    found = step(replace(FED, recent=(RecentAttempt(CUTOFF, "failed", "no memory"),)))
    assert "why the last cycle failed" in found.text
    assert found.action == "retrain"


def test_a_held_candidate_that_an_admin_may_release_is_offered() -> None:
    found = step(replace(FED, recent=(RecentAttempt(CUTOFF, "held", "suspect"),)), held())
    assert found.action == "release-held"
    assert found.command is not None
    assert found.command.startswith("morrow override flights --cycle 5")


def test_a_candidate_held_for_its_errors_leads_to_the_advice() -> None:
    naive = ComparedError(method="naive", num_windows=9, error=0.5, ours=0.6, skill=score(0.6, 0.5))
    skill = advise_model(TASK, compare_errors("log_loss", naive, []))
    found = step(replace(FED, recent=(RecentAttempt(CUTOFF, "held", "does not beat naive"),)), skill=skill)
    assert found.text == "Let the trainer choose a better recipe: set training.tune = true in the task's file."
    assert found.command == "morrow task apply FILE.toml && morrow cycle flights"


def test_a_verdict_that_is_too_early_is_settled_by_a_backtest_if_the_past_holds_enough() -> None:
    found = settle_verdict(TASK, 7, 39)
    assert found is not None
    assert found.text.startswith("Settle the verdict: only 7 of the 8 windows needed are scored.")
    assert found.command == "morrow backtest flights --origins 26"
    assert settle_verdict(TASK, 3, 9) is None


def test_a_released_version_that_cannot_be_loaded_is_looked_into() -> None:
    assert step(NEW, registry=RegistryState("degraded", "refused", "3")).command == "morrow doctor"


def test_a_version_that_knows_all_events_is_not_retrained_before_the_window_ends() -> None:
    boundary = to_micros(NOW)
    day = TASK.clock.window

    def knows(cutoff: int, state: str, newest: int) -> bool:
        return knows_all_events(TASK, replace(NEW, newest=newest, recent=(RecentAttempt(cutoff, state, None),)), NOW)

    assert knows(boundary, "released", boundary - 1)
    assert knows(boundary, "released", boundary + 5)
    assert not knows(boundary, "failed", boundary - 1)
    assert not knows(boundary - day, "released", boundary - 1)
    # The events ended long ago: the end of their window is as far as a cycle can know.
    past = boundary - 100 * day
    assert knows(past, "released", past - 1)
    assert not knows(past - day, "released", past - 1)
    assert not knows_all_events(TASK, NEW, NOW)
    # A cycle that somebody asked for as of a later boundary found no newer event either.
    recent = (RecentAttempt(boundary, "held", None), RecentAttempt(past, "released", None))
    assert knows_all_events(TASK, replace(NEW, newest=past - 1, recent=recent), NOW)
    assert not knows_all_events(TASK, replace(NEW, newest=past, recent=recent), NOW)


@pytest.mark.parametrize(("state", "text"), [("running", "Wait for the cycle"), ("released", "Nothing to do.")])
def test_a_valid_version_has_nothing_to_do_unless_a_cycle_is_under_way(*, state: Any, text: str) -> None:
    ends, day = to_micros(NOW + timedelta(days=9)), 86_400_000_000
    manifest = SimpleNamespace(num_rows=100, cutoff=CUTOFF, trained_from=CUTOFF - 9 * day, window=day, gaps=())
    served = SimpleNamespace(valid_until=ends, version="1", manifest=manifest)
    task_state = replace(FED, recent=(RecentAttempt(CUTOFF, state, None),))
    found = step(task_state, forecaster=cast("Forecaster", served))
    assert found.text.startswith(text)
    assert not found.is_needed


def closed_by(value: float) -> TaskState:
    check = LimitCheck(NOW - timedelta(days=2), 0, "log_loss", value, 1.231, 48)
    row = Release(7, "1", "close", CUTOFF, None, check, "guard", "above", NOW)
    return replace(FED, bound=row)


def closed_step(value: float, import_id: int | None = None) -> NextStep:
    served = cast("Forecaster", SimpleNamespace(valid_until=CUTOFF, manifest=SimpleNamespace(num_rows=100)))
    return step(closed_by(value), forecaster=served, doubts=LabelDoubts(import_id))


def test_labels_far_above_the_limit_are_checked_before_a_retraining_is_advised() -> None:
    found = closed_step(211.3, 3)
    assert found.text.startswith("Check the newest labels first: the error 211.3 on the window of 2026-01-30")
    assert "172 times its limit 1.231" in found.text
    assert "`morrow events retract flights --import 3`" in found.text
    assert found.text.index("retract") < found.text.index("morrow cycle flights")
    assert (found.action, found.command) == (None, "morrow events history flights")


def test_far_labels_that_no_import_brought_are_sent_again() -> None:
    assert "send the rows again under the same ids" in closed_step(211.3).text


def test_labels_a_little_above_the_limit_are_learned() -> None:
    found = closed_step(2.0, 3)
    assert (found.text, found.action) == ("Retrain on the labels that closed the horizon.", "retrain")


@pytest.mark.parametrize(("error", "is_warned"), [(28.1, True), (1.5, False)])
def test_a_version_that_expects_several_times_the_error_of_the_one_before_is_doubted(
    *, error: float, is_warned: bool
) -> None:
    served = SimpleNamespace(version="2", manifest=SimpleNamespace(ages=[SimpleNamespace(mean=error)]))
    warned = warn_of_jump("load", cast("Forecaster", served), FormerPromise("1", 1.054))
    assert bool(warned) is is_warned
    if is_warned:
        assert warned[0].startswith("version 2 expects an error of 28.1, 26.7 times the 1.054 of version 1")
