"""The engine of a process: how it reaches PostgreSQL, and how long it waits there."""

from sqlalchemy import Engine, create_engine, make_url

from store.sessions import keep_sessions_plain, limit_waits

# The most connections of a process, unless its settings say otherwise.
POOL_SIZE = 5
# Longest wait for a lock, so that a transaction of somebody else holds up a statement, and no process.
LOCK_SECONDS = 5
# Longest pause inside a transaction. The longest of ours waits for the registry; a frozen process then frees its locks.
IDLE_SECONDS = 60


def make_engine(database_url: str, *, pool_size: int = POOL_SIZE) -> Engine:
    """An engine whose connections use UTC and are checked before use. Waits are bounded, and rows stay out of logs.

    The waits are those for a connection, for a lock and inside a transaction. The URL and these arguments say where the
    server is and how a session begins; variables of libpq may only add how to log in
    (`docs/decisions/0022-built-environments.md`).
    """
    url = make_url(database_url)
    engine = create_engine(
        url,
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=5,
        pool_pre_ping=True,
        hide_parameters=True,
        connect_args={name: value for name, value in _CONNECT.items() if name not in url.query}
        | {"client_encoding": "utf8"},
    )
    keep_sessions_plain(engine)
    limit_waits(engine, {"lock_timeout": LOCK_SECONDS, "idle_in_transaction_session_timeout": IDLE_SECONDS})
    return engine


# An argument that is given keeps libpq from its variable. The URL may say otherwise. An empty one is not sent: a pooler
# refuses `options`.
_CONNECT: dict[str, str | int] = {
    "application_name": "morrow",
    "connect_timeout": 5,
    "options": "",
    "hostaddr": "",
    "target_session_attrs": "any",
    "load_balance_hosts": "disable",
}
