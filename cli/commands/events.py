"""`morrow events`: import labelled events, retract an import, list, show or correct events, erase some."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.client.api import ask, open_api
from cli.client.options import LOCAL_URL, Actor, AsJson, Reason, Url
from cli.client.output import confirm, print_facts, print_json
from cli.file_rows.file_options import (
    AtFormat,
    DayFirst,
    DecimalMark,
    Drop,
    Encoding,
    FormatOption,
    Missing,
    Quote,
    Separator,
    Timezone,
    make_options,
    require_file,
)
from contracts.errors import Fault, InvalidInput
from contracts.shown import say_count

SOME_REFUSED = 3

app = typer.Typer(
    no_args_is_help=True, help="Import labelled events, retract an import, list, show, correct or erase events."
)


@app.command("import")
def import_events(
    task: str,
    file: Annotated[
        Path,
        typer.Argument(
            callback=require_file,
            help="CSV with a header, NDJSON or Parquet, also compressed; - for standard input.",
        ),
    ],
    *,
    format: FormatOption = None,
    columns: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="NAME=COLUMN", help="Column of a value, such as at=when. May be repeated."),
    ] = None,
    timezone: Timezone = None,
    day_first: DayFirst = None,
    at_format: AtFormat = None,
    missing: Missing = None,
    decimal: DecimalMark = None,
    id_from: Annotated[
        str | None, typer.Option(metavar="COLUMNS", help="Columns whose values together are the id, such as day,store.")
    ] = None,
    drop: Drop = None,
    separator: Separator = None,
    quote: Quote = None,
    encoding: Encoding = None,
    unlabelled: Annotated[
        bool, typer.Option("--unlabelled", help="Keep rows without a label until it comes, instead of refusing them.")
    ] = False,
    again: Annotated[
        bool,
        typer.Option(
            "--again",
            help="Store rows that may be stored already: imported with other options, or under ids of their own.",
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check every row, and store none.")] = False,
    folder: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            file_okay=False,
            writable=True,
            help="Folder for refused rows and the bookmark. Default: the file's own.",
        ),
    ] = None,
    as_json: AsJson = False,
    url: Url = LOCAL_URL,
) -> None:
    """Post the rows of a file: event_id, at, label, known_at if there is one, and each feature.

    In CSV and Parquet these are columns; a line of NDJSON is an event as POST /events takes it. Names may differ in
    case, blanks and accents. Without a column of ids, ids are digests of rows. Refused rows go to a file of their own,
    each with its line and the reason: correct that file and import it too, with the same options. If an import breaks
    off, the same command resumes it. Exit code 0: all rows are stored; 3: all rows are sent and some were refused;
    1: it broke off. Rows of erased events are counted on their own.
    """
    from cli.importing.importer import import_events as import_file
    from cli.importing.importer import try_import
    from cli.importing.outcome import describe_imported, print_imported
    from cli.reading.options import name_options_of_rejects
    from cli.reading.sources import folder_of
    from service.advice.import_options import spell_import

    options = make_options(
        columns=columns,
        timezone=timezone,
        day_first=day_first,
        at_format=at_format,
        missing=missing,
        decimal=decimal,
        id_from=id_from,
        drop=drop,
        separator=separator,
        quote=quote,
        encoding=encoding,
        unlabelled=unlabelled,
    )
    if dry_run:
        imported = try_import(url, task, file, format=format, options=options)
    else:
        imported = import_file(url, task, file, folder or folder_of(file), format=format, options=options, again=again)
    if as_json:
        print_json(describe_imported(imported))
    else:
        corrected = None
        if imported.rejects is not None:
            corrected = spell_import(task, name_options_of_rejects(options, imported.rejects), str(imported.rejects))
        print_imported(task, imported, dry_run=dry_run, corrected=corrected)
        if not dry_run:
            _print_row_warnings(url, task, imported.import_id)
    if imported.counts["rejected"] or imported.counts["conflicts"]:
        raise typer.Exit(SOME_REFUSED)


@app.command("show")
def show_event(task: str, event_id: str, *, as_json: AsJson = False, url: Url = LOCAL_URL) -> None:
    """Print a stored event as `correct` takes it. With --json, also its revision, and when and how it came."""
    from urllib.parse import quote

    with open_api(url) as api:
        answer = ask(api, "GET", f"/events/{quote(event_id, safe='')}", params={"task": task})
    print_json(answer if as_json else answer["event"])


@app.command("list")
def list_events(
    task: str,
    *,
    since: Annotated[
        str | None, typer.Option("--from", metavar="MOMENT", help="Only events of this moment or later (RFC 3339).")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="MOMENT", help="Only events before this moment.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Most events that are listed.")] = 20,
    after: Annotated[
        str | None, typer.Option(metavar="EVENT_ID", help="List what comes after this event, as the last line says.")
    ] = None,
    as_json: AsJson = False,
    url: Url = LOCAL_URL,
) -> None:
    """List stored events with their ids, the newest first, such as rows that were imported without an id."""
    from cli.reports.events import print_events

    given = {"from": since, "until": until, "limit": limit, "after": after}
    with open_api(url) as api:
        found = ask(api, "GET", f"/tasks/{task}/events", params={k: v for k, v in given.items() if v is not None})
    if as_json:
        print_json(found)
        return
    print_events(task, found, options={"--from": since, "--until": until, "--limit": str(limit)})


@app.command("correct")
def correct_event(
    task: str,
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="One event as JSON.")],
    *,
    as_json: AsJson = False,
    url: Url = LOCAL_URL,
) -> None:
    """Correct a stored event. The file holds the whole event as it should be.

    Write the file with `morrow events show TASK ID > event.json` and change it. To correct many events of a file:
    retract its import (`morrow events history TASK` lists them), and import the corrected file.
    """
    from urllib.parse import quote

    event = _read_event(task, file)
    event_id = event.get("event_id")
    if not isinstance(event_id, str):
        raise InvalidInput([Fault("event_id", f"is missing in {file}")])
    with open_api(url) as api:
        answer = ask(
            api,
            "PUT",
            f"/events/{quote(event_id, safe='')}",
            params={"task": task},
            content=file.read_bytes().removeprefix(b"\xef\xbb\xbf"),
            headers={"content-type": "application/json"},
        )
    outcome = "is corrected" if answer["status"] == "corrected" else "says so already"
    print_facts(answer, f"{event_id} {outcome}.", as_json=as_json)


def _read_event(task: str, file: Path) -> dict[str, Any]:
    """The event of a JSON file. Raises InvalidInput, with the way to such a file, for any other."""
    import json

    written = file.read_bytes()
    way = (
        f"run morrow events show {task} ID > event.json, change that file, and run morrow events correct {task} "
        f"event.json; to correct a whole file, retract its import (morrow events history {task} lists them), and "
        "import it again"
    )
    try:
        event = json.loads(written.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise InvalidInput([Fault(str(file), f"is {_name_content(file, written, error)}: {way}")]) from error
    if not isinstance(event, dict):
        raise InvalidInput([Fault(str(file), f"is not one event, a JSON object: {way}")])
    return event


def _name_content(file: Path, written: bytes, error: Exception) -> str:
    """What a file is that holds no JSON."""
    names = {one.lower() for one in file.suffixes}
    if written.startswith(b"PAR1"):
        return "Parquet, and not one event as JSON"
    if names & {".csv", ".tsv"} or not written.lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"{", b"[")):
        return "CSV or other text, and not one event as JSON"
    if names & {".ndjson", ".jsonl"} or b"\n{" in written:
        return "NDJSON, and not one event as JSON"
    return f"not JSON ({error})"


@app.command("erase")
def erase_events(
    task: str,
    event_ids: Annotated[list[str] | None, typer.Argument(help="Ids of events.")] = None,
    *,
    reason: Reason,
    file: Annotated[Path | None, typer.Option(exists=True, dir_okay=False, help="More ids, one on each line.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask first. This cannot be undone.")] = False,
    actor: Actor = None,
    as_json: AsJson = False,
    url: Url = LOCAL_URL,
) -> None:
    """Erase the content of events in all their revisions, and keep their ids from being stored again.

    Versions that were trained on them answer as before, and are named. Exit code 3: some ids are not stored. If the
    command breaks off, run it again: erased events stay erased.
    """
    from cli.file_rows.batches import batches
    from service.web.fields import MAX_IDS

    found = _read_ids(event_ids or [], file)
    if not yes:
        confirm(f"Erase {say_count(len(found), 'event')} of {task} for ever?")
    given: dict[str, Any] = {"reason": reason} | ({} if actor is None else {"actor": actor})
    with open_api(url) as api:
        answers = [
            ask(api, "POST", f"/tasks/{task}/erasures", json={"event_ids": batch, **given})
            for batch in batches(found, MAX_IDS)
        ]
    facts = _sum_erasures(answers)
    if as_json:
        print_json(facts)
    else:
        _print_erased(facts)
    if facts["unknown"]:
        raise typer.Exit(SOME_REFUSED)


@app.command("history")
def list_imports(task: str, *, as_json: AsJson = False, url: Url = LOCAL_URL) -> None:
    """List the imports of a task, newest first: id, time, file, events that it stored, and whether it was retracted."""
    with open_api(url) as api:
        answer = ask(api, "GET", f"/tasks/{task}/imports", params={"counted": "true"})
    if as_json:
        print_json(answer)
        return
    from cli.reports.imports import print_imports

    print_imports(task, answer["imports"])


@app.command("retract")
def retract_import(
    task: str,
    *,
    import_id: Annotated[
        int | None, typer.Option("--import", help="Id of the import; `morrow events history` lists them.")
    ] = None,
    reason: Annotated[str, typer.Option(help="Reason, for the record.")] = "a mistaken import",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask first. This cannot be undone.")] = False,
    actor: Actor = None,
    as_json: AsJson = False,
    url: Url = LOCAL_URL,
) -> None:
    """Retract an import: its events leave every later training set, and their ids can be imported again.

    Events that were corrected since, and rows of others, stay. Versions that were trained on the events answer as
    before, and are named. If the command breaks off, run it again.
    """
    if import_id is None:
        raise InvalidInput([Fault("--import", f"is missing: `morrow events history {task}` lists the imports by id")])
    given: dict[str, Any] = {"reason": reason} | ({} if actor is None else {"actor": actor})
    path = f"/tasks/{task}/imports/{import_id}"
    with open_api(url) as api:
        found = ask(api, "GET", path)
        kept = _say_kept(found["num_corrected"])
        trained = f" {_say_trained(found['versions'])} before." if found["versions"] else ""
        if not yes and found["num_events"]:
            question = (
                f"Import {import_id} of {task} is {found['source']} of {_to_seconds(found['at'])}.{trained} "
                f"Retract {say_count(found['num_events'], 'event')}{kept}?"
            )
            confirm(question)
        before, versions = found["num_retracted"], found["versions"]
        answer = ask(api, "POST", f"{path}/retract", json=given)
        while answer["num_events"]:
            answer = ask(api, "POST", f"{path}/retract", json=given)
    facts = {**answer, "num_events": answer["num_retracted"] - before, "versions": versions}
    if found["num_events"]:
        sentence = f"{say_count(facts['num_events'], 'event')} of import {import_id} retracted{kept}."
    else:
        sentence = f"Import {import_id} has no event left to retract{kept}. `morrow events history {task}` lists all."
    if versions:
        sentence += (
            f" {_say_trained(versions)} before, until a newer one does. Once the right events are stored: "
            f"`morrow cycle {task} --again`."
        )
    print_facts(facts, sentence, as_json=as_json)


def _print_row_warnings(url: str, task: str, import_id: int | None) -> None:
    """Print what stands out among the stored rows. The import has succeeded, whatever becomes of this request."""
    from contextlib import suppress

    from cli.errors import Refused, Unreachable

    with suppress(Refused, Unreachable), open_api(url) as api:
        for warning in ask(api, "GET", f"/tasks/{task}/imports/{import_id}")["warnings"]:
            typer.secho(f"Warning: {warning}", fg="yellow", err=True)


def _read_ids(event_ids: Sequence[str], file: Path | None) -> list[str]:
    """Each given id and each line of the file, once. Raises InvalidInput if there is none."""
    lines: list[str] = []
    if file is not None:
        try:
            lines = [line for line in map(str.strip, file.read_text(encoding="utf-8-sig").split("\n")) if line]
        except UnicodeDecodeError as error:
            raise InvalidInput([Fault(str(file), f"is not UTF-8: {error}")]) from error
    found = list(dict.fromkeys([*event_ids, *lines]))
    if not found:
        raise InvalidInput([Fault("event_ids", "none is given: name ids, or a file of them with --file")])
    return found


def _sum_erasures(answers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The answers of several requests as one; versions ascending."""
    names = ("num_events", "num_revisions", "num_rejected", "num_predictions")
    results = [result for answer in answers for result in answer["results"]]
    return {
        **{name: sum(answer.get(name, 0) for answer in answers) for name in names},
        "num_erased_before": sum(result["status"] == "erased_before" for result in results),
        "unknown": [result["event_id"] for result in results if result["status"] == "unknown"],
        "versions": sorted({version for answer in answers for version in answer["versions"]}, key=int),
        "erasures": [answer["id"] for answer in answers],
    }


def _print_erased(facts: dict[str, Any]) -> None:
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    console.print(
        f"{say_count(facts['num_events'], 'event')} erased in {say_count(facts['num_revisions'], 'revision')}, "
        f"{say_count(facts['num_rejected'], 'refused row')} and "
        f"{say_count(facts['num_predictions'], 'logged answer')}; {facts['num_erased_before']:,} were erased before."
    )
    if facts["unknown"]:
        console.print(f"Not stored: {', '.join(facts['unknown'])}.", markup=False, style="red")
    if facts["versions"]:
        console.print(f"{_say_trained(facts['versions'])} before, until a newer one does.")


def _say_trained(versions: Sequence[str]) -> str:
    """That versions were trained on some events, and what they do now."""
    if len(versions) == 1:
        return f"Version {versions[0]} was trained on such events and answers as"
    return f"Versions {', '.join(versions[:-1])} and {versions[-1]} were trained on such events and answer as"


def _to_seconds(moment: str) -> str:
    """A moment of the API without its fraction, as people read it."""
    whole, _, _ = moment.removesuffix("Z").partition(".")
    return f"{whole}Z"


def _say_kept(number: int) -> str:
    return f"; {say_count(number, 'corrected event')} {'stays' if number == 1 else 'stay'}" if number else ""
