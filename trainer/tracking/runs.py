"""Runs of cycles as MLflow shows them, without mlflow."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from trainer.tracking.tags import CYCLE_TAG, LEASE_TAG, PARENT_TAG, STATE_TAG

RunStatus = Literal["FINISHED", "FAILED", "KILLED"]


@dataclass(frozen=True)
class OpenRun:
    """A run that MLflow shows as running, and the cycle and lease in its tags."""

    run_id: str
    cycle_id: int
    lease: str


@dataclass(frozen=True)
class EndedRun(OpenRun):
    """The run of a cycle that MLflow shows as ended, with its status and the state of the cycle in its tags."""

    status: str
    state: str | None


def find_open(run_id: str, tags: Mapping[str, str]) -> OpenRun | None:
    """The run of a cycle by its tags; None if they do not name its cycle and lease."""
    cycle, lease = tags.get(CYCLE_TAG, ""), tags.get(LEASE_TAG)
    return None if lease is None or not cycle.isdecimal() else OpenRun(run_id, int(cycle), lease)


def find_ended(run_id: str, status: str, tags: Mapping[str, str]) -> EndedRun | None:
    """The run of a cycle that has ended; None for any other, such as a fit below a cycle."""
    found = find_open(run_id, tags)
    if found is None or PARENT_TAG in tags or status == "RUNNING":
        return None
    return EndedRun(run_id, found.cycle_id, found.lease, status, tags.get(STATE_TAG))


@dataclass(frozen=True)
class Lineage:
    """The rows that a run uses, as MLflow shows them: a description of source, columns and counts, never the rows.

    `digest` identifies the rows; MLflow keeps 36 characters of it.
    """

    name: str
    digest: str
    source: Mapping[str, object]
    columns: Sequence[Mapping[str, object]]
    counts: Mapping[str, object]
