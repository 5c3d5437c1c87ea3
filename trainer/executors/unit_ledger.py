"""The units of one cycle in the ledger, as the process of that cycle keeps them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec
from sqlalchemy import Engine

from store.cycles.ledger import Cycle
from store.units import (
    NewUnit,
    UnitRow,
    claim_own,
    end_unit,
    give_up_unit,
    list_units,
    record_units,
)
from trainer.evaluation.units import UnitResult

# The lease of units in the process of their cycle, which has a lease itself.
_LEASE_TIME = timedelta(days=365)


@dataclass(frozen=True)
class UnitLedger:
    """Records, claims and ends the units of a cycle; each call is a transaction of its own."""

    engine: Engine
    cycle: Cycle
    now: Callable[[], datetime]

    def record(self, made: Sequence[NewUnit], *, place: str) -> None:
        """Record units whose fits are kept in this place."""
        with self.engine.begin() as connection:
            record_units(connection, self.cycle, made, self.now(), place=place)

    def claim(self, digests: Sequence[str]) -> UnitRow | None:
        """Claim one of these units; None if helpers hold or have ended all of them."""
        with self.engine.begin() as connection:
            return claim_own(connection, self.cycle, digests, self.now(), _LEASE_TIME)

    def end(self, row: UnitRow, result: UnitResult) -> None:
        """Record what was kept of a claimed unit. Raises LeaseLost."""
        with self.engine.begin() as connection:
            end_unit(connection, row.unit_id, str(row.lease), msgspec.msgpack.encode(result), self.now())

    def give_up(self, rows: Iterable[UnitRow]) -> None:
        """Leave claimed units, so that they can be claimed again."""
        with self.engine.begin() as connection:
            for row in rows:
                give_up_unit(connection, row.unit_id, str(row.lease))

    def read(self) -> list[UnitRow]:
        """All units of the cycle, in the order in which to carry them out."""
        with self.engine.connect() as connection:
            return list_units(connection, self.cycle.cycle_id)
