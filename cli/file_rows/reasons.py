"""Why rows were refused: each reason once, with its number of rows and an example."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from cli.file_rows.rows import Row
from contracts.errors import Fault
from contracts.missing import INSTEAD_OF_NUMBERS
from contracts.shown import MAX_SHOWN
from service.validation.values import NEEDS_OPTIONAL

# Values inside a reason, which differ from row to row.
_VALUES = re.compile(r"(?<=UTF-8: )[0-9a-f ]+|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\d+(?:[.,:]\d+)*")
_NUM_REASONS = 200
# An id that the reader of rows made, and an option of an import, in a reason.
_DIGEST = re.compile(r"row-[0-9a-f]{24}(-\d+)?")
_OPTION = re.compile(r"--(timezone|dayfirst|monthfirst|at-format|decimal|missing|encoding|id-from|map|drop)\b")
# The API's remedy for an event whose label is missing.
_LATER = "; send an event once its label is known, or leave label out"
NO_ID = "(no event_id)"
CONFLICT = "is stored with other content (`morrow events correct --help` says how to correct it)"


class Reason(msgspec.Struct, frozen=True):
    """A reason with the number of its rows. `example` is the first of them, with its value if the reason lacks that.

    `place` is where that row stands in its file, as in `Row`.
    """

    field: str
    reason: str
    count: int
    example: str
    value: str | None = None
    place: str | None = None

    def describe(self) -> str:
        """In words, for people."""
        rows = "1 row:" if self.count == 1 else f"{self.count:,} rows, such as"
        said = self.reason if self.reason == CONFLICT or self.field == "line" else f"{self.field}: {self.reason}"
        if remedy := self._remedy:  # of the API's remedies, which are for JSON, this option does the first
            said = said.partition(": send null")[0]
        if self.field == "label":  # as for JSON
            said = said.replace(_LATER, ": --unlabelled keeps such events until it comes")
        held = f" (it holds {self.value})" if self.value and self.value != "''" else ""
        return f"{rows} {say_place(self.example, f'{said}{held}{remedy}', self.place)}"

    @property
    def names_option(self) -> bool:
        """Whether an option of the import lets such rows in, without an edit of the file."""
        return _OPTION.search(self.reason + self._remedy) is not None

    @property
    def _remedy(self) -> str:
        """The option that makes a value a missing one, if it looks like one."""
        return _say_missing((self.value or "").strip("'"), self.reason)


@dataclass(frozen=True)
class Refused:
    """A refused row, with every fault of it."""

    row: Row
    event_id: str | None
    faults: Sequence[Fault]

    @property
    def sentence(self) -> str:
        """The faults in one line."""
        faults = "; ".join(
            fault.reason if fault.field == "event_id" and fault.reason == CONFLICT else self._say(fault)
            for fault in self.faults
        )
        return say_place(self.event_id or NO_ID, faults, self.row.place)

    def _say(self, fault: Fault) -> str:
        if fault.field == self.row.place:  # which the sentence begins with
            return fault.reason
        value = (_find_value(self.row, fault.field) or "").strip("'")
        remedy = _say_missing(value, fault.reason)
        said = fault.reason.partition(": send null")[0] if remedy else fault.reason
        return f"{fault.field}: {said}{remedy}"


def _say_missing(text: str, reason: str) -> str:
    """The option that makes a text a missing value, if it looks like one."""
    if text.lower() not in INSTEAD_OF_NUMBERS:
        return ""
    also = ", and optional = true in the task" if reason.endswith(NEEDS_OPTIONAL) else ""
    return f"; if that means a missing value: --missing {text}{also}"


def say_place(event_id: str, said: str, place: str | None) -> str:
    """A sentence about a row by its id and its place in the file; a row with a digest for an id has its place alone."""
    if place is None:
        return f"{event_id}: {said}"
    if event_id == NO_ID or is_digest(event_id):
        return f"{place}: {said}"
    return f"{event_id}: {said} ({place})"


def find_refused_rows(batch: Sequence[Row], results: Iterable[dict[str, Any]]) -> list[Refused]:
    """The refused rows of a batch: those that were not sent, and those that the API refused, by our reasons if any."""
    sent = [row for row in batch if row.is_sent]
    found = [_refused(sent[result["line"] - 1], result) for result in results if result["status"] in _REFUSED]
    unsent = [Refused(row, find_id(row), row.faults) for row in batch if not row.is_sent]
    if not unsent:
        return found
    places = {id(row): place for place, row in enumerate(batch)}
    return sorted([*found, *unsent], key=lambda one: places[id(one.row)])


_REFUSED = ("conflict", "rejected")


def add_reasons(reasons: dict[str, Reason], refused: Iterable[Refused]) -> dict[str, Reason]:
    """The reasons with those of more rows; of very many, the later ones are counted together."""
    found = dict(reasons)
    for one in refused:
        for fault in one.faults:
            field = "line" if fault.field.startswith("line ") else fault.field
            key = f"{field}: {_VALUES.sub('…', fault.reason)}"
            if key not in found and len(found) >= _NUM_REASONS:
                key, field = "other", "other"
            known = found.get(key)
            if known is None:
                found[key] = _make_reason(one, fault, field)
            else:
                found[key] = msgspec.structs.replace(known, count=known.count + 1)
    return found


def _refused(row: Row, result: dict[str, Any]) -> Refused:
    if result["status"] == "conflict":
        return Refused(row, result["event_id"], [Fault("event_id", CONFLICT)])
    faults = prefer_ours(row, [Fault(fault["field"], fault["reason"]) for fault in result["errors"]])
    return Refused(row, result["event_id"], faults)


def prefer_ours(row: Row, faults: Iterable[Fault]) -> list[Fault]:
    """The API's faults of a row; where the reader of the file found why, its reason is the more exact one."""
    ours = {fault.field: fault for fault in row.faults}
    return [ours.pop(fault.field, fault) for fault in faults]


def _make_reason(refused: Refused, fault: Fault, field: str) -> Reason:
    if field == "line":
        return Reason(field, fault.reason, 1, fault.field)
    value = _find_value(refused.row, fault.field)
    shown = None if value is None or value in fault.reason or fault.reason == CONFLICT else value
    return Reason(field, fault.reason, 1, refused.event_id or NO_ID, shown, refused.row.place)


def _find_value(row: Row, field: str) -> str | None:
    """The value of a field as JSON; None if there is none."""
    try:
        found = json.loads(row.line)
        for part in field.split("."):
            found = found[part]
    except (ValueError, RecursionError, KeyError, TypeError, IndexError):
        return None
    if found is None or isinstance(found, dict | list):
        return None
    text = found if isinstance(found, str) else json.dumps(found)
    return repr(text) if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]!r}…"


def is_digest(event_id: str) -> bool:
    """Whether an id is a digest of its row, as an import makes it for a row without one."""
    return _DIGEST.fullmatch(event_id) is not None


def find_id(row: Row) -> str | None:
    """The id of a row's event, if it can be read."""
    try:
        found = json.loads(row.line)["event_id"] if row.line else None
    except (ValueError, RecursionError, KeyError, TypeError):
        return None
    return found if isinstance(found, str) else None
