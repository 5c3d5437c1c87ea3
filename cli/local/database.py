"""The PostgreSQL that a command uses: the one that the settings name, else the embedded one below the home folder."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from sqlalchemy import Connection, make_url
from sqlalchemy.exc import DBAPIError, OperationalError

from cli.local.postgres import embedded_postgres
from cli.local.postgres_cluster import has_cluster
from contracts.errors import NotFound, Unavailable
from contracts.runtime.settings import SharedSettings
from migrations import is_migrated, migrate
from store.engine import make_engine
from store.refusals import explain_refusal

SCHEMA_LIMIT_SECONDS = 60.0


@contextmanager
def open_store(settings: SharedSettings) -> Iterator[str]:
    """The URL of a migrated database. The embedded one is started or joined, and migrated.

    The process that started it also stops it, under processes that joined it: run those below `morrow up` instead.
    Raises Unavailable if a named database does not get its tables in time.
    """
    if settings.database_url:
        await_schema(settings.database_url, SCHEMA_LIMIT_SECONDS)
        yield settings.database_url
    else:
        with migrated_store(settings) as url:
            yield url


@contextmanager
def open_known_store(settings: SharedSettings, say: Callable[[str], object]) -> Iterator[str]:
    """`open_store` for a command that only reads: `say` gets the place of the database in words.

    Raises NotFound if there is none, because then the home folder is a wrong one.
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
    """The URL of the database once it is at the newest revision; `say` gets what was done in words.

    Raises Unavailable if it does not answer, Conflict if a newer Morrow has migrated it too far.
    """
    with ExitStack() as cleanup:
        url = settings.database_url or cleanup.enter_context(embedded_postgres(settings.home / "postgres"))
        try:
            done = migrate(url)
        except DBAPIError as error:
            if (refusal := explain_refusal(error, url)) is None:
                raise
            raise Unavailable(str(refusal)) from error
        if say is not None:
            say(done)
        yield url


@contextmanager
def transaction(database_url: str) -> Iterator[Connection]:
    """A connection that commits if the block ends without an error, and is closed."""
    engine = make_engine(database_url)
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


def await_schema(database_url: str, limit_seconds: float) -> None:
    """Wait while another process migrates. A server that does not answer ends the wait with a warning: API and trainer
    start without it, and recover once it is back.

    Raises Unavailable if the tables do not appear in time or cannot be read, Conflict if a newer Morrow has migrated
    the database too far.
    """
    deadline = time.monotonic() + limit_seconds
    engine = make_engine(database_url)
    try:
        while True:
            with engine.connect() as connection:
                if is_migrated(connection):
                    return
            if time.monotonic() > deadline:
                raise Unavailable("The database lacks the tables of this version: run `morrow migrate`.")
            time.sleep(0.5)
    except DBAPIError as error:
        if (refusal := explain_refusal(error, database_url)) is None:
            raise
        if not isinstance(error, OperationalError):
            raise Unavailable(str(refusal)) from error
        sys.stderr.write(f"Warning: {refusal}\n")
    finally:
        engine.dispose()
