"""`morrow doctor`: find what is wrong with this machine, its settings and the servers that Morrow needs."""

from typing import Annotated

import typer

from cli.client.options import AsJson


def doctor(
    *,
    as_json: AsJson = False,
    url: Annotated[
        str | None, typer.Option(envvar="MORROW_URL", help="Address of the API. Default: that of this home's stack.")
    ] = None,
) -> None:
    """Check everything that Morrow needs: home, disk, versions, GPU, trainer, database, keys, MLflow, clocks, API.

    Each finding is ok, warn or fail, and says what to do. Nothing is changed. Exit code 1: something fails.
    """
    from cli.doctor.doctor import print_findings

    if not print_findings(url, as_json=as_json):
        raise typer.Exit(1)
