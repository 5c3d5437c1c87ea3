"""What is not finite is never released: no graph that answers so, and no candidate judged on cells that say so."""

import hashlib
import shutil
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import msgspec
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from sqlalchemy import Engine, update

from contracts.clock import from_micros
from contracts.manifest import GRAPH_FILE, MANIFEST_FILE, checksum, encode_manifest, read_manifest
from store.database import error_cells
from store.engine import make_engine
from store.events.writes import append_events
from store.releases import list_releases
from store.tasks.catalog import Schema, find_task
from tests.integration.drifting_task import START, cutoff_after, define, drifting_events, drifting_task, retrain
from tests.servers import clone_of, database
from trainer.evaluation.fit_store import candidate_folder
from trainer.tracking.registry import Registry

NAME = "not_finite"
NUM_KNOWN = 10
FAR = 100.0


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the trainer of the champion has kept."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def template(template: str, mlflow_url: str, home: Path) -> Iterator[str]:
    """A task with a champion, and one more window that nobody can find odd, in which one withheld row is far away."""
    with database(template, how=clone_of(template)) as url:
        engine = make_engine(url)
        schema = define(engine, drifting_task(name=NAME), NUM_KNOWN)
        assert retrain(engine, Registry(mlflow_url), schema, NUM_KNOWN, home).state == "released"
        window = schema.task.clock.window
        again = [
            replace(event, event_id=f"again-{event.event_id}", at=event.at + window, known_at=event.known_at + window)
            for event in drifting_events(NUM_KNOWN - 1, NUM_KNOWN)
        ]
        far = replace(again[0], event_id=a_withheld_id(), numbers=(FAR,))
        with engine.begin() as connection:
            append_events(connection, schema, [*again, far], START)
        engine.dispose()
        yield url


@pytest.fixture
def schema(engine: Engine, home: Path, tmp_path: Path) -> Schema:
    """The task, and a copy of what was kept."""
    shutil.copytree(home, tmp_path, dirs_exist_ok=True)
    with engine.connect() as connection:
        return find_task(connection, NAME)


def a_withheld_id() -> str:
    return next(f"far-{k}" for k in count() if hashlib.sha256(f"far-{k}".encode()).digest()[0] < 13)


def break_far_away(folder: Path, value: float) -> None:
    """Let a kept fit answer this to rows that are far away; its checksums and its probe are right."""
    manifest, file = read_manifest(folder), folder / GRAPH_FILE
    model = onnx.load(str(file))
    for node in model.graph.node:
        node.output[:] = ["sound" if name == "probabilities" else name for name in node.output]
        node.input[:] = ["sound" if name == "probabilities" else name for name in node.input]
    model.graph.initializer.extend(
        [
            numpy_helper.from_array(np.array(FAR / 2), "far"),
            numpy_helper.from_array(np.array([value], np.float32), "broken"),
        ]
    )
    model.graph.node.extend(
        [
            helper.make_node("Greater", ["numbers", "far"], ["is_far"]),
            helper.make_node("Where", ["is_far", "broken", "sound"], ["probabilities"]),
        ]
    )
    file.write_bytes(model.SerializeToString())
    checksums = manifest.checksums | {GRAPH_FILE: checksum(file)}
    (folder / MANIFEST_FILE).write_bytes(encode_manifest(msgspec.structs.replace(manifest, checksums=checksums)))


def check_that_nothing_was_released(engine: Engine, registry: Registry, schema: Schema) -> None:
    champion = registry.champion(schema.task.name)
    assert champion is not None
    assert champion.cutoff == cutoff_after(NUM_KNOWN)
    with engine.connect() as connection:
        assert len(list_releases(connection, schema.task_id, actions=["release"])) == 1


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("step", ["verify", "judge"])
def test_a_candidate_whose_graph_is_not_finite_on_a_withheld_row_ends_as_failed(
    engine: Engine, registry: Registry, schema: Schema, tmp_path: Path, *, step: str, value: float
) -> None:
    """Broken when it has been exported, or only when it has been verified."""
    folder = candidate_folder(tmp_path, schema.task, cutoff_after(NUM_KNOWN + 1))

    def tamper(event: str, /, **facts: object) -> None:
        if event == "cycle.step" and facts["step"] == step:
            break_far_away(folder, value)

    ended = retrain(engine, registry, schema, NUM_KNOWN + 1, tmp_path, report=tamper)
    assert ended.reason == "The model gives answers that are not finite."
    assert (ended.state, ended.step) == ("failed", step)
    check_that_nothing_was_released(engine, registry, schema)


def test_a_kept_fit_that_is_not_finite_on_a_newer_window_fails_the_cycle_and_is_named(
    engine: Engine, registry: Registry, schema: Schema, tmp_path: Path
) -> None:
    break_far_away(candidate_folder(tmp_path, schema.task, cutoff_after(NUM_KNOWN)), np.nan)
    ended = retrain(engine, registry, schema, NUM_KNOWN + 1, tmp_path)
    assert ended.state == "failed"
    assert ended.reason == "The model gives answers that are not finite. It is the fit of 2026-01-01T10:00:00Z."
    check_that_nothing_was_released(engine, registry, schema)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("method", ["gi", "naive"])
@pytest.mark.parametrize("window", [NUM_KNOWN - 3, NUM_KNOWN - 1])
def test_cells_that_are_not_finite_release_nothing(
    engine: Engine, registry: Registry, schema: Schema, tmp_path: Path, *, window: int, method: str, value: float
) -> None:
    start = from_micros(cutoff_after(window))
    with engine.begin() as connection:
        cells = update(error_cells).where(error_cells.c.window == start, error_cells.c.method == method)
        assert connection.execute(cells.values(loss=value)).rowcount == 2
    ended = retrain(engine, registry, schema, NUM_KNOWN + 1, tmp_path)
    assert (ended.state, ended.reason) == ("held", "an error that this age is judged by is not finite")
    check_that_nothing_was_released(engine, registry, schema)
