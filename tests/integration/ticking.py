"""Trainers for tests, ticked by hand, and what they are asked and waited for."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from sqlalchemy import Engine

from contracts.catalog import Schema
from contracts.cycles import request_cycle
from tests.integration.drifting import cycles_of, now
from trainer.scheduler import Trainer
from trainer.settings import TrainerSettings

MakeTrainer = Callable[..., Trainer]


def settings_for(
    database_url: str, mlflow_url: str, home: Path, *, cycle_limit_seconds: float = 120, lease_seconds: float = 30
) -> TrainerSettings:
    return TrainerSettings(
        home=home,
        database_url=database_url,
        mlflow_url=mlflow_url,
        device="cpu",
        threads=1,
        tick_seconds=0.2,
        retry_seconds=0.5,
        cycle_limit_seconds=cycle_limit_seconds,
        lease_seconds=lease_seconds,
    )


@contextmanager
def trainers(engine: Engine, database_url: str, mlflow_url: str, home: Path) -> Iterator[MakeTrainer]:
    """Trainers whose children end with the test. They sweep only where the test lets them."""
    made: list[Trainer] = []

    def make(*, mlflow: str = mlflow_url, limit: float = 120, lease: float = 30) -> Trainer:
        own = home / str(len(made))
        own.mkdir()
        settings = settings_for(database_url, mlflow, own, cycle_limit_seconds=limit, lease_seconds=lease)
        made.append(Trainer(engine, settings))
        made[-1]._must_sweep = False
        return made[-1]

    yield make
    for trainer in made:
        trainer.stop(now())


def ask(engine: Engine, schema: Schema, cutoff: int, at: datetime | None = None) -> None:
    with engine.begin() as connection:
        request_cycle(connection, schema.task_id, cutoff, at or now())


def tick_until(trainers: list[Trainer], is_done: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not is_done():
        assert time.monotonic() < deadline, "it took too long"
        for trainer in trainers:
            trainer.tick(now())
        time.sleep(0.1)


def has_step(engine: Engine, schema: Schema, step: str) -> bool:
    return any(cycle.step == step for cycle in cycles_of(engine, schema))


def has_ended(engine: Engine, schema: Schema) -> bool:
    return all(cycle.ended_at is not None for cycle in cycles_of(engine, schema))
