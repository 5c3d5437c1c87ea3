"""What a session with PostgreSQL is told, whether it is ours alone or a pooler lends it for one transaction.

A pooler such as PgBouncer gives a client another session of the server for each transaction. A SET would then reach a
session of someone else, a prepared statement would be missing or there twice, and an advisory lock would stay behind.
So with a pooler, settings are repeated in each transaction (SET LOCAL), and nothing is prepared by name. A pooler is
recognised by the process id that it invents for the session: the server knows another one.
"""

from collections.abc import Mapping

from sqlalchemy import Connection, Engine, event
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import ConnectionPoolEntry

# The format of moments and numbers, whatever the settings of database, role and environment. Statements here take
# milliseconds: compiling one to machine code would take longer.
_PLAIN = {"datestyle": "iso", "intervalstyle": "postgres", "timezone": "utc", "extra_float_digits": "1", "jit": "off"}
# The key under which the pool's record of a connection keeps what its transactions begin with; None without a pooler.
_REPEATED = "morrow.repeated_settings"


def keep_sessions_plain(engine: Engine) -> None:
    """Fix the format of moments and numbers in each session of this engine, and what a pooler makes necessary."""
    event.listen(engine, "connect", _begin_session)
    event.listen(engine, "begin", _begin_transaction)


def limit_waits(engine: Engine, limits: Mapping[str, float]) -> None:
    """Set time limits, such as `statement_timeout`, in seconds; a stricter one of database or role is kept.

    Call it after `keep_sessions_plain`.
    """

    def limit(connection: DBAPIConnection, record: ConnectionPoolEntry) -> None:
        cursor = connection.cursor()
        strict = {}
        for name, seconds in limits.items():
            cursor.execute(_STRICTER, (max(1, int(seconds * 1000)), name))
            ((milliseconds,),) = cursor.fetchall()
            strict[name] = str(milliseconds)
        cursor.close()
        _set(connection, record, strict)

    event.listen(engine, "connect", limit)


_STRICTER = "SELECT least(nullif(setting::bigint, 0), %s) FROM pg_settings WHERE name = %s"


def is_pooled(connection: Connection) -> bool:
    """Whether a pooler stands between this connection and the server."""
    return connection.info[_REPEATED] is not None


def _begin_session(connection: DBAPIConnection, record: ConnectionPoolEntry) -> None:
    cursor = connection.cursor()
    cursor.execute("SELECT pg_backend_pid()")
    ((server_pid,),) = cursor.fetchall()
    cursor.close()
    has_pooler = server_pid != connection.info.backend_pid
    record.info[_REPEATED] = "" if has_pooler else None
    if has_pooler:
        connection.prepare_threshold = None
    _set(connection, record, _PLAIN)


def _set(connection: DBAPIConnection, record: ConnectionPoolEntry, settings: Mapping[str, str]) -> None:
    """Set these now for the session, or with a pooler later for each transaction."""
    if record.info[_REPEATED] is not None:
        record.info[_REPEATED] += "".join(f"SET LOCAL {name} = {value};" for name, value in settings.items())
    else:
        cursor = connection.cursor()
        cursor.execute("".join(f"SET {name} = {value};" for name, value in settings.items()))
        cursor.close()
    connection.commit()


def _begin_transaction(connection: Connection) -> None:
    repeated, driver = connection.info.get(_REPEATED), connection.connection.driver_connection
    if not repeated or driver is None or driver.autocommit:
        return
    try:
        driver.execute(repeated)
    except connection.dialect.loaded_dbapi.Error as error:
        # Inside this event SQLAlchemy does not translate errors itself.
        raise DBAPIError.instance(repeated, None, error, connection.dialect.loaded_dbapi.Error) from error
