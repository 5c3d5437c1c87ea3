"""Trainers for tests, ticked by hand, and what they are asked and waited for."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, text

from store.cycles.requests import request_cycle
from store.tasks.catalog import Schema
from tests.integration.drifting_task import cycles_of, now, settings
from trainer.scheduling.scheduler import Trainer
from trainer.settings import TrainerSettings
from trainer.sharing.objects import open_objects

MakeTrainer = Callable[..., Trainer]


def settings_for(home: Path, database_url: str, mlflow_url: str, **changes: Any) -> TrainerSettings:
    """Those of a trainer that looks often and soon tries again."""
    given: dict[str, Any] = {"tick_seconds": 0.2, "retry_seconds": 0.5, "lease_seconds": 30}
    return settings(home, database_url=database_url, mlflow_url=mlflow_url, **(given | changes))


@contextmanager
def trainers(engine: Engine, database_url: str, mlflow_url: str, home: Path) -> Iterator[MakeTrainer]:
    """Trainers whose children end with the test; changes of their settings are given. None sweeps unless it is let."""
    made: list[Trainer] = []

    def make(**changes: Any) -> Trainer:
        own = home / str(len(made))
        own.mkdir()
        given = settings_for(own, **({"database_url": database_url, "mlflow_url": mlflow_url} | changes))
        made.append(Trainer(engine, given, objects=open_objects(given)))
        made[-1]._must_sweep = False
        return made[-1]

    yield make
    for trainer in made:
        trainer.stop(now())


def ask(engine: Engine, schema: Schema, cutoff: int, at: datetime | None = None) -> None:
    with engine.begin() as connection:
        request_cycle(connection, schema.task_id, cutoff, at or now())


@contextmanager
def endless_reads(engine: Engine) -> Iterator[None]:
    """While the block runs, every reader of events sleeps, which takes no core. Waits for a lock end sooner."""
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE events RENAME TO events_at_rest"))
        sleeping = "SELECT * FROM events_at_rest WHERE (SELECT true FROM pg_sleep(3600))"
        connection.execute(text(f"CREATE VIEW events AS {sleeping}"))
    try:
        yield
    finally:
        with engine.begin() as connection:
            sleepers = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
            connection.execute(text(f"{sleepers} AND datname = current_database()"))
            connection.execute(text("DROP VIEW events"))
            connection.execute(text("ALTER TABLE events_at_rest RENAME TO events"))


def tick_until(trainers: list[Trainer], is_done: Callable[[], bool], seconds: float = 240) -> None:
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
