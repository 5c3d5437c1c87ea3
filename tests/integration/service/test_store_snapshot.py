"""A follower's poll: few statements however many tasks there are, and nothing that has changed is missed."""

from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from service.models.task_states.store_snapshot import NUM_READ_AGAIN, Snapshot, read_snapshot
from store.error_cells import Cell, record_cells
from store.tasks.catalog import Schema, define_task
from store.tasks.lifecycle import begin_deletion, move_task, rename_task
from store.tasks.touched import KEPT_SECONDS, Bookmark, delete_notes, read_touched
from tests.integration.artefacts import CUTOFF, WEEK
from tests.integration.make_follower import MakeFollower, ask
from tests.integration.published_versions import NOW, define, note, publish_and_release, run_cycle
from tests.integration.statements import counting_statements

MOST_STATEMENTS = 20


def poll(engine: Engine, former: Snapshot, now: float = 0) -> Snapshot:
    with engine.begin() as connection:
        return read_snapshot(connection, {}, former, now)


def touched(engine: Engine, since: Bookmark) -> tuple[Bookmark, set[int] | None]:
    with engine.begin() as connection:
        found = read_touched(connection, since)
    return found.bookmark, None if found.task_ids is None else set(found.task_ids)


def start_reading(engine: Engine) -> Bookmark:
    with engine.begin() as connection:
        return read_touched(connection, None).bookmark


@pytest.mark.parametrize("num_tasks", [3, 30])
def test_a_poll_takes_few_statements_however_many_tasks_there_are(
    make_follower: MakeFollower, engine: Engine, mlflow_url: str, tmp_path: Path, num_tasks: int
) -> None:
    schemas = [define(engine) for _ in range(num_tasks)]
    for schema in schemas[:2]:
        publish_and_release(mlflow_url, engine, schema, tmp_path)
    for schema in schemas:
        run_cycle(engine, schema, CUTOFF, "skipped", "too few rows")
    make_follower().poll(0)
    follower, counts = make_follower(poll_seconds=60.0), []
    for now in range(3):
        with counting_statements(engine) as statements:
            follower.poll(now)
        counts.append(len(statements))
        for schema in schemas:
            note(engine, schema, "1", "override", valid_until=CUTOFF + (3 + now) * WEEK)
    assert max(counts) <= MOST_STATEMENTS


def test_what_changes_is_read_at_the_next_poll_and_what_does_not_is_read_in_turn(engine: Engine) -> None:
    schemas = [define(engine) for _ in range(2 * NUM_READ_AGAIN + 5)]
    ids = {schema.task_id for schema in schemas}
    snapshot = poll(engine, Snapshot())
    assert snapshot.just_read == ids
    seen: set[int] = set()
    for _ in range(3):
        snapshot = poll(engine, snapshot)
        assert len(snapshot.just_read) == NUM_READ_AGAIN
        seen |= snapshot.just_read
    assert seen == ids
    changed = next(schema for schema in schemas if schema.task_id not in {*snapshot.just_read})
    note(engine, changed, "7", "release")
    snapshot = poll(engine, snapshot)
    assert changed.task_id in snapshot.just_read
    assert snapshot.task_states[changed.task.name].champion == "7"
    assert len(snapshot.known) == len(ids)


def test_everything_is_read_again_after_an_outage_and_after_a_long_pause(engine: Engine) -> None:
    ids = {define(engine).task_id for _ in range(NUM_READ_AGAIN + 2)}
    snapshot = poll(engine, poll(engine, Snapshot()))
    assert snapshot.just_read != ids
    assert poll(engine, snapshot.without_bookmark()).just_read == ids
    assert poll(engine, snapshot, now=KEPT_SECONDS + 1.0).just_read == ids


def test_each_ledger_notes_the_task_that_was_written_to(engine: Engine, schema: Schema) -> None:
    other = define(engine)
    bookmark = start_reading(engine)

    def record_some(num_rows: int) -> None:
        with engine.begin() as connection:
            found = [Cell(CUTOFF, CUTOFF + k * WEEK, "gi", num_rows, 0.2, 0.1, num_rows) for k in range(3)]
            record_cells(connection, schema.task_id, schema.task.recipe, found, NOW)

    def run(statement: str) -> None:
        with engine.begin() as connection:
            connection.execute(text(statement), {"id": schema.task_id})

    def define_again() -> None:
        with engine.begin() as connection:
            define_task(connection, schema.task.model_copy(update={"window": 2 * schema.task.window}), NOW)

    def move(step: str) -> None:
        with engine.begin() as connection:
            move_task(connection, schema.task.name, step, actor="Ada", reason="", now=NOW)  # type: ignore[arg-type]  # a parameter of the test

    writes: list[Callable[[], object]] = [
        lambda: note(engine, schema, "1", "release"),
        lambda: run("UPDATE releases SET valid_until = valid_until - interval '1 day' WHERE task_id = :id"),
        lambda: run_cycle(engine, schema, CUTOFF, "skipped", "too few rows"),
        lambda: run("UPDATE cycles SET reason = 'another' WHERE task_id = :id"),
        lambda: record_some(50),
        lambda: record_some(60),
        lambda: run("DELETE FROM error_cells WHERE task_id = :id"),
        define_again,
        lambda: move("pause"),
        lambda: move("resume"),
        lambda: run("DELETE FROM cycles WHERE task_id = :id"),
        lambda: run("DELETE FROM releases WHERE task_id = :id"),
    ]
    for write in writes:
        write()
        bookmark, found = touched(engine, bookmark)
        assert found == {schema.task_id}
    run("UPDATE cycles SET lease_until = now() WHERE task_id = :id")
    note(engine, other, "1", "release")
    assert touched(engine, bookmark)[1] == {other.task_id}


def test_a_transaction_that_ends_after_a_later_one_is_not_missed(engine: Engine, schema: Schema) -> None:
    other = define(engine)
    bookmark = start_reading(engine)
    with engine.connect() as slow, slow.begin():
        slow.execute(text("UPDATE tasks SET created_at = created_at WHERE id = :id"), {"id": schema.task_id})
        note(engine, other, "1", "release")
        bookmark, found = touched(engine, bookmark)
        assert found == {other.task_id}
        bookmark, found = touched(engine, bookmark)
        assert found == set()
    bookmark, found = touched(engine, bookmark)
    assert found == {schema.task_id}
    assert touched(engine, bookmark)[1] == set()


def test_writers_of_one_task_do_not_wait_for_each_others_notes(engine: Engine, schema: Schema) -> None:
    with engine.connect() as first, first.begin():
        first.execute(text("INSERT INTO touched_tasks VALUES (pg_current_xact_id()::text::bigint, :id)"), {"id": 1})
        record_cells(first, schema.task_id, schema.task.recipe, [Cell(CUTOFF, CUTOFF, "gi", 50, 0.2, 0.1)], NOW)
        with engine.begin() as second:
            second.execute(text("SET LOCAL lock_timeout = '1s'"))
            cell = Cell(CUTOFF, CUTOFF + WEEK, "gi", 50, 0.2, 0.1)
            record_cells(second, schema.task_id, schema.task.recipe, [cell], NOW)


def test_old_notes_are_deleted_and_new_ones_stay(engine: Engine, schema: Schema) -> None:
    def count() -> int:
        with engine.begin() as connection:
            return connection.execute(text("SELECT count(*) FROM touched_tasks")).scalar_one()  # type: ignore[no-any-return]  # a count

    with engine.begin() as connection:
        connection.execute(text("UPDATE touched_tasks SET noted_at = now() - interval '1 day'"))
    note(engine, schema, "1", "release")
    with engine.begin() as connection:
        delete_notes(connection)
    assert count() == 1


def test_a_task_that_is_archived_renamed_or_deleted_leaves_the_next_poll(engine: Engine) -> None:
    schemas = [define(engine) for _ in range(3)]
    archived, renamed, deleted = (schema.task.name for schema in schemas)
    snapshot = poll(engine, Snapshot())
    how = {"actor": "Ada", "reason": "test", "now": NOW}
    with engine.begin() as connection:
        move_task(connection, archived, "archive", **how)  # type: ignore[arg-type]  # a parameter of the test
        rename_task(connection, renamed, f"{renamed}_again", **how)  # type: ignore[arg-type]  # a parameter of the test
        begin_deletion(connection, deleted, **how)  # type: ignore[arg-type]  # a parameter of the test
    snapshot = poll(engine, snapshot)
    assert set(snapshot.task_ids) == {f"{renamed}_again"}
    assert snapshot.departures.archived == {archived}
    assert snapshot.departures.renamed == {renamed: f"{renamed}_again"}
    assert set(snapshot.departures.deleted) == {deleted}


def test_an_override_is_obeyed_at_the_next_poll_however_many_tasks_there_are(
    make_follower: MakeFollower, engine: Engine, mlflow_url: str, tmp_path: Path
) -> None:
    first = define(engine)
    version = publish_and_release(mlflow_url, engine, first, tmp_path)
    for _ in range(3 * NUM_READ_AGAIN):
        define(engine)
    follower = make_follower()
    for now in range(3):
        follower.poll(now)
    note(engine, first, version, "override", valid_until=CUTOFF + 9 * WEEK)
    follower.poll(3)
    assert follower.find(first.task.name).valid_until == CUTOFF + 9 * WEEK
    assert ask(follower, first.task.name, CUTOFF + 8 * WEEK).version == version
