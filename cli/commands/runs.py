"""`morrow runs`: delete runs of old cycles from MLflow."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.client.options import AsJson
from cli.client.output import print_json
from cli.local.stack_file import read_stack_file
from contracts.errors import Fault, InvalidInput, Unavailable

if TYPE_CHECKING:
    from store.tasks.installation import OwnRuns
    from trainer.tracking.registry import Registry

app = typer.Typer(no_args_is_help=True, help="Clean up the runs of cycles in MLflow.")


@app.callback()
def _runs() -> None:
    """Make this a group although it has one command."""


@app.command()
def prune(
    task: Annotated[str | None, typer.Argument(help="The task. Default: every task.")] = None,
    *,
    keep: Annotated[int, typer.Option(min=1, help="Number of newest cycles of a task whose runs stay.")] = 100,
    yes: Annotated[bool, typer.Option("--yes", help="Delete the runs. Default: only count them.")] = False,
    as_json: AsJson = False,
    url: Annotated[
        str | None,
        typer.Option(
            "--mlflow", envvar="MORROW_MLFLOW_URL", help="Address of MLflow. Default: that of this home's stack."
        ),
    ] = None,
) -> None:
    """Delete the runs of old cycles, with their files and child runs.

    Registered versions stay, and so do the runs that they come from. If several installations share this MLflow, only
    the runs of this one are touched: its database says which they are.
    """
    from rich.console import Console
    from rich.table import Table

    from trainer.tracking.retention import plan, select_own

    table = Table("task", "cycles", "runs", "cycles to delete", "runs to delete", "runs of others")
    facts: list[dict[str, Any]] = []
    with _open_registry(url or _find_mlflow()) as registry:
        if task is None:
            tasks = registry.experiments()
        else:
            registry.require_experiment(task)
            tasks = [task]
        own = _read_own_runs()
        for name in tasks:
            runs, num_others = select_own(registry.past_runs(name), own)
            pruning = plan(name, runs, registry.registered_runs(name), keep)
            if pruning.num_runs or num_others or task is not None:
                counts = (
                    pruning.num_cycles,
                    pruning.num_runs,
                    pruning.num_deletable_cycles,
                    len(pruning.deletable),
                    num_others,
                )
                table.add_row(name, *(f"{count:,}" for count in counts))
                names = ("num_cycles", "num_runs", "num_cycles_to_delete", "num_runs_to_delete", "num_runs_of_others")
                facts.append({"task": name, **dict(zip(names, counts, strict=True))})
            for run in pruning.deletable if yes else ():
                registry.delete_run(run.run_id)
    if as_json:
        print_json({"deleted": yes, "tasks": facts})
        return
    console = Console(markup=False)
    console.print(table)
    if num_left := sum(fact["num_runs_of_others"] for fact in facts):
        console.print(f"{num_left:,} runs stay, because this installation is not known to have written them.")
    if not any(fact["num_runs_to_delete"] for fact in facts):
        console.print("There is nothing to delete.")
    elif yes:
        console.print("Deleted. Run `mlflow gc` on the server to remove them from its database too.")
    else:
        console.print("Nothing is deleted without --yes.")


def _read_own_runs() -> "OwnRuns":
    """What the database of this installation knows of its runs. Raises NotFound, Unavailable."""
    from cli.local.database import open_known_store, transaction
    from contracts.runtime.settings import SharedSettings
    from store.tasks.installation import read_own_runs

    with (
        open_known_store(SharedSettings(), partial(typer.echo, err=True)) as database_url,
        transaction(database_url) as connection,
    ):
        return read_own_runs(connection)


@contextmanager
def _open_registry(url: str) -> "Iterator[Registry]":
    """The registry at this address. Raises InvalidInput if that cannot be asked, Unavailable if it does not answer."""
    from contracts.runtime.addresses import read_http_address, split_credentials
    from trainer.tracking.registry import Registry

    try:
        address = read_http_address(url)
    except ValueError as error:
        raise InvalidInput([Fault("--mlflow", str(error))]) from None
    try:
        yield Registry(address)
    except Unavailable as error:
        place, _ = split_credentials(address)
        raise Unavailable(f"{error} It is at {place}: start it, or correct --mlflow or MORROW_MLFLOW_URL.") from error


def _find_mlflow() -> str:
    """The address of MLflow in this home's running stack. Raises BadParameter if none runs."""
    from service.settings import ServiceSettings

    stack = read_stack_file(ServiceSettings().home.expanduser())
    if stack is None:
        raise typer.BadParameter("is required, because no `morrow up` runs in this home", param_hint="'--mlflow'")
    return stack.mlflow
