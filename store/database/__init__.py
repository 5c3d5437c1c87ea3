"""The tables. PostgreSQL is the only dialect; `migrations/` creates the tables described here.

Functions elsewhere take a `Connection`; only the outermost caller begins a transaction.
"""

from store.database.cycle_tables import choices, cycles, error_cells, fit_objects, kept_fits, releases, units
from store.database.event_tables import (
    erasures,
    events,
    imports,
    incomplete_events,
    rejected_events,
    row_counts,
)
from store.database.hook_tables import deliveries, expiries, hooks
from store.database.key_tables import api_keys
from store.database.metadata import FIRST_MOMENT, LAST_MOMENT, is_readable, metadata
from store.database.prediction_tables import answer_quality, answer_sums, predictions, touched_buckets
from store.database.sealed_tables import (
    sealed_files,
    sealed_ids,
    sealed_imports,
    sealed_objects,
    sealed_windows,
    taken_rows,
)
from store.database.task_tables import installation, schemas, task_changes, tasks, touched_tasks

__all__ = [
    "FIRST_MOMENT",
    "LAST_MOMENT",
    "answer_quality",
    "answer_sums",
    "api_keys",
    "choices",
    "cycles",
    "deliveries",
    "erasures",
    "error_cells",
    "events",
    "expiries",
    "fit_objects",
    "hooks",
    "imports",
    "incomplete_events",
    "installation",
    "is_readable",
    "kept_fits",
    "metadata",
    "predictions",
    "rejected_events",
    "releases",
    "row_counts",
    "schemas",
    "sealed_files",
    "sealed_ids",
    "sealed_imports",
    "sealed_objects",
    "sealed_windows",
    "taken_rows",
    "task_changes",
    "tasks",
    "touched_buckets",
    "touched_tasks",
    "units",
]
