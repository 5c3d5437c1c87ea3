"""Rows of the log outlive kills of the API and of PostgreSQL: each answer is in the log once, or counted as missing."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine, text

from contracts.clock import format_moment
from migrations import migrate
from service.metrics import Metrics
from service.predict.log_writer import LogWriter
from service.predict.row_buffer import RowBuffer, find_left
from store.engine import make_engine
from store.predictions.ids import PredictionIds
from store.predictions.rows import write_row, write_source
from store.tasks.catalog import Schema
from tests.integration.api_process import Running, define_flights, running
from tests.integration.artefacts import CUTOFF, WEEK
from tests.integration.published_versions import define
from tests.standby import Server

QUERY: dict[str, str | int] = {"task": "flights", "at": format_moment(CUTOFF + WEEK), "distance": 1400, "carrier": "UA"}
IDS = PredictionIds()


def a_row(schema: Schema) -> bytes:
    now = time.time_ns() // 1000
    return write_row(
        IDS.make(now), write_source(schema.task_id, "1"), now, key_name=None, features=None, answer=b'{"mean":1.5}'
    )


def stored_ids(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return [str(one) for one in connection.execute(text("SELECT id FROM predictions")).scalars()]


def await_ids(engine: Engine, expected: set[str]) -> list[str]:
    deadline = time.monotonic() + 30
    while not expected <= {*(found := stored_ids(engine))} and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def ask_until(api: Running, stopping: threading.Event, ids: list[str]) -> None:
    """Ask without a pause; note the id of every answer that arrived."""
    with httpx.Client() as client:
        while not stopping.is_set():
            try:
                ids.append(client.get(f"{api.url}/predict", params=QUERY).raise_for_status().json()["id"])
            except httpx.TransportError:
                return


@pytest.mark.parametrize("workers", ["1", "2"])
def test_answers_before_a_kill_are_in_the_log_after_the_next_start(
    database_url: str, engine: Engine, tmp_path: Path, workers: str
) -> None:
    define_flights(engine)
    ids: list[str] = []
    with running(database_url, tmp_path, MORROW_WORKERS=workers) as api:
        await_ids(engine, {httpx.get(f"{api.url}/predict", params=QUERY).json()["id"]})
        asking = [threading.Thread(target=ask_until, args=(api, threading.Event(), ids)) for _ in range(4)]
        for one in asking:
            one.start()
        while len(ids) < 200:
            time.sleep(0.01)
        os.killpg(api.process.pid, signal.SIGKILL)
        for one in asking:
            one.join()
    with running(database_url, tmp_path, MORROW_WORKERS=workers):
        found = await_ids(engine, {*ids})
    assert {*ids} <= {*found}
    assert len(found) == len({*found})
    assert [*(tmp_path / "predictions").iterdir()] == []


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A PostgreSQL of this test alone."""
    server = Server(tmp_path / "server")
    server.create()
    server.start()
    yield server
    server.kill()


def test_rows_wait_while_postgresql_is_killed_and_are_stored_once(server: Server, tmp_path: Path) -> None:
    migrate(server.url)
    engine = make_engine(server.url)
    schema = define(engine)
    writer, metrics = write_to(engine, tmp_path)
    rows = [a_row(schema) for _ in range(400)]
    for place, row in enumerate(rows):
        writer.add(row, schema.task_id)
        time.sleep(0.002)
        if place == 200:
            server.kill()
        if place == 300:
            server.start()
    found = await_ids(engine, {id_of(row) for row in rows})
    writer.close()
    assert sorted(found) == sorted(id_of(row) for row in rows)
    assert dropped(metrics) == 0
    engine.dispose()


def test_rows_wait_while_the_database_takes_no_writes(engine: Engine, tmp_path: Path) -> None:
    """As a standby does, and a primary that an operator has frozen."""
    schema = define(engine)
    writer, metrics = write_to(engine, tmp_path)
    freeze(engine, "on")
    row = a_row(schema)
    writer.add(row, schema.task_id)
    time.sleep(2)
    assert stored_ids(engine) == []
    freeze(engine, "off")
    assert await_ids(engine, {id_of(row)}) == [id_of(row)]
    writer.close()
    assert dropped(metrics) == 0


def freeze(engine: Engine, state: str) -> None:
    """Let the sessions that begin from now on take no writes, or let them take some."""
    with engine.begin() as connection:
        connection.execute(text("SET TRANSACTION READ WRITE"))
        name = connection.execute(text("SELECT current_database()")).scalar_one()
        connection.execute(text(f'ALTER DATABASE "{name}" SET default_transaction_read_only = {state}'))
    engine.dispose()


def id_of(row: bytes) -> str:
    text_of = row[6:22].hex()
    return f"{text_of[:8]}-{text_of[8:12]}-{text_of[12:16]}-{text_of[16:20]}-{text_of[20:]}"


def write_to(engine: Engine, home: Path, **changes: Any) -> tuple[LogWriter, Metrics]:
    metrics = Metrics()
    writer = LogWriter(engine, home / "predictions", metrics, **changes)
    writer.start()
    return writer, metrics


def dropped(metrics: Metrics, reason: str = "queue_full") -> float:
    return metrics.registry.get_sample_value("morrow_predictions_dropped_total", {"reason": reason}) or 0.0


def test_a_full_buffer_drops_rows_and_counts_each(tmp_path: Path, engine: Engine) -> None:
    schema = define(engine)
    away = make_engine("postgresql+psycopg://nobody@127.0.0.1:9/morrow")
    row = a_row(schema)
    writer, metrics = write_to(away, tmp_path, size=10 * len(row))
    for _ in range(50):
        writer.add(a_row(schema), schema.task_id)
    writer.close()
    held = sum(left.num_rows for left in read_left(tmp_path))
    assert held >= 9
    assert dropped(metrics) == 50 - held
    writer, metrics = write_to(engine, tmp_path)
    writer.close()
    assert len(stored_ids(engine)) == held
    away.dispose()


def read_left(home: Path) -> list[Any]:
    found = []
    for left in find_left(home / "predictions"):
        found.append(left)
        left.close()
    return found


def test_a_process_leaves_the_rows_of_a_living_one_alone(tmp_path: Path, engine: Engine) -> None:
    schema = define(engine)
    buffer = RowBuffer(tmp_path / "predictions", 2**16)
    buffer.add(a_row(schema), schema.task_id)
    writer, _ = write_to(engine, tmp_path)
    writer.close()
    assert stored_ids(engine) == []
    buffer.close()
    writer, _ = write_to(engine, tmp_path)
    writer.close()
    assert len(stored_ids(engine)) == 1


def test_a_damaged_file_is_counted_and_removed(tmp_path: Path, engine: Engine) -> None:
    schema = define(engine)
    folder = tmp_path / "predictions"
    buffer = RowBuffer(folder, 2**16)
    buffer.add(a_row(schema), schema.task_id)
    buffer.close()
    (file,) = folder.iterdir()
    content = bytearray(file.read_bytes())
    content[24] ^= 0xFF
    file.write_bytes(content)
    writer, metrics = write_to(engine, tmp_path)
    writer.close()
    assert dropped(metrics, "damaged") == 1
    assert stored_ids(engine) == []
    assert [*folder.iterdir()] == []


def test_without_room_on_the_disk_rows_wait_in_memory(tmp_path: Path, engine: Engine) -> None:
    schema = define(engine)
    (tmp_path / "predictions").write_text("a file where the folder would be")
    writer, _ = write_to(engine, tmp_path)
    writer.add(a_row(schema), schema.task_id)
    writer.close()
    assert len(stored_ids(engine)) == 1
