"""Which windows are odd, which are set aside, and which let a candidate pass."""

from dataclasses import replace

from store.error_cells import Cell
from tests.unit.tiny_events import task
from trainer.evaluation.suspect_windows import check_newest_window, set_aside

TASK = task(guard={"max_age": 3, "min_pairs": 3})
WINDOW = TASK.clock.window
NUM_WINDOWS = 12
NEWEST = NUM_WINDOWS - 1


def matrix(errors: dict[tuple[int, int], float] | None = None, num_windows: int = NUM_WINDOWS) -> list[Cell]:
    """Origins and windows 0, 1, …: about 0.5 everywhere at ages 0 to 2, but for `errors[origin, window]`."""
    cells = []
    for window in range(num_windows):
        for origin in range(max(0, window - 2), window + 1):
            loss = (errors or {}).get((origin, window), 0.5 + 0.01 * ((window * 7) % 5))
            cells.append(Cell(origin * WINDOW, window * WINDOW, "gi", 100, loss, 0.1))
    return cells


def poisoned(*windows: int, num_windows: int = NUM_WINDOWS) -> list[Cell]:
    """Windows that every fit before them gets wrong."""
    return matrix({(window - age, window): 3.0 for window in windows for age in range(3)}, num_windows)


def jumped(first: int, last_error: float) -> list[Cell]:
    """All windows from the first one are wrong for fits of before; the fit that has seen it has `last_error`."""
    old = {(origin, window): 2.0 for window in range(first, NUM_WINDOWS) for origin in range(window - 2, first + 1)}
    new = {
        (origin, window): last_error
        for window in range(first + 1, NUM_WINDOWS)
        for origin in range(first + 1, window + 1)
    }
    return matrix(old | new)


def test_ordinary_windows_are_no_matter() -> None:
    decision = check_newest_window(TASK, matrix(), NEWEST * WINDOW)
    assert decision.passed
    assert decision.value is not None
    assert decision.threshold is not None
    assert decision.value < decision.threshold
    assert set_aside(TASK, matrix()) == set()


def test_a_poisoned_newest_window_is_suspect_whoever_the_champion_is() -> None:
    for champion in (NEWEST * WINDOW, (NEWEST - 1) * WINDOW, None, 1):
        decision = check_newest_window(TASK, poisoned(NEWEST), champion)
        assert not decision.passed
        assert "suspect" in str(decision.reason)
        assert decision.value == 3.0
    assert set_aside(TASK, poisoned(NEWEST)) == {NEWEST * WINDOW}


def test_an_ordinary_window_after_a_poisoned_one_frees_the_way_and_sets_the_poison_aside() -> None:
    cells = poisoned(NEWEST - 1)
    assert check_newest_window(TASK, cells, (NEWEST - 1) * WINDOW).passed
    assert set_aside(TASK, cells) == {(NEWEST - 1) * WINDOW}


def test_poison_long_ago_does_not_widen_the_limit_that_hides_the_next() -> None:
    cells = poisoned(6, NEWEST)
    assert set_aside(TASK, cells) == {6 * WINDOW, NEWEST * WINDOW}
    assert not check_newest_window(TASK, cells, NEWEST * WINDOW).passed


def test_drift_is_confirmed_by_the_fit_that_has_seen_it() -> None:
    champion = (NEWEST - 1) * WINDOW
    stubborn = check_newest_window(TASK, jumped(NEWEST - 1, 1.9), champion)
    assert not stubborn.passed
    learned = check_newest_window(TASK, jumped(NEWEST - 1, 0.7), champion)
    assert learned.passed
    assert "confirms" in str(learned.reason)


def test_drift_that_lasts_counts_in_full() -> None:
    assert set_aside(TASK, jumped(NEWEST - 3, 0.7)) == set()


def test_an_older_fit_that_is_no_better_confirms_nothing() -> None:
    """The champion is two windows older than the youngest fit, and neither has seen the poison."""
    cells = matrix({(NEWEST - 2, NEWEST): 3.0, (NEWEST - 1, NEWEST): 2.9, (NEWEST, NEWEST): 2.8})
    assert not check_newest_window(TASK, cells, (NEWEST - 2) * WINDOW).passed


def test_without_a_champion_an_unlucky_youngest_fit_does_not_make_a_window_suspect() -> None:
    """The fit before it has the usual error of its age there: what is odd is the youngest fit, not the window."""
    cells = matrix({(NEWEST, NEWEST): 3.0})
    for champion in (None, 1):
        decision = check_newest_window(TASK, cells, champion)
        assert decision.passed
        assert decision.value == 3.0
        assert "finds the window" in str(decision.reason)
    assert not check_newest_window(TASK, cells, NEWEST * WINDOW).passed


def test_without_a_champion_a_window_that_no_older_fit_can_judge_stays_suspect() -> None:
    only_fresh = [cell for cell in matrix({(NEWEST, NEWEST): 3.0}) if cell.origin == cell.window]
    assert not check_newest_window(TASK, only_fresh, None).passed


def test_a_window_of_which_few_labels_are_known_is_not_judged_yet() -> None:
    cells = [
        replace(cell, num_rows=40, is_complete=False) if cell.window == NEWEST * WINDOW else cell
        for cell in poisoned(NEWEST)
    ]
    assert check_newest_window(TASK, cells, NEWEST * WINDOW).passed
    half = [replace(cell, num_rows=50) if not cell.is_complete else cell for cell in cells]
    assert not check_newest_window(TASK, half, NEWEST * WINDOW).passed


def test_too_few_earlier_windows_judge_nothing() -> None:
    assert check_newest_window(TASK, poisoned(2, num_windows=3), 2 * WINDOW).passed
    assert check_newest_window(TASK, [], None).passed
    assert set_aside(TASK, poisoned(2, num_windows=3)) == set()


def test_other_methods_have_no_say() -> None:
    rival = [replace(cell, method="baseline", loss=9.0) for cell in matrix()]
    assert set_aside(TASK, [*matrix(), *rival]) == set()
