"""Which runs MLflow need not keep: every window adds some, and a server with all of them gets slow and large.

Kept are the runs that registered versions came from, so that a version never loses its story, whatever still runs, and
the newest cycles of a task, released or not; each with the fits below it. Versions themselves are never touched.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class PastRun:
    """A run of a cycle, or of a fit of that cycle, whose `parent` it then names; `cutoff` as its tag has it."""

    run_id: str
    parent: str | None
    cutoff: str
    began: int
    is_running: bool


@dataclass(frozen=True)
class Pruning:
    """What a task has too many of. `doomed` names runs to delete, fits before the cycles that they belong to."""

    task: str
    num_runs: int
    num_cycles: int
    doomed: tuple[PastRun, ...]

    @property
    def num_doomed_cycles(self) -> int:
        return sum(run.parent is None for run in self.doomed)


def plan(task: str, runs: Sequence[PastRun], registered: Collection[str], num_kept: int) -> Pruning:
    """What may go of a task's runs while its newest `num_kept` cycles stay; `registered` as in `choose_doomed`."""
    doomed = choose_doomed(runs, registered, num_kept)
    return Pruning(task, len(runs), sum(run.parent is None for run in runs), tuple(doomed))


def choose_doomed(runs: Sequence[PastRun], registered: Collection[str], num_kept: int) -> list[PastRun]:
    """The runs to delete, none of them `registered`, that of a version; a fit whose cycle's run is gone goes too."""
    cycles = sorted((run for run in runs if run.parent is None), key=lambda run: (run.cutoff, run.began), reverse=True)
    kept = {run.run_id for run in cycles[:num_kept]} | {run.run_id for run in runs if run.is_running} | {*registered}
    doomed = [run for run in runs if run.run_id not in kept and run.parent not in kept]
    return sorted(doomed, key=lambda run: (run.parent is None, run.cutoff, run.began))
