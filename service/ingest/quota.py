"""How many events a task may hold (`MORROW_ROWS_PER_TASK`): beyond it no event is added, and corrections still are.

The number is read from the counters that triggers keep (`store.tasks.row_counts`), and only if there is a limit. It is
compared before a request or a piece of a stream is stored, which may therefore end above it.
"""

from collections.abc import Sequence

from sqlalchemy import Connection

from service.errors import QuotaUsed
from service.ingest.schema_versions import find_schemas
from service.models.follower import Follower
from store.tasks.catalog import Schema
from store.tasks.row_counts import count_rows

# Events leave by a decision of somebody alone, so nobody knows when a retry will help.
_RETRY_SECONDS = 3600.0


def find_open_schemas(
    follower: Follower, most_rows: int | None, connection: Connection, task: str | None
) -> Sequence[Schema]:
    """The schemas whose rows a task accepts, the newest first. Raises QuotaUsed if it holds as many as it may."""
    schemas = find_schemas(follower, connection, task)
    if most_rows is not None:
        counts = count_rows(connection, schemas[0].task_id)
        held = counts.num_events + counts.num_unlabelled + counts.num_waiting
        if held >= most_rows:
            raise QuotaUsed(
                f"{schemas[0].task.name} holds {held:,} events, and a task may hold {most_rows:,}: retract an import, "
                "erase events, or raise MORROW_ROWS_PER_TASK.",
                _RETRY_SECONDS,
            )
    return schemas
