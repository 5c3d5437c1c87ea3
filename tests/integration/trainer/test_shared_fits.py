"""Two trainers with disks of their own share kept fits through an object store, and neither is missed."""

import hashlib
import shutil
import threading
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import Engine, select
from structlog.testing import capture_logs

from cli.local.stack import free_port
from contracts.manifest import GRAPH_FILE
from store.database import fit_objects, kept_fits
from store.kept_fits import GRACE
from store.objects import Objects
from store.tasks.catalog import Schema
from store.tasks.deletion import DELETE_SOME, delete_events, finish_deletion, list_deleted
from store.tasks.lifecycle import begin_deletion
from store.tasks.touched import read_touched
from tests.integration.drifting_task import (
    Story,
    add_windows,
    carry_out,
    claim,
    cutoff_after,
    define,
    drifting_events,
    drifting_task,
    flip,
    now,
    retrain,
    settings,
)
from tests.integration.guarded_task import story
from tests.integration.live_job import append, cells_of, moment
from trainer.evaluation.backtest import backtest
from trainer.evaluation.fit_store import candidate_folder, find_origins, recipe_folder
from trainer.monitoring.live_scoring import LiveScoring
from trainer.settings import TrainerSettings
from trainer.sharing.bundles import MARKER_FILE
from trainer.sharing.objects import open_objects
from trainer.sharing.upkeep import Upkeep
from trainer.tracking.registry import Registry


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The folder of the object store."""
    return tmp_path / "store"


@pytest.fixture
def fits_url(store: Path) -> str:
    return f"file://{store}"


def live(engine: Engine, given: TrainerSettings) -> LiveScoring:
    return LiveScoring(engine, given, threading.Event())


def upkeep(engine: Engine, given: TrainerSettings) -> Upkeep:
    return Upkeep(engine, given, threading.Event(), open_objects(given))


def later(seconds: float = 3600) -> datetime:
    return now() + timedelta(seconds=seconds)


def held(home: Path, schema: Schema) -> set[int]:
    return set(find_origins(recipe_folder(home, schema.task.name, schema.task.recipe)))


def objects_in(store: Path) -> set[str]:
    return {file.name for file in (store / "fits").iterdir()}


def digests(engine: Engine) -> set[str]:
    with engine.connect() as connection:
        return set(connection.execute(select(kept_fits.c.digest)).scalars())


def test_a_steady_cycle_of_the_second_trainer_is_one_fit(
    engine: Engine, registry: Registry, tmp_path: Path, fits_url: str
) -> None:
    schema = define(engine, drifting_task(), 10)
    one, other = tmp_path / "one", tmp_path / "other"
    assert retrain(engine, registry, schema, 10, one, fits_url=fits_url).state == "released"
    add_windows(engine, schema, 10, 11)
    told = Story()
    assert retrain(engine, registry, schema, 11, other, report=told, fits_url=fits_url).state == "released"
    assert [facts["num_to_fit"] for facts in told.of("matrix.missing")] == [0]
    assert len(told.of("fit.began")) == 1
    assert told.of("fit.reused") == []


def test_what_one_trainer_could_not_register_another_reuses(
    engine: Engine, registry: Registry, tmp_path: Path, fits_url: str
) -> None:
    schema = define(engine, drifting_task(), 10)
    nowhere = Registry(f"http://127.0.0.1:{free_port()}")
    assert retrain(engine, nowhere, schema, 10, tmp_path / "one", fits_url=fits_url).state == "failed"
    told = Story()
    assert retrain(engine, registry, schema, 10, tmp_path / "other", report=told, fits_url=fits_url).state == "released"
    assert told.of("epoch.ended") == []
    assert len(told.of("fit.reused")) == 1


def test_the_versions_of_a_trainer_that_leaves_for_ever_are_scored_and_guarded_by_the_other(
    engine: Engine, registry: Registry, tmp_path: Path, fits_url: str
) -> None:
    schema = define(engine, drifting_task(), 10)
    one, other = tmp_path / "one", tmp_path / "other"
    assert retrain(engine, registry, schema, 10, one, fits_url=fits_url).state == "released"
    shutil.rmtree(one)
    append(engine, schema, [flip(event) for event in drifting_events(10, 11)])
    job = live(engine, settings(other, fits_url=fits_url))
    assert job.score_new_labels(moment(11.01)) > 0
    cutoff = cutoff_after(10)
    assert (cutoff, cutoff) in {(cell.origin, cell.window) for cell in cells_of(engine, schema)}
    assert story(engine, schema)[1:] == [("1", "close", 10)]


def test_an_older_home_is_shared_without_a_move(engine: Engine, tmp_path: Path, fits_url: str, store: Path) -> None:
    schema = define(engine, drifting_task(), 10)
    one, other = tmp_path / "one", tmp_path / "other"
    backtest(engine, schema, cutoff_after(10), settings=settings(one), now=now, report=Story())
    origins = held(one, schema)
    given = settings(one, fits_url=fits_url)
    assert upkeep(engine, given).share_left(now()) == 0, "a fit that was made this moment is shared by its own process"
    assert upkeep(engine, given).share_left(later()) == len(origins)
    assert upkeep(engine, given).share_left(later()) == 0
    assert held(one, schema) == origins
    assert objects_in(store) == digests(engine)
    assert refit(engine, schema, settings(other, fits_url=fits_url)) == (len(origins), 0)
    for digest in objects_in(store):
        assert hashlib.sha256((store / "fits" / digest).read_bytes()).hexdigest() == digest


def refit(engine: Engine, schema: Schema, given: TrainerSettings) -> tuple[int, int]:
    """How many fits a backtest that finds no cells keeps and makes."""
    with engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM error_cells")
    told = Story()
    backtest(engine, schema, cutoff_after(10), settings=given, now=now, report=told)
    (facts,) = told.of("matrix.missing")
    return int(str(facts["num_kept"])), int(str(facts["num_to_fit"]))


@pytest.fixture
def shared(engine: Engine, tmp_path: Path, fits_url: str) -> Schema:
    """A task whose matrix the first trainer has filled."""
    schema = define(engine, drifting_task(), 10)
    given = settings(tmp_path / "one", fits_url=fits_url)
    backtest(engine, schema, cutoff_after(10), settings=given, now=now, report=Story())
    return schema


@pytest.mark.parametrize("damage", ["cut", "changed", "gone"])
def test_a_damaged_object_is_fitted_anew_and_said_in_one_line(
    engine: Engine, shared: Schema, tmp_path: Path, store: Path, damage: str
) -> None:
    victim = sorted((store / "fits").iterdir())[0]
    if damage == "gone":
        victim.unlink()
    else:
        content = victim.read_bytes()
        victim.write_bytes(content[:100] if damage == "cut" else content[:-1] + b"?")
    with capture_logs() as lines:
        num_kept, num_fitted = refit(engine, shared, settings(tmp_path / "other", fits_url=f"file://{store}"))
    assert num_fitted == 1
    assert num_kept == len(digests(engine)) - 1
    assert [line["event"] for line in lines if line["log_level"] == "warning"] == ["fit.lost"]
    assert refit(engine, shared, settings(tmp_path / "third", fits_url=f"file://{store}")) == (num_kept + 1, 0)


def test_a_lost_object_is_written_again_by_a_trainer_that_has_its_copy(
    engine: Engine, shared: Schema, tmp_path: Path, fits_url: str, store: Path
) -> None:
    (victim, *_) = sorted((store / "fits").iterdir())
    victim.unlink()
    other = live(engine, settings(tmp_path / "other", fits_url=fits_url))
    with engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM error_cells")
    other.score_new_labels(moment(10))
    assert not victim.exists()
    assert upkeep(engine, settings(tmp_path / "one", fits_url=fits_url)).share_left(later()) == 1
    assert victim.exists()
    assert refit(engine, shared, settings(tmp_path / "third", fits_url=fits_url))[1] == 0


def test_a_damaged_copy_is_fetched_again(
    engine: Engine, shared: Schema, tmp_path: Path, fits_url: str, store: Path
) -> None:
    origin = max(held(tmp_path / "one", shared))
    (candidate_folder(tmp_path / "one", shared.task, origin) / GRAPH_FILE).write_bytes(b"damaged")
    assert refit(engine, shared, settings(tmp_path / "one", fits_url=fits_url)) == (len(objects_in(store)), 0)


def test_a_store_that_is_away_costs_no_cycle_and_one_line(
    engine: Engine, registry: Registry, tmp_path: Path, fits_url: str
) -> None:
    schema = define(engine, drifting_task(), 10)
    away = f"s3://bucket/prefix?endpoint=http://127.0.0.1:{free_port()}&region=eu-west-1"
    with capture_logs() as lines:
        assert retrain(engine, registry, schema, 10, tmp_path / "one", fits_url=away).state == "released"
    (line,) = [line for line in lines if line["event"] == "object_store.away"]
    assert line["reason"].startswith(f"The object store {away} cannot be used: ")
    assert "MORROW_FITS_URL" in line["remedy"]
    given = settings(tmp_path / "one", fits_url=fits_url)
    assert upkeep(engine, given).share_left(later()) == len(held(tmp_path / "one", schema))
    assert refit(engine, schema, settings(tmp_path / "other", fits_url=fits_url))[1] == 0


def test_a_fit_that_is_made_again_replaces_the_copies_of_others(
    engine: Engine, registry: Registry, tmp_path: Path, fits_url: str, store: Path
) -> None:
    schema = define(engine, drifting_task(), 10)
    one, other = tmp_path / "one", tmp_path / "other"
    nowhere = Registry(f"http://127.0.0.1:{free_port()}")
    assert retrain(engine, nowhere, schema, 10, one, fits_url=fits_url).state == "failed"
    graph = (candidate_folder(one, schema.task, cutoff_after(10)) / GRAPH_FILE).read_bytes()
    (event, *_) = drifting_events(9, 10)
    late = replace(event, event_id="late", label="no" if event.label == "yes" else "yes")
    append(engine, schema, [late])
    assert retrain(engine, registry, schema, 10, other, fits_url=fits_url).state == "released"
    fresh = (candidate_folder(other, schema.task, cutoff_after(10)) / GRAPH_FILE).read_bytes()
    assert fresh != graph
    append(engine, schema, drifting_events(10, 11))
    live(engine, settings(one, fits_url=fits_url)).score_new_labels(moment(11.01))
    assert (candidate_folder(one, schema.task, cutoff_after(10)) / GRAPH_FILE).read_bytes() == fresh
    upkeep(engine, settings(one, fits_url=fits_url)).clear(now() + 2 * GRACE)
    assert objects_in(store) == digests(engine)


def test_pruning_deletes_no_object_that_a_fit_names_or_a_writer_has_announced(
    engine: Engine, shared: Schema, tmp_path: Path, fits_url: str, store: Path
) -> None:
    given = settings(tmp_path / "one", fits_url=fits_url)
    extra = Objects(fits_url).write(b"of a writer that was killed")
    with engine.begin() as connection:
        identity = connection.execute(select(kept_fits.c.store).limit(1)).scalar_one()
        connection.execute(fit_objects.insert().values(store=identity, digest=extra, put_at=now()))
    upkeep(engine, given).clear(now())
    assert objects_in(store) == digests(engine) | {extra}
    # A writer of the same object waits while it is deleted, and then writes it again.
    with engine.begin() as writer:
        writer.execute(fit_objects.update().where(fit_objects.c.digest == extra).values(put_at=now() + 2 * GRACE))
        upkeep(engine, given).clear(now() + 2 * GRACE)
        assert extra in objects_in(store)
    upkeep(engine, given).clear(now() + 2 * GRACE)
    assert extra in objects_in(store)
    upkeep(engine, given).clear(now() + 4 * GRACE)
    assert objects_in(store) == digests(engine)


def test_old_fits_go_everywhere_and_those_that_labels_may_still_score_stay(
    engine: Engine, registry: Registry, tmp_path: Path, fits_url: str, store: Path
) -> None:
    schema = define(engine, drifting_task(), 16)
    one, other = tmp_path / "one", tmp_path / "other"
    for num_windows, home in ((8, one), (9, other), (16, one)):
        cycle = claim(engine, schema, cutoff_after(num_windows))
        done = carry_out(engine, registry, cycle, home, fits_url=fits_url, clock=partial(moment, num_windows + 0.01))
        assert done.state == "released"
    with engine.connect() as connection:
        origins = set(connection.execute(select(kept_fits.c.origin)).scalars())
    assert min(origins) > moment(7)
    upkeep(engine, settings(other, fits_url=fits_url)).clear(now() + 2 * GRACE)
    assert objects_in(store) == digests(engine)
    assert min(held(other, schema)) > cutoff_after(7)


def test_copies_are_bounded_and_what_is_not_shared_yet_stays(
    engine: Engine, shared: Schema, tmp_path: Path, fits_url: str
) -> None:
    one = tmp_path / "one"
    given = settings(one, fits_url=fits_url, fits_cache_mib=1)
    origins = held(one, shared)
    (candidate_folder(one, shared.task, min(origins)) / MARKER_FILE).unlink()
    for origin in origins - {min(origins)}:
        (candidate_folder(one, shared.task, origin) / "filling").write_bytes(bytes(2**20))
    upkeep(engine, given).clear(now())
    assert held(one, shared) == origins, "a running cycle may use them"
    upkeep(engine, given).clear(later(2 * given.cycle_limit_seconds))
    assert held(one, shared) == {min(origins)}
    assert refit(engine, shared, given) == (len(origins), 0)


def test_of_a_deleted_task_the_objects_go_and_so_do_the_copies_of_others(
    engine: Engine, shared: Schema, tmp_path: Path, fits_url: str, store: Path
) -> None:
    other = settings(tmp_path / "other", fits_url=fits_url)
    assert refit(engine, shared, other)[1] == 0
    with engine.begin() as connection:
        begin_deletion(connection, shared.task.name, actor="Ada", reason="mistyped", now=now())
        delete_events(connection, shared.task_id)
        for delete_some in DELETE_SOME:
            delete_some(connection, shared.task_id)
        (deleted,) = list_deleted(connection)
        assert finish_deletion(connection, deleted, now())
    upkeep(engine, other).clear(now() + 2 * GRACE)
    assert objects_in(store) == set()
    assert not held(other.home, shared)


def test_a_fit_that_is_shared_late_is_news_of_its_task(engine: Engine, shared: Schema) -> None:
    with engine.begin() as connection:
        seen = read_touched(connection, None)
    with engine.begin() as connection:
        connection.execute(kept_fits.update().values(kept_at=now()))
    with engine.connect() as connection:
        assert read_touched(connection, seen.bookmark).task_ids == {shared.task_id}


def test_another_store_gets_all_fits_and_no_copy_is_deleted(
    engine: Engine, shared: Schema, tmp_path: Path, fits_url: str
) -> None:
    origins = held(tmp_path / "one", shared)
    moved = settings(tmp_path / "one", fits_url=f"{fits_url}-moved")
    upkeep(engine, moved).clear(later())
    assert refit(engine, shared, moved) == (len(origins), 0)
    assert upkeep(engine, moved).share_left(later()) == len(origins)
    assert refit(engine, shared, settings(tmp_path / "other", fits_url=moved.fits_url)) == (len(origins), 0)
