"""One look at the database: the tasks, how they stand, and what `releases` says of the versions that answer."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlalchemy import Connection

from contracts.errors import Unavailable
from service.database import Store
from service.models.model import Forecaster
from service.models.task_state import Standing, read_standing
from store.catalog import list_tasks
from store.releases import Overlay, is_released_as, read_overlay


@dataclass(frozen=True)
class Look:
    """What was found, by task; `overlays` of tasks whose version has rows of its own."""

    task_ids: Mapping[str, int] = field(default_factory=dict)
    standings: Mapping[str, Standing] = field(default_factory=dict)
    overlays: Mapping[str, Overlay] = field(default_factory=dict)


def look_at_store(connection: Connection, forecasters: Mapping[str, Forecaster]) -> Look:
    """Everything that a follower with these versions wants to know, in a few small queries."""
    schemas = list_tasks(connection)
    task_ids = {schema.task.name: schema.task_id for schema in schemas}
    standings = {
        schema.task.name: read_standing(connection, schema, forecasters.get(schema.task.name)) for schema in schemas
    }
    found = {
        task: _read_overlay(connection, task_ids[task], forecaster)
        for task, forecaster in forecasters.items()
        if task in task_ids
    }
    return Look(task_ids, standings, {task: overlay for task, overlay in found.items() if overlay is not None})


def find_overlay(store: Store, task_id: int, forecaster: Forecaster) -> Overlay | None:
    """What `releases` says of a version; None where it says nothing, or the database does not answer."""
    try:
        return store.transact(lambda connection: _read_overlay(connection, task_id, forecaster))
    except Unavailable:
        return None


def _read_overlay(connection: Connection, task_id: int, forecaster: Forecaster) -> Overlay | None:
    """None as well where the rows of its number are of another model."""
    if not is_released_as(connection, task_id, forecaster.version, forecaster.manifest.cutoff):
        return None
    return read_overlay(connection, task_id, forecaster.version)
