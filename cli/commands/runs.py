"""`morrow runs`: delete runs of old cycles from MLflow."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from cli.client.options import AsJson
from cli.client.output import print_json
from cli.local.stack_file import read_stack_file
from contracts.errors import Fault, InvalidInput, Unavailable

if TYPE_CHECKING:
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

    Registered versions stay, and so do the runs that they come from.
    """
    from rich.console import Console
    from rich.table import Table

    from trainer.tracking.retention import plan

    table = Table("task", "cycles", "runs", "cycles to delete", "runs to delete")
    facts = []
    with _open_registry(url or _find_mlflow()) as registry:
        for name in registry.experiments() if task is None else [task]:
            pruning = plan(name, list(registry.past_runs(name)), registry.registered_runs(name), keep)
            if pruning.num_runs or task is not None:
                counts = (pruning.num_cycles, pruning.num_runs, pruning.num_deletable_cycles, len(pruning.deletable))
                table.add_row(name, *(f"{count:,}" for count in counts))
                names = ("num_cycles", "num_runs", "num_cycles_to_delete", "num_runs_to_delete")
                facts.append({"task": name, **dict(zip(names, counts, strict=True))})
            for run in pruning.deletable if yes else ():
                registry.delete_run(run.run_id)
    if as_json:
        print_json({"deleted": yes, "tasks": facts})
        return
    console = Console(markup=False)
    console.print(table)
    if not any(fact["num_runs_to_delete"] for fact in facts):
        console.print("There is nothing to delete.")
    elif yes:
        console.print("Deleted. Run `mlflow gc` on the server to remove them from its database too.")
    else:
        console.print("Nothing is deleted without --yes.")


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
