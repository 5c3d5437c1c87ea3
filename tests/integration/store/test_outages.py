"""An outage of the database is named in one sentence, in every process; a fault of our own is not hidden."""

import pytest
from sqlalchemy import URL, Engine, NullPool, create_engine, text
from sqlalchemy.exc import SQLAlchemyError

from contracts.failure import Failure, FailureCode
from store.outages import BUSY, FULL, LATE, NOT_MIGRATED, SILENT, name_outage
from tests.integration.service_app import DEAD_DATABASE
from tests.servers import full_server

STATEMENTS = {
    "SET TRANSACTION READ ONLY; DELETE FROM tasks": Failure(
        FailureCode.STORE_READ_ONLY, "The database takes no writes."
    ),
    "SET LOCAL statement_timeout = 1; SELECT pg_sleep(1)": LATE,
    "SELECT * FROM nosuch": NOT_MIGRATED,
    "SELECT pg_terminate_backend(pg_backend_pid())": SILENT,
    # As the server raises it: a test has no disk to fill.
    "DO $$ BEGIN RAISE disk_full; END $$": Failure(FailureCode.STORE_DISK_FULL, "The database has no room left."),
    "DO $$ BEGIN RAISE insufficient_resources; END $$": Failure(
        FailureCode.STORE_LIMIT, "The database has reached one of its limits."
    ),
    "SELECT 1 / 0": None,
    "SELECT 'x'::int": None,
    "SELEKT": None,
}


@pytest.mark.parametrize("statement", STATEMENTS)
def test_an_outage_is_named_and_a_fault_is_not_taken_for_one(engine: Engine, statement: str) -> None:
    with pytest.raises(SQLAlchemyError) as caught, engine.begin() as connection:
        connection.execute(text(statement))
    assert name_outage(caught.value) == STATEMENTS[statement]


def test_what_cannot_be_sent_at_all_is_no_outage(engine: Engine) -> None:
    with pytest.raises(SQLAlchemyError) as caught, engine.begin() as connection:
        connection.execute(text("SELECT :given"), {"given": "\0"})
    assert name_outage(caught.value) is None


def test_a_server_that_takes_no_more_connections_is_told_from_one_that_is_away(engine: Engine) -> None:
    with full_server(engine) as url:
        assert trouble_at(url) == FULL
    assert trouble_at(DEAD_DATABASE) == SILENT
    assert trouble_at(engine.url.set(database="nosuch")) == SILENT


def test_a_process_whose_connections_are_all_taken_says_that_it_is_its_own(database_url: str) -> None:
    engine = create_engine(database_url, pool_size=1, max_overflow=0, pool_timeout=0.1)
    with engine.connect(), pytest.raises(SQLAlchemyError) as caught:
        engine.connect()
    engine.dispose()
    assert name_outage(caught.value) == BUSY


def test_a_connection_gives_a_silent_server_up(engine: Engine) -> None:
    """Its machine may be gone, and then nothing closes the connection."""
    with engine.connect() as connection:
        driver = connection.connection.driver_connection
        assert driver is not None
        given = driver.info.get_parameters()
    assert given["tcp_user_timeout"] == "30000"
    assert int(given["keepalives_idle"]) + 2 * int(given["keepalives_interval"]) == 30


def trouble_at(url: str | URL) -> Failure | None:
    """What is said where nobody can connect."""
    engine = create_engine(url, poolclass=NullPool)
    with pytest.raises(SQLAlchemyError) as caught:
        engine.connect()
    return name_outage(caught.value)
