"""Releases are exchanged one process at a time: the older code works with a database that is one revision ahead."""

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, text
from typer.testing import CliRunner

import migrations
from cli.local.database import await_schema
from cli.main import app
from contracts.errors import Conflict
from migrations import migrate


def number_of_newest() -> int:
    (folder,) = migrations.__path__
    return int(ScriptDirectory(folder).get_current_head() or 0)


def put_ahead(url: str, revisions: int) -> None:
    """What a newer release leaves behind, as far as the older one can see."""
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(
            text("UPDATE alembic_version SET version_num = :number"), {"number": f"{number_of_newest() + revisions:04}"}
        )
    engine.dispose()


def test_revisions_are_numbered_without_gaps() -> None:
    config = Config()
    (folder,) = migrations.__path__
    config.set_main_option("script_location", folder)
    found = [revision.revision for revision in ScriptDirectory.from_config(config).walk_revisions()]
    assert found[::-1] == [f"{number:04}" for number in range(1, len(found) + 1)]


def test_migrating_says_what_was_found_and_done(empty_url: str) -> None:
    newest = number_of_newest()
    assert migrate(empty_url) == f"The database was brought from revision 0 to {newest}."
    assert migrate(empty_url) == f"The database is at revision {newest} already."


def test_the_older_code_works_with_a_database_one_revision_ahead(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_ahead(database_url, 1)
    await_schema(database_url, 0)
    monkeypatch.setenv("MORROW_DATABASE_URL", database_url)
    done = CliRunner().invoke(app, ["migrate"])
    assert (done.exit_code, done.output) == (
        0,
        f"The database is at revision {number_of_newest() + 1}, one ahead of this version, which works with it.\n",
    )


def test_further_ahead_it_says_so_and_refuses_at_once(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put_ahead(database_url, 2)
    with pytest.raises(Conflict, match="run a newer one"):
        await_schema(database_url, 60)
    monkeypatch.setenv("MORROW_DATABASE_URL", database_url)
    done = CliRunner().invoke(app, ["migrate"])
    assert done.exit_code == 1
    assert f"The database is at revision {number_of_newest() + 2}, and this version" in " ".join(done.output.split())
