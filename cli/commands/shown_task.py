"""`morrow task`: define tasks and see how they are."""

from pathlib import Path
from typing import Annotated

import typer

from cli.client.addresses import LOCAL_URL, Url
from cli.client.output import AsJson

app = typer.Typer(no_args_is_help=True, help="Define tasks and see how they are.")


@app.command("apply")
def apply_task(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="The task as TOML.")],
    *,
    as_json: AsJson = False,
    url: Url = LOCAL_URL,
) -> None:
    """Define a task, or a new revision of it."""
    from cli.commands.task import apply_task as apply

    apply(url, file, as_json=as_json)


@app.command("show")
def show_task(
    task: Annotated[str | None, typer.Argument()] = None, *, as_json: AsJson = False, url: Url = LOCAL_URL
) -> None:
    """Show how a task is: its champion, horizon, errors and cycles; or list all tasks."""
    from cli.commands.task import list_tasks
    from cli.commands.task import show_task as show

    if task is None:
        list_tasks(url, as_json=as_json)
    else:
        show(url, task, as_json=as_json)
