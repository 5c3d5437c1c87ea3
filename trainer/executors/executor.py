"""The executor that the settings ask for."""

from sqlalchemy import Engine

from store.cycles.ledger import Cycle
from trainer.evaluation.units import Executor, InThisProcess
from trainer.executors.spread import Spread
from trainer.settings import TrainerSettings, count_units


def open_executor(engine: Engine, settings: TrainerSettings, cycle: Cycle) -> Executor:
    """Where the units of a cycle are carried out."""
    if count_units(settings) > 1:
        return Spread(engine, settings, cycle)
    return InThisProcess(settings)
