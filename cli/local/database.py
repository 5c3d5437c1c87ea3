"""Which PostgreSQL a command uses: the one that the settings name, else the embedded one below the home folder."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from sqlalchemy import Connection, make_url
from sqlalchemy.exc import OperationalError

from cli.local.postgres import embedded_postgres
from cli.local.postgres_cluster import has_cluster
from contracts.errors import NotFound, Unavailable
from contracts.runtime.settings import SharedSettings
from migrations import is_migrated, migrate
from store.database import make_engine

SCHEMA_LIMIT_SECONDS = 60.0


@contextmanager
def open_store(settings: SharedSettings) -> Iterator[str]:
    """The URL of a migrated database. The embedded one is started or joined, and migrated.

    Whoever started it stops it, for those who joined too; commands that shall live side by side belong under
    `morrow up`. Raises Unavailable where a named database stays without its tables.
    """
    if settings.database_url:
        await_schema(settings.database_url, SCHEMA_LIMIT_SECONDS)
        yield settings.database_url
    else:
        with migrated_store(settings) as url:
            yield url


@contextmanager
def open_known_store(settings: SharedSettings, say: Callable[[str], object]) -> Iterator[str]:
    """The same for a command that only reads, which says what it reads. Raises NotFound where there is nothing yet:
    the folder is then a wrong one.
    """
    if settings.database_url:
        say(f"Database {make_url(settings.database_url).render_as_string()}")
    elif not has_cluster(settings.home / "postgres"):
        raise NotFound(
            f"There is no database below {settings.home}: set MORROW_HOME to the folder of the stack, or "
            "MORROW_DATABASE_URL."
        )
    else:
        say(f"Database below {settings.home}")
    with open_store(settings) as url:
        yield url


@contextmanager
def migrated_store(settings: SharedSettings, say: Callable[[str], object] | None = None) -> Iterator[str]:
    """The URL of the database after bringing it to the newest revision, which `say` is told in words.

    Raises Unavailable where it does not answer, Conflict where a newer Morrow has brought it too far.
    """
    with ExitStack() as cleanup:
        url = settings.database_url or cleanup.enter_context(embedded_postgres(settings.home / "postgres"))
        try:
            done = migrate(url)
        except OperationalError as error:
            raise Unavailable(f"The database does not answer: {error.orig}") from error
        if say is not None:
            say(done)
        yield url


@contextmanager
def transaction(database_url: str) -> Iterator[Connection]:
    """A connection of a command's own, which commits where the block ends well, and is closed."""
    engine = make_engine(database_url)
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


def await_schema(database_url: str, limit_seconds: float) -> None:
    """Wait while another process migrates. A server that does not answer is no reason to wait: API and trainer
    do their work without it, and recover when it is back. Raises Unavailable where nobody migrates, Conflict where
    a newer Morrow has brought the database too far.
    """
    deadline = time.monotonic() + limit_seconds
    engine = make_engine(database_url)
    try:
        while True:
            with engine.connect() as connection:
                if is_migrated(connection):
                    return
            if time.monotonic() > deadline:
                raise Unavailable("The database has not got the tables of this version: run `morrow migrate`.")
            time.sleep(0.5)
    except OperationalError:
        return
    finally:
        engine.dispose()
