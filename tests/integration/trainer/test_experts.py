"""Cycles that fit LightGBM next to the network: what is kept, scored, released and promised."""

import threading
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sqlalchemy import Engine, delete

from contracts.manifest import EXPERTS_FILE, Experts, read_manifest
from contracts.task import Task
from store.cycles.leases import claim_cycle
from store.cycles.requests import request_cycle
from store.database import error_cells
from store.error_cells import ALONE, MIXTURE, Cell, read_cells
from store.events.writes import append_events
from store.tasks.catalog import Schema
from tests.integration.drifting_task import (
    START,
    Story,
    add_windows,
    carry_out,
    cutoff_after,
    define,
    drifting_events,
    drifting_task,
    flip,
    now,
    retrain,
    settings,
)
from trainer.data.snapshot import Reading, read
from trainer.evaluation.backtest import backtest
from trainer.evaluation.calibration import calibration_of
from trainer.evaluation.fit_store import candidate_folder, find_origins, recipe_folder
from trainer.evaluation.mixture import as_fit_of, mix
from trainer.export.opened_artefact import verify_artefact
from trainer.methods.gbdt import GBDT
from trainer.monitoring.live_scoring import LiveScoring
from trainer.replay.replay import replay
from trainer.tracking.registry import Registry

NUM_KNOWN = 10


def expert_task(experts: object, **changes: Any) -> Task:
    training = drifting_task().training.model_dump() | {"experts": experts, "boosting": {"learning_rate": 0.5}}
    return drifting_task(training=training, **changes)


def all_cells(engine: Engine, schema: Schema) -> list[Cell]:
    with engine.connect() as connection:
        return read_cells(connection, schema.task_id, schema.task.recipe, until=cutoff_after(100))


def by_pair(cells: list[Cell], method: str) -> dict[tuple[int, int], Cell]:
    return {(cell.origin, cell.window): cell for cell in cells if cell.method == method}


def test_a_mixture_is_kept_scored_and_released_with_its_weights(
    engine: Engine, registry: Registry, tmp_path: Path
) -> None:
    schema = define(engine, expert_task(["gi", "gbdt"]), NUM_KNOWN)
    cycle = retrain(engine, registry, schema, NUM_KNOWN, tmp_path)
    assert cycle.state == "released"
    fit = verify_artefact(candidate_folder(tmp_path, schema.task, cutoff_after(NUM_KNOWN)))
    weights = fit.manifest.weights
    assert weights.keys() == {"gi", GBDT}
    assert sum(weights.values()) == pytest.approx(1)
    assert 0 < weights["gi"] < 1
    cells = all_cells(engine, schema)
    ours = by_pair(cells, "gi")
    assert ours.keys() == by_pair(cells, GBDT).keys() == by_pair(cells, ALONE).keys()
    assert not by_pair(cells, MIXTURE)
    assert any(ours[pair].loss != cell.loss for pair, cell in by_pair(cells, ALONE).items())
    # The promise is that of the mixture: its own errors at age 0, and quantiles of its own scores.
    assert fit.manifest.calibration.ages == calibration_of(schema.task, as_fit_of(schema.task, cells, 0)).ages
    (expected,) = (age.mean for age in fit.manifest.ages if age.age == 0)
    fresh = [cell.loss for (origin, window), cell in ours.items() if origin == window]
    assert expected == pytest.approx(np.mean(fresh))


def test_each_origin_is_mixed_by_the_errors_of_the_origins_before_it(
    engine: Engine, registry: Registry, tmp_path: Path
) -> None:
    schema = define(engine, expert_task(["gi", "gbdt"]), NUM_KNOWN)
    retrain(engine, registry, schema, NUM_KNOWN, tmp_path)
    cells, folders = (
        all_cells(engine, schema),
        find_origins(recipe_folder(tmp_path, schema.task.name, schema.task.recipe)),
    )
    found = {origin: read_manifest(folder).weights for origin, folder in sorted(folders.items())}
    assert len(found) > 3
    for origin, weights in found.items():
        expected = mix(schema.task, cells, origin)
        assert expected is not None
        assert weights == expected.weights(schema.task)
    assert next(iter(found.values())) == {"gi": 0.5, GBDT: 0.5}


def test_auto_releases_the_network_alone_until_the_mixture_has_proved_better(
    engine: Engine, registry: Registry, tmp_path: Path
) -> None:
    schema, story = define(engine, expert_task("auto"), NUM_KNOWN), Story()
    cycle = retrain(engine, registry, schema, NUM_KNOWN, tmp_path, report=story)
    assert cycle.state == "released"
    folder = candidate_folder(tmp_path, schema.task, cutoff_after(NUM_KNOWN))
    manifest, cells = read_manifest(folder), all_cells(engine, schema)
    decided = mix(schema.task, cells, cutoff_after(NUM_KNOWN))
    assert decided is not None
    assert manifest.weights == decided.weights(schema.task)
    assert story.of("mixture.weighed") == [{"weight": decided.weight, "is_answering": decided.is_answering}]
    assert (folder / EXPERTS_FILE).is_file()
    assert by_pair(cells, "gi").keys() == by_pair(cells, GBDT).keys()
    assert by_pair(cells, MIXTURE).keys() | by_pair(cells, ALONE).keys() == by_pair(cells, "gi").keys()


def test_live_scoring_scores_what_was_released_and_each_expert(
    engine: Engine, registry: Registry, tmp_path: Path
) -> None:
    schema = define(engine, expert_task(["gi", "gbdt"]), NUM_KNOWN)
    retrain(engine, registry, schema, NUM_KNOWN, tmp_path)
    add_windows(engine, schema, NUM_KNOWN, NUM_KNOWN + 1)
    LiveScoring(engine, settings(tmp_path), threading.Event()).score_new_labels(now())
    cutoff = cutoff_after(NUM_KNOWN)
    there = {cell.method for cell in all_cells(engine, schema) if (cell.origin, cell.window) == (cutoff, cutoff)}
    assert there == {"gi", "naive", GBDT, ALONE}


def test_late_labels_of_an_old_window_are_scored_for_every_expert_again(
    engine: Engine, registry: Registry, tmp_path: Path
) -> None:
    schema = define(engine, expert_task("auto"), NUM_KNOWN)
    retrain(engine, registry, schema, NUM_KNOWN, tmp_path)
    window = cutoff_after(NUM_KNOWN - 2)
    late = [replace(one, event_id=f"late {one.event_id}") for one in drifting_events(NUM_KNOWN - 2, NUM_KNOWN - 1)]
    with engine.begin() as connection:
        append_events(connection, schema, late[:20], START)
    add_windows(engine, schema, NUM_KNOWN, NUM_KNOWN + 1)
    retrain(engine, registry, schema, NUM_KNOWN + 1, tmp_path)
    found = [cell for cell in all_cells(engine, schema) if (cell.origin, cell.window) == (window, window)]
    assert {cell.method for cell in found} - {MIXTURE, ALONE} == {"gi", "naive", GBDT}
    assert len(found) == 4
    assert {cell.num_revisions for cell in found} == {150 + 20}


def test_a_cutoff_again_finds_the_kept_mixture(engine: Engine, registry: Registry, tmp_path: Path) -> None:
    schema, story = define(engine, expert_task(["gi", "gbdt"]), NUM_KNOWN), Story()
    retrain(engine, registry, schema, NUM_KNOWN, tmp_path)
    with engine.begin() as connection:
        recipe = schema.task.recipe
        request_cycle(connection, schema.task_id, cutoff_after(NUM_KNOWN), now(), recipe=recipe, again=True)
        cycle = claim_cycle(connection, "second", now(), timedelta(minutes=10))
    assert cycle is not None
    carry_out(engine, registry, cycle, tmp_path, report=story)
    assert story.of("fit.reused")


def test_a_task_of_one_expert_keeps_no_trees(engine: Engine, registry: Registry, tmp_path: Path) -> None:
    schema = define(engine, expert_task(["gi"]), NUM_KNOWN)
    retrain(engine, registry, schema, NUM_KNOWN, tmp_path)
    folder = candidate_folder(tmp_path, schema.task, cutoff_after(NUM_KNOWN))
    assert read_manifest(folder).experts is None
    assert not (folder / EXPERTS_FILE).exists()
    assert {cell.method for cell in all_cells(engine, schema)} == {"gi", "naive"}


def kept_bytes(home: Path, schema: Schema, until: int) -> dict[int, tuple[dict[str, float], str, Experts | None]]:
    """The weights and checksums of every kept fit of an origin up to `until`."""
    folders = find_origins(recipe_folder(home, schema.task.name, schema.task.recipe))
    found = {origin: read_manifest(folder) for origin, folder in folders.items() if origin <= until}
    return {origin: (one.weights, one.checksums["model.onnx"], one.experts) for origin, one in sorted(found.items())}


def test_what_becomes_known_after_an_origin_moves_no_bit_of_its_mixture(engine: Engine, tmp_path: Path) -> None:
    """The same backtest twice; before the second, rows with flipped labels arrive in windows before and after it."""
    schema, origin = define(engine, expert_task(["gi", "gbdt"]), NUM_KNOWN), cutoff_after(NUM_KNOWN - 2)
    found = []
    for home in (tmp_path / "clean", tmp_path / "poisoned"):
        cutoff = cutoff_after(NUM_KNOWN)
        backtest(engine, schema, cutoff, settings=settings(home), now=now, report=Story(), num_windows=20)
        found.append(kept_bytes(home, schema, origin))
        late = [
            replace(flip(event), event_id=f"late {event.event_id}", known_at=max(event.known_at, origin + 1))
            for event in drifting_events(NUM_KNOWN - 5, NUM_KNOWN)
        ]
        with engine.begin() as connection:
            append_events(connection, schema, late, START)
            connection.execute(delete(error_cells).where(error_cells.c.task_id == schema.task_id))
    assert len(found[0]) >= 5
    assert len({weights["gi"] for weights, _, _ in found[0].values()}) > 1
    assert found[0] == found[1]


def test_a_replay_releases_mixtures_and_fits_no_rival_twice(engine: Engine, tmp_path: Path) -> None:
    schema = define(engine, expert_task(["gi", "gbdt"]), NUM_KNOWN)
    reading: Reading = read(engine, schema, cutoff_after(NUM_KNOWN), now())
    done = replay(reading, settings=settings(tmp_path), device=torch.device("cpu"), report=Story(), rivals=[GBDT])
    methods = {cell.method for cell in done.cells.values()}
    assert methods == {"gi", "naive", GBDT, ALONE}
    assert any(cutoff.released for cutoff in done.cutoffs)
