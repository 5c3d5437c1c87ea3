"""The units that fits are cut into: each trains some origins side by side, in whichever process carries it out.

The last bits of a fit depend on the networks that are trained together with it. So the settings alone say how origins
are cut. The fits of a unit then have the same bytes in every process with as many threads on the same processor.
"""

import hashlib
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import msgspec

from contracts.calibration import Calibration
from store.error_cells import Cell
from trainer.data.snapshot import Reading
from trainer.evaluation.calibration import calibration_of
from trainer.evaluation.fit_store import FitStore
from trainer.evaluation.horizon import HorizonVerdict
from trainer.evaluation.mixture import Mixture, as_answered, mix
from trainer.evaluation.origin_fits import UNCALIBRATED, fit_origins, keep_fit
from trainer.network.device import choose_device
from trainer.network.training_loop import EpochReport
from trainer.settings import TrainerSettings, count_units

OnEpoch = Callable[[EpochReport], None]


@dataclass(frozen=True)
class Unit:
    """Origins (microseconds) of a reading that are fitted together and kept.

    A candidate's unit has the verdict, the calibration and the mixture that its fit is kept with.
    """

    reading: Reading
    origins: tuple[int, ...]
    verdict: HorizonVerdict | None = None
    calibration: Calibration = UNCALIBRATED
    mixture: Mixture | None = None

    @cached_property
    def digest(self) -> str:
        """Names the unit: the same task, recipe, rows, origins and verdict always give the same fits."""
        schema, known = self.reading.schema, self.reading.latest
        rows = (schema.schema_id, schema.task.recipe, self.reading.cutoff, known.digest, self.origins)
        named = (*rows, self.verdict, self.calibration, self.mixture)
        return hashlib.sha256(msgspec.json.encode(named)).hexdigest()


class KeptFit(msgspec.Struct, frozen=True):
    """The origin of a fit that is kept now, and the epochs of its members."""

    origin: int
    epochs: tuple[EpochReport, ...]


class UnitResult(msgspec.Struct, frozen=True):
    """What the process of a unit reports: the fits that it has kept, and all epochs of their cohorts."""

    fits: tuple[KeptFit, ...]
    epochs: tuple[EpochReport, ...]


class Executor(Protocol):
    """Where units are carried out."""

    def run(
        self, units: Sequence[Unit], store: FitStore, on_epoch: OnEpoch, before_keep: Callable[[], None] = ...
    ) -> Iterator[KeptFit]:
        """Carry out units; yields each fit once the store has it. Raises CycleError.

        `before_keep` is called before fits are kept.
        """


def candidate_unit(reading: Reading, cells: Sequence[Cell], verdict: HorizonVerdict) -> tuple[Unit, list[Cell]]:
    """The unit of the fit of the reading's cutoff, and the matrix as if every fit had answered as this one will."""
    task, cutoff = reading.schema.task, reading.cutoff
    mixture = mix(task, cells, cutoff)
    answered = as_answered(task, cells, mixture)
    return Unit(reading, (cutoff,), verdict, calibration_of(task, answered), mixture), answered


def cut_units(reading: Reading, origins: Sequence[int], settings: TrainerSettings) -> list[Unit]:
    """These origins in units of about as many each; the newest origins, which know the most rows, come first."""
    size = max(1, math.ceil(len(origins) / count_units(settings)))
    parts = [tuple(origins[start : start + size]) for start in range(0, len(origins), size)]
    return [Unit(reading, part) for part in reversed(parts)]


def oldest_first(fits: Iterator[KeptFit], origins: Sequence[int]) -> Iterator[KeptFit]:
    """The fits of these origins in the order of time, each as soon as all earlier ones are there."""
    waiting, expected = dict[int, KeptFit](), deque(sorted(origins))
    for made in fits:
        waiting[made.origin] = made
        while expected and expected[0] in waiting:
            yield waiting.pop(expected.popleft())


def carry_out(
    unit: Unit,
    store: FitStore,
    settings: TrainerSettings,
    on_epoch: OnEpoch,
    before_keep: Callable[[], None] = lambda: None,
) -> Iterator[KeptFit]:
    """Fit the origins of a unit in this process, and keep each fit. Raises CycleError."""
    reading, device = unit.reading, choose_device(settings)
    made = fit_origins(
        reading,
        unit.origins,
        device,
        settings.max_members,
        on_epoch,
        encoded_mib=settings.encoded_mib,
        watches=unit.verdict is not None,
    )
    for fit in made:
        before_keep()
        keep_fit(
            fit,
            reading,
            store,
            device=device,
            git_sha=settings.git_sha,
            verdict=unit.verdict,
            calibration=unit.calibration,
            mixture=unit.mixture,
        )
        yield KeptFit(fit.origin, fit.epochs)


@dataclass(frozen=True)
class InThisProcess:
    """Carries out one unit after the other in this process."""

    settings: TrainerSettings

    def run(
        self,
        units: Sequence[Unit],
        store: FitStore,
        on_epoch: OnEpoch,
        before_keep: Callable[[], None] = lambda: None,
    ) -> Iterator[KeptFit]:
        for unit in units:
            yield from carry_out(unit, store, self.settings, on_epoch, before_keep)
