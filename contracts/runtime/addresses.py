"""Addresses of the two stores, and the passwords in them.

Settings hold one address for each store, with user and password, so that no other code asks where a password came
from. Code that speaks HTTP splits them off again: an address may be logged and shown, a password never.
"""

from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit, urlunsplit


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
