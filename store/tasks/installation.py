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
class OwnRuns:
    """How runs of this installation are recognised: by its mark or, without one, by its database's cycles."""

    installation: str
    run_ids: frozenset[str]
    leases: frozenset[str]

    def has(self, mark: str | None, run_id: str, lease: str | None) -> bool:
        """Whether a run is ours; the runs of fits have the lease of their cycle."""
        return mark == self.installation if mark is not None else run_id in self.run_ids or lease in self.leases


@dataclass(frozen=True)
class Traces(OwnRuns):
    """The same of one task, and its versions in MLflow."""

    versions: frozenset[str]


def find_installation(connection: Connection) -> str | None:
    """The name of this installation; None if its row was deleted."""
    return connection.execute(select(installation.c.name)).scalar_one_or_none()


def read_installation(connection: Connection) -> str:
    """The name of this installation; it gets a new one if its row was deleted."""
    connection.execute(insert(installation).values(is_ours=True).on_conflict_do_nothing())
    name: str = connection.execute(select(installation.c.name)).scalar_one()
    return name


def read_own_runs(connection: Connection, task_id: int | None = None) -> OwnRuns:
    """How this installation recognises the runs of a task or, by default, of all tasks."""
    query = select(cycles.c.run_id, cycles.c.lease)
    known = connection.execute(query if task_id is None else query.where(cycles.c.task_id == task_id)).all()
    return OwnRuns(
        read_installation(connection),
        frozenset(row.run_id for row in known if row.run_id),
        frozenset(row.lease for row in known if row.lease),
    )


def read_traces(connection: Connection, task_id: int) -> Traces:
    """How this installation recognises a task's runs and versions."""
    own = read_own_runs(connection, task_id)
    named = union(
        select(cycles.c.version).where(cycles.c.task_id == task_id, cycles.c.version.is_not(None)),
        select(releases.c.version).where(releases.c.task_id == task_id, releases.c.action == "release"),
    )
    versions = frozenset(connection.execute(named).scalars())
    return Traces(own.installation, own.run_ids, own.leases, versions)
