"""Units of a cycle in several training processes: the ledger says which are left, and who carries out which.

The process of the cycle carries out one unit after the other. Trainers that keep fits in the same place let a spare
process help (`trainer.scheduling.helping`). So units need no process of their own. A helper that is killed costs one
unit, which the cycle's process then carries out itself.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec
import structlog
from sqlalchemy import Engine

from contracts.clock import from_micros
from contracts.errors import CycleError
from contracts.task import Training
from store.errors import ObjectStoreAway
from store.tasks.catalog import read_tasks
from store.units import NewUnit, UnitRow, end_unit, find_unit, renew_units
from trainer.data.replica import find_replica
from trainer.data.snapshot import read
from trainer.evaluation.fit_store import FitStore, open_fits
from trainer.evaluation.units import KeptFit, OnEpoch, Unit, UnitResult, carry_out
from trainer.executors.places import name_place
from trainer.executors.unit_ledger import UnitLedger
from trainer.network.training_loop import EpochReport
from trainer.settings import TrainerSettings
from trainer.sharing.objects import open_objects

log = structlog.get_logger(__name__)

_PAUSE_SECONDS = 0.3


class UnitSpec(msgspec.Struct, frozen=True):
    """What a helper must know to carry out a unit as the process of its cycle would. Moments in microseconds."""

    cutoff: int
    read_at: int
    since: int | None
    schema_id: int
    training: dict[str, Any]
    origins: tuple[int, ...]


@dataclass(frozen=True)
class Spread:
    """Carries out the units of a cycle in this process and in those that help."""

    ledger: UnitLedger
    settings: TrainerSettings

    def run(
        self,
        units: Sequence[Unit],
        store: FitStore,
        on_epoch: OnEpoch,
        before_keep: Callable[[], None] = lambda: None,
    ) -> Iterator[KeptFit]:
        """As `trainer.evaluation.units.Executor.run`; a single unit needs no help, and no ledger."""
        if len(units) < 2:
            for unit in units:
                yield from carry_out(unit, store, self.settings, on_epoch, before_keep)
            return
        left = {unit.digest: unit for unit in units}
        self._record(units)
        while left:
            if (row := self.ledger.claim(list(left))) is not None:
                unit, epochs = left.pop(row.digest), list[EpochReport]()
                fits = []
                for fit in carry_out(unit, store, self.settings, _both(epochs.append, on_epoch), before_keep):
                    fits.append(fit)
                    yield fit
                self.ledger.end(row, UnitResult(tuple(fits), tuple(epochs)))
                continue
            ended = [row for row in self.ledger.read() if row.state == "done" and row.digest in left]
            for row in ended:
                yield from self._take(left.pop(row.digest), row, store, on_epoch, before_keep)
            if not ended:
                time.sleep(_PAUSE_SECONDS)

    def _take(
        self, unit: Unit, row: UnitRow, store: FitStore, on_epoch: OnEpoch, before_keep: Callable[[], None]
    ) -> Iterator[KeptFit]:
        """The fits that a helper has kept; those that cannot be used are made again here."""
        if row.result is None or not _holds(unit, store):
            log.warning("unit.not_kept", digest=unit.digest, remedy="none needed: its fits are made again")
            yield from carry_out(unit, store, self.settings, on_epoch, before_keep)
            return
        result = msgspec.msgpack.decode(row.result, type=UnitResult)
        for epoch in result.epochs:
            on_epoch(epoch)
        yield from result.fits

    def _record(self, units: Sequence[Unit]) -> None:
        made = [NewUnit(unit.digest, msgspec.to_builtins(_describe(unit))) for unit in units]
        store = None
        if (objects := open_objects(self.settings)) is not None:
            with suppress(ObjectStoreAway):  # which is logged where it was found
                store = objects.identity()
        self.ledger.record(made, place=name_place(self.settings, store))


def help_with(engine: Engine, settings: TrainerSettings, unit_id: int, lease: str, now: Callable[[], datetime]) -> None:
    """Carry out a unit that this trainer has claimed. Raises CycleError, and LeaseLost if it is another's by now."""
    with engine.connect() as connection:
        row = find_unit(connection, unit_id)
        schemas = [] if row is None else read_tasks(connection, [row.task_id])[0]
    spec = None if row is None else msgspec.convert(row.spec, UnitSpec)
    if spec is None or not schemas or schemas[0].schema_id != spec.schema_id:
        raise CycleError("The unit's task has changed, or is gone.")
    moment, replica = from_micros(spec.read_at), find_replica(settings)
    reading = read(engine, schemas[0], spec.cutoff, moment, since=spec.since, replica=replica)
    reading = reading.with_training(Training.model_validate(spec.training))
    lease_time = timedelta(seconds=settings.lease_seconds)

    def check_lease() -> None:
        with engine.begin() as connection:
            if not renew_units(connection, lease, now(), lease_time):
                raise CycleError("The lease on the unit is lost.")

    epochs: list[EpochReport] = []
    store = open_fits(engine, settings, reading.schema)
    fits = tuple(carry_out(Unit(reading, spec.origins), store, settings, epochs.append, check_lease))
    with engine.begin() as connection:
        end_unit(connection, unit_id, lease, msgspec.msgpack.encode(UnitResult(fits, tuple(epochs))), now())


def _describe(unit: Unit) -> UnitSpec:
    assert unit.verdict is None, "a candidate's unit is carried out by its cycle"
    reading = unit.reading
    schema = reading.schema
    training = schema.task.training.model_dump(mode="json")
    return UnitSpec(reading.cutoff, reading.read_at, reading.since, schema.schema_id, training, unit.origins)


def _holds(unit: Unit, store: FitStore) -> bool:
    """Whether the fits of a unit are kept, and were made from the rows that its reading knows."""
    kept = {origin: store.find(origin) for origin in unit.origins}
    return all(
        fit is not None and fit.manifest.rows_digest == unit.reading.known(origin).digest
        for origin, fit in kept.items()
    )


def _both(first: OnEpoch, second: OnEpoch) -> OnEpoch:
    def follow(epoch: EpochReport) -> None:
        first(epoch)
        second(epoch)

    return follow
