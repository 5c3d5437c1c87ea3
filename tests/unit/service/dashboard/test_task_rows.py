"""The rows of the list of tasks: their order, their dots, and the picture of newest errors."""

from typing import Any

import pytest

from service.advice.row_states import RowState
from service.dashboard.summary import Sentence, Tone
from service.dashboard.task_rows import TaskRow, draw_sparkline, order_rows


def row(name: str, state: RowState, *notes: Tone, **changes: Any) -> TaskRow:
    fields: dict[str, Any] = {
        "version": None,
        "valid_until": None,
        "left": None,
        "sparkline": None,
        "skill": None,
        "last_state": None,
        "last_cutoff": None,
        "next_cycle": None,
        "headline": Sentence("good", "It answers."),
    }
    return TaskRow(name=name, state=state, notes=[Sentence(tone, "!") for tone in notes], **fields | changes)


def test_the_worst_task_comes_first() -> None:
    rows = [
        row("valid", "valid", valid_until="2026-03-01T00:00:00Z"),
        row("ends sooner", "valid", valid_until="2026-02-01T00:00:00Z"),
        row("failing", "valid", "bad"),
        row("noted", "valid", "warn"),
        row("empty", "no_model"),
        row("ending", "expiring"),
        row("expired", "expired"),
        row("closed", "closed"),
        row("paused", "paused", "warn"),
    ]
    assert [one.name for one in order_rows(rows)] == [
        "closed",
        "expired",
        "empty",
        "ending",
        "failing",
        "noted",
        "ends sooner",
        "valid",
        "paused",
    ]


def test_the_dot_of_a_row_has_the_worst_tone_of_its_state_and_notes() -> None:
    assert row("a", "valid").tone == "good"
    assert row("a", "valid", "warn").tone == "warn"
    assert row("a", "valid", "warn", "bad").tone == "bad"
    assert row("a", "no_model").tone == "soft"
    assert row("a", "expired").tone == "bad"


def test_a_sparkline_reaches_from_the_oldest_window_to_the_newest_and_says_its_figures() -> None:
    drawn = draw_sparkline([(0, 0.2), (1, 0.4), (2, 0.3)], expected=0.3)
    assert drawn is not None
    assert drawn.points == "0.0,90.0 50.0,10.0 100.0,50.0"
    assert (drawn.last, drawn.expected, drawn.is_worse) == ((100.0, 50.0), 50.0, False)
    assert drawn.words == ("Realised error of the newest 3 windows: 0.2 at first, 0.3 at last; 0.3 is expected")


@pytest.mark.parametrize(("errors", "is_worse"), [([0.3, 0.3, 0.3], False), ([0.3, 0.4, 0.5], True)])
def test_errors_well_above_the_expected_one_stand_out(errors: list[float], is_worse: bool) -> None:
    drawn = draw_sparkline(list(enumerate(errors)), expected=0.3)
    assert drawn is not None
    assert drawn.is_worse is is_worse


def test_one_window_is_no_line_and_equal_errors_are_a_level_one() -> None:
    assert draw_sparkline([(0, 0.2)], expected=0.3) is None
    level = draw_sparkline([(0, 0.2), (1, 0.2)], expected=None)
    assert level is not None
    assert (level.points, level.expected) == ("0.0,90.0 100.0,90.0", None)
