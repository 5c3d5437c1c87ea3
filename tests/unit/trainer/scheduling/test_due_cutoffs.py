"""Which cutoff is asked for, and when a failed one is asked for again."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from contracts.clock import MICROSECOND, to_micros
from contracts.failure import LEASE_EXPIRED, REGISTRY_UNREACHABLE, STOPPED, Failure, FailureCode
from store.cycles.ledger import Cycle, State
from tests.unit.tiny_events import task
from trainer.scheduling.due_cutoffs import QUIET, due_cutoff, import_span, retry_pause

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
CUTOFF = to_micros(NOON)
HOUR = timedelta(hours=1)
PAUSE = timedelta(seconds=30)
POISON = Failure(FailureCode.CYCLE_ERROR, "poison")


def cycle(
    state: State, failure: Failure | None = None, *, cutoff: int = CUTOFF, attempt: int = 1, requested: datetime = NOON
) -> Cycle:
    ended = None if state in ("requested", "running") else NOON
    code, reason = (None, None) if failure is None else (failure.code, failure.reason)
    return Cycle(
        1,
        1,
        cutoff,
        attempt,
        state,
        None,
        None,
        None,
        None,
        None,
        reason,
        None,
        requested,
        None,
        ended,
        None,
        None,
        code,
    )


def due(
    cycles: list[Cycle],
    now: datetime,
    *,
    schedule: str = "window",
    has_registry: bool = True,
    newest: Callable[[datetime], int | None] = to_micros,
    received: Callable[[int, int], datetime | None] = lambda *_: None,
) -> int | None:
    """The due cutoff of a task whose newest event is of now, or as `newest` says."""
    spec, newest_event = task(schedule=schedule), newest(now)
    span = None if newest_event is None else import_span(spec, cycles, now, newest_event)
    return due_cutoff(
        spec,
        cycles,
        now,
        max_attempts=3,
        pause=PAUSE,
        has_registry=lambda: has_registry,
        newest_event=newest_event,
        last_received=None if span is None else received(*span),
    )


def test_a_scheduled_task_is_due_at_its_newest_boundary_only() -> None:
    assert due([], NOON + timedelta(minutes=59)) == CUTOFF
    assert due([cycle("released")], NOON + timedelta(minutes=59)) is None
    after_downtime = NOON + 5 * HOUR + timedelta(minutes=1)
    assert due([cycle("released")], after_downtime) == to_micros(NOON + 5 * HOUR)


@pytest.mark.parametrize("state", ["requested", "running", "released", "held", "skipped"])
def test_a_cutoff_that_is_under_way_or_decided_is_not_asked_for_again(state: State) -> None:
    assert due([cycle(state)], NOON + timedelta(minutes=30)) is None


@pytest.mark.parametrize("window", ["PT1H", "P1D"])
@pytest.mark.parametrize("change", [datetime(2026, 3, 29, tzinfo=UTC), datetime(2026, 10, 25, tzinfo=UTC)])
def test_the_windows_around_a_change_of_summer_time_are_ordinary_windows(window: str, change: datetime) -> None:
    spec = task(window=window)
    asked: list[int] = []
    for minute in range(0, 3 * 24 * 60, 10):
        now = change - timedelta(days=1) + timedelta(minutes=minute)
        past = [cycle("released", cutoff=cutoff) for cutoff in reversed(asked)]
        found = due_cutoff(
            spec,
            past,
            now,
            max_attempts=3,
            pause=PAUSE,
            has_registry=lambda: True,
            newest_event=to_micros(now),
            last_received=None,
        )
        asked += [] if found is None else [found]
    steps = {later - earlier for earlier, later in pairwise(asked)}
    assert steps == {spec.window // MICROSECOND}
    assert len(asked) == timedelta(days=3) / spec.window


def test_a_manual_task_is_never_due_by_the_clock() -> None:
    assert due([], NOON, schedule="manual") is None
    assert due([cycle("released")], NOON + 5 * HOUR, schedule="manual") is None


def test_a_failed_fit_of_a_scheduled_task_is_tried_again_after_pauses_that_double() -> None:
    assert due([cycle("failed", POISON)], NOON + timedelta(seconds=29)) is None
    assert due([cycle("failed", POISON)], NOON + timedelta(seconds=30)) == CUTOFF
    twice = [cycle("failed", POISON, attempt=2), cycle("failed", POISON)]
    assert due(twice, NOON + timedelta(seconds=59)) is None
    assert due(twice, NOON + timedelta(seconds=60)) == CUTOFF
    assert due([cycle("failed", POISON, attempt=3), *twice], NOON + timedelta(minutes=50)) is None


@pytest.mark.parametrize("failure", [STOPPED, LEASE_EXPIRED, REGISTRY_UNREACHABLE])
def test_an_interrupted_fit_of_a_manual_task_is_tried_again(failure: Failure) -> None:
    assert due([cycle("failed", failure)], NOON + timedelta(minutes=1), schedule="manual") == CUTOFF


@pytest.mark.parametrize("failure", [STOPPED, LEASE_EXPIRED, REGISTRY_UNREACHABLE])
@pytest.mark.parametrize("newest", ["held", "skipped", "running", "requested"])
@pytest.mark.parametrize(
    ("schedule", "requested", "is_tried"),
    [("manual", NOON, True), ("window", NOON, True), ("window", NOON - 2 * HOUR, False)],
)
def test_an_interrupted_older_cutoff_is_tried_again_where_it_was_asked_for_on_purpose(
    failure: Failure, newest: State, schedule: str, requested: datetime, is_tried: bool
) -> None:
    older = to_micros(NOON - 2 * HOUR)
    interrupted = cycle("failed", failure, cutoff=older, requested=requested)
    again = cycle("failed", failure, cutoff=older, attempt=2)
    for past in ([interrupted], [again, interrupted]):
        found = due([cycle(newest), *past], NOON + timedelta(minutes=1), schedule=schedule)
        assert found == (older if is_tried else None)
    assert due([cycle("released"), interrupted], NOON + timedelta(minutes=1), schedule=schedule) is None
    failed = cycle("failed", POISON, cutoff=older, requested=requested)
    assert due([cycle(newest), failed], NOON + timedelta(minutes=1), schedule=schedule) is None


def test_a_manual_fit_that_failed_by_itself_stays_failed() -> None:
    assert due([cycle("failed", POISON)], NOON + timedelta(minutes=1), schedule="manual") is None


def test_a_finished_fit_waits_for_the_registry_however_long_it_is_away() -> None:
    waiting = [cycle("failed", REGISTRY_UNREACHABLE, attempt=k) for k in range(9, 0, -1)]
    later = NOON + timedelta(minutes=20)
    assert due(waiting, later, has_registry=False) is None
    assert due(waiting, later, has_registry=True) == CUTOFF


def test_stops_that_somebody_asked_for_do_not_use_up_the_attempts() -> None:
    stopped = [cycle("failed", STOPPED, attempt=k) for k in range(9, 0, -1)]
    assert due(stopped, NOON + timedelta(minutes=20)) == CUTOFF


def test_pauses_are_bounded() -> None:
    assert [retry_pause(k, PAUSE).total_seconds() for k in (1, 2, 3, 1000)] == [30, 60, 120, 900]


def test_a_scheduled_task_waits_for_its_first_events() -> None:
    assert due([], NOON + 5 * HOUR, newest=lambda _: None) is None
    assert due([], NOON + 5 * HOUR) == to_micros(NOON + 5 * HOUR)


def test_where_no_horizon_reaches_from_the_newest_events_to_now_the_end_of_these_events_is_due_once() -> None:
    ended = to_micros(NOON - timedelta(minutes=1))
    longest = task().guard.max_age * HOUR
    for later, cutoff in ((longest - HOUR, NOON + longest - HOUR), (longest, NOON), (1000 * longest, NOON)):
        assert due([], NOON + later, newest=lambda _: ended) == to_micros(cutoff)
    assert due([cycle("released")], NOON + 1000 * longest, newest=lambda _: ended) is None
    assert due([cycle("held")], NOON + 1000 * longest, newest=lambda _: ended) is None


def test_a_file_that_is_being_imported_is_waited_for() -> None:
    now = NOON + 1000 * HOUR
    ended = to_micros(NOON - timedelta(minutes=1))
    asked: list[tuple[int, int]] = []

    def received(ago: timedelta) -> Callable[[int, int], datetime]:
        def find_last_received(start: int, end: int) -> datetime:
            asked.append((start, end))
            return now - ago

        return find_last_received

    assert due([], now, newest=lambda _: ended, received=received(QUIET / 2)) is None
    assert due([], now, newest=lambda _: ended, received=received(QUIET)) == to_micros(NOON)
    older = cycle("released", cutoff=to_micros(NOON - HOUR))
    assert due([older], now, newest=lambda _: ended, received=received(QUIET / 2)) is None
    # Of a stream that reaches the present, a window that lies beyond any horizon tells whether a file is under way.
    assert due([], now, received=received(QUIET / 2)) is None
    assert due([older], now, received=received(QUIET / 2)) == to_micros(now)
    hour = HOUR // timedelta(microseconds=1)
    beyond = to_micros(now) - (task().guard.max_age + 1) * hour
    assert asked == 3 * [(to_micros(NOON) - hour, to_micros(NOON))] + [(beyond, beyond + hour)]


@pytest.mark.parametrize("schedule", ["manual", "window"])
def test_an_interrupted_attempt_to_replace_a_release_is_tried_again(schedule: str) -> None:
    again = [cycle("failed", LEASE_EXPIRED, attempt=2), cycle("released")]
    assert due(again, NOON + timedelta(minutes=1), schedule=schedule) == CUTOFF
    assert due([cycle("released", attempt=3), *again], NOON + timedelta(minutes=9), schedule=schedule) is None
    older = cycle("failed", LEASE_EXPIRED, cutoff=to_micros(NOON - HOUR))
    assert due([cycle("held", attempt=2), cycle("released"), older], NOON + timedelta(minutes=9)) is None
