"""Which database a command gets, and what it is told where that database is not ready."""

from pathlib import Path

import pytest

from cli.local.database import await_schema, migrated_store, open_store
from contracts.errors import Unavailable
from contracts.runtime.settings import SharedSettings
from migrations import is_migrated
from store.engine import make_engine

NOBODY = "postgresql+psycopg://morrow@127.0.0.1:1/morrow"


def test_a_named_database_is_used_as_it_is(database_url: str, tmp_path: Path) -> None:
    with open_store(SharedSettings(home=tmp_path, database_url=database_url)) as url:
        assert url == database_url
    assert list(tmp_path.iterdir()) == []


def test_without_tables_the_remedy_is_named(empty_url: str) -> None:
    with pytest.raises(Unavailable, match="run `morrow migrate`"):
        await_schema(empty_url, limit_seconds=0)


def test_tables_that_appear_meanwhile_end_the_waiting(empty_url: str) -> None:
    with migrated_store(SharedSettings(database_url=empty_url)):
        await_schema(empty_url, limit_seconds=0)


def test_a_database_that_is_away_is_not_waited_for() -> None:
    await_schema(NOBODY, limit_seconds=600)


def test_migrating_a_database_that_is_away_is_refused() -> None:
    with (
        pytest.raises(Unavailable, match="does not answer"),
        migrated_store(SharedSettings(database_url=NOBODY)),
    ):
        pass


def test_without_a_name_the_embedded_one_is_started_and_migrated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MORROW_DATABASE_URL", raising=False)
    with open_store(SharedSettings(home=tmp_path)) as url:
        engine = make_engine(url)
        with engine.connect() as connection:
            assert is_migrated(connection)
        engine.dispose()
