"""The database's history: Alembic revisions, and `migrate`, which several processes may call at once."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from contracts.database import make_engine

_LOCK = 7_365_018_463_021_954  # any fixed number: the name of the advisory lock


def migrate(database_url: str) -> None:
    """Bring the database to the newest revision. The first process works, others wait and find it done."""
    engine = make_engine(database_url)
    try:
        with engine.begin() as connection:
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
            config = _config()
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
    finally:
        engine.dispose()


def is_migrated(connection: Connection) -> bool:
    """Whether the database is at the revision that this code needs."""
    return MigrationContext.configure(connection).get_current_revision() == _newest_revision()


def _newest_revision() -> str | None:
    return ScriptDirectory.from_config(_config()).get_current_head()


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    return config
