"""`morrow events seal`: move events of old windows from the database to files."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from cli.client.options import AsJson, parse_moment_option
from cli.client.output import print_json


def seal(
    task: str,
    *,
    before: Annotated[str, typer.Option(help="Windows that end by this moment are sealed (RFC 3339).")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count the events, and move none.")] = False,
    as_json: AsJson = False,
) -> None:
    """Move events of old windows from the database to Parquet files in the object store.

    Everything works as before, and fits read the same rows. The newest 50,000 events stay, and so do corrected and
    erased ones. The files go to MORROW_FITS_URL, else below MORROW_HOME: every process of Morrow must reach them, and
    none may be of an earlier release. The command needs this installation's database (`MORROW_HOME` or
    `MORROW_DATABASE_URL`). If it breaks off, run it again.
    """
    from cli.local.database import open_known_store
    from contracts.shown import say_count
    from store.engine import make_engine
    from store.events.sealed.manifest import read_totals
    from store.events.sealed.sealing import Sealed, count_sealable
    from store.events.sealed.sealing import seal as seal_events
    from store.tasks.catalog import find_task
    from trainer.settings import TrainerSettings, sealed_store

    moment, settings = parse_moment_option("--before", before), TrainerSettings()
    url = sealed_store(settings)
    with open_known_store(settings, lambda words: typer.echo(words, err=True)) as database_url:
        engine = make_engine(database_url)
        try:
            with engine.connect() as connection:
                schema = find_task(connection, task)
                sealed = Sealed(num_rows=count_sealable(connection, schema, moment)) if dry_run else None
            if sealed is None:
                sealed = seal_events(engine, url, schema, moment, datetime.now(UTC))
            with engine.connect() as connection:
                totals = read_totals(connection, schema.task_id)
        finally:
            engine.dispose()
    if as_json:
        print_json(
            {
                "sealed": not dry_run,
                "num_events": sealed.num_rows,
                "num_files": sealed.num_files,
                "num_bytes": sealed.num_bytes,
                "num_sealed": totals.num_rows,
                "store": url.partition("?")[0],
            }
        )
        return
    count = say_count(sealed.num_rows, "event")
    if dry_run:
        typer.echo(f"{count} of {task} can be sealed. Nothing is moved: run it again without --dry-run.")
    elif sealed.num_rows:
        files = say_count(sealed.num_files, "file")
        typer.echo(f"{count} of {task} sealed in {files} in {url.partition('?')[0]}, {sealed.num_bytes:,} bytes.")
    else:
        typer.echo(f"No event of {task} can be sealed: the newest 50,000 stay, and so do corrected ones.")
    if totals.num_rows:
        typer.echo(f"In all, {say_count(totals.num_rows, 'event')} of {task} are in {totals.num_files:,} files.")
