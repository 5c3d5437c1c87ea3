"""Which runs of MLflow may go."""

from trainer.tracking.retention import PastRun, choose_deletable


def cycle(number: int, *, attempt: int = 0, is_running: bool = False) -> PastRun:
    return PastRun(f"c{number}.{attempt}", None, f"2026-01-{number:02}T00:00:00Z", 10 * number + attempt, is_running)


def fit_of(parent: PastRun, number: int) -> PastRun:
    return PastRun(f"{parent.run_id}/{number}", parent.run_id, parent.cutoff, parent.began + number, False)


def deletable(runs: list[PastRun], registered: set[str], num_kept: int) -> list[str]:
    return [run.run_id for run in choose_deletable(runs, registered, num_kept)]


def test_the_newest_cycles_stay_with_the_fits_below_them() -> None:
    cycles = [cycle(number) for number in range(1, 5)]
    runs = [run for one in cycles for run in (one, fit_of(one, 1), fit_of(one, 2))]
    assert deletable(runs, set(), 3) == ["c1.0/1", "c1.0/2", "c1.0"]
    assert deletable(runs, set(), 4) == []


def test_newest_is_by_cutoff_and_then_by_start() -> None:
    runs = [cycle(1), cycle(2, attempt=1), cycle(2, attempt=2)]
    assert deletable(runs, set(), 1) == ["c1.0", "c2.1"]


def test_the_run_of_a_registered_version_stays_however_old() -> None:
    old = cycle(1)
    runs = [old, fit_of(old, 1), cycle(2), cycle(3)]
    assert deletable(runs, {"c1.0"}, 1) == ["c2.0"]


def test_what_still_runs_stays() -> None:
    assert deletable([cycle(1, is_running=True), cycle(2), cycle(3)], set(), 1) == ["c2.0"]


def test_a_fit_whose_cycle_is_gone_goes_too() -> None:
    assert deletable([fit_of(cycle(1), 1), cycle(2)], set(), 1) == ["c1.0/1"]
