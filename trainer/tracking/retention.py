"""Which runs MLflow need not keep: every window adds some, and a server that keeps all of them gets slow and large.

The runs that registered versions came from are kept, and so are all running ones. Of each task the newest cycles are
kept, released or not, with the fits below them. Versions themselves are never touched. Nor are the runs of other
installations in the same MLflow: `select_own` leaves them out.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from store.tasks.installation import OwnRuns


@dataclass(frozen=True)
class PastRun:
    """The run of a cycle, or of a fit in it; `parent` is then the cycle's run. `cutoff` is the text of its tag.

    `installation` is the mark of the one that wrote it, None before there were marks; `lease` is that of its cycle.
    """

    run_id: str
    parent: str | None
    cutoff: str
    began: int
    is_running: bool
    installation: str | None = None
    lease: str | None = None


def select_own(runs: Iterable[PastRun], own: OwnRuns) -> tuple[list[PastRun], int]:
    """The runs of this installation, and the number of all others."""
    ours, num_others = [], 0
    for run in runs:
        if own.has(run.installation, run.run_id, run.lease):
            ours.append(run)
        else:
            num_others += 1
    return ours, num_others


@dataclass(frozen=True)
class Pruning:
    """The runs of a task, and those that can be deleted: fits before the cycles that they belong to."""

    task: str
    num_runs: int
    num_cycles: int
    deletable: tuple[PastRun, ...]

    @property
    def num_deletable_cycles(self) -> int:
        return sum(run.parent is None for run in self.deletable)


def plan(task: str, runs: Sequence[PastRun], registered: Collection[str], num_kept: int) -> Pruning:
    """What can be deleted while a task's newest `num_kept` cycles stay; `registered` as in `choose_deletable`."""
    deletable = choose_deletable(runs, registered, num_kept)
    return Pruning(task, len(runs), sum(run.parent is None for run in runs), tuple(deletable))


def choose_deletable(runs: Sequence[PastRun], registered: Collection[str], num_kept: int) -> list[PastRun]:
    """The runs to delete, none of them `registered` as the run of a version. A fit goes with the run of its cycle."""
    cycles = sorted((run for run in runs if run.parent is None), key=lambda run: (run.cutoff, run.began), reverse=True)
    kept = {run.run_id for run in cycles[:num_kept]} | {run.run_id for run in runs if run.is_running} | {*registered}
    deletable = [run for run in runs if run.run_id not in kept and run.parent not in kept]
    return sorted(deletable, key=lambda run: (run.parent is None, run.cutoff, run.began))
