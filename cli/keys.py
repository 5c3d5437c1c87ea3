"""The commands of `morrow keys`: they write to the database, so whoever can reach it can make the first key."""

import os
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

from contracts.clock import format_moment, to_micros
from contracts.database import make_engine
from contracts.errors import Fault, InvalidInput
from contracts.keys import SCOPES, Scope, add_key, list_keys, revoke_key


def parse_scopes(names: Sequence[str]) -> list[Scope]:
    """Scopes by their names. Raises InvalidInput."""
    if unknown := [name for name in names if name not in SCOPES]:
        raise InvalidInput([Fault("--scope", f"there is no {name!r}, only {', '.join(SCOPES)}") for name in unknown])
    return [scope for scope in SCOPES if scope in names]


def add(
    database_url: str,
    name: str,
    scopes: Sequence[Scope],
    rate: float | None,
    *,
    unless_any: bool,
    file: Path | None,
    now: datetime,
) -> None:
    """Make a key and print it, or write it to a file that only its owner may read. Raises Conflict, OSError."""
    engine = make_engine(database_url)
    try:
        with engine.begin() as connection:
            if unless_any and list_keys(connection):
                typer.echo("There are keys already: none was made.", err=True)
                return
            token = add_key(connection, name, scopes, rate, now)
            if file is not None:
                _write(file, token)
    finally:
        engine.dispose()
    if file is None:
        typer.echo(token)
        typer.echo("This is the key: send it as `Authorization: Bearer KEY`. Nobody can show it again.", err=True)
    else:
        typer.echo(f"The key is in {file}.", err=True)


def show(database_url: str, *, with_revoked: bool) -> None:
    """A table of all keys."""
    engine = make_engine(database_url)
    try:
        with engine.connect() as connection:
            keys = list_keys(connection, with_revoked=with_revoked)
    finally:
        engine.dispose()
    table = Table("name", "scopes", "requests a second", "made", *(["revoked"] if with_revoked else []))
    for key in keys:
        row = [key.name, ", ".join(key.scopes), "any" if key.rate is None else f"{key.rate:g}", _date(key.created_at)]
        table.add_row(*row, *([_date(key.revoked_at)] if with_revoked else []))
    Console().print(table)


def revoke(database_url: str, name: str, now: datetime) -> None:
    """End a key; processes of the API obey at their next look. Raises NotFound."""
    engine = make_engine(database_url)
    try:
        with engine.begin() as connection:
            revoke_key(connection, name, now)
    finally:
        engine.dispose()


def _write(file: Path, token: str) -> None:
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w") as opened:
        opened.write(token + "\n")


def _date(moment: datetime | None) -> str:
    return "" if moment is None else format_moment(to_micros(moment))
