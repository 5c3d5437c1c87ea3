"""As of which boundary a cycle is useful if nobody names one."""

from datetime import UTC, datetime, timedelta

import pytest

from contracts.clock import to_micros
from contracts.cutoffs import newest_cutoff, useful_cutoff
from tests.unit.tiny_events import HOUR, task

NOW = datetime(2026, 1, 1, 12, 30, tzinfo=UTC)
NOON = to_micros(NOW) - HOUR // 2


def test_a_stream_that_runs_is_trained_as_of_the_newest_boundary() -> None:
    assert newest_cutoff(task(), NOW) == NOON
    for newest in (None, NOON - 1, NOON, NOON - HOUR, NOON - 3 * HOUR, NOON + HOUR):
        assert useful_cutoff(task(), NOW, newest) == NOON


@pytest.mark.parametrize("num_empty", [3, 4, 725, 100_000])
def test_a_stream_that_ended_is_trained_as_of_its_end(num_empty: int) -> None:
    end = NOON - num_empty * HOUR
    for newest in (end - 1, end - HOUR):
        assert useful_cutoff(task(), NOW, newest) == end


def test_all_labels_of_the_last_events_are_due_at_the_cutoff() -> None:
    late = task(label_delay=timedelta(minutes=90))
    assert useful_cutoff(late, NOW, NOON - 20 * HOUR - 1) == NOON - 18 * HOUR
    # Three complete windows without events are needed, and the newest two are not complete yet.
    assert useful_cutoff(late, NOW, NOON - 4 * HOUR - 1) == NOON
    assert useful_cutoff(late, NOW, NOON - 5 * HOUR - 1) == NOON - 3 * HOUR
