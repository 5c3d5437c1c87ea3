"""The schedule's law: where the status does not warn, no moment between two releases is without a valid version."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from contracts.clock import from_micros, to_micros
from contracts.task import Task
from service.advice.task_warnings import warn_of_gaps
from store.cycles.ledger import Cycle, State
from tests.unit.tiny_events import task
from trainer.scheduling.due_cutoffs import due_cutoff

START = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
NUM_CYCLES = 50


@dataclass(frozen=True)
class Released:
    """A version as the schedule sees it."""

    at: datetime
    cutoff: datetime


def simulate(spec: Task, durations: Sequence[timedelta]) -> list[Released]:
    """A trainer that starts at a boundary and looks without pause; its cycles take `durations` and are all released."""
    now = ends = from_micros(spec.clock.window_start(to_micros(START)))
    newest, cutoff, running, left = 0, 0, False, list(durations)
    found: list[Released] = []
    while left or running:
        if running and now == ends:
            running = False
            found.append(Released(now, from_micros(cutoff)))
        past = [_cycle(newest, "requested" if newest > cutoff else "released")] if newest else []
        due = due_cutoff(
            spec,
            past,
            now,
            max_attempts=3,
            pause=HOUR,
            has_registry=lambda: True,
            newest_event=to_micros(now),
            last_received=None,
        )
        newest = newest if due is None else due
        if not running and left and newest > cutoff:
            cutoff, running, ends = newest, True, now + left.pop(0)
        boundary = from_micros(spec.clock.window_start(to_micros(now))) + spec.window
        now = min(ends, boundary) if running else boundary
    return found


def _cycle(cutoff: int, state: State) -> Cycle:
    return Cycle(1, 1, cutoff, 1, state, None, None, None, None, None, None, None, START, None, None)


def gaps(spec: Task, horizon: int, durations: Sequence[timedelta]) -> list[timedelta]:
    """How long nothing was valid before each release but the first, where that is longer than nothing."""
    versions = simulate(spec, durations)
    waits = [later.at - (former.cutoff + horizon * spec.window) for former, later in pairwise(versions)]
    return [wait for wait in waits if wait > timedelta(0)]


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_every_window_is_trained_once_where_a_cycle_is_no_longer_than_it(share: float) -> None:
    versions = simulate(task(), [share * HOUR] * NUM_CYCLES)
    assert [version.cutoff for version in versions] == [START + k * HOUR for k in range(NUM_CYCLES)]
    assert {version.at - version.cutoff for version in versions} == {share * HOUR}


def test_where_cycles_are_longer_than_windows_only_the_newest_cutoff_is_trained_next() -> None:
    versions = simulate(task(), [2.5 * HOUR] * 4)
    assert [version.cutoff - START for version in versions] == [0 * HOUR, 2 * HOUR, 5 * HOUR, 7 * HOUR]


@given(
    window=st.timedeltas(timedelta(minutes=1), timedelta(days=365)),
    delay=st.floats(0, 3),
    limit=st.floats(0.001, 2.5),
    horizon=st.integers(1, 12),
    shares=st.lists(st.floats(0.01, 1), min_size=NUM_CYCLES, max_size=NUM_CYCLES),
)
@example(window=HOUR, delay=0.0, limit=1.0, horizon=2, shares=[1.0] * NUM_CYCLES)
@example(window=HOUR, delay=0.5, limit=0.5, horizon=2, shares=[1.0] * NUM_CYCLES)
@example(window=HOUR, delay=0.0, limit=1.9, horizon=3, shares=[1.0] * NUM_CYCLES)
@example(window=HOUR, delay=0.0, limit=1.02, horizon=4, shares=[1.0] * NUM_CYCLES)
def test_without_a_warning_no_moment_is_without_a_valid_version(
    window: timedelta, delay: float, limit: float, horizon: int, shares: list[float]
) -> None:
    """`delay` and `limit` in windows; each cycle takes its share of the limit."""
    spec = task(window=window, label_delay=delay * window)
    cycle_limit = limit * window
    assume(not warn_of_gaps(spec, cycle_limit, horizon))
    assert gaps(spec, horizon, [share * cycle_limit for share in shares]) == []


@given(window=st.timedeltas(timedelta(minutes=1), timedelta(days=365)), share=st.floats(0.01, 1))
def test_a_horizon_of_one_window_leaves_a_gap_before_every_release(window: timedelta, share: float) -> None:
    spec = task(window=window)
    assert warn_of_gaps(spec, share * window, 1)
    found = gaps(spec, 1, [share * window] * NUM_CYCLES)
    assert len(found) == NUM_CYCLES - 1
    assert set(found) == {share * window}


def test_a_cycle_limit_beyond_the_window_is_warned_of_for_what_it_does() -> None:
    """A version waits for the end of the running cycle and then for its own: two limits, and up to one window."""
    spec, limit = task(), 1.5 * HOUR
    assert warn_of_gaps(spec, limit, 3)
    assert gaps(spec, 3, [limit] * NUM_CYCLES)
    assert warn_of_gaps(spec, limit, 4) == []
    assert gaps(spec, 4, [limit] * NUM_CYCLES) == []
