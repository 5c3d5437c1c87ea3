"""Addresses of the two stores, and the passwords in them.

Settings hold one address for each store, with user and password, so that no other code asks where a password came
from. Code that speaks HTTP splits them off again: an address may be logged and shown, a password never.
"""

import re
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit, urlunsplit

DATABASE_SCHEME = "postgresql+psycopg"
_EXAMPLE = "write postgresql://USER@HOST:5432/NAME"
_SPELLINGS = ("postgres", "postgresql", "postgresql+psycopg", "postgresql+psycopg_async", "postgres+psycopg")
_DATABASE = re.compile(
    r"(?P<scheme>[\w+.:-]+?)://(?:(?P<login>[^/?]*)@)?(?P<place>[^/?@]*)(?P<rest>[/?].*)?", re.DOTALL
)
_QUOTE_LOGIN = "in a user or a password write / as %2F, ? as %3F and : as %3A"


class Credentials(NamedTuple):
    """User and password for HTTP Basic."""

    user: str
    password: str


def with_password(address: str, file: Path) -> str:
    """The address with the password in the file, without the end of its line.

    Raises ValueError if the file cannot be read or is empty, or if the address names no user.
    """
    try:
        password = file.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"the password in {file} cannot be read: {getattr(error, 'strerror', 'not text')}") from error
    if not password:
        raise ValueError(f"{file} is empty")
    parts = urlsplit(address)
    if not parts.username:
        raise ValueError("a password needs a user in the address, such as scheme://USER@host")
    user, _, place = parts.netloc.rpartition("@")
    name = user.partition(":")[0]
    return urlunsplit(parts._replace(netloc=f"{name}:{quote(password, safe='')}@{place}"))


def split_credentials(address: str) -> tuple[str, Credentials | None]:
    """The address without user and password, and the credentials if it has any."""
    parts = urlsplit(address)
    if not parts.username:
        return address, None
    bare = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    return bare, Credentials(unquote(parts.username), unquote(parts.password or ""))


def read_database_url(text: str) -> str:
    """The SQLAlchemy URL that is meant: `postgres://` and `postgresql://` are spellings of it.

    A space, a lone % and a further @ in user and password are quoted. Several hosts, and the folder of a socket, may
    stand where libpq takes them. Raises ValueError with a sentence that shows no part of a password.
    """
    found = _DATABASE.fullmatch(text)
    if found is None:
        raise ValueError(f"is no URL of a database: {_EXAMPLE}")
    scheme = found["scheme"].lower()
    if scheme not in _SPELLINGS:
        dialect, _, driver = scheme.partition("+")
        if dialect in ("postgres", "postgresql"):
            raise ValueError(f"names the driver {driver!r}, and Morrow uses psycopg: {_EXAMPLE}")
        raise ValueError(f"begins with {scheme}://, and Morrow stores in PostgreSQL only: {_EXAMPLE}")
    rest = found["rest"] or ""
    has_stray = "@" in (rest if found["login"] is None else rest.partition("?")[0])
    places = found["place"].split(",")
    for place in places:
        _check_place(place, "5432", has_stray=has_stray)
    login = "" if found["login"] is None else f"{_quote_strays(found['login'])}@"
    if len(places) == 1 and not places[0].lower().startswith("%2f"):
        return f"{DATABASE_SCHEME}://{login}{places[0]}{rest}"
    path, _, query = rest.partition("?")
    hosts = "&".join(f"host={place}" for place in places)
    return f"{DATABASE_SCHEME}://{login}{path}?{hosts}{f'&{query}' if query else ''}"


def read_http_address(text: str) -> str:
    """The address of a server as it was meant, without a slash at its end. Raises ValueError with a sentence."""
    scheme, separator, rest = text.partition("://")
    if not separator:
        raise ValueError(f"has no scheme: write http://{text}" if "@" not in text else "has no scheme: write http://…")
    if scheme.lower() not in ("http", "https"):
        raise ValueError(f"begins with {scheme}://, and only http:// and https:// can be asked")
    authority, _, path = rest.partition("/")
    login, _, place = authority.rpartition("@")
    if not place.partition(":")[0]:
        raise ValueError(f"names no host: write {scheme}://HOST:PORT")
    _check_place(place, "5000", has_stray="@" in path)
    path = f"/{path}".rstrip("/")
    return f"{scheme.lower()}://{f'{_quote_strays(login)}@' if login else ''}{place}{path}"


def _check_place(place: str, example: str, *, has_stray: bool) -> None:
    """Raise ValueError unless this is `HOST` or `HOST:PORT`.

    With a stray @ behind it, a password holds a character that divides it, and the place may be a part of the password.
    """
    named, _, port = place.rpartition("]")[2].partition(":")
    is_sound = port == "" if ":" not in place.rpartition("]")[2] else _is_port(port)
    if has_stray and (not is_sound or example == "5432"):
        raise ValueError(f"cannot be divided into its parts: {_QUOTE_LOGIN}")
    if not is_sound:
        raise ValueError(f"has the port {port!r}: write a number from 1 to 65535, such as {example}")
    if re.search(r"\s", named):
        raise ValueError(f"has a space in its host {named!r}")


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdecimal() and 0 < int(text) < 2**16


def _quote_strays(login: str) -> str:
    """User and password with the characters quoted that cannot stand in a URL."""
    return re.sub(r"%(?![0-9A-Fa-f]{2})|[\s@#\[\]]", lambda found: quote(found[0], safe=""), login)
