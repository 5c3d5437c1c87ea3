"""The `morrow` command: every entry point of the system, which reads environment and clock and hands them down.

A command imports heavy libraries only when it runs, so that `morrow --help` answers at once.
"""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from cli.client.options import LOCAL_URL, AsJson, Url
from cli.commands import events, keys, runs, task
from cli.commands.completion import answer_completions, completion
from cli.commands.doctor import doctor
from cli.commands.group import Commands, Version
from cli.commands.release import override, rollback
from cli.commands.run import demo, migrate, serve, trainer, up

answer_completions()
app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,  # `morrow completion` is the one door to it
    pretty_exceptions_enable=False,
    help="Models trained for the window they will serve.",
)
for group, name in ((task.app, "task"), (events.app, "events"), (keys.app, "keys"), (runs.app, "runs")):
    app.add_typer(group, name=name)
for stack_command in (demo, up, serve, trainer, migrate):
    app.command()(stack_command)


@app.callback()
def morrow(*, version: Version = False) -> None:
    """Hold the options that stand before a command; their callbacks act."""


@app.command()
def cycle(
    task: str,
    as_of: Annotated[str | None, typer.Option(help="Train as of this moment (RFC 3339). Default: now.")] = None,
    *,
    wait: Annotated[bool, typer.Option(help="Wait for the end; exit code 1 unless it is released.")] = True,
    as_json: AsJson = False,
    url: Url = LOCAL_URL,
) -> None:
    """Retrain a task."""
    from cli.commands.cycle import run_cycle

    if not run_cycle(url, task, as_of, wait=wait, as_json=as_json):
        raise typer.Exit(1)


app.command()(doctor)
app.command()(completion)
app.command()(rollback)
app.command()(override)


@app.command()
def backtest(
    task: str,
    as_of: Annotated[
        str | None,
        typer.Option(help="As known at this moment (RFC 3339). Default: the end of the newest window with events."),
    ] = None,
    *,
    picture: Annotated[Path | None, typer.Option(help="Write the matrix as a heat map to this PNG or SVG.")] = None,
    as_json: AsJson = False,
) -> None:
    """Fill the error matrix of a task from the past, and print the horizon that follows from it."""
    from datetime import UTC, datetime

    from cli.commands.backtest import print_backtest
    from cli.local.database import open_known_store
    from trainer.settings import TrainerSettings

    settings = TrainerSettings()
    with open_known_store(settings, partial(typer.echo, err=True)) as database_url:
        print_backtest(
            settings, database_url, task, lambda: datetime.now(UTC), as_of=as_of, picture=picture, as_json=as_json
        )


@app.command()
def replay(
    task: str,
    *,
    first: Annotated[str | None, typer.Option("--from", help="First origin to report (RFC 3339).")] = None,
    last: Annotated[
        str | None, typer.Option("--to", help="Use what was known at this moment (RFC 3339). Default: now.")
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write all figures to this file.")] = None,
    pictures: Annotated[Path | None, typer.Option(help="Write pictures into this folder.")] = None,
    rivals: Annotated[bool, typer.Option(help="Fit rivals at the same origins.")] = True,
) -> None:
    """Walk the past of a task window by window: what would have been served, and how large its errors were."""
    from datetime import UTC, datetime

    from cli.commands.replay import print_replay
    from cli.local.database import open_known_store
    from trainer.settings import TrainerSettings

    settings = TrainerSettings()
    with open_known_store(settings, partial(typer.echo, err=True)) as database_url:
        print_replay(
            settings,
            database_url,
            task,
            first=first,
            last=last,
            json_file=json_file,
            pictures=pictures,
            with_rivals=rivals,
            now=lambda: datetime.now(UTC),
        )


if __name__ == "__main__":
    app()
