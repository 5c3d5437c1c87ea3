"""`morrow events`: bring in labelled events, correct one, erase some."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.client.addresses import LOCAL_URL, Url
from cli.client.output import AsJson, print_json
from cli.importing.formats import Format

if TYPE_CHECKING:
    from cli.importing.importer import Imported

SOME_REFUSED = 3

app = typer.Typer(no_args_is_help=True, help="Bring in labelled events.")


@app.command("import")
def import_events(
    task: str,
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="CSV with a header, NDJSON or Parquet.")],
    *,
    format: Annotated[Format | None, typer.Option(help="By the suffix where not given.")] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            file_okay=False,
            writable=True,
            help="Where rejected rows and the bookmark go; beside the file where not given.",
        ),
    ] = None,
    as_json: AsJson = False,
    url: Url = LOCAL_URL,
) -> None:
    """Post the rows of a file: event_id, at, label, known_at where given, and each feature.

    In CSV and Parquet these are columns; a line of NDJSON is an event as POST /events takes it. Rows that are not
    stored go to a file of rejects with the reason of each, which can be mended and imported in turn. An import that
    breaks goes on from there when the same command is given again. Exit code 0: all rows are stored; 3: all are sent
    and some were refused; 1: it broke. Rows of erased events are counted, and neither stored nor refused.
    """
    from cli.importing.formats import choose_format
    from cli.importing.importer import import_events as import_file

    imported = import_file(url, task, file, choose_format(file, format), folder or file.parent)
    if as_json:
        print_json(_document(imported))
    else:
        _print(imported)
    if imported.rejects is not None:
        raise typer.Exit(SOME_REFUSED)


@app.command("correct")
def correct_event(
    task: str,
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="One event as JSON.")],
    *,
    as_json: AsJson = False,
    url: Url = LOCAL_URL,
) -> None:
    """Correct a stored event: the file holds all of it, as it should be."""
    from cli.commands.release import correct_event as correct

    correct(url, task, file, as_json=as_json)


@app.command("erase")
def erase_events(
    task: str,
    event_ids: Annotated[list[str] | None, typer.Argument(help="Ids of events.")] = None,
    *,
    reason: Annotated[str, typer.Option(help="Why, for the record.")],
    file: Annotated[Path | None, typer.Option(exists=True, dir_okay=False, help="More ids, one a line.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask first: this cannot be undone.")] = False,
    actor: Annotated[str | None, typer.Option(help="Who asks, for the record; admin where not given.")] = None,
    as_json: AsJson = False,
    url: Url = LOCAL_URL,
) -> None:
    """Erase what events said, in all their revisions, and keep their ids from being stored again.

    Versions that were trained on them answer as before; they are named. Exit code 3: some ids are not stored.
    """
    from cli.commands.erase import erase, many, read_ids

    found = read_ids(event_ids or [], file)
    if not yes:
        typer.confirm(f"Erase {many(len(found), 'event')} of {task} for ever?", abort=True, err=True)
    if not erase(url, task, found, reason, actor, as_json=as_json):
        raise typer.Exit(SOME_REFUSED)


def _document(imported: "Imported") -> dict[str, object]:
    return {
        "num_rows": imported.num_rows,
        "num_before": imported.num_before,
        **imported.counts,
        "seconds": round(imported.seconds, 3),
        "rows_per_second": round(imported.rate, 1),
        "rejects": None if imported.rejects is None else str(imported.rejects),
    }


def _print(imported: "Imported") -> None:
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    console.print(", ".join(f"{count} {outcome}" for outcome, count in imported.counts.items()))
    num_sent = imported.num_rows - imported.num_before
    console.print(f"{num_sent:,} rows in {imported.seconds:.1f} s: {imported.rate:,.0f} a second.")
    for fault in imported.faults:
        console.print(fault, markup=False, style="red")
    if imported.rejects is not None:
        console.print(f"Mend {imported.rejects} and import it in turn.", markup=False)
