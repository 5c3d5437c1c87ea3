"""Help for cycles whose units are spread: a training process that has no cycle to carry out takes a unit of another's.

A cycle comes first, so a helper is stopped if a requested cycle needs its place. Its unit is then left to the process
of its own cycle.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import uuid4

import structlog
from sqlalchemy import Engine

from contracts.failure import PREEMPTED, Failure
from store.objects import Objects
from store.tasks.catalog import Schema
from store.units import claim_help, give_up_unit, renew_units
from trainer.executors.places import name_place
from trainer.scheduling.workers.jobs import HelpCycle
from trainer.settings import TrainerSettings

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Helping:
    """Claims, keeps and leaves units for the training processes of one trainer."""

    engine: Engine
    settings: TrainerSettings
    objects: Objects | None

    def claim(self, tasks: dict[int, Schema], now: datetime) -> HelpCycle | None:
        """A unit that this trainer can carry out; None if there is none.

        A trainer of one process without an object store shares its fits with nobody who could leave it a unit. A tick
        does not wait for the store: `trainer.sharing.upkeep` asks it who it is.
        """
        if self.settings.executor != "local" or (self.settings.training_workers == 1 and self.objects is None):
            return None
        lease = uuid4().hex
        with self.engine.begin() as connection:
            row = claim_help(connection, self._place, lease, now, self._lease_time)
        if row is None:
            return None
        name = tasks[row.task_id].task.name if row.task_id in tasks else ""
        log.info("unit.claimed", task=name, cycle_id=row.cycle_id, unit_id=row.unit_id)
        return HelpCycle(row.unit_id, row.task_id, name, lease)

    def renew(self, job: HelpCycle, now: datetime) -> None:
        """Keep a unit. If its lease is lost, its process notices that before it keeps a fit."""
        with self.engine.begin() as connection:
            renew_units(connection, job.lease, now, self._lease_time)

    def finish(self, job: HelpCycle, failure: Failure | None) -> None:
        """Leave a unit to the process of its cycle if the helper could not end it."""
        if failure is not None:
            with self.engine.begin() as connection:
                give_up_unit(connection, job.unit_id, job.lease)
            (log.info if failure is PREEMPTED else log.warning)(
                "unit.left", task=job.task, unit_id=job.unit_id, reason=failure.reason
            )

    @property
    def _place(self) -> str:
        return name_place(self.settings, None if self.objects is None else self.objects.known_identity)

    @property
    def _lease_time(self) -> timedelta:
        return timedelta(seconds=self.settings.lease_seconds)
