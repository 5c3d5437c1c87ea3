"""Cycles and backtests that are repeated: the same rows give the same bytes, and what was done is not done again."""

from datetime import timedelta
from pathlib import Path

import onnx
import pytest
from mlflow import MlflowClient
from sqlalchemy import Engine, update

from cli.local.stack import free_port
from contracts.clock import from_micros
from contracts.failure import REGISTRY_UNREACHABLE
from contracts.manifest import GRAPH_FILE, MANIFEST_FILE, RATE_FILE
from contracts.task import Task
from store.cycles.leases import expire_leases
from store.database import cycles, events
from store.events.reading.columns import EventColumns
from store.tasks.catalog import Schema
from tests.integration.counted_calls import counting_calls, counting_opened_files
from tests.integration.drifting_task import Story, claim, cutoff_after, define, drifting_task, now, retrain, settings
from trainer.evaluation.backtest import backtest
from trainer.evaluation.fit_store import candidate_folder, find_origins, recipe_folder
from trainer.export.opened_artefact import open_graph
from trainer.retraining.cycle import run_cycle
from trainer.tracking.registry import Registry


def graph(home: Path, task: Task, cutoff: int) -> bytes:
    return (candidate_folder(home, task, cutoff) / GRAPH_FILE).read_bytes()


def test_changing_every_row_after_an_origin_leaves_its_fit_byte_identical(
    engine: Engine, registry: Registry, tmp_path: Path
) -> None:
    task = drifting_task()
    schema = define(engine, task, 10)
    origin, cutoff = cutoff_after(8), cutoff_after(10)
    assert retrain(engine, registry, schema, 10, tmp_path / "before").state == "released"
    with engine.begin() as connection:
        connection.execute(
            update(events)
            .where(events.c.at >= from_micros(origin))
            .values(numbers=[1e6], categories=["never seen before"], label="another class")
        )
        connection.execute(cycles.delete())
    assert backtest_again(engine, schema, cutoff, tmp_path / "after")
    assert graph(tmp_path / "before", task, origin) == graph(tmp_path / "after", task, origin)
    newer = cutoff_after(9)
    assert graph(tmp_path / "before", task, newer) != graph(tmp_path / "after", task, newer)


def backtest_again(engine: Engine, schema: Schema, cutoff: int, home: Path) -> bool:
    """A backtest that finds no cells."""
    with engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM error_cells")
    cells, _ = backtest(engine, schema, cutoff, settings=settings(home), now=now, report=Story())
    return bool(cells)


def test_retraining_with_the_same_rows_and_seeds_gives_the_same_weights(
    engine: Engine, registry: Registry, tmp_path: Path
) -> None:
    task = drifting_task()
    schema = define(engine, task, 10)
    cutoff = cutoff_after(10)
    assert retrain(engine, registry, schema, 10, tmp_path / "one").state == "released"
    with engine.begin() as connection:
        connection.execute(cycles.delete())
        connection.exec_driver_sql("DELETE FROM error_cells")
    assert retrain(engine, registry, schema, 10, tmp_path / "other").state == "released"
    for origin in (cutoff_after(9), cutoff):
        one, other = graph(tmp_path / "one", task, origin), graph(tmp_path / "other", task, origin)
        assert one == other
    assert onnx.load_from_string(one).graph.output[0].name == "probabilities"


def test_a_backtest_needs_no_registry_and_leaves_the_cycle_one_fit(
    engine: Engine, registry: Registry, tmp_path: Path
) -> None:
    schema = define(engine, drifting_task(), 10)
    cutoff = cutoff_after(10)
    cells, verdict = backtest(engine, schema, cutoff, settings=settings(tmp_path), now=now, report=Story())
    assert verdict.horizon == 2
    assert len(cells) == 2 * 4 * 2
    story = Story()
    assert retrain(engine, registry, schema, 10, tmp_path, report=story).state == "released"
    assert story.of("matrix.missing") == [{"num_kept": 0, "num_to_fit": 0}]


def test_a_long_wait_for_labels_does_not_fit_every_origin_of_it_at_once(engine: Engine, tmp_path: Path) -> None:
    schema = define(engine, drifting_task(label_delay="PT300H"), 6)
    story = Story()
    backtest(engine, schema, cutoff_after(306), settings=settings(tmp_path), now=now, report=story)
    assert story.of("matrix.missing") == [{"num_kept": 0, "num_to_fit": 5 + 2}]


def test_a_fit_that_could_not_register_is_kept_and_registered_without_fitting(
    engine: Engine, registry: Registry, tmp_path: Path
) -> None:
    schema = define(engine, drifting_task(), 10)
    cutoff = cutoff_after(10)
    nowhere = Registry(f"http://127.0.0.1:{free_port()}")
    failed = retrain(engine, nowhere, schema, 10, tmp_path)
    assert (failed.state, failed.reason) == ("failed", REGISTRY_UNREACHABLE.reason)
    kept = graph(tmp_path, schema.task, cutoff)
    story = Story()
    assert retrain(engine, registry, schema, 10, tmp_path, report=story).state == "released"
    assert story.of("epoch.ended") == []
    assert len(story.of("fit.reused")) == 1
    assert graph(tmp_path, schema.task, cutoff) == kept


def test_a_repeat_after_a_kill_before_the_alias_finds_its_version(
    engine: Engine, registry: Registry, mlflow_client: MlflowClient, tmp_path: Path
) -> None:
    schema = define(engine, drifting_task(), 10)

    class Killed(BaseException):
        pass

    def kill(event: str, /, **facts: object) -> None:
        if event == "cycle.step" and facts["step"] == "alias":
            raise Killed

    cycle = claim(engine, schema, cutoff_after(10))
    with pytest.raises(Killed):
        run_cycle(engine, registry, cycle, settings=settings(tmp_path), now=now, report=kill)
    assert registry.champion(schema.task.name) is None
    with engine.begin() as connection:
        expire_leases(connection, now() + timedelta(hours=1))
    assert retrain(engine, registry, schema, 10, tmp_path).state == "released"
    versions = mlflow_client.search_model_versions(f"name='{schema.task.name}'")
    assert [str(version.version) for version in versions] == ["1"]


def test_an_older_cutoff_does_not_take_the_alias(engine: Engine, registry: Registry, tmp_path: Path) -> None:
    schema = define(engine, drifting_task(), 11)
    assert retrain(engine, registry, schema, 11, tmp_path).state == "released"
    champion = registry.champion(schema.task.name)
    older = retrain(engine, registry, schema, 10, tmp_path)
    assert (older.state, older.reason) == ("held", "a newer cutoff is released")
    assert registry.champion(schema.task.name) == champion


def test_kept_fits_are_read_once_each_and_their_rate_graphs_are_not_opened(engine: Engine, tmp_path: Path) -> None:
    schema = define(engine, drifting_task(), 10)
    backtest(engine, schema, cutoff_after(10), settings=settings(tmp_path), now=now, report=Story())
    folders = find_origins(recipe_folder(tmp_path, schema.task.name, schema.task.recipe)).values()
    assert len(folders) == 5
    with counting_opened_files(tmp_path) as opened, counting_calls(open_graph) as called:
        assert backtest_again(engine, schema, cutoff_after(10), tmp_path)
    files = [folder / name for folder in folders for name in (MANIFEST_FILE, GRAPH_FILE, RATE_FILE)]
    assert opened == {file.relative_to(tmp_path): 1 for file in files}
    assert called[open_graph.__code__] == len(folders)


def test_a_cycle_hashes_the_rows_of_its_cutoff_once(engine: Engine, registry: Registry, tmp_path: Path) -> None:
    schema = define(engine, drifting_task(), 10)
    backtest(engine, schema, cutoff_after(10), settings=settings(tmp_path), now=now, report=Story())
    digest = vars(EventColumns)["digest"].func
    with counting_calls(digest) as called:
        assert retrain(engine, registry, schema, 10, tmp_path).state == "released"
    assert called[digest.__code__] == 1
