"""The task of a table and its rows, by the code of `morrow task infer` and `morrow events import`."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import msgspec

from cli.file_rows.parquet import match_parquet, read_events
from cli.file_rows.reasons import Reason, add_reasons, find_refused_rows
from cli.file_rows.rows import Row
from cli.inferring.guess import Said, guess_task
from cli.inferring.profile import profile_parquet
from cli.inferring.task_file import Chosen, write_task_file
from cli.reading.options import Options, name_options
from contracts.errors import Fault, InvalidInput
from contracts.task import Kind, Task
from estimators.tables import Table
from service.advice.import_options import spell_import
from service.validation.question_decoder import Questions
from service.validation.rules import Refusal, compile_rules
from store.events.batches import Event, EventBatch

_NUM_REASONS_SHOWN = 5


@dataclass(frozen=True)
class GuessedTask:
    """The task of a table, the text of its file, and how tables of its columns are read."""

    task: Task
    text: str
    options: Options


def guess(
    table: Table,
    name: str,
    *,
    label_kind: Kind,
    window: str | None,
    kinds: Mapping[str, Kind],
    timezone: str | None,
    chosen: Chosen,
    by: str,
    now: datetime,
) -> GuessedTask:
    """The task that `morrow task infer` would write for the table as a file. Raises InvalidInput.

    `label_kind` says whether labels are classes or numbers; `kinds` are other columns of which that is said.
    """
    assert table.label is not None
    said: dict[str, Kind] = {**dict.fromkeys(table.categories, "category"), **kinds, table.label: label_kind}
    with table.open() as opened:
        profile = profile_parquet(opened, Options(timezone=timezone))
    guessed = guess_task(
        profile,
        name,
        said=Said(table.at, table.label, window, tuple(said.items())),
        options=Options(timezone=timezone),
        now=now,
    )
    features = tuple(
        (key, replace(one, why="as the frame or `kinds` says") if one.name in said else one)
        for key, one in guessed.features
    )
    guessed = replace(guessed, features=features, label_why="the labels `y`")
    command = spell_import(name, name_options(guessed.options, None), f"{name}.parquet")
    text = write_task_file(guessed, profile, "a table", command, by=by, chosen=chosen)
    try:
        return GuessedTask(Task.model_validate(tomllib.loads(text)), text, guessed.options)
    except ValueError as error:
        raise InvalidInput([Fault("task", str(error))]) from error


def read_rows(table: Table, task: Task, options: Options) -> EventBatch:
    """The rows as checked events, with the ids that an import gives them. Raises InvalidInput if one is refused."""
    with table.open() as opened:
        rows = [*read_events(opened, match_parquet(opened, task, options), task, options)]
    _require_sent(rows)
    found = compile_rules(task).read_lines([row.line for row in rows])
    if isinstance(found, EventBatch):
        return found
    results = [
        {"line": line, "event_id": one.event_id, "status": "rejected", "errors": _describe(one.faults)}
        for line, one in enumerate(found, start=1)
        if isinstance(one, Refusal)
    ]
    reasons = add_reasons({}, find_refused_rows(rows, results))
    if reasons:
        raise InvalidInput([Fault(f"{len(results):,} of {len(rows):,} rows", _list(reasons))])
    return EventBatch.of([one for one in found if isinstance(one, Event)])


def read_questions(table: Table, task: Task, options: Options) -> Questions:
    """The rows as checked questions. Raises InvalidInput if one is refused."""
    with table.open() as opened:
        columns = match_parquet(opened, task, options, ("at",))
        rows = [*read_events(opened, columns, task, options)]
    _require_sent(rows)
    events = [msgspec.json.decode(row.line) for row in rows]
    body = {"rows": [{"at": event["at"], "features": event["features"]} for event in events]}
    return compile_rules(task).read_questions(msgspec.json.encode(body), len(rows))


def _require_sent(rows: Sequence[Row]) -> None:
    """Raises InvalidInput with the faults of the first row that no event can hold."""
    broken = next((row for row in rows if not row.is_sent), None)
    if broken is not None:
        raise InvalidInput([Fault(f"{broken.place}: {fault.field}", fault.reason) for fault in broken.faults])


def _describe(faults: Sequence[Fault]) -> list[dict[str, str]]:
    return [{"field": fault.field, "reason": fault.reason} for fault in faults]


def _list(reasons: Mapping[str, Reason]) -> str:
    worst = sorted(reasons.values(), key=lambda reason: -reason.count)[:_NUM_REASONS_SHOWN]
    return f"are refused: {'; '.join(reason.describe() for reason in worst)}"
