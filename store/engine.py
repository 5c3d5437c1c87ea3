"""The engine of a process: how it reaches PostgreSQL, and how long it waits there."""

from sqlalchemy import URL, Engine, create_engine, make_url

from store.sessions import keep_sessions_plain, limit_waits

# The most connections of a process, unless its settings say otherwise.
POOL_SIZE = 5
# Longest wait for a lock, so that a transaction of somebody else holds up a statement, and no process.
LOCK_SECONDS = 5
# Longest pause inside a transaction. The longest of ours waits for the registry; a frozen process then frees its locks.
IDLE_SECONDS = 60
# A server whose machine is gone does not answer at all. After this time without a sign of it, a connection is given up.
SILENT_SECONDS = 30


def make_engine(database_url: str, *, pool_size: int = POOL_SIZE, writes: bool = True) -> Engine:
    """An engine whose connections use UTC and are checked before use. Waits are bounded, and rows stay out of logs.

    If the URL lists several hosts, the one that takes writes is used, or with `writes=False` a standby.
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
        connect_args={name: value for name, value in _connect(url, writes=writes).items() if name not in url.query}
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
    "load_balance_hosts": "disable",
    "tcp_user_timeout": SILENT_SECONDS * 1000,
    "keepalives_idle": SILENT_SECONDS // 3,
    "keepalives_interval": SILENT_SECONDS // 3,
    "keepalives_count": 2,
}


def _connect(url: URL, *, writes: bool) -> dict[str, str | int]:
    """The arguments of a connection. A single server is taken as it is: an outage says if it takes no writes."""
    named = url.query.get("host", "")
    hosts = named.split(",") if isinstance(named, str) else named
    role = "any" if len(hosts) == 1 else "read-write" if writes else "standby"
    return _CONNECT | {"target_session_attrs": role}
