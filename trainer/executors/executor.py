"""The executor that the settings ask for."""

from sqlalchemy import Engine

from store.cycles.ledger import Cycle
from trainer.evaluation.units import Executor, InThisProcess
from trainer.executors.ray_cluster import OnRay
from trainer.executors.spread import Spread
from trainer.settings import TrainerSettings, count_units


def open_executor(engine: Engine, settings: TrainerSettings, cycle: Cycle) -> Executor:
    """Where the units of a cycle are carried out."""
    if settings.executor == "ray":
        return OnRay(engine, settings, cycle)
    if count_units(settings) > 1:
        return Spread(engine, settings, cycle)
    return InThisProcess(settings)


def own_settings(settings: TrainerSettings) -> TrainerSettings:
    """The settings of what a process of the trainer fits itself: with Ray, it needs no device that only nodes have."""
    return settings.model_copy(update={"device": "auto"}) if settings.executor == "ray" else settings
