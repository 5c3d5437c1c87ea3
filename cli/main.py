"""The `morrow` command: every entry point of the system, where environment and clock are read and handed down.

Heavy libraries are imported where a command needs them, so that `morrow --help` answers at once.
"""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from cli.client.addresses import LOCAL_URL, Url
from cli.client.output import AsJson
from cli.commands.completion import Shell, complete_as_typer
from cli.commands.errors import Commands, Version
from cli.commands.events import app as events_app
from cli.commands.keys import app as keys_app
from cli.commands.runs import app as runs_app
from cli.commands.shown_task import app as task_app

complete_as_typer()
app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,  # `morrow completion` is the one door to it
    pretty_exceptions_enable=False,
    help="Models trained for the window they will serve.",
)
app.add_typer(task_app, name="task")
app.add_typer(events_app, name="events")
app.add_typer(keys_app, name="keys")
app.add_typer(runs_app, name="runs")


@app.callback()
def morrow(*, version: Version = False) -> None:
    """Hold the options that stand before a command: each acts by its callback."""


@app.command()
def demo(
    weeks: Annotated[int, typer.Option(min=1, max=26, help="How many weeks to serve after the first 26.")] = 6,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures to this file.")] = None,
    keep: Annotated[bool, typer.Option(help="Leave the stack running until Ctrl-C, and keep its folder.")] = False,
) -> None:
    """Retrain and serve through weeks of real flights, after half a year of them, beside rival models."""
    from cli.demo.demo import run_demo

    try:
        run_demo(weeks, json_file, keep=keep)
    except KeyboardInterrupt:
        raise typer.Exit(0 if keep else 130) from None


@app.command()
def up(
    port: Annotated[int, typer.Option(envvar="MORROW_PORT", min=1, max=65535, help="Port of the API.")] = 8000,
    home: Annotated[Path | None, typer.Option(help="Folder for all state; MORROW_HOME where not given.")] = None,
) -> None:
    """Run the whole stack on this machine: PostgreSQL, MLflow, API and trainer. Ctrl-C stops it."""
    from rich.console import Console

    from cli.local.announce import exports_for
    from cli.local.signals import stop_signals
    from cli.local.stack import EmbeddedStack
    from contracts.runtime.settings import SharedSettings

    settings = SharedSettings() if home is None else SharedSettings(home=home)
    console = Console()
    try:
        with stop_signals(), EmbeddedStack(settings, port, console) as stack:
            console.print(f"API     {stack.addresses.api}\nDocs    {stack.addresses.api}/docs")
            console.print(f"MLflow  {stack.addresses.mlflow}\nState   {settings.home}", markup=False)
            if exports := " ".join(exports_for(settings.home, stack.addresses.api)):
                console.print(f"To use it from another terminal: export {exports}", markup=False, soft_wrap=True)
            console.print("Ctrl-C stops everything.")
            stack.wait()
    except KeyboardInterrupt:
        console.print("Stopped.")


@app.command()
def serve() -> None:
    """Run the API."""
    import gc

    gc.disable()  # nearly all that a start makes stays; the service lets the collector work once it has started
    from contextlib import suppress

    from cli.local.database import open_store
    from cli.local.signals import stop_signals
    from service.settings import ServiceSettings
    from service.workers import serve as serve_api

    settings = ServiceSettings()
    # The server stops gracefully on a signal and then raises it again.
    with suppress(KeyboardInterrupt), stop_signals(), open_store(settings) as database_url:
        serve_api(settings.model_copy(update={"database_url": database_url}))


@app.command()
def trainer(
    check: Annotated[
        bool, typer.Option("--check", help="Only say, by exit code, whether the trainer is alive.")
    ] = False,
) -> None:
    """Run the trainer: it retrains every task at each of its windows."""
    from datetime import UTC, datetime

    from trainer.scheduling.heartbeat import is_alive
    from trainer.settings import TrainerSettings

    settings = TrainerSettings()
    if check:
        raise typer.Exit(0 if is_alive(settings, datetime.now(UTC)) else 1)
    from trainer.scheduling.imports import loading

    with loading():
        from cli.local.database import open_store
        from contracts.runtime.logs import configure_logs
        from trainer.scheduling.scheduler import run_trainer

    with open_store(settings) as database_url:
        configure_logs(settings)
        run_trainer(settings.model_copy(update={"database_url": database_url}))


@app.command()
def migrate() -> None:
    """Bring the database to the newest revision."""
    from cli.local.database import migrated_store
    from contracts.runtime.settings import SharedSettings

    with migrated_store(SharedSettings(), typer.echo):
        pass


@app.command()
def cycle(
    task: str,
    as_of: Annotated[str | None, typer.Option(help="Train as of this moment (RFC 3339); now where not given.")] = None,
    *,
    wait: Annotated[bool, typer.Option(help="Wait for the end; exit code 1 unless it is released.")] = True,
    as_json: AsJson = False,
    url: Url = LOCAL_URL,
) -> None:
    """Retrain a task."""
    from cli.commands.cycle import run_cycle

    if not run_cycle(url, task, as_of, wait=wait, as_json=as_json):
        raise typer.Exit(1)


@app.command()
def doctor(
    *,
    as_json: AsJson = False,
    url: Annotated[
        str | None, typer.Option(envvar="MORROW_URL", help="Address of the API; this home's where not given.")
    ] = None,
) -> None:
    """Look at everything that Morrow needs: home, disk, versions, GPU, trainer, database, keys, MLflow, clocks, API.

    Each is ok, warn or fail, with what to do about it. Exit code 1 where anything fails. Nothing is changed.
    """
    from cli.doctor.doctor import print_findings

    if not print_findings(url, as_json=as_json):
        raise typer.Exit(1)


@app.command()
def completion(shell: Annotated[Shell, typer.Argument(help="bash, zsh or fish.")]) -> None:
    """Print the script by which a shell completes commands and options.

    In ~/.bashrc: `eval "$(morrow completion bash)"`; in ~/.zshrc the same with zsh, after compinit; in
    ~/.config/fish/config.fish: `morrow completion fish | source`.
    """
    from cli.commands.completion import print_script

    print_script(shell)


Reason = Annotated[str, typer.Option(help="Why, for the record.")]
Actor = Annotated[str | None, typer.Option(help="Who asks, for the record; admin where not given.")]


@app.command()
def rollback(
    task: str,
    reason: Reason,
    version: Annotated[
        str | None, typer.Option(help="Version to go back to; the champion before this one where not given.")
    ] = None,
    actor: Actor = None,
    *,
    as_json: AsJson = False,
    url: Url = LOCAL_URL,
) -> None:
    """Let an earlier version answer again, within its own horizon, until a newer cutoff is released."""
    from cli.commands.release import roll_back

    roll_back(url, task, version, reason, actor, as_json=as_json)


@app.command()
def override(
    task: str,
    *,
    reason: Reason,
    version: Annotated[str | None, typer.Option(help="Version to reopen; the champion where not given.")] = None,
    valid_until: Annotated[
        str | None,
        typer.Option(help="Its new bound (RFC 3339); where not given the later of the present and the promised one."),
    ] = None,
    cycle: Annotated[int | None, typer.Option(help="Id of a held cycle whose candidate shall be released.")] = None,
    actor: Actor = None,
    wait: Annotated[
        bool, typer.Option(help="With --cycle: wait for the end; exit code 1 unless it is released.")
    ] = True,
    as_json: AsJson = False,
    url: Url = LOCAL_URL,
) -> None:
    """Overrule a verdict: reopen a closed horizon, or release what a cycle held; no gate is opened."""
    from cli.commands.release import override as overrule

    if not overrule(
        url,
        task,
        version=version,
        valid_until=valid_until,
        cycle=cycle,
        reason=reason,
        actor=actor,
        wait=wait,
        as_json=as_json,
    ):
        raise typer.Exit(1)


@app.command()
def backtest(
    task: str,
    as_of: Annotated[
        str | None,
        typer.Option(help="As known at this moment (RFC 3339); where not given, after the newest window with events."),
    ] = None,
    *,
    picture: Annotated[Path | None, typer.Option(help="Write the matrix as a heat map to this PNG or SVG.")] = None,
    as_json: AsJson = False,
) -> None:
    """Fill the error matrix of a task from the past, and print what the horizon rule makes of it."""
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
    first: Annotated[str | None, typer.Option("--from", help="First origin to tell of (RFC 3339).")] = None,
    last: Annotated[str | None, typer.Option("--to", help="What was known by then (RFC 3339) counts; now.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write all figures to this file.")] = None,
    pictures: Annotated[Path | None, typer.Option(help="Write pictures into this folder.")] = None,
    rivals: Annotated[bool, typer.Option(help="Fit rivals at the same origins.")] = True,
) -> None:
    """Walk the past of a task window by window: what would have been served, and how wrong it was."""
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
