"""The commands that run Morrow: all of it (`up`, `demo`), or one part (`serve`, `trainer`, `migrate`)."""

from pathlib import Path
from typing import Annotated

import typer


def demo(
    weeks: Annotated[int, typer.Option(min=1, max=26, help="Number of weeks to serve after the first 26.")] = 6,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures to this file.")] = None,
    keep: Annotated[bool, typer.Option(help="Keep the stack running until Ctrl-C, and keep its folder.")] = False,
) -> None:
    """Learn from 26 weeks of real flights, then retrain and serve six more, and compare with rival models."""
    from cli.demo.demo import run_demo

    try:
        run_demo(weeks, json_file, keep=keep)
    except KeyboardInterrupt:
        raise typer.Exit(0 if keep else 130) from None


def up(
    port: Annotated[int, typer.Option(envvar="MORROW_PORT", min=1, max=65535, help="Port of the API.")] = 8000,
    home: Annotated[Path | None, typer.Option(help="Folder for all state. Default: MORROW_HOME.")] = None,
) -> None:
    """Run the whole stack on this machine: PostgreSQL, MLflow, API and trainer. Ctrl-C stops it."""
    from rich.console import Console

    from cli.local.signals import stop_signals
    from cli.local.stack import EmbeddedStack
    from cli.local.stack_file import exports_for
    from contracts.runtime.settings import SharedSettings

    settings = SharedSettings() if home is None else SharedSettings(home=home)
    console = Console()
    try:
        with stop_signals(), EmbeddedStack(settings, port, console) as stack:
            folder = settings.home.expanduser().resolve()
            console.print(f"API     {stack.addresses.api}\nDocs    {stack.addresses.api}/docs")
            console.print(
                f"MLflow  {stack.addresses.mlflow}\nState   {folder}\nLogs    {folder / 'logs'}", markup=False
            )
            if exports := " ".join(exports_for(settings.home, stack.addresses.api)):
                console.print(f"To use it from another terminal: export {exports}", markup=False, soft_wrap=True)
            console.print("Ctrl-C stops everything.")
            stack.wait()
    except KeyboardInterrupt:
        console.print("Stopped.")


def serve() -> None:
    """Run the API."""
    import gc

    gc.disable()  # nearly all that a start makes stays; the service enables collection once it has started
    from contextlib import suppress

    from cli.local.database import open_store
    from cli.local.signals import stop_signals
    from service.settings import ServiceSettings
    from service.workers import serve as serve_api

    settings = ServiceSettings()
    # The server stops gracefully on a signal and then raises it again.
    with suppress(KeyboardInterrupt), stop_signals(), open_store(settings) as database_url:
        serve_api(settings.model_copy(update={"database_url": database_url}))


def trainer(
    check: Annotated[
        bool, typer.Option("--check", help="Only report, by the exit code, whether the trainer is alive.")
    ] = False,
) -> None:
    """Run the trainer, which retrains every task at each of its windows."""
    from datetime import UTC, datetime

    from trainer.scheduling.liveness import is_alive
    from trainer.settings import TrainerSettings

    settings = TrainerSettings()
    if check:
        raise typer.Exit(0 if is_alive(settings, datetime.now(UTC)) else 1)
    from trainer.scheduling.workers.library_loading import fast_imports

    with fast_imports():
        from cli.local.database import open_store
        from contracts.runtime.logs import configure_logs
        from trainer.scheduling.scheduler import run_trainer

    with open_store(settings) as database_url:
        configure_logs(settings)
        run_trainer(settings.model_copy(update={"database_url": database_url}))


def migrate() -> None:
    """Bring the database to the newest revision."""
    from cli.local.database import migrated_store
    from contracts.runtime.settings import SharedSettings

    with migrated_store(SharedSettings(), typer.echo):
        pass
