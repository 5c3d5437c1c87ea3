"""`morrow task`: define tasks and show their state."""

import codecs
import re
from pathlib import Path
from typing import Annotated, Any

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
    from contracts.spec_values import IDENTIFIER, suggest_name

    spec = read_task_file(file)
    name = spec.get("name")
    if not isinstance(name, str):
        raise InvalidInput([Fault("name", f'is missing in {file}: add a line such as name = "rentals"')])
    if not re.fullmatch(IDENTIFIER, name):
        raise InvalidInput(
            [Fault("name", f"is {name!r} in {file}, which no path can hold: name it {suggest_name(name)}")]
        )
    with open_api(url) as api:
        answer = ask(api, "PUT", f"/tasks/{name}", json=spec)
    if as_json:
        print_json(answer)
        return
    from cli.reports.task import print_applied

    print_applied(name, answer)


def read_task_file(file: Path) -> dict[str, Any]:
    """A task as TOML in UTF-8, with or without a byte order mark. Raises InvalidInput."""
    import tomllib

    written = file.read_bytes()
    if written.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in written:
        raise InvalidInput([Fault(str(file), "is UTF-16, and TOML is UTF-8: save it in UTF-8")])
    try:
        return tomllib.loads(written.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = written.count(b"\n", 0, error.start) + 1
        reason = f"is not UTF-8 (byte 0x{written[error.start]:02x} in line {line}): save it in UTF-8"
        raise InvalidInput([Fault(str(file), reason)]) from error
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput([Fault(str(file), f"is not TOML: {error}")]) from error


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
