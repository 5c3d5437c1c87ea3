"""The models that the serving benchmark asks: the flights task as a real cycle has released it, and one plain network.

So are versions of a task's default recipe (`benchmarks.serving.recipes`), which are trained on every eighth flight: the
rows change what a graph answers, and hardly what it costs.

All are trained once by the real stack and stay in its folder, so that a rerun starts measuring at once. A version can
be registered again under a new number, which every service downloads, verifies and swaps in like any other.
"""

import time
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from mlflow import MlflowClient
from rich.console import Console
from sqlalchemy import Engine

from benchmarks.datasets import to_events
from benchmarks.errors import NotReleased
from cli.demo.flights import load_flights, read_task_file, week_start
from cli.demo.flights import to_events as to_json_events
from cli.local.stack import EmbeddedStack
from contracts.clock import from_micros, to_micros
from contracts.task import Task, Training
from store.api_keys import add_key
from store.cycles.ledger import Cycle, list_cycles
from store.cycles.requests import find_gate, override_cycle, request_cycle
from store.engine import make_engine
from store.events.writes import append_events
from store.releases import ALIAS
from store.tasks.catalog import Schema, define_task
from trainer.tracking.registry import Registry

NUM_KNOWN_WEEKS = 26
PLAIN = {"num_seeds": 1, "num_trelu": 0}
# Of the default recipe: with LightGBM in every answer, its network alone, and that network with numbers as amounts.
MIXTURE, PIECES, AMOUNTS = "flights_mixture", "flights_pieces", "flights_amounts"
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    MIXTURE: {"experts": ("gi", "gbdt")},
    PIECES: {"experts": ("gi",)},
    AMOUNTS: {"experts": ("gi",), "number_form": "plain"},
}
_EVERY = 8
_RUNNING = ("requested", "running")


@dataclass(frozen=True)
class Released:
    """A version, and rows of the week that it was trained for, in the shape of POST /events."""

    task: Task
    version: str
    events: list[dict[str, Any]]


def read_tasks() -> tuple[Task, Task]:
    """The flights task as it is, and with one network without TReLU in place of its cohort."""
    task = Task.model_validate(tomllib.loads(read_task_file()))
    training = task.training.model_copy(update=PLAIN)
    return task, task.model_copy(update={"name": "flights_plain", "training": training})


def read_defaults() -> tuple[Task, ...]:
    """The flights task with a task's default recipe, by what answers and how it reads numbers."""
    task, _ = read_tasks()
    return tuple(
        task.model_copy(update={"name": name, "training": Training(**changes)}) for name, changes in _DEFAULTS.items()
    )


def release(stack: EmbeddedStack, tasks: tuple[Task, ...], console: Console) -> list[Released]:
    """The champion of each task, trained if there is none yet. Raises NotReleased."""
    flights = load_flights()
    events = to_json_events(flights[flights["week"] == NUM_KNOWN_WEEKS])
    registry = Registry(stack.addresses.mlflow)
    engine = make_engine(stack.addresses.database)
    try:
        found = []
        for task in tasks:
            champion = registry.champion(task.name)
            if champion is None:
                with console.status(f"Training {task.name} on its first {NUM_KNOWN_WEEKS} weeks …"):
                    known = to_events(task, flights[flights["week"] < NUM_KNOWN_WEEKS][:: _every(task)])
                    version = _train(engine, stack, _define(engine, task, known))
            else:
                version = champion.version
            found.append(Released(task, version, events))
        return found
    finally:
        engine.dispose()


def _every(task: Task) -> int:
    return _EVERY if task.name in _DEFAULTS else 1


def make_key(database_url: str) -> str:
    """A key with every scope, by a name of its own."""
    engine = make_engine(database_url)
    now = datetime.now(UTC)
    try:
        with engine.begin() as connection:
            return add_key(connection, f"benchmark {now.isoformat()}", ["admin"], None, now)
    finally:
        engine.dispose()


def register_again(mlflow_url: str, released: Released) -> str:
    """Register the same files under the next number and move the alias there; returns the number."""
    client = MlflowClient(mlflow_url, mlflow_url)
    name = released.task.name
    first = client.get_model_version(name, released.version)
    assert first.source is not None, "MLflow gives every version a source"
    model_id = first.source.removeprefix("models:/")  # MLflow reports it nowhere else
    again = client.create_model_version(
        name, source=first.source, run_id=first.run_id, model_id=model_id, tags=first.tags
    )
    client.set_registered_model_alias(name, ALIAS, str(again.version))
    return str(again.version)


def give_back(mlflow_url: str, released: Released) -> None:
    """Move the alias back to the version that a cycle released: a rerun measures that one."""
    MlflowClient(mlflow_url, mlflow_url).set_registered_model_alias(released.task.name, ALIAS, released.version)


def _define(engine: Engine, task: Task, events: list[Any]) -> Schema:
    now = datetime.now(UTC)
    with engine.begin() as connection:
        schema, _ = define_task(connection, task, now)
        append_events(connection, schema, events, now)
    return schema


def _train(engine: Engine, stack: EmbeddedStack, schema: Schema) -> str:
    """Request a cycle from the stack's trainer and wait for its end; a candidate that is held is overridden.

    What an answer costs does not depend on how good the candidate is.
    """
    cutoff = to_micros(week_start(NUM_KNOWN_WEEKS))
    with engine.begin() as connection:
        asked = request_cycle(connection, schema.task_id, cutoff, datetime.now(UTC))
    cycle = _await_end(engine, stack, asked)
    if cycle.state == "held" and find_gate(cycle) is None:
        why = {"actor": "benchmark", "reason": "only its speed is measured"}
        with engine.begin() as connection:
            asked = override_cycle(connection, schema.task_id, cycle.cycle_id, now=datetime.now(UTC), **why)
        cycle = _await_end(engine, stack, asked)
    if cycle.version is None:
        raise NotReleased(f"The cycle as of {from_micros(cutoff)} is {cycle.state}: {cycle.reason}")
    return cycle.version


def _await_end(engine: Engine, stack: EmbeddedStack, asked: Cycle) -> Cycle:
    while True:
        stack.check()
        with engine.connect() as connection:
            cycle = next(one for one in list_cycles(connection, asked.task_id) if one.cycle_id == asked.cycle_id)
        if cycle.state not in _RUNNING:
            return cycle
        time.sleep(0.5)
