"""What the page says about a task without a version: what is missing, and what to do."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from contracts.clock import to_micros
from contracts.task import Task
from contracts.verdict import Verdict, decode_verdict
from service.dashboard.summary import summarize
from service.models.task_states.task_state import RecentAttempt, RegistryState, TaskState

NOW = datetime(2026, 2, 1, tzinfo=UTC)
CUTOFF = to_micros(datetime(2026, 1, 31, tzinfo=UTC))
LIMIT = timedelta(hours=1)
NEW = TaskState(
    defined_at=NOW - timedelta(hours=1),
    champion=None,
    version=None,
    released=None,
    bound=None,
    recent=(),
    judged=None,
    realised=(),
)


def task(**changes: Any) -> Task:
    spec = {
        "name": "flights",
        "features": [{"name": "distance", "kind": "number"}],
        "target": {"name": "outcome", "kind": "classification"},
        "window": "P1D",
    }
    return Task.model_validate(spec | changes)


def said(
    task_state: TaskState | None,
    has_events: bool | None,
    *,
    of: Task | None = None,
    registry: RegistryState | None = None,
) -> list[str]:
    found = summarize(
        of or task(), None, task_state, registry or RegistryState(), has_events, now=NOW, cycle_limit=LIMIT
    )
    return [sentence.text for sentence in found]


def judged(**verdict: Any) -> Verdict:
    return decode_verdict(verdict)


def test_without_events_it_says_where_to_send_them() -> None:
    words = said(NEW, False)
    assert words[0] == "No version has been released yet, so nothing answers."
    assert "morrow events import flights FILE" in words[1]
    assert words[-1] == "The next cycle begins at 2026-02-02 00:00:00Z."


def test_an_event_that_is_dated_more_than_a_window_ahead_is_told() -> None:
    dated = [to_micros(NOW + timedelta(days=1)), to_micros(NOW + timedelta(days=1, seconds=1))]
    told = [[words for words in said(replace(NEW, newest=at), True) if "newest event" in words] for at in dated]
    assert told == [
        [],
        [
            "Note: the newest event is dated 2026-02-02T00:00:01Z, in the future: no fit reads it until then; if that "
            "is a mistake, find its id with morrow events list flights --from 2026-02-02T00:00:01Z, and correct it "
            "with morrow events correct flights FILE, or erase it with morrow events erase flights ID --reason "
            '"wrong date".'
        ],
    ]


def test_too_few_windows_are_counted_before_the_first_verdict_and_taken_from_it_after() -> None:
    needed = "more complete windows with events are needed before a first horizon can be judged."
    assert f"3 {needed}" in said(replace(NEW, awaited=3), True)
    assert not any("needed" in words for words in said(NEW, True))
    after = replace(NEW, judged=judged(missing_windows=2))
    assert f"2 {needed}" in said(after, True)
    last = replace(NEW, judged=judged(missing_windows=1))
    one = "1 more complete window with events is needed before a first horizon can be judged."
    assert one in said(last, True)


def test_how_the_last_cycle_ended_and_what_comes_next() -> None:
    ended = replace(NEW, recent=(RecentAttempt(CUTOFF, "skipped", "too few rows (12)"),))
    words = said(ended, True, of=task(schedule="manual"))
    assert "The cycle of 2026-01-31 00:00:00Z was skipped: too few rows (12)." in words
    assert words[-1] == "Cycles of this task run on request only."
    failed = tuple(RecentAttempt(CUTOFF, "failed", "It broke.") for _ in range(3))
    words = said(replace(NEW, recent=failed), True)
    assert "The cycle of 2026-01-31 00:00:00Z failed: It broke." in words
    assert "The last 3 cycles failed." in words
    running = replace(NEW, recent=(RecentAttempt(CUTOFF, "running", None),))
    assert said(running, None)[-1] == "The cycle of 2026-01-31 00:00:00Z is running."


def test_a_released_version_that_is_not_loaded_is_no_missing_release() -> None:
    degraded = RegistryState("degraded", "Version 3 was refused: its probe differs.", "3")
    words = said(NEW, None, registry=degraded)
    assert words[0].startswith("Version 3 is released, but this process cannot answer with it. Version 3 was refused")


def test_a_task_that_has_waited_too_long_says_so() -> None:
    waited = replace(NEW, defined_at=NOW - timedelta(days=5), newest=to_micros(NOW))
    words = said(waited, True)
    assert "No new version for too long: no cycle has been asked for since: is the trainer running?" in words
