"""What PostgreSQL refuses is said in one sentence, with the statement or the setting that mends it."""

from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.exc import DBAPIError, OperationalError

from cli.local.database import migrated_store
from contracts.errors import Unavailable
from contracts.runtime.settings import SharedSettings
from migrations import migrate
from service.database import Store
from store.engine import make_engine
from store.errors import StoreOutage
from store.refusals import Refusal, explain_refusal


@pytest.fixture
def role(empty_url: str) -> Iterator[str]:
    """A role that may log in and owns nothing."""
    name = f"guest_{uuid4().hex[:8]}"
    run(empty_url, f"CREATE ROLE {name} LOGIN")
    yield name
    run(empty_url, f"DROP OWNED BY {name} CASCADE; DROP ROLE {name}")


def run(url: str, statements: str) -> None:
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(statements))
    engine.dispose()


def seen_by(url: str, role: str) -> str:
    return make_url(url).set(username=role).render_as_string(hide_password=False)


def refusal_at(url: str) -> Refusal:
    """Why this database cannot be migrated."""
    with pytest.raises(DBAPIError) as caught:
        migrate(url)
    refusal = explain_refusal(caught.value, url)
    assert refusal is not None
    assert "\n" not in str(refusal)
    return refusal


def test_a_role_without_create_on_the_schema_gets_the_grant(empty_url: str, role: str) -> None:
    """As every role but the owner since PostgreSQL 15."""
    url = seen_by(empty_url, role)
    assert f"GRANT USAGE, CREATE ON SCHEMA public TO {role}" in refusal_at(url).remedy
    run(empty_url, f"GRANT USAGE, CREATE ON SCHEMA public TO {role}")
    assert "was brought from revision 0" in migrate(url)


def test_a_schema_that_is_not_even_seen_gets_the_grant(empty_url: str, role: str) -> None:
    run(empty_url, "REVOKE ALL ON SCHEMA public FROM PUBLIC")
    assert f"GRANT USAGE, CREATE ON SCHEMA public TO {role}" in refusal_at(seen_by(empty_url, role)).remedy


def test_a_role_that_may_not_connect_gets_the_grant(empty_url: str, role: str) -> None:
    name = make_url(empty_url).database
    run(empty_url, f"REVOKE CONNECT ON DATABASE {name} FROM PUBLIC")
    assert refusal_at(seen_by(empty_url, role)).remedy == f"GRANT CONNECT, CREATE ON DATABASE {name} TO {role}"


def test_tables_of_someone_else_get_the_grant(database_url: str, role: str) -> None:
    url = seen_by(database_url, role)
    run(database_url, f"GRANT USAGE, CREATE ON SCHEMA public TO {role}")
    engine = make_engine(url)
    with pytest.raises(DBAPIError) as caught, engine.connect() as connection:
        connection.execute(text("SELECT * FROM tasks"))
    engine.dispose()
    refusal = explain_refusal(caught.value, url)
    run(database_url, f"DROP OWNED BY {role}")
    assert refusal is not None
    assert f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}" in refusal.remedy


def test_a_missing_database_or_role_gets_the_statement_that_makes_it(empty_url: str) -> None:
    nowhere = make_url(empty_url).set(database="my-shop").render_as_string(hide_password=False)
    assert 'CREATE DATABASE "my-shop"' in refusal_at(nowhere).remedy
    assert "CREATE ROLE nobody_here LOGIN" in refusal_at(seen_by(empty_url, "nobody_here")).remedy


def test_a_role_that_may_not_log_in_gets_the_statement(empty_url: str, role: str) -> None:
    run(empty_url, f"ALTER ROLE {role} NOLOGIN")
    assert refusal_at(seen_by(empty_url, role)).remedy == f"ALTER ROLE {role} LOGIN"


def test_sessions_that_may_only_read_are_named(empty_url: str, role: str) -> None:
    run(empty_url, f"GRANT CREATE ON SCHEMA public TO {role}; ALTER ROLE {role} SET default_transaction_read_only = on")
    refusal = refusal_at(seen_by(empty_url, role))
    assert "takes no writes" in refusal.words
    assert "name the primary server" in refusal.remedy


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql+psycopg://morrow:secret@127.0.0.1:1/morrow", "does not answer"),
        ("postgresql+psycopg://morrow:secret@no-such-host.invalid/morrow", "is not known here"),
        ("postgresql+psycopg://morrow:secret@127.0.0.1:1/morrow?schema=x", "an option that PostgreSQL does not know"),
        ("postgresql+psycopg://morrow:secret@127.0.0.1:1/morrow?sslmode=sometimes", "sslmode"),
        ("postgresql+psycopg://morrow@/morrow?host=/nowhere", "does not answer"),
    ],
)
def test_a_server_that_cannot_be_reached_is_named_without_its_password(url: str, words: str) -> None:
    refusal = refusal_at(url)
    assert words in refusal.words
    assert "secret" not in str(refusal)
    with pytest.raises(Unavailable, match="MORROW_DATABASE_URL"), migrated_store(SharedSettings(database_url=url)):
        pass


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        (
            'connection failed: FATAL:  password authentication failed for user "morrow"',
            "MORROW_DATABASE_PASSWORD_FILE",
        ),
        ("connection failed: fe_sendauth: no password supplied", "MORROW_DATABASE_PASSWORD_FILE"),
        ('FATAL:  no pg_hba.conf entry for host "10.0.0.1", user "morrow", no encryption', "pg_hba.conf"),
        ("server does not support SSL, but SSL was required", "sslmode"),
        ("FATAL:  sorry, too many clients already", "max_connections"),
        ("FATAL:  unsupported startup parameter: search_path", "ignore_startup_parameters"),
        ("FATAL:  the database system is starting up", "wait"),
        ("cannot execute CREATE TABLE in a read-only transaction", "primary"),
        ('permission denied to create extension "x"', "CREATE EXTENSION"),
    ],
)
def test_words_of_servers_that_a_test_cannot_start_have_a_remedy(said: str, remedy: str) -> None:
    error = OperationalError("SELECT 1", None, psycopg.OperationalError(said))
    refusal = explain_refusal(error, "postgresql+psycopg://morrow@db/morrow")
    assert refusal is not None
    assert remedy in refusal.remedy


def test_a_fault_of_ours_is_no_refusal(database_url: str) -> None:
    engine = make_engine(database_url)
    for statement in ("SELEKT", "SELECT 1 / 0", "SELECT * FROM nosuch"):
        with pytest.raises(DBAPIError) as caught, engine.connect() as connection:
            connection.execute(text(statement))
        assert explain_refusal(caught.value, database_url) is None
    engine.dispose()


def test_the_log_of_an_outage_has_the_remedy_and_a_client_does_not(empty_url: str) -> None:
    store = Store(make_engine(seen_by(empty_url, "nobody_here")), places=1, seconds=5)
    with pytest.raises(StoreOutage) as caught:
        store.transact(lambda connection: connection.execute(text("SELECT 1")))
    store.close()
    assert str(caught.value) == "The database does not answer."
    assert "CREATE ROLE nobody_here" in (store.explain(caught.value) or "")
