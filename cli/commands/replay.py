"""`morrow replay`: walk a task's past in simulated time, straight from the database."""

from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import typer


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
    from cli.local.database import open_known_store
    from cli.reports.replay import print_replay
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
