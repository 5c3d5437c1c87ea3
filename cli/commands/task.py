"""`morrow task`: define tasks and show their state."""

from pathlib import Path
from typing import Annotated

import typer

from cli.client.api import ask, open_api
from cli.client.options import LOCAL_URL, AsJson, Url
from cli.client.output import print_json
from contracts.errors import Fault, InvalidInput

app = typer.Typer(no_args_is_help=True, help="Define tasks and show their state.")


@app.command("apply")
def apply_task(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="The task as TOML.")],
    *,
    as_json: AsJson = False,
    url: Url = LOCAL_URL,
) -> None:
    """Define a task, or a new revision of it."""
    import tomllib

    try:
        spec = tomllib.loads(file.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput([Fault(str(file), f"is not TOML: {error}")]) from error
    name = spec.get("name")
    if not isinstance(name, str):
        raise InvalidInput([Fault("name", f"is missing in {file}")])
    with open_api(url) as api:
        answer = ask(api, "PUT", f"/tasks/{name}", json=spec)
    if as_json:
        print_json(answer)
        return
    from cli.reports.task import print_applied

    print_applied(name, answer)


@app.command("show")
def show_task(
    task: Annotated[str | None, typer.Argument()] = None, *, as_json: AsJson = False, url: Url = LOCAL_URL
) -> None:
    """Show a task's champion, horizon, errors and cycles; or list all tasks."""
    with open_api(url) as api:
        answer = ask(api, "GET", "/tasks" if task is None else f"/tasks/{task}")
    if as_json:
        print_json(answer)
        return
    from cli.reports.task import print_task, print_tasks

    if task is None:
        print_tasks(answer["tasks"])
    else:
        print_task(task, answer)
