"""What realised errors do to a version's bound: rows in, one change out. Window k begins k hours after the epoch."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.calibration import AgeQuantiles, Calibration
from contracts.clock import EPOCH, format_moment, from_micros
from contracts.verdict import LimitCheck, decode_row, to_json
from store.error_cells import Mark
from store.releases import Action, Release
from tests.unit.tiny_events import HOUR, task
from trainer.monitoring.horizon_guard import find_change, find_settled
from trainer.monitoring.promises import Change, read_promise
from trainer.monitoring.recalibration import differs

CUTOFF, HORIZON = 10, 4
LIMIT = 1.0
VERDICT: dict[str, Any] = {
    "cutoff": format_moment(CUTOFF * HOUR),
    "recipe": "r",
    "horizon": HORIZON,
    "error_name": "log_loss",
    "ages": [{"age": age, "limit": LIMIT} for age in range(HORIZON + 1)],
}


def row(action: Action, valid_until: int, at: int = 0, verdict: dict[str, Any] | None = None) -> Release:
    figures = None if verdict is None else decode_row(action, verdict)
    return Release(0, "1", action, valid_until * HOUR, None, figures, "someone", "why", EPOCH + timedelta(hours=at))


def check(window: int) -> dict[str, Any]:
    """The figures of a row about a window; only which one it is counts."""
    at = format_moment(window * HOUR)
    return {
        "rule": "limit",
        "window": at,
        "age": 0,
        "error_name": "log_loss",
        "value": 0,
        "threshold": 0,
        "num_rows": 1,
    }


RELEASED = [row("release", CUTOFF + HORIZON, at=CUTOFF, verdict=VERDICT)]


def close(window: int) -> Release:
    return row("close", window, verdict=check(window))


def reopen(window: int, valid_until: int) -> Release:
    return row("reopen", valid_until, verdict=check(window))


def mark(window: int, error: float, scored_at: int = 100) -> Mark:
    return Mark(CUTOFF * HOUR, window * HOUR, "gi", 50, error, 0.0, 50, True, scored_at * HOUR)


def marks(errors: Mapping[int, float], scored_at: int = 100) -> dict[int, Mark]:
    return {window * HOUR: mark(window, error, scored_at) for window, error in errors.items()}


def change(history: Sequence[Release], errors: Mapping[int, float], scored_at: int = 100) -> tuple[str, int] | None:
    """(action, new bound in hours); `history` is given oldest first."""
    found = find_change(history[::-1], marks(errors, scored_at))
    return None if found is None else (found.action, found.valid_until // HOUR)


def test_an_error_above_its_limit_closes_the_horizon_at_the_windows_start() -> None:
    assert change(RELEASED, {10: 0.5, 11: 1.1, 12: 1.2}) == ("close", 11)


def test_an_error_at_its_limit_closes_nothing() -> None:
    assert change(RELEASED, {10: LIMIT, 11: 0.1}) is None


def test_a_window_beyond_the_horizon_closes_nothing() -> None:
    assert change(RELEASED, {14: 9.0}) is None


def test_a_version_without_figures_is_left_alone() -> None:
    assert change([row("release", 14)], {10: 9.0}) is None
    assert read_promise(replace(row("release", 14, verdict=VERDICT), action="override")) is None


def test_an_age_without_a_limit_closes_nothing() -> None:
    ages = [{"age": age, "limit": None if age == 0 else LIMIT} for age in range(HORIZON)]
    assert change([row("release", 14, verdict=VERDICT | {"ages": ages})], {10: 9.0}) is None


def test_the_metric_is_looked_at_where_the_limits_are_of_it() -> None:
    history = [row("release", 14, verdict=VERDICT | {"error_name": "mean_absolute_error"})]
    assert change(history, {10: 9.0}) is None
    found = find_change(history, {10 * HOUR: replace(mark(10, 0.0), metric=1.5)})
    assert found is not None
    assert isinstance(found.verdict, LimitCheck)
    assert found.verdict.value == 1.5


def test_a_change_says_the_rule_and_its_figures() -> None:
    found = find_change(RELEASED, marks({11: 1.5}))
    assert found == Change(
        "1",
        "close",
        11 * HOUR,
        "the error 1.5 on the window of 1970-01-01T11:00:00Z is above its limit 1",
        LimitCheck(
            window=from_micros(11 * HOUR),
            age=1,
            error_name="log_loss",
            value=1.5,
            threshold=LIMIT,
            num_rows=50,
        ),
    )


def test_the_same_window_does_not_close_twice() -> None:
    assert change([*RELEASED, close(11)], {11: 1.1}) is None
    assert change([*RELEASED, close(11)], {11: 9.0, 12: 9.0}) is None


def test_an_earlier_window_closes_what_a_later_one_has_closed() -> None:
    assert change([*RELEASED, close(12)], {10: 2.0, 12: 2.0}) == ("close", 10)


def test_a_correction_that_takes_the_error_back_reopens_to_what_it_was_before() -> None:
    assert change([*RELEASED, close(11)], {11: 0.9}) == ("reopen", 14)
    assert change([*RELEASED, close(12), close(10)], {10: 0.5, 12: 2.0}) == ("reopen", 12)
    assert change([*RELEASED, close(12), close(10)], {10: 2.0, 12: 0.5}) is None


def test_what_was_reopened_can_close_again() -> None:
    assert change([*RELEASED, close(11), reopen(11, 14)], {11: 2.0}) == ("close", 11)


def test_a_closed_window_without_a_cell_stays_closed() -> None:
    assert change([*RELEASED, close(11)], {10: 0.5}) is None


def test_an_override_stands_for_all_that_was_known_by_then() -> None:
    history = [*RELEASED, close(11), row("override", 14, at=20)]
    assert change(history, {11: 2.0}, scored_at=30) is None, "its closing was overridden, whatever is scored later"
    assert change(history, {12: 2.0}, scored_at=20) is None, "it had been scored"
    assert change(history, {12: 2.0}, scored_at=21) == ("close", 12)
    assert change(history, {11: 0.5}, scored_at=30) is None, "there is nothing to reopen"


def test_an_override_may_go_beyond_the_horizon_and_is_what_a_correction_goes_back_to() -> None:
    history = [*RELEASED, row("override", 16, at=20), close(12)]
    assert change(history, {12: 0.5}) == ("reopen", 16)
    assert change([*RELEASED, row("override", 16, at=20)], {15: 9.0}) is None


def test_rollbacks_and_calibrations_neither_open_nor_close() -> None:
    history = [*RELEASED, close(11), row("rollback", 11), row("calibrate", 11)]
    assert change(history, {11: 2.0}) is None
    assert change(history, {11: 0.5}) == ("reopen", 14)


def test_a_version_that_is_released_again_is_held_to_its_new_limits() -> None:
    history = [*RELEASED, close(11), row("release", 14, verdict=VERDICT)]
    assert change(history, {11: 2.0}) == ("close", 11)


def test_a_window_counts_with_half_the_usual_rows_or_once_the_next_one_is_complete() -> None:
    hourly = task(label_delay="PT30M")
    usual = [mark(window, 0.5) for window in range(10, 14)]
    bunch = replace(mark(14, 9.0), num_rows=24)

    def counted(found: Mark, now: float) -> bool:
        return found in find_settled(hourly, [*usual, found], round(now * HOUR))

    assert not counted(bunch, 15.5)
    assert not counted(bunch, 16.4)
    assert counted(bunch, 16.5)
    assert counted(replace(bunch, num_rows=25), 15.5)
    assert not counted(replace(bunch, num_rows=25, is_complete=False), 15.5)
    assert not counted(replace(bunch, num_rows=25, method="naive"), 15.5)
    assert find_settled(hourly, [], HOUR) == []
    assert find_settled(hourly, [bunch], round(15.5 * HOUR)) == [bunch], "nothing else is known of what is usual"


errors = st.dictionaries(st.integers(9, 15), st.sampled_from([0.5, 1.0, 1.5]))


@given(st.lists(errors, min_size=1, max_size=6))
def test_whatever_is_scored_and_corrected_the_bound_is_the_first_breach_or_the_promise(
    seen: list[dict[int, float]],
) -> None:
    """Law: after the guard has had its say, nothing is served of a window above its limit, and everything before it."""
    history = list(RELEASED)
    for errors in seen:
        for _ in range(20):
            found = find_change(history[::-1], marks(errors))
            if found is None:
                break
            history.append(row(found.action, found.valid_until // HOUR, verdict=to_json(found.verdict)))
        else:
            pytest.fail("the guard does not come to rest")
        known = {window for window in range(CUTOFF, CUTOFF + HORIZON) if window in errors}
        breaches = {window for window in known if errors[window] > LIMIT}
        bound = history[-1].valid_until // HOUR
        assert all(bound <= window for window in breaches)
        # A closed window whose cell has gone stays closed.
        assert bound == CUTOFF + HORIZON or bound in breaches or bound not in known


def test_calibrations_differ_by_a_noticeable_step_a_level_or_an_age() -> None:
    one = Calibration(1.0, [AgeQuantiles(0, 100, [0.5, 0.6])])
    assert not differs(one, Calibration(1.0, [AgeQuantiles(0, 900, [0.5, 0.6 + 1e-9])]))
    assert differs(one, Calibration(1.0, [AgeQuantiles(0, 100, [0.5, 0.61])]))
    assert differs(one, Calibration(1.0, [AgeQuantiles(0, 100, [0.5])]))
    assert differs(one, Calibration(1.0, [AgeQuantiles(1, 100, [0.5, 0.6])]))
    assert differs(one, Calibration(1.0, []))
