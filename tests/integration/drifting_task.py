"""A small drifting task and its events, for tests that retrain in seconds."""

import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from sqlalchemy import Engine

from contracts.clock import MICROSECOND, to_micros
from contracts.task import Task
from store.cycles.leases import claim_cycle
from store.cycles.ledger import Cycle, list_cycles
from store.cycles.requests import request_cycle
from store.events.batches import Event
from store.events.writes import append_events
from store.tasks.catalog import Schema, define_task
from trainer.progress import Report
from trainer.retraining.cycle import run_cycle
from trainer.settings import TrainerSettings
from trainer.tracking.registry import Registry

START = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
ROWS_PER_WINDOW = 150

_num_named: Counter[str] = Counter()


def drifting_task(**changes: Any) -> Task:
    """A boundary that turns slowly; hourly windows; a network that fits in a second and answers alone."""
    spec: dict[str, Any] = {
        "name": _next_name(),
        "features": [{"name": "x", "kind": "number"}, {"name": "kind", "kind": "category"}],
        "target": {"name": "y", "kind": "classification"},
        "window": "PT1H",
        "schedule": "manual",
        "guard": {"max_age": 2, "tolerance": 5.0, "min_rows": 100, "rivals": []},
        "training": {
            "num_seeds": 2,
            "calendar": [],
            "width": 8,
            "num_layers": 1,
            "batch_size": 64,
            "pretrain_epochs": 4,
            "pretrain_rate": 0.02,
            "finetune_windows": 1,
            "finetune_epochs": 1,
            "number_form": "plain",
            "regression_loss": "gaussian",
        },
    }
    spec |= changes
    return Task.model_validate(spec | {"training": {"experts": ["gi"], **spec["training"]}})


def _next_name() -> str:
    """Another one for every task of every test, for the MLflow server is shared; the same in each run.

    The seeds of a fit follow from the name, so a test that passes goes on passing, also in another folder of its suite.
    """
    test = os.environ.get("PYTEST_CURRENT_TEST", "no test").split(" ")[0]
    test = re.sub(r"^(tests/\w+/)(\w+/)*", r"\1", test)
    _num_named[test] += 1
    return f"drift_{hashlib.sha256(f'{test} {_num_named[test]}'.encode()).hexdigest()[:8]}"


def cutoff_after(num_windows: int) -> int:
    """The boundary that many windows after the start, microseconds."""
    return to_micros(START + num_windows * HOUR)


def drifting_events(first: int, end: int, shuffled: bool = False, as_numbers: bool = False) -> Iterator[Event]:
    """Rows of windows `[first, end)`; with `shuffled` labels nothing can be learned from them."""
    for window in range(first, end):
        rng = np.random.default_rng(window)
        base = cutoff_after(window)
        for k in range(ROWS_PER_WINDOW):
            x, kind = float(rng.normal()), "ab"[int(rng.integers(2))]
            boundary = 0.04 * window * (1 if kind == "a" else -1)
            label = "yes" if x > boundary else "no"
            if shuffled:
                label = ("yes", "no")[int(rng.integers(2))]
            if as_numbers:
                label = repr(10 * (x - boundary))
            at = base + k * (HOUR // MICROSECOND // ROWS_PER_WINDOW)
            yield Event(f"{window}-{k}", at, at, (x,), (kind,), label)


def flip(event: Event) -> Event:
    """The event with the other label."""
    return replace(event, label={"yes": "no", "no": "yes"}[event.label])


def define(engine: Engine, task: Task, num_windows: int, **how: Any) -> Schema:
    """The task with the events of its first windows."""
    with engine.begin() as connection:
        schema, _ = define_task(connection, task, START)
    add_windows(engine, schema, 0, num_windows, **how)
    return schema


def add_windows(engine: Engine, schema: Schema, first: int, end: int, **how: Any) -> None:
    """Append the events of windows `[first, end)`."""
    with engine.begin() as connection:
        append_events(connection, schema, list(drifting_events(first, end, **how)), START)


def claim(engine: Engine, schema: Schema, cutoff: int, lease_seconds: float = 600) -> Cycle:
    """A claimed cycle of this cutoff."""
    with engine.begin() as connection:
        request_cycle(connection, schema.task_id, cutoff, now())
        cycle = claim_cycle(connection, uuid4().hex, now(), timedelta(seconds=lease_seconds))
    assert cycle is not None
    assert cycle.cutoff == cutoff
    return cycle


def carry_out(
    engine: Engine,
    registry: Registry,
    cycle: Cycle,
    home: Path,
    *,
    report: Report | None = None,
    clock: Callable[[], datetime] | None = None,
    **changes: Any,
) -> Cycle:
    """A claimed cycle as it ended; `changes` are settings of its trainer."""
    given = settings(home, **changes)
    run_cycle(engine, registry, cycle, settings=given, now=clock or now, report=report or Story())
    with engine.connect() as connection:
        return next(one for one in list_cycles(connection, cycle.task_id) if one.cycle_id == cycle.cycle_id)


def cycles_of(engine: Engine, schema: Schema) -> Sequence[Cycle]:
    """Newest cutoff and attempt first."""
    with engine.connect() as connection:
        return list_cycles(connection, schema.task_id)


def retrain(engine: Engine, registry: Registry, schema: Schema, num_windows: int, home: Path, **how: Any) -> Cycle:
    """The cycle at that many windows after the start, carried out in this process, as it ended."""
    return carry_out(engine, registry, claim(engine, schema, cutoff_after(num_windows)), home, **how)


def settings(home: Path, **changes: Any) -> TrainerSettings:
    """One thread, and a lease that a test outlives."""
    given: dict[str, Any] = {"threads": 1, "lease_seconds": 600, "device": "cpu"}
    return TrainerSettings(home=home, **(given | changes))


def now() -> datetime:
    return datetime.now(UTC)


class Story:
    """Keeps what a cycle reports."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, object]]] = []

    def __call__(self, event: str, /, **facts: object) -> None:
        self.events.append((event, facts))

    def of(self, event: str) -> list[dict[str, object]]:
        return [facts for name, facts in self.events if name == event]
