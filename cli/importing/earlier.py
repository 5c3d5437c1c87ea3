"""What stands in the store from earlier imports of the same file: rows of the same name, and rows with the same ids."""

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from cli.client.api import ask
from cli.errors import Refused
from cli.file_rows.reasons import CONFLICT, find_id, is_digest
from cli.file_rows.reasons import Refused as RefusedRow
from cli.file_rows.rows import Row
from cli.reading.sources import is_pipe, name_of
from contracts.errors import Fault, InvalidInput
from contracts.shown import say_count
from service.advice.import_options import ImportOptions, list_words, spell

# Conflicts of which the stored event is read, and earlier imports of the same name whose events are counted.
NUM_COMPARED = 10
MAX_SOURCE = 200
_NUM_LOOKED_AT = 5
# Stored events whose ids are looked at.
NUM_LISTED = 100
_OWN_FIELDS = ("at", "label")


@dataclass(frozen=True)
class Earlier:
    """An import of the same content, or of a file of the same name, that still has events."""

    task: str
    subject: str
    import_id: int
    is_same_content: bool
    held: str

    @property
    def note(self) -> str:
        """What to say before the rows are sent."""
        if self.is_same_content:
            return (
                f"Note: {self.subject} was imported before, as {self.held}. To import it with "
                "other options, such as another time zone, retract that import first: "
                f"{_retract(self.task, self.import_id)}"
            )
        return (
            f"Note: {self.subject} was imported before, as {self.held}. If this file replaces it, for example with "
            f"another time zone, retract that import: {_retract(self.task, self.import_id)}"
        )

    def refuse(self) -> InvalidInput:
        """The refusal to store the same content under other ids."""
        return InvalidInput(
            [
                Fault(
                    "--again",
                    f"is needed: {self.subject} was imported before, as {self.held}, with other options, "
                    "perhaps another time zone. Its rows would be stored a second time. Retract that import "
                    f"first: {_retract(self.task, self.import_id)}, or store both with --again",
                )
            ]
        )


@dataclass(frozen=True)
class Identified:
    """An import whose events have ids of their own; `options` name them again, if the ids came from columns."""

    task: str
    import_id: int
    source: str
    options: ImportOptions | None

    @property
    def reason(self) -> str:
        """Why rows with digests as ids would double the events of that import, and the option to add."""
        if self.options is None:
            add = "add --id-from COLUMNS, or --map event_id=COLUMN, with the columns that hold these ids"
        else:
            add = f"add {spell(list_words(self.options))}"
        return (
            f"the events of import {self.import_id} ({self.source}) have ids of their own, and rows of this file would "
            f"get digests as ids, so each row that both hold would be stored a second time: {add}; or store all of "
            "them next to the others with --again"
        )

    @property
    def note(self) -> str:
        """What a trial says, which stores nothing."""
        return f"Note: without an option, this import would be refused: {self.reason}."

    def refuse(self) -> InvalidInput:
        """The refusal to store rows under digests of themselves."""
        return InvalidInput([Fault("--id-from", f"is needed: {self.reason}")])


def find_identified(api: httpx.Client, task: str) -> Identified | None:
    """The newest import whose events have ids of their own; None if all that are left have digests of rows."""
    listed = ask(api, "GET", f"/tasks/{task}/imports")["imports"]
    others = {one["id"]: one for one in listed if not one["retracted_at"]}
    if not others:
        return None
    for one in [*others.values()][:_NUM_LOOKED_AT]:
        if (options := _name_ids(one["options"])) is not None and _has_events(api, task, one["id"]):
            return Identified(task, one["id"], one["source"], options)
    for stored in ask(api, "GET", f"/tasks/{task}/events", params={"limit": NUM_LISTED})["events"]:
        one = others.get(stored["import"])
        if one is not None and not is_digest(stored["event"]["event_id"]):
            return Identified(task, one["id"], one["source"], _name_ids(one["options"]))
    return None


def _name_ids(given: dict[str, Any] | None) -> ImportOptions | None:
    """Those of an import's options that name its ids; None if there is none."""
    options = given or {}
    columns = {name: column for name, column in options.get("columns", {}).items() if name == "event_id"}
    id_from = tuple(options.get("id_from", ()))
    return ImportOptions(columns=columns, id_from=id_from) if columns or id_from else None


def _has_events(api: httpx.Client, task: str, import_id: int) -> bool:
    return bool(ask(api, "GET", f"/tasks/{task}/imports/{import_id}")["num_events"])


def find_earlier(api: httpx.Client, task: str, file: Path, import_id: int | None, digest: str | None) -> Earlier | None:
    """The newest import with this content, or else of a file of this name, that still has events."""
    source = name_of(file)[:MAX_SOURCE]
    listed = ask(api, "GET", f"/tasks/{task}/imports")["imports"]
    others = [one for one in listed if one["id"] != import_id and not one["retracted_at"]]
    same = [one for one in others if digest is not None and one.get("digest") == digest]
    named = [] if is_pipe(file) else [one for one in others if one["source"] == source and one not in same]
    for one in [*same[:_NUM_LOOKED_AT], *named[:_NUM_LOOKED_AT]]:
        num_events = ask(api, "GET", f"/tasks/{task}/imports/{one['id']}")["num_events"]
        if num_events:
            is_named = one["source"] == source and not is_pipe(file)
            name, subject = ("", source) if is_named else (f"{one['source']}, ", f"what {source} holds")
            held = f"import {one['id']} ({name}{say_count(num_events, 'event')}, {one['at'][:16]}Z)"
            return Earlier(task, subject, one["id"], one in same, held)
    return None


def are_stored(api: httpx.Client, task: str, rows: Iterable[Row]) -> bool:
    """Whether an event with the id of one of these rows is stored; True if no row can be sent."""
    ids = [event_id for row in rows if row.is_sent and not row.faults and (event_id := find_id(row)) is not None]
    for event_id in ids[:NUM_COMPARED]:
        with suppress(Refused):
            ask(api, "GET", f"/events/{quote(event_id, safe='')}", params={"task": task})
            return True
    return not ids


def explain_conflicts(api: httpx.Client, task: str, conflicts: Sequence[RefusedRow]) -> list[str]:
    """In which fields rows differ from the stored events of the same ids, by some of them."""
    compared = []
    for one in conflicts:
        with suppress(Refused):  # a key that may only ingest, or an event that was erased since
            stored = ask(api, "GET", f"/events/{quote(one.event_id or '', safe='')}", params={"task": task})
            compared.append((json.loads(one.row.line), stored["event"], stored["import"]))
    if not compared:
        return []
    fields = list(dict.fromkeys(name for sent, stored, _ in compared for name in _differing(sent, stored)))
    if not fields:
        return []
    said = f"Of {len(compared)} conflicts that were compared, all differ from the stored event in {', '.join(fields)}."
    if len(compared) == 1:
        said = f"The stored event differs in {', '.join(fields)}."
    elif any(set(_differing(sent, stored)) != set(fields) for sent, stored, _ in compared):
        said = f"{len(compared)} conflicts were compared; they differ from the stored events in {', '.join(fields)}."
    offsets = {_moment(sent["at"]) - _moment(stored["at"]) for sent, stored, _ in compared}
    imports = sorted({import_id for _, _, import_id in compared if import_id is not None})
    if fields == ["at"] and len(offsets) == 1:
        shift = _describe_shift(offsets.pop())
        said = (
            f"Each of {len(compared)} conflicts that were compared is stored with an `at` that lies {shift}, and is "
            "otherwise equal: the rows were read with another time zone."
        )
        said += "".join(f" If that was wrong: {_retract(task, one)}, then import this file again." for one in imports)
    return [said]


def take_conflicts(found: Sequence[RefusedRow], refused: Iterable[RefusedRow]) -> list[RefusedRow]:
    """The first conflicts, to be compared at the end."""
    more = [
        one for one in refused if one.event_id is not None and any(fault.reason == CONFLICT for fault in one.faults)
    ]
    return [*found, *more][:NUM_COMPARED]


def _differing(sent: dict[str, Any], stored: dict[str, Any]) -> list[str]:
    """The fields of an event that differ; a feature that is missing equals null."""
    different = [] if _moment(sent["at"]) == _moment(stored["at"]) else ["at"]
    if str(sent["label"]) != str(stored["label"]) and not _are_equal_numbers(sent["label"], stored["label"]):
        different.append("label")
    features = sent.get("features", {})
    names = dict.fromkeys([*features, *stored["features"]])
    return different + [
        name
        for name in names
        if features.get(name) != stored["features"].get(name)
        and not _are_equal_numbers(features.get(name), stored["features"].get(name))
    ]


def _are_equal_numbers(sent: object, stored: object) -> bool:
    try:
        return float(sent) == float(stored)  # type: ignore[arg-type]  # what is no number raises
    except (TypeError, ValueError):
        return False


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _describe_shift(shift: timedelta) -> str:
    """How far the stored moments lie from those of the file."""
    seconds = abs(shift) // timedelta(seconds=1)
    hours, rest = divmod(seconds, 3600)
    length = f"{hours} h" + (f" {rest // 60} min" if rest else "")
    return f"{length} {'earlier' if shift > timedelta(0) else 'later'}"


def _retract(task: str, import_id: int) -> str:
    return f"morrow events retract {task} --import {import_id}"
