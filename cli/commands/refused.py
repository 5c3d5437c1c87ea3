"""`morrow refused`: delete stored refused rows that are old, in the database."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from cli.client.options import AsJson
from cli.client.output import print_json

app = typer.Typer(no_args_is_help=True, help="Clean up the refused rows that are stored with their reasons.")

_BATCH_SIZE = 5_000


@app.callback()
def _refused() -> None:
    """Make this a group although it has one command."""


@app.command()
def prune(
    task: Annotated[str | None, typer.Argument(help="The task. Default: every task.")] = None,
    *,
    days: Annotated[float, typer.Option(min=0, help="Rows refused longer ago than this go.")] = 90.0,
    yes: Annotated[bool, typer.Option("--yes", help="Delete the rows. Default: only count them.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete the rows that were refused long ago. No command brings them back.

    It needs this installation's database (`MORROW_HOME` or `MORROW_DATABASE_URL`). With `MORROW_REFUSED_DAYS` the
    trainer does the same by itself.
    """
    from cli.local.database import open_known_store, transaction
    from contracts.runtime.settings import SharedSettings
    from contracts.shown import say_count
    from store.events.refused_rows import count_refused, delete_refused_before
    from store.tasks.catalog import find_task_id

    before = datetime.now(UTC) - timedelta(days=days)
    with open_known_store(SharedSettings(), lambda words: typer.echo(words, err=True)) as database_url:
        with transaction(database_url) as connection:
            task_id = None if task is None else find_task_id(connection, task)
            counts = count_refused(connection, before, task_id)
        count = _BATCH_SIZE if yes else 0
        while count == _BATCH_SIZE:
            with transaction(database_url) as connection:
                count = delete_refused_before(connection, before, size=_BATCH_SIZE, task_id=task_id)
    if as_json:
        found = [{"task": name, "num_rows": number} for name, number in counts.items()]
        print_json({"deleted": yes, "tasks": found})
        return
    for name, number in counts.items():
        typer.echo(f"{name}: {say_count(number, 'row')} refused more than {days:g} days ago")
    if not counts:
        typer.echo(f"No row was refused more than {days:g} days ago.")
    elif yes:
        typer.echo("They are deleted.")
    else:
        typer.echo("Nothing is deleted: run it again with --yes.")
