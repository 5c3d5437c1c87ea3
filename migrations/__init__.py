"""The database's history: Alembic revisions, and `migrate`, which several processes may call at once.

Revisions are numbered, and a release brings one at most. A revision removes nothing that the previous release relies
on, and changes no meaning of it. One release stops using a column, and the next drops it. So a process works with a
database one revision ahead of it, and processes can be upgraded one at a time
(`docs/decisions/0010-one-revision-ahead.md`).

Only `migrate` imports Alembic: every start of the API and of the trainer reads the database's revision.
"""

from pathlib import Path

from sqlalchemy import Connection, text

from contracts.errors import Conflict
from store.engine import make_engine

_FOLDER = Path(__file__).parent
_LOCK = 7_365_018_463_021_954  # the advisory lock's name: any fixed number


def migrate(database_url: str) -> str:
    """Bring the database to the newest revision; returns a sentence about what was done.

    The first process migrates, others wait and find it done. Raises Conflict if a newer Morrow has brought the database
    more than one revision ahead, or if a new database cannot hold every text.
    """
    engine = make_engine(database_url)
    try:
        with engine.begin() as connection:
            connection.execute(text("SET LOCAL lock_timeout = 0"))  # others wait for as long as a migration takes
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
            found, newest = _revision(connection), _newest_revision()
            if found > newest + 1:
                raise Conflict(_too_far(found, newest))
            if found > newest:
                return f"The database is at revision {found}, one ahead of this version, which works with it."
            if found == newest:
                return f"The database is at revision {newest} already."
            _check_encoding(connection)
            _upgrade(connection)
            return f"The database was brought from revision {found} to {newest}."
    finally:
        engine.dispose()


def _check_encoding(connection: Connection) -> None:
    encoding = connection.execute(text("SHOW server_encoding")).scalar_one()
    if encoding != "UTF8":
        raise Conflict(
            f"The database's encoding is {encoding}, which cannot hold every name and category: make one with "
            "CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0."
        )


def is_migrated(connection: Connection) -> bool:
    """Whether this code works with the database: at its own revision, or at the one after it.

    Raises Conflict if the database is further ahead: waiting does not help then.
    """
    found, newest = _revision(connection), _newest_revision()
    if found > newest + 1:
        raise Conflict(_too_far(found, newest))
    return found >= newest


def _too_far(found: int, newest: int) -> str:
    return (
        f"The database is at revision {found}, and this version of Morrow works with {newest} and {newest + 1} only: "
        "run a newer one, or restore the backup that was made before the upgrade."
    )


def _revision(connection: Connection) -> int:
    """The number of the database's revision; 0 if Alembic has made no table yet."""
    if connection.execute(text("SELECT to_regclass('alembic_version')")).scalar() is None:
        return 0
    return int(connection.execute(text("SELECT version_num FROM alembic_version")).scalar() or 0)


def _newest_revision() -> int:
    """The number of the newest revision in this code, from the names of its files."""
    return max(int(file.name[:4]) for file in (_FOLDER / "versions").glob("[0-9]*.py"))


def _upgrade(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
