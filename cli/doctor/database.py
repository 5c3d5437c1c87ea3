"""The checks of the database: its answer, its revision, its clock, its connections, and the keys in it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from cli.doctor.finding import Finding, fail, judge_skew, ok, warn
from cli.errors import PostgresError
from cli.local.postgres import embedded_postgres
from cli.local.postgres_cluster import has_cluster
from contracts.errors import Conflict
from migrations import is_migrated
from service.settings import ServiceSettings
from service.web.auth import is_loopback
from store.api_keys import list_keys
from store.engine import POOL_SIZE, make_engine
from store.refusals import MORE_CONNECTIONS, explain_refusal
from store.sessions import is_pooled
from store.tasks.catalog import list_tasks

# The trainer and its training process.
_NUM_TRAINERS = 2
# Background processes belong to no database.
_CONNECTIONS = """
    SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
               - coalesce(current_setting('reserved_connections', true), '0')::int,
           (SELECT sum(numbackends)::int FROM pg_stat_database WHERE datid <> 0)
               - (SELECT count(*)::int FROM pg_stat_activity WHERE application_name = 'morrow')
"""


def examine_store(settings: ServiceSettings, on_task: Callable[[str], object]) -> Iterator[Finding]:
    """Run all checks of this module; `on_task` gets the name of each task.

    The embedded server is joined, or started for the checks. Nothing is migrated.
    """
    home = settings.home.expanduser()
    if not settings.database_url and not has_cluster(home / "postgres"):
        yield warn(
            "database",
            f"there is none below {home} yet",
            "run `morrow up`, which makes one; or set MORROW_DATABASE_URL",
        )
        return
    with ExitStack() as cleanup:
        try:
            url = settings.database_url or cleanup.enter_context(embedded_postgres(home / "postgres"))
            engine = make_engine(url)
            cleanup.callback(engine.dispose)
            connection = cleanup.enter_context(engine.connect())
        except PostgresError as error:
            yield fail("database", str(error), "read the end of postgres.log below MORROW_HOME")
            return
        except DBAPIError as error:
            if (refusal := explain_refusal(error, url)) is None:
                raise
            yield fail("database", refusal.words, refusal.remedy)
            return
        yield from _examine(connection, settings, on_task)


def _examine(connection: Connection, settings: ServiceSettings, on_task: Callable[[str], object]) -> Iterator[Finding]:
    version = connection.execute(text("SHOW server_version")).scalar_one()
    whose = "" if settings.database_url else ", Morrow's own"
    yield ok("database", f"PostgreSQL {version} answers{whose}{', through a pooler' if is_pooled(connection) else ''}")
    before = datetime.now(UTC)
    theirs = connection.execute(text("SELECT clock_timestamp()")).scalar_one()
    after = datetime.now(UTC)
    yield judge_skew("database's clock", theirs - (before + (after - before) / 2))
    most, used = connection.execute(text(_CONNECTIONS)).one()
    yield judge_connections(most, used, settings)
    try:
        is_current = is_migrated(connection)
    except Conflict as error:
        yield fail("migrations", str(error), "run the newer Morrow, or restore the backup")
        return
    if not is_current:
        yield fail("migrations", "the database lacks the tables of this version", "morrow migrate")
        return
    yield ok("migrations", "the database has the tables of this version")
    yield judge_keys(len(list_keys(connection)), settings)
    for schema in list_tasks(connection):
        on_task(schema.task.name)


def judge_connections(most: int, used: int, settings: ServiceSettings) -> Finding:
    """Whether a server has enough connections for us: it grants `most` to ordinary users, and others hold `used`."""
    wanted = settings.workers * settings.pool_size + _NUM_TRAINERS * POOL_SIZE
    words = f"it takes {most}; others hold {used}, and Morrow may ask for {wanted}"
    if used + wanted <= most:
        return ok("connections", words)
    return warn("connections", words, MORE_CONNECTIONS)


def judge_keys(num_keys: int, settings: ServiceSettings) -> Finding:
    """Who may call the API, by its settings on this machine."""
    if num_keys:
        return ok("keys", f"{num_keys} valid: every request needs one")
    remedy = "morrow keys add NAME --scope admin"
    if settings.allow_anonymous:
        return warn("keys", f"there is none: anyone with access to {settings.host} may do anything", remedy)
    if not is_loopback(settings.host):
        return fail("keys", f"there is none, and the API listens on {settings.host}: no request is answered", remedy)
    return ok("keys", "there is none: anyone on this machine may call the API, and nobody else")
