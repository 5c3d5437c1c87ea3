"""Rows of fits are read from a standby that has replayed all that the primary held, and else from the primary."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event, make_url, text
from sqlalchemy.exc import DBAPIError
from structlog.testing import capture_logs

from migrations import migrate
from store.engine import make_engine
from store.tasks.catalog import Schema
from tests.integration.drifting_task import (
    add_windows,
    cutoff_after,
    define,
    drifting_task,
    now,
    retrain,
    settings,
)
from tests.standby import Server, primary_and_standby
from trainer.data.replica import Replica, read_rows
from trainer.data.snapshot import Reading, read
from trainer.evaluation.backtest import backtest
from trainer.progress import Report
from trainer.rivals.rivals import read_for_rivals
from trainer.tracking.registry import Registry

CUTOFF = cutoff_after(100)
NUM_ROWS = 150
# With the SQLSTATE of a conflict with recovery.
BREAKS_OFF = text("DO $$ BEGIN IF pg_is_in_recovery() THEN RAISE serialization_failure; END IF; END $$")


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    with primary_and_standby(tmp_path_factory.mktemp("replicated")) as servers:
        migrate(servers[0].url)
        yield servers


@pytest.fixture
def standby(servers: tuple[Server, Server]) -> Iterator[Server]:
    """The standby; at the end it replays again."""
    yield servers[1]
    servers[1].run("SELECT pg_wal_replay_resume()")


@pytest.fixture
def primary(servers: tuple[Server, Server]) -> Iterator[Engine]:
    engine = make_engine(servers[0].url)
    yield engine
    engine.dispose()


@pytest.fixture
def schema(primary: Engine) -> Schema:
    """A task with one window of rows."""
    return define(primary, drifting_task(), 1)


def read_logged(primary: Engine, schema: Schema, replica: Replica) -> tuple[Reading, list[Any]]:
    with capture_logs() as logs:
        reading = read(primary, schema, CUTOFF, now(), replica=replica)
    return reading, [line for line in logs if line["event"] in ("read.replica", "read.primary")]


def assert_primary_is_read(primary: Engine, schema: Schema, url: str, reason: str, wait_seconds: float = 0.2) -> None:
    reading, (line,) = read_logged(primary, schema, Replica(url, wait_seconds))
    assert len(reading.events) == NUM_ROWS
    assert line["event"] == "read.primary"
    assert reason in line["reason"]
    assert "MORROW_READ_" in line["remedy"]


def test_a_replica_gives_the_rows_that_the_primary_held(primary: Engine, standby: Server, schema: Schema) -> None:
    for num_windows in range(2, 12):
        add_windows(primary, schema, num_windows - 1, num_windows)
        reading, (line,) = read_logged(primary, schema, Replica(standby.url, 30))
        assert line["event"] == "read.replica"
        assert len(reading.events) == num_windows * NUM_ROWS
    assert reading.latest.digest == read(primary, schema, CUTOFF, now()).latest.digest


def test_a_read_waits_until_the_replica_has_replayed(primary: Engine, standby: Server, schema: Schema) -> None:
    standby.run("SELECT pg_wal_replay_pause()")
    add_windows(primary, schema, 1, 2)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(read_logged, primary, schema, Replica(standby.url, 60))
        with pytest.raises(TimeoutError):
            asked.result(timeout=1)
        standby.run("SELECT pg_wal_replay_resume()")
        reading, (line,) = asked.result(timeout=60)
    assert (line["event"], len(reading.events)) == ("read.replica", 2 * NUM_ROWS)
    assert line["waited_seconds"] > 0


def test_a_replica_that_stays_behind_is_not_read(primary: Engine, standby: Server, schema: Schema) -> None:
    read_logged(primary, schema, Replica(standby.url, 30))
    standby.run("SELECT pg_wal_replay_pause()")
    add_windows(primary, schema, 1, 2)
    reading, (line,) = read_logged(primary, schema, Replica(standby.url, 0.2))
    assert len(reading.events) == 2 * NUM_ROWS
    assert line["event"] == "read.primary"
    assert "bytes of the primary's log after 0.2 s" in line["reason"]
    assert "MORROW_READ_WAIT_SECONDS" in line["remedy"]


def test_a_server_that_is_no_standby_of_the_primary_is_not_read(
    primary: Engine, servers: tuple[Server, Server], schema: Schema, database_url: str
) -> None:
    assert_primary_is_read(primary, schema, servers[0].url, "is no standby")
    assert_primary_is_read(primary, schema, database_url, "is no copy of the primary")
    nowhere = make_url(servers[1].url).set(port=1).render_as_string(hide_password=False)
    assert_primary_is_read(primary, schema, nowhere, "does not answer")
    stranger = make_url(servers[1].url).set(username="nobody_here", password="secret")  # noqa: S106 of nobody
    assert_primary_is_read(
        primary, schema, stranger.render_as_string(hide_password=False), "has no role nobody_here", wait_seconds=5
    )


def test_a_read_that_the_replica_breaks_off_is_repeated_at_the_primary(primary: Engine, standby: Server) -> None:
    """As a standby does if the primary removes rows that its query still needs."""

    def work(connection: Connection) -> str:
        connection.execute(BREAKS_OFF)
        return "read"

    with capture_logs() as logs:
        assert read_rows(primary, Replica(standby.url, 30), work) == "read"
    assert [line["event"] for line in logs] == ["read.replica", "read.primary"]
    assert logs[-1]["reason"].startswith("the replica broke the read off: ")


def test_a_fault_of_the_read_itself_is_not_hidden(primary: Engine, standby: Server) -> None:
    with pytest.raises(DBAPIError, match="division by zero"):
        read_rows(primary, Replica(standby.url, 30), lambda connection: connection.execute(text("SELECT 1 / 0")))


def test_cycles_backtests_and_rivals_read_the_replica(
    primary: Engine, standby: Server, registry: Registry, tmp_path: Path
) -> None:
    schema = define(primary, drifting_task(), 6)
    replicated = {"read_database_url": standby.url}
    report: Report = lambda _event, /, **_facts: None  # noqa: E731 a report of nothing
    with capture_logs() as logs:
        retrain(primary, registry, schema, 6, tmp_path, **replicated)
        backtest(primary, schema, cutoff_after(6), settings=settings(tmp_path, **replicated), now=now, report=report)
        read_for_rivals(primary, schema, now(), Replica(standby.url, 30))
    assert [line["event"] for line in logs if line["event"].startswith("read.")] == ["read.replica"] * 3


def test_a_primary_that_does_not_say_how_far_its_log_is_is_read_itself(
    primary: Engine, standby: Server, schema: Schema
) -> None:
    """As servers do that only imitate PostgreSQL: here a function in front of the server's own refuses."""
    with primary.begin() as connection:
        connection.execute(text("CREATE SCHEMA managed"))
        connection.execute(
            text("""
                CREATE FUNCTION managed.pg_current_wal_insert_lsn() RETURNS pg_lsn LANGUAGE plpgsql
                AS $$ BEGIN RAISE feature_not_supported USING MESSAGE = 'no log here'; END $$
            """)
        )
    options = {"options": "-csearch_path=managed,pg_catalog,public"}
    managed = make_engine(primary.url.update_query_dict(options).render_as_string(hide_password=False))
    try:
        assert_primary_is_read(
            managed, schema, standby.url, "the primary does not say how far its log is (no log here)"
        )
    finally:
        managed.dispose()


def test_a_standby_that_is_promoted_while_a_read_begins_is_not_read(tmp_path: Path) -> None:
    """Without time to wait, the second transaction is the one that would be read."""
    with primary_and_standby(tmp_path) as (first, second):
        migrate(first.url)
        engine = make_engine(first.url)
        schema = define(engine, drifting_task(), 1)
        num_begun = 0

        def promote(connection: Connection) -> None:
            nonlocal num_begun
            is_at_standby = connection.engine.url.port == second.port
            num_begun += is_at_standby
            if is_at_standby and num_begun == 2:
                second.run("SELECT pg_promote()")

        event.listen(Engine, "begin", promote)
        try:
            deadline = time.monotonic() + 60
            while num_begun < 2 and time.monotonic() < deadline:
                num_begun = 0
                reading, (line,) = read_logged(engine, schema, Replica(second.url, 0))
        finally:
            event.remove(Engine, "begin", promote)
            engine.dispose()
        assert (num_begun, line["event"], len(reading.events)) == (2, "read.primary", NUM_ROWS)
        assert "is no standby" in line["reason"]
        assert "MORROW_READ_DATABASE_URL" in line["remedy"]


def test_a_promoted_standby_with_a_past_of_its_own_is_not_read(primary: Engine, tmp_path: Path) -> None:
    """Both hold the same positions of two logs: one follows the primary that was, the other is the new one."""
    with primary_and_standby(tmp_path) as (first, second):
        migrate(first.url)
        third = Server(tmp_path / "third")
        third.copy(first)
        third.start()
        try:
            second.run("SELECT pg_promote()")
            promoted = make_engine(second.url)
            schema = define(promoted, drifting_task(), 1)
            engine = make_engine(first.url)
            define(engine, drifting_task(), 3)
            engine.dispose()
            assert_primary_is_read(promoted, schema, third.url, "follows timeline 1, and the primary is on 2")
            promoted.dispose()
        finally:
            third.stop()
