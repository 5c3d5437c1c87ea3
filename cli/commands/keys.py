"""`morrow keys`: make, list and revoke API keys, in the database: access to it is what the first key needs."""

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.client.options import AsJson
from cli.client.output import print_json

if TYPE_CHECKING:
    from store.api_keys import Key

app = typer.Typer(
    no_args_is_help=True, help="Make, list and revoke API keys. As soon as there is a key, every request needs one."
)

_NO_KEY = "There is no key. The API answers requests on the loopback only, and those of anyone."


@app.command()
def add(
    name: str,
    scope: Annotated[list[str], typer.Option(help="ingest, predict, or admin for all three; may be repeated.")],
    *,
    task: Annotated[
        list[str] | None, typer.Option(help="Only for this task; may be repeated. Default: for every task.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(min=0.001, help="Largest number of requests per second. Default: no limit.")
    ] = None,
    unless_any: Annotated[bool, typer.Option("--unless-any", help="Only if there is no key yet.")] = False,
    file: Annotated[Path | None, typer.Option(help="Write the key to this file instead.")] = None,
    as_json: AsJson = False,
) -> None:
    """Make a key and print it once."""
    from cli.local.database import open_store, transaction
    from contracts.errors import Fault, InvalidInput
    from contracts.runtime.settings import SharedSettings
    from store.api_keys import SCOPES, add_key, list_keys
    from store.tasks.catalog import find_task_id

    if unknown := [one for one in scope if one not in SCOPES]:
        raise InvalidInput([Fault("--scope", f"there is no {one!r}, only {', '.join(SCOPES)}") for one in unknown])
    scopes = [one for one in SCOPES if one in scope]
    with open_store(SharedSettings()) as database_url, transaction(database_url) as connection:
        if unless_any and list_keys(connection):
            typer.echo("There are keys already, so none was made.", err=True)
            if as_json:
                print_json(None)
            return
        task_ids = None if not task else [find_task_id(connection, one) for one in task]
        token = add_key(connection, name, scopes, rate, datetime.now(UTC), task_ids=task_ids)
        if file is not None:
            _write(file, token)
        lacks_admin = not any("admin" in key.scopes and key.task_ids is None for key in list_keys(connection))
    if as_json:
        made = {"key": token} if file is None else {"file": str(file)}
        print_json({"name": name, "scopes": scopes, "rate": rate, "tasks": task or None, **made})
    elif file is None:
        typer.echo(token)
        typer.echo("This is the key: send it as `Authorization: Bearer KEY`. It cannot be shown again.", err=True)
    else:
        typer.echo(f"The key is in {file}.", err=True)
    if lacks_admin:
        _say(
            "No key has the scope admin for every task, so no task can be defined: run `morrow keys add NAME "
            "--scope admin`."
        )


@app.command("list")
def show(
    *,
    revoked: Annotated[bool, typer.Option("--revoked", help="Include revoked keys.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the names, scopes and dates of the keys. The keys themselves cannot be shown."""
    from rich.console import Console
    from rich.table import Table

    from cli.local.database import open_known_store, transaction
    from contracts.runtime.settings import SharedSettings
    from store.api_keys import list_keys
    from store.tasks.catalog import list_names

    with open_known_store(SharedSettings(), _say) as database_url, transaction(database_url) as connection:
        keys = list_keys(connection, with_revoked=revoked)
        names = {one.task_id: one.name for one in list_names(connection, with_archived=True)}
    if as_json:
        print_json({"keys": [_document(key, names) for key in keys]})
        return
    if not keys:
        typer.echo(_NO_KEY)
        return
    table = Table()
    for heading in ("name", "scopes", "tasks", "per second", "made (UTC)", *(["revoked (UTC)"] if revoked else [])):
        table.add_column(heading, no_wrap=heading.endswith("(UTC)"), overflow="fold")
    for key in keys:
        tasks, rate = _name_tasks(key, names), "any" if key.rate is None else f"{key.rate:g}"
        row = [key.name, ", ".join(key.scopes), "all" if tasks is None else ", ".join(tasks), rate]
        table.add_row(*row, _date(key.created_at), *([_date(key.revoked_at)] if revoked else []))
    Console(markup=False).print(table)


@app.command()
def revoke(name: str, *, as_json: AsJson = False) -> None:
    """Revoke a key. Every process of the API refuses it from its next poll."""
    from cli.local.database import open_known_store, transaction
    from contracts.runtime.settings import SharedSettings
    from store.api_keys import list_keys, revoke_key

    with open_known_store(SharedSettings(), _say) as database_url, transaction(database_url) as connection:
        revoke_key(connection, name, datetime.now(UTC))
        is_last = not list_keys(connection)
    if as_json:
        print_json({"name": name, "revoked": True})
    else:
        typer.echo(f"The key {name} is revoked.")
    if is_last:
        _say(_NO_KEY)


def _say(sentence: str) -> None:
    typer.echo(sentence, err=True)


def _write(file: Path, token: str) -> None:
    """Write the key to a file that only its owner can read."""
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w") as opened:
        opened.write(token + "\n")


def _name_tasks(key: "Key", names: Mapping[int, str]) -> list[str] | None:
    """The present names of a key's tasks; None if it is for every task."""
    if key.task_ids is None:
        return None
    return [names.get(task_id, f"task {task_id}, which is deleted") for task_id in key.task_ids]


def _document(key: "Key", names: Mapping[int, str]) -> dict[str, object]:
    return {
        "name": key.name,
        "scopes": list(key.scopes),
        "tasks": _name_tasks(key, names),
        "rate": key.rate,
        "created_at": key.created_at.isoformat(),
        "revoked_at": None if key.revoked_at is None else key.revoked_at.isoformat(),
    }


def _date(moment: datetime | None) -> str:
    return "" if moment is None else f"{moment:%Y-%m-%d %H:%M}"
