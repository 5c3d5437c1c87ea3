"""The executor that the settings ask for."""

from collections.abc import Callable
from datetime import datetime

from sqlalchemy import Engine

from store.cycles.ledger import Cycle
from trainer.evaluation.units import Executor, InThisProcess
from trainer.executors.ray_cluster import OnRay
from trainer.executors.spread import Spread
from trainer.executors.unit_ledger import UnitLedger
from trainer.settings import TrainerSettings, count_units


def open_executor(engine: Engine, settings: TrainerSettings, cycle: Cycle, now: Callable[[], datetime]) -> Executor:
    """Where the units of a cycle are carried out."""
    ledger = UnitLedger(engine, cycle, now)
    if settings.executor == "ray":
        return OnRay(ledger, settings)
    if count_units(settings) > 1:
        return Spread(ledger, settings)
    return InThisProcess(settings)


def own_settings(settings: TrainerSettings) -> TrainerSettings:
    """The settings of what a process of the trainer fits itself: with Ray, it needs no device that only nodes have."""
    return settings.model_copy(update={"device": "auto"}) if settings.executor == "ray" else settings
