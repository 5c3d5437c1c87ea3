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

# Values inside a reason, which differ from row to row.
_VALUES = re.compile(r"(?<=UTF-8: )[0-9a-f ]+|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\d+(?:[.,:]\d+)*")
_NUM_REASONS = 200
CONFLICT = "is stored with other content (to correct it: `morrow events correct`)"


class Reason(msgspec.Struct, frozen=True):
    """A reason with the number of its rows. `example` is the first of them, with its value if the reason lacks that."""

    field: str
    reason: str
    count: int
    example: str
    value: str | None = None

    def describe(self) -> str:
        """In words, for people."""
        rows = "1 row:" if self.count == 1 else f"{self.count:,} rows, such as"
        said = self.reason if self.reason == CONFLICT or self.field == "line" else f"{self.field}: {self.reason}"
        sentence = f"{self.example}: {said}"
        held = f" (it holds {self.value})" if self.value else ""
        return f"{rows} {sentence}{held}{self._remedy}"

    @property
    def _remedy(self) -> str:
        """The option that makes a value a missing one, if it looks like one."""
        text = (self.value or "").strip("'")
        return f"; if that means a missing value: --missing {text}" if text.lower() in INSTEAD_OF_NUMBERS else ""


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
            fault.reason if fault.field == "event_id" and fault.reason == CONFLICT else f"{fault.field}: {fault.reason}"
            for fault in self.faults
        )
        return f"{self.event_id or '(no event_id)'}: {faults}"


def find_refused_rows(batch: Sequence[Row], results: Iterable[dict[str, Any]]) -> list[Refused]:
    """The refused rows of a batch: those that were not sent, and those that the API refused, by our reasons if any."""
    sent = [row for row in batch if row.is_sent]
    found = [_refused(sent[result["line"] - 1], result) for result in results if result["status"] in _REFUSED]
    unsent = [Refused(row, _find_id(row), row.faults) for row in batch if not row.is_sent]
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
    ours = {fault.field: fault for fault in row.faults}
    faults = [ours.pop(fault["field"], Fault(fault["field"], fault["reason"])) for fault in result["errors"]]
    return Refused(row, result["event_id"], faults)


def _make_reason(refused: Refused, fault: Fault, field: str) -> Reason:
    if field == "line":
        return Reason(field, fault.reason, 1, fault.field)
    value = _find_value(refused.row, fault.field)
    shown = None if value is None or value in fault.reason or fault.reason == CONFLICT else value
    return Reason(field, fault.reason, 1, refused.event_id or "(no event_id)", shown)


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


def _find_id(row: Row) -> str | None:
    try:
        found = json.loads(row.line)["event_id"] if row.line else None
    except (ValueError, RecursionError, KeyError, TypeError):
        return None
    return found if isinstance(found, str) else None
