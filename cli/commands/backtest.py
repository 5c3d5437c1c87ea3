"""`morrow backtest`: fill a task's error matrix from its past, straight from the database."""

from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from cli.client.options import AsJson


def backtest(
    task: str,
    as_of: Annotated[
        str | None,
        typer.Option(help="As known at this moment (RFC 3339). Default: the end of the newest window with events."),
    ] = None,
    *,
    origins: Annotated[
        int | None,
        typer.Option(
            min=2,
            max=52,
            help="Score every age on this many newest windows, at one fit each. Default: as few as decide.",
        ),
    ] = None,
    picture: Annotated[Path | None, typer.Option(help="Write the matrix as a heat map to this PNG or SVG.")] = None,
    as_json: AsJson = False,
) -> None:
    """Fill the error matrix of a task from the past, and print the horizon that follows from it."""
    from cli.local.database import open_known_store
    from cli.reports.backtest import print_backtest
    from trainer.settings import TrainerSettings

    settings = TrainerSettings()
    with open_known_store(settings, partial(typer.echo, err=True)) as database_url:
        print_backtest(
            settings,
            database_url,
            task,
            lambda: datetime.now(UTC),
            as_of=as_of,
            origins=origins,
            picture=picture,
            as_json=as_json,
        )
