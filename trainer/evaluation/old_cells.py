"""Which windows of the error matrix a cycle reads, and which old cells are deleted because nothing can use them.

The horizon rule counts the newest 52 windows, quantiles walk over the newest 104, and whether one of those is odd
depends on windows before it. Pages and comparisons with rivals look back 156 windows from the newest origin. The guard
and the realised errors need the cells of the version that answers, however old it is
(`docs/decisions/0030-bounded-matrices.md`).
"""

from sqlalchemy import Connection, Engine

from contracts.clock import to_micros
from contracts.task import Task
from contracts.verdict import COUNTED_WINDOWS
from store.error_cells import delete_older, find_oldest_of_newest
from store.releases import CHAMPION_ACTIONS, list_releases
from trainer.evaluation.calibration import WALKED_WINDOWS

# The newest windows with cells that judges read, and that are kept besides as many as there are ages.
READ_WINDOWS = WALKED_WINDOWS + COUNTED_WINDOWS
KEPT_WINDOWS = READ_WINDOWS + COUNTED_WINDOWS
_BATCH_SIZE = 10_000
# A cycle that finds more leaves them to the next one.
_MAX_BATCHES = 20


def delete_old_cells(engine: Engine, task_id: int, task: Task, cutoff: int) -> int:
    """Delete the cells that nothing can use as of a cutoff (microseconds), in short transactions; returns how many."""
    with engine.connect() as connection:
        count = KEPT_WINDOWS + task.guard.max_age
        before = find_oldest_of_newest(connection, task_id, task.recipe, until=cutoff, count=count)
        if before is None:
            return 0
        kept = _find_champion_cutoffs(connection, task_id)
    num_deleted = 0
    for _ in range(_MAX_BATCHES):
        with engine.begin() as connection:
            count = delete_older(connection, task_id, before=before, except_origins=kept, size=_BATCH_SIZE)
        num_deleted += count
        if count < _BATCH_SIZE:
            break
    return num_deleted


def _find_champion_cutoffs(connection: Connection, task_id: int) -> list[int]:
    """The cutoff of the version that answers, if it is known."""
    champions = list_releases(connection, task_id, actions=CHAMPION_ACTIONS, limit=1, with_calibration=False)
    if not champions:
        return []
    version = champions[0].version
    rows = list_releases(connection, task_id, version=version, actions=["release"], limit=1, with_calibration=False)
    return [to_micros(row.matrix.cutoff) for row in rows if row.matrix is not None and row.matrix.cutoff is not None]
