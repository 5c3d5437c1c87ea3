"""An estimator fits what a cycle of the same rows fits: the same bytes, from the task file that it writes itself."""

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sqlalchemy import Engine

from cli.file_rows.opened_file import open_rows
from cli.reading.options import Options
from contracts.manifest import EXPERTS_FILE, GRAPH_FILE, RATE_FILE, read_manifest
from contracts.task import Task
from estimators import GIClassifier, GIRegressor
from service.validation.rules import compile_rules, list_rows
from store.cycles.ledger import Cycle
from store.events.batches import Event
from store.events.writes import append_events
from store.tasks.catalog import define_task
from tests.integration.drifting_task import START, carry_out, claim
from trainer.evaluation.fit_store import candidate_folder
from trainer.tracking.registry import Registry

QUICK = {"num_seeds": 2, "width": 8, "num_layers": 1, "calendar": [], "pretrain_epochs": 4, "finetune_windows": 1}
GUARD = {"max_age": 2, "tolerance": 5.0, "rivals": []}


def rows(*, is_class: bool) -> pd.DataFrame:
    """Ten days of rows with a missing value, equal moments and an equal row."""
    rng = np.random.default_rng(3)
    count = 1200
    at = pd.date_range("2026-01-01", periods=count // 2, freq="24min", tz="UTC").repeat(2)
    x, zone = rng.normal(size=count).round(3), rng.choice(["north", "south"], count)
    turned = x - 0.002 * np.arange(count) * np.where(zone == "north", 1, -1) / 4
    label = np.where(turned > 0, "late", "punctual") if is_class else (10 * turned).round(2)
    frame = pd.DataFrame({"when": at, "x": x, "zone": zone, "is_new": rng.random(count) < 0.5, "outcome": label})
    frame.loc[7, "x"] = np.nan
    return pd.concat([frame, frame.iloc[[100]]], ignore_index=True)


def import_and_retrain(
    engine: Engine, registry: Registry, estimator: Any, file: Path, home: Path
) -> tuple[Task, Cycle]:
    """The task of the estimator's file and its first cycle, on the rows of a Parquet file as an import reads them."""
    task = Task.model_validate(tomllib.loads(estimator.to_task()))
    events: list[Event] = []
    with open_rows(file, None, task, Options(columns=(("at", "when"),)), lambda: None) as opened:
        for one in list_rows(compile_rules(task).read_lines([row.line for row in opened.rows])):
            assert isinstance(one, Event), one
            events.append(one)
    with engine.begin() as connection:
        schema, _ = define_task(connection, task, START)
        append_events(connection, schema, events, START)
    cutoff = int(estimator.trained_until_.timestamp() * 1e6)
    return task, carry_out(engine, registry, claim(engine, schema, cutoff), home)


@pytest.mark.parametrize(
    ("kind", "name", "experts"),
    [
        (GIClassifier, "same_classes", ["gi"]),
        (GIClassifier, "same_mixture", ["gi", "gbdt"]),
        (GIRegressor, "same_numbers", ["gi"]),
    ],
)
def test_a_cycle_of_the_same_rows_has_the_same_bytes(  # noqa: PLR0917
    kind: type[GIClassifier | GIRegressor],
    name: str,
    experts: list[str],
    engine: Engine,
    registry: Registry,
    tmp_path: Path,
) -> None:
    frame = rows(is_class=kind is GIClassifier)
    frame.to_parquet(tmp_path / "rows.parquet", index=False)
    training = QUICK | {"experts": experts}
    estimator = kind("P1D", name=name, guard=GUARD, training=training, device="cpu", n_jobs=1)
    estimator.fit(frame.drop(columns="outcome"), frame["outcome"], "when")

    task, cycle = import_and_retrain(engine, registry, estimator, tmp_path / "rows.parquet", tmp_path)
    assert cycle.state == "released"
    folder = candidate_folder(tmp_path, task, int(estimator.trained_until_.timestamp() * 1e6))
    ours = estimator._version.files
    graphs = {GRAPH_FILE, RATE_FILE, *([EXPERTS_FILE] if "gbdt" in experts else [])}
    assert {file.name for file in folder.glob("*.onnx")} == {name for name in ours if name.endswith(".onnx")} == graphs
    for graph in graphs:
        assert ours[graph] == (folder / graph).read_bytes(), graph
    theirs, own = read_manifest(folder), estimator._forecaster.manifest
    assert own.rows_digest == theirs.rows_digest
    assert (own.horizon, own.ages, own.calibration, own.seeds) == (
        theirs.horizon,
        theirs.ages,
        theirs.calibration,
        theirs.seeds,
    )
    assert (own.weights, own.own_scores, own.probe) == (theirs.weights, theirs.own_scores, theirs.probe)
    assert estimator.horizon_ == own.horizon > 0
