"""Why PostgreSQL, or what stands in front of it, refuses a connection or a statement: for the person who set it up.

`store.outages` names an outage without a detail, because any client may see it. Here the words name server, role and
database, and the remedy is a statement or a setting. A server tells its reason for refusing a connection as text only,
so an unknown text is quoted.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from re import Match

from sqlalchemy import URL, make_url
from sqlalchemy.exc import DBAPIError

_ADDRESS = "MORROW_DATABASE_URL"
MORE_CONNECTIONS = "raise max_connections of PostgreSQL, or lower MORROW_POOL_SIZE or MORROW_WORKERS"


@dataclass(frozen=True)
class Refusal:
    """What is wrong, and what to do about it."""

    words: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.words}: {self.remedy}."


@dataclass(frozen=True)
class _Login:
    """The place of a database, and the role and name by which it is asked for."""

    place: str
    role: str
    database: str


_Explain = Callable[[_Login, Match[str]], Refusal]


def explain_refusal(error: DBAPIError, database_url: str | URL) -> Refusal | None:
    """The refusal behind an error; None if it is neither a refusal nor an absence, and so perhaps a bug."""
    url = make_url(database_url)
    role = url.username or "the user of this process"
    login = _Login(url.render_as_string(), role, url.database or role)
    text = str(error.orig).strip()
    for pattern, explain in _REFUSALS:
        if found := pattern.search(text):
            return explain(login, found)
    state = getattr(error.orig, "sqlstate", None)
    if state is not None and not state.startswith(("08", "28", "3D", "42501", "53", "57")):
        return None
    if state is None and not _is_of_connection(text):
        return None
    reason = text.splitlines()[0].rstrip(".") if text else type(error.orig).__name__
    return Refusal(f"The database {login.place} does not answer: {reason}", f"start it, or correct {_ADDRESS}")


def _is_of_connection(text: str) -> bool:
    return re.search(r"connect|server|timeout|SSL|socket|pgbouncer", text) is not None


def _say(words: str, remedy: str) -> _Explain:
    """A refusal in these words; `{place}`, `{role}`, `{database}` and groups of the pattern are filled in.

    A group and the same with `_` at its end are alternatives.
    """

    def explain(login: _Login, found: Match[str]) -> Refusal:
        known = {"place": login.place, "role": login.role, "database": login.database, "address": _ADDRESS}
        groups = {name.rstrip("_"): value for name, value in found.groupdict().items() if value is not None}
        quoted = {name: value if name == "address" else _quote(value) for name, value in (known | groups).items()}
        return Refusal(words.format_map(known | groups), remedy.format_map(quoted))

    return explain


def _quote(name: str) -> str:
    """An identifier as SQL writes it."""
    return name if re.fullmatch("[a-z_][a-z0-9_]*", name) else '"' + name.replace('"', '""') + '"'


_REFUSALS: tuple[tuple[re.Pattern[str], _Explain], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), _say(words, remedy))
    for pattern, words, remedy in (
        (
            r"password authentication failed|SASL authentication failed|wrong password",
            "The database {place} refuses the password of the role {role}",
            "correct {address} or MORROW_DATABASE_PASSWORD_FILE, or ALTER ROLE {role} PASSWORD '…'",
        ),
        (
            r"no password supplied",
            "The database {place} asks the role {role} for a password, and there is none",
            "write postgresql://{role}:PASSWORD@… in {address}, or set MORROW_DATABASE_PASSWORD_FILE",
        ),
        (
            r'role "(?P<role>[^"]+)" does not exist|no such user: (?P<role_>\S+)',
            "The database {place} has no role {role}",
            "CREATE ROLE {role} LOGIN PASSWORD '…', or correct {address}",
        ),
        (
            r'role "(?P<role>[^"]+)" is not permitted to log in',
            "The role {role} may not log in to {place}",
            "ALTER ROLE {role} LOGIN",
        ),
        (
            r"(?:peer|ident) authentication failed",
            "The database {place} takes the role {role} only from the system's user of that name",
            "name a host in {address}, or correct pg_hba.conf",
        ),
        (
            r"no pg_hba\.conf entry|pg_hba\.conf rejects",
            "The database {place} takes no connection of the role {role} from this machine",
            "add a line for it to pg_hba.conf, then SELECT pg_reload_conf(); or add ?sslmode=require to {address}",
        ),
        (
            r'database "(?P<database>[^"]+)" does not exist|no such database: (?P<database_>\S+)',
            "The server of {place} has no database {database}",
            "CREATE DATABASE {database} OWNER {role}, or correct {address}",
        ),
        (
            r'permission denied for database "?(?P<database>[^"\s]+)"?',
            "The role {role} may not connect to, or create in, the database {database}",
            "GRANT CONNECT, CREATE ON DATABASE {database} TO {role}",
        ),
        (
            r'permission denied for schema "?(?P<schema>[^"\s]+)"?',
            "The role {role} may not use, or create tables in, the schema {schema} of {place}",
            "GRANT USAGE, CREATE ON SCHEMA {schema} TO {role}, as the owner of the database",
        ),
        (
            r"no schema has been selected to create in",
            "The role {role} has no schema in {place} in which it may create tables",
            "GRANT USAGE, CREATE ON SCHEMA public TO {role}, as the owner of the database",
        ),
        (
            r'permission denied for (?P<kind>table|sequence|view|relation) "?(?P<name>[^"\s]+)"?',
            "The role {role} may not use the {kind} {name} of {place}",
            "GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}; GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {role}",
        ),
        (
            r"must be owner of (?P<kind>\w+) (?P<name>\S+)",
            "The role {role} does not own the {kind} {name} of {place}, which must be changed",
            "run `morrow migrate` as its owner, or ALTER TABLE {name} OWNER TO {role}",
        ),
        (
            r'permission denied to create extension "?(?P<name>[^"\s]+)"?|'
            r'extension "(?P<extension>[^"]+)" is not available',
            "The role {role} may not create an extension that {place} lacks",
            "CREATE EXTENSION as a superuser of the database",
        ),
        (
            r"cannot execute (?P<statement>[\w ]+) in a read-only transaction|"
            r"(?P<recovery>hot standby|recovery is in progress)|session is read-only",
            "The database {place} takes no writes: it is a standby, or its sessions are read-only by default",
            "name the primary server in {address}, or ALTER ROLE {role} SET default_transaction_read_only = off",
        ),
        (
            r"too many clients|connection slots|too many connections|no more connections allowed",
            "The database {place} takes no more connections",
            MORE_CONNECTIONS,
        ),
        (
            r"server does not support SSL",
            "The server of {place} does not speak TLS, and sslmode or PGSSLMODE demands it",
            "remove sslmode from {address} and unset PGSSLMODE, or turn on ssl in postgresql.conf",
        ),
        (
            r"certificate verify failed|root certificate file|server certificate",
            "The certificate of {place} cannot be verified",
            "name the file of its authority: ?sslmode=verify-full&sslrootcert=FILE in {address}",
        ),
        (
            r"channel binding required|channel binding is required|authentication method requirement",
            "The database {place} offers no login of the kind that PGCHANNELBINDING or PGREQUIREAUTH demands",
            "unset them, or turn on TLS and scram-sha-256 at the server",
        ),
        (
            r"failed to resolve host|could not translate host name|name or service not known",
            "The host in {place} is not known here",
            "correct the host in {address}, or the name service of this machine",
        ),
        (
            r'invalid connection option "(?P<option>[^"]+)"|invalid URI query parameter: "(?P<option_>[^"]+)"',
            "The address {place} has an option that PostgreSQL does not know: {option}",
            "remove it from {address}",
        ),
        (
            r'unsupported startup parameter(?: in options)?: "?(?P<parameter>\w+)"?',
            "What stands in front of the database {place} refuses the startup parameter {parameter}",
            "remove it from {address}, or list it in ignore_startup_parameters of pgbouncer.ini",
        ),
        (
            r"the database system is (?:starting up|shutting down|in recovery mode)",
            "The database {place} is starting or stopping",
            "wait until it has started",
        ),
    )
)
