"""`morrow task`: define tasks, show their state, and pause, archive, rename or delete one."""

import codecs
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.client.api import ask, open_api
from cli.client.options import LOCAL_URL, Actor, AsJson, Url
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

if TYPE_CHECKING:
    from cli.inferring.guess import Said
    from cli.inferring.infer import Inferred
    from contracts.task import Kind
    from service.advice.import_options import ImportOptions

app = typer.Typer(no_args_is_help=True, help="Define tasks, show their state, pause, archive, rename and delete them.")

PAGE_SIZE = 200

Archived = Annotated[bool, typer.Option("--archived", help="List archived tasks too.")]
# The first line that `infer` prints.
_REPORT = re.compile(r"^(?P<path>.+) holds the task \w+: ", re.MULTILINE)
OptionalReason = Annotated[str | None, typer.Option("--reason", help="Reason, for the record.")]


@app.command("apply")
def apply_task(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="The task as TOML.")],
    *,
    as_json: AsJson = False,
    url: Url = LOCAL_URL,
) -> None:
    """Define a task, or a new revision of it."""
    from contracts.spec.spec_values import IDENTIFIER, NAMES_RULE, suggest_name

    spec = read_task_file(file)
    name = spec.get("name")
    if not isinstance(name, str):
        raise InvalidInput([Fault("name", f'is missing in {file}: add a line such as name = "rentals"')])
    if not re.fullmatch(IDENTIFIER, name):
        raise InvalidInput(
            [
                Fault(
                    "name", f"is {name!r} in {file}, which no path can hold. {NAMES_RULE}: name it {suggest_name(name)}"
                )
            ]
        )
    with open_api(url) as api:
        answer = ask(api, "PUT", f"/tasks/{name}", json=spec)
    if as_json:
        print_json(answer)
        return
    from cli.reports.task import print_applied

    print_applied(name, answer)


def read_task_file(file: Path) -> dict[str, Any]:
    """A task as TOML in UTF-8, with or without a byte order mark. Raises InvalidInput."""
    import tomllib

    written = file.read_bytes()
    if written.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in written:
        raise InvalidInput([Fault(str(file), "is UTF-16, and TOML is UTF-8: save it in UTF-8")])
    try:
        return tomllib.loads(written.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = written.count(b"\n", 0, error.start) + 1
        reason = f"is not UTF-8 (byte 0x{written[error.start]:02x} in line {line}): save it in UTF-8"
        raise InvalidInput([Fault(str(file), reason)]) from error
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput([Fault(str(file), _explain_no_toml(written.decode("utf-8-sig"), error))]) from error


def _explain_no_toml(written: str, error: Exception) -> str:
    """Why a file is no task: it may hold what `infer` said on the screen, in place of the file that it wrote."""
    from service.advice.import_options import path_word, spell

    if (said := _REPORT.search(written)) is None:
        return f"is not TOML: {error}"
    apply = spell(["morrow", "task", "apply", path_word(said["path"])])
    return f"holds what `morrow task infer` printed; the task is in the file that it wrote: {apply}"


@app.command("infer")
def infer_task(
    file: Annotated[
        Path, typer.Argument(callback=require_file, help="CSV with a header, or Parquet; - for standard input.")
    ],
    *,
    name: Annotated[str | None, typer.Option(help="Name of the task. Default: that of the file.")] = None,
    at: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column of moments, or two as date+hour. Default: guessed.")
    ] = None,
    label: Annotated[str | None, typer.Option(metavar="COLUMN", help="Column to predict. Default: guessed.")] = None,
    window: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Length of a window, such as P7D. Default: guessed.")
    ] = None,
    kinds: Annotated[
        list[str] | None,
        typer.Option("--kind", metavar="COLUMN=KIND", help="Kind of a column, such as zone=category. May be repeated."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="File to write, - for the screen. Default: NAME.toml."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    format: FormatOption = None,
    timezone: Timezone = None,
    day_first: DayFirst = None,
    at_format: AtFormat = None,
    missing: Missing = None,
    decimal: DecimalMark = None,
    drop: Drop = None,
    separator: Separator = None,
    quote: Quote = None,
    encoding: Encoding = None,
    as_json: AsJson = False,
) -> None:
    """Write a first task file for a CSV or Parquet file, with a comment for each guess.

    It guesses the moments, the label, the kind of each feature, what may be missing, and a window that holds enough
    rows. Nothing is sent. Look through the file, then run the commands that this one prints.
    """
    from datetime import UTC, datetime

    from cli.inferring.guess import Said
    from cli.inferring.infer import infer
    from cli.reading.options import name_options

    said = Said(at, label, window, tuple(map(_split_kind, kinds or [])))
    options = make_options(
        timezone=timezone,
        day_first=day_first,
        at_format=at_format,
        missing=missing,
        decimal=decimal,
        drop=drop,
        separator=separator,
        quote=quote,
        encoding=encoding,
    )
    inferred = infer(file, format=format, name=name, said=said, options=options, now=datetime.now(UTC))
    if out is not None and str(out) == "-":
        typer.echo(inferred.text, nl=False)
        return
    path = out or Path(f"{inferred.name}.toml")
    if path.exists() and not force:
        raise InvalidInput([Fault(str(path), "exists: replace it with --force, or write another with --out FILE")])
    path.write_text(inferred.text, "utf-8")
    if as_json:
        print_json(
            {
                "file": str(path),
                "task": inferred.name,
                "import": inferred.import_command,
                "notes": list(inferred.notes),
            }
        )
    else:
        _print_inferred(path, inferred, _spell_again(file, said, name_options(options, format), name=name, out=out))
    if not inferred.has_valid_rows:
        raise typer.Exit(1)


def _spell_again(file: Path, said: "Said", options: "ImportOptions", *, name: str | None, out: Path | None) -> str:
    """The command that infers the same once more, to which options can be added."""
    from service.advice.import_options import list_words, path_word, spell

    given = {"--name": name, "--at": said.at, "--label": said.label, "--window": said.window, "--out": out}
    words = [word for option, value in given.items() if value is not None for word in (option, str(value))]
    words += [word for column, kind in said.kinds for word in ("--kind", f"{column}={kind}")]
    words += list_words(options)
    return spell(["morrow", "task", "infer", path_word(str(file)), "--force", *words])


def _print_inferred(path: Path, inferred: "Inferred", again: str) -> None:
    """What the file holds, and the commands that come next; `again` infers it once more."""
    from service.advice.import_options import path_word, spell

    typer.echo(f"{path} holds the task {inferred.name}: {inferred.summary}.")
    for note in inferred.notes:
        typer.echo(note)
    if not inferred.has_valid_rows:
        typer.echo(
            "No row is valid, so an import would store nothing: run infer again with --force and other options, "
            f"such as --kind:\n  {again} --kind COLUMN=KIND"
        )
        return
    option = "--kind COLUMN=KIND" if "--label" in again else "--label COLUMN"
    typer.echo(f"To change a guess, run infer again with --force and an option, such as {option}:\n  {again} {option}")
    commands = [spell(["morrow", "task", "apply", path_word(str(path))]), inferred.import_command]
    typer.echo("Look through it, then run:\n  " + "\n  ".join([*commands, f"morrow cycle {inferred.name}"]))


def _split_kind(given: str) -> tuple[str, "Kind"]:
    """The column and the kind of `zone=category`. Raises InvalidInput."""
    from typing import get_args

    from contracts.task import Kind

    column, _, kind = given.rpartition("=")
    known = ", ".join(get_args(Kind))
    if not column:
        raise InvalidInput([Fault("--kind", f"{given!r} is not of the form COLUMN=KIND; the kinds are {known}")])
    if kind not in get_args(Kind):
        raise InvalidInput([Fault("--kind", f"{kind!r}, of {column!r}, is no kind: the kinds are {known}")])
    return column, kind  # type: ignore[return-value]  # one of the literals


@app.command("show")
def show_task(
    task: Annotated[str | None, typer.Argument()] = None,
    *,
    archived: Archived = False,
    as_json: AsJson = False,
    url: Url = LOCAL_URL,
) -> None:
    """Show a task's champion, horizon, errors and cycles; or list all tasks."""
    if task is None:
        list_tasks(archived=archived, as_json=as_json, url=url)
        return
    with open_api(url) as api:
        answer = ask(api, "GET", f"/tasks/{task}")
    if as_json:
        print_json(answer)
        return
    from cli.reports.task import print_task

    print_task(task, answer)


@app.command("list")
def list_tasks(
    *,
    state: Annotated[
        str | None, typer.Option(metavar="STATE", help="Only tasks that are valid, closed, expired or no_model.")
    ] = None,
    prefix: Annotated[str | None, typer.Option(help="Only tasks whose names begin with this text.")] = None,
    search: Annotated[str | None, typer.Option(help="Only tasks whose names hold this text.")] = None,
    archived: Archived = False,
    as_json: AsJson = False,
    url: Url = LOCAL_URL,
) -> None:
    """List the tasks by name, with the version that answers for each."""
    given = {"state": state, "prefix": prefix, "q": search, "archived": "true" if archived else None}
    params = {"limit": str(PAGE_SIZE)} | {name: text for name, text in given.items() if text is not None}
    with open_api(url) as api:
        page = ask(api, "GET", "/tasks", params=params)
        tasks = page["tasks"]
        while page.get("next") is not None:
            page = ask(api, "GET", "/tasks", params={**params, "after": page["next"]})
            tasks += page["tasks"]
    if as_json:
        print_json({"tasks": tasks, "next": None})
        return
    from cli.reports.task import print_tasks

    print_tasks(tasks, is_part=bool(params.keys() - {"archived", "limit"}))


@app.command("pause")
def pause_task(
    task: str, *, reason: OptionalReason = None, actor: Actor = None, as_json: AsJson = False, url: Url = LOCAL_URL
) -> None:
    """Begin no more cycles of a task. Events are stored, and the version answers within its horizon."""
    _move(url, task, "pause", "is paused", reason=reason, actor=actor, as_json=as_json)


@app.command("resume")
def resume_task(
    task: str, *, reason: OptionalReason = None, actor: Actor = None, as_json: AsJson = False, url: Url = LOCAL_URL
) -> None:
    """Let the cycles of a paused task go on, with the newest window that is due."""
    _move(url, task, "resume", "goes on", reason=reason, actor=actor, as_json=as_json)


@app.command("archive")
def archive_task(
    task: str, *, reason: OptionalReason = None, actor: Actor = None, as_json: AsJson = False, url: Url = LOCAL_URL
) -> None:
    """Put a task away: it takes no events and no questions, and has no metrics and no alerts. Nothing is deleted."""
    _move(url, task, "archive", "is archived", reason=reason, actor=actor, as_json=as_json)


@app.command("unarchive")
def unarchive_task(
    task: str, *, reason: OptionalReason = None, actor: Actor = None, as_json: AsJson = False, url: Url = LOCAL_URL
) -> None:
    """Take an archived task back."""
    _move(url, task, "unarchive", "is back", reason=reason, actor=actor, as_json=as_json)


@app.command("rename")
def rename_task(
    task: str,
    new_name: str,
    *,
    reason: OptionalReason = None,
    actor: Actor = None,
    as_json: AsJson = False,
    url: Url = LOCAL_URL,
) -> None:
    """Give a task another name. Ids, events, versions and history stay; the old name says which is the new one."""
    with open_api(url) as api:
        answer = ask(api, "POST", f"/tasks/{task}/rename", json={"name": new_name, **_record(reason, actor)})
    print_facts(answer, f"{task} is now {new_name}. {answer['effect']}", as_json=as_json)


@app.command("delete")
def delete_task(
    task: str,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask first. This cannot be undone.")] = False,
    reason: OptionalReason = None,
    actor: Actor = None,
    as_json: AsJson = False,
    url: Url = LOCAL_URL,
) -> None:
    """Delete a task for ever: its events, cycles, versions, runs and models. Asks first, and says how many there are.

    The task is gone for every request at once. A trainer removes the rest, and then another task can have the name.
    """
    with open_api(url) as api:
        if not yes:
            contents = ask(api, "GET", f"/tasks/{task}/contents")
            confirm(f"Delete {task} for ever, with {_describe_contents(contents)}?")
        answer = ask(api, "DELETE", f"/tasks/{task}", params={"confirm": task, **_record(reason, actor)})
    sentence = f"{task} is deleted, with {_describe_contents(answer['contents'])}. {answer['effect']}"
    print_facts(answer, sentence, as_json=as_json)


def _move(
    url: str, task: str, move: str, outcome: str, *, reason: str | None, actor: str | None, as_json: bool
) -> None:
    with open_api(url) as api:
        answer = ask(api, "POST", f"/tasks/{task}/{move}", json=_record(reason, actor))
    print_facts(answer, f"{task} {outcome}. {answer['effect']}", as_json=as_json)


def _record(reason: str | None, actor: str | None) -> dict[str, str]:
    """The fields of a request that are kept for the record, if given."""
    return {name: text for name, text in (("reason", reason), ("actor", actor)) if text is not None}


def _describe_contents(contents: dict[str, Any]) -> str:
    """What a task holds, in words."""
    counts = (("events", "event"), ("rejected", "refused row"), ("cycles", "cycle"), ("versions", "version"))
    *most, last = [say_count(contents[f"num_{name}"], noun) for name, noun in counts]
    return f"{', '.join(most)} and {last}"
