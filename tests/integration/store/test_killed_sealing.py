"""A sealing that is killed between any two of its steps, or meets writers, loses no event and counts none twice."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from contracts.clock import to_micros
from store.engine import make_engine
from store.events.sealed.manifest import list_files
from store.events.sealed.rewriting import sweep, transact
from store.events.writes import append_events, correct_event
from store.tasks.catalog import Schema
from store.tasks.row_counts import count_rows
from tests.integration.drifting_task import HOUR, START, cutoff_after
from tests.integration.sealed_tasks import NOW, SEALED, SMALL, assert_twins, events_of, history, reads, same, seal_all

LIMITS = replace(SMALL, rows_per_file=160, rows_per_batch=90)

# Kills itself at the n-th step: before or after a commit, or after a file was written.
CHILD = textwrap.dedent("""
    import os, signal, sys
    from datetime import UTC, datetime
    from sqlalchemy import event
    from store.engine import make_engine
    from store.events.sealed.sealing import Limits, seal
    from store.objects import Objects
    from store.tasks.catalog import find_task

    url, task, store, before, now, die_at = sys.argv[1:]
    engine, steps = make_engine(url), [0]

    def step(*_):
        steps[0] += 1
        if steps[0] == int(die_at):
            os.kill(os.getpid(), signal.SIGKILL)

    write = Objects.write_at

    def write_and_step(self, path, content):
        write(self, path, content)
        step()

    Objects.write_at = write_and_step
    with engine.connect() as connection:
        schema = find_task(connection, task)
    event.listen(engine, "commit", step)
    limits = Limits(kept_newest=0, kept_oldest=0, rows_per_file=160, rows_per_batch=90)
    seal(engine, f"file://{store}", schema, int(before), datetime.fromtimestamp(float(now), UTC), limits=limits)
""")


def seal_and_die(database_url: str, task: str, store: Path, die_at: int) -> int:
    given = [database_url, task, str(store), str(cutoff_after(SEALED)), str(NOW.timestamp()), str(die_at)]
    ended = subprocess.run([sys.executable, "-c", CHILD, *given], timeout=120, check=False, env=dict(os.environ))
    return ended.returncode


@pytest.mark.parametrize("first", [1, 2])
def test_a_sealing_killed_between_any_two_steps_loses_nothing(
    engine: Engine, database_url: str, tmp_path: Path, first: int
) -> None:
    """Each process is killed one step later than the one before, and goes on where that has stopped."""
    schema, store = history(engine, first, "classification"), tmp_path / "store"
    before = reads(engine, schema)
    with engine.connect() as connection:
        counts = count_rows(connection, schema.task_id)
    die_at, num_killed = first, 0
    while (code := seal_and_die(database_url, schema.task.name, store, die_at)) == -signal.SIGKILL:
        num_killed, die_at = num_killed + 1, die_at + 2
        for one, other in zip(reads(engine, schema), before, strict=True):
            same(one, other)
        with engine.connect() as connection:
            assert count_rows(connection, schema.task_id) == counts
    assert code == 0
    assert num_killed >= 3
    for one, other in zip(reads(engine, schema), before, strict=True):
        same(one, other)
    run = partial(transact, engine)
    sweep(run, NOW + 2 * HOUR)
    with engine.connect() as connection:
        files = list_files(connection, schema.task_id)
        twice = text("SELECT count(*) - count(DISTINCT event_id) FROM events WHERE task_id = :id AND revision = 1")
        assert connection.execute(twice, {"id": schema.task_id}).scalar_one() == 0
    assert {f"sealed/{file.name}" for file in store.rglob("*.parquet")} == {file.path for file in files}
    assert all(file.num_moved == file.num_rows for file in files)
    assert seal_all(engine, schema, store, LIMITS) == 0
    assert to_micros(NOW) > max(file.last_at for file in files)


def test_events_that_are_sent_again_and_corrected_during_a_sealing_are_stored_once(
    engine: Engine, database_url: str, tmp_path: Path
) -> None:
    sealed, plain = (history(engine, 1, "classification") for _ in range(2))
    rows = events_of(3001, sealed, 200)
    for schema in (sealed, plain):
        with engine.begin() as connection:
            append_events(connection, schema, rows, START)
    outcomes: list[str] = []
    is_done = threading.Event()
    corrected = rows[::9]

    def send_again(writer: Engine) -> None:
        others = [row for row in rows if row not in corrected]
        while not is_done.is_set():
            with writer.begin() as connection:
                outcomes.extend(append_events(connection, sealed, others, START + HOUR))

    def correct(engine: Engine, schema: Schema) -> None:
        for row in corrected:
            with engine.begin() as connection:
                correct_event(connection, schema, replace(row, label="yes", numbers=(3.0, 4.0)), START + 9 * HOUR)

    writers = [make_engine(database_url) for _ in range(3)]
    threads = [threading.Thread(target=send_again, args=(writer,)) for writer in writers[:2]]
    threads.append(threading.Thread(target=correct, args=(writers[2], sealed)))
    for thread in threads:
        thread.start()
    small = replace(SMALL, rows_per_file=60, rows_per_batch=7)
    assert seal_all(engine, sealed, tmp_path / "store", small) > 100
    is_done.set()
    for thread in threads:
        thread.join()
    for writer in writers:
        writer.dispose()
    assert {*outcomes} == {"duplicate"}
    correct(engine, plain)
    assert_twins(engine, (sealed, plain))
