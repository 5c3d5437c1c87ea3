"""Which installation this is: a random name in its database, by which it knows its own models and runs in MLflow.

Several installations may use one MLflow. Each marks what it writes there with its name. What an earlier release wrote
has no mark, and is known by the runs and versions that cycles and releases name.
"""

from dataclasses import dataclass

from sqlalchemy import Connection, select, union
from sqlalchemy.dialects.postgresql import insert

from store.database import cycles, installation, releases

# The tag of models, versions, experiments and runs in MLflow.
INSTALLATION_TAG = "morrow.installation"
REMEDY = (
    "give the task another name (morrow task rename), or this installation an MLflow of its own (MORROW_MLFLOW_URL)"
)


@dataclass(frozen=True)
class Traces:
    """What the database knows of a task's runs and versions in MLflow, and the mark of this installation."""

    installation: str
    run_ids: frozenset[str]
    leases: frozenset[str]
    versions: frozenset[str]


def find_installation(connection: Connection) -> str | None:
    """The name of this installation; None if its row was deleted."""
    return connection.execute(select(installation.c.name)).scalar_one_or_none()


def read_installation(connection: Connection) -> str:
    """The name of this installation; it gets a new one if its row was deleted."""
    connection.execute(insert(installation).values(is_ours=True).on_conflict_do_nothing())
    name: str = connection.execute(select(installation.c.name)).scalar_one()
    return name


def read_traces(connection: Connection, task_id: int) -> Traces:
    """By what this installation recognises a task's runs and versions."""
    known = connection.execute(select(cycles.c.run_id, cycles.c.lease).where(cycles.c.task_id == task_id)).all()
    named = union(
        select(cycles.c.version).where(cycles.c.task_id == task_id, cycles.c.version.is_not(None)),
        select(releases.c.version).where(releases.c.task_id == task_id, releases.c.action == "release"),
    )
    return Traces(
        read_installation(connection),
        frozenset(row.run_id for row in known if row.run_id),
        frozenset(row.lease for row in known if row.lease),
        frozenset(connection.execute(named).scalars()),
    )
