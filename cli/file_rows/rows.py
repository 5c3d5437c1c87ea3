"""Rows of files as events, for `morrow events import`: each becomes the line of NDJSON that is sent.

The API validates every value. Here only spellings are read that JSON does not have: a moment as a spreadsheet writes
it, a number with a decimal comma. A cell that cannot be read is sent unchanged, so that the API refuses and keeps the
row; our own reason is more exact than the API's, and replaces it.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from typing import Any, BinaryIO

import msgspec

from cli.file_rows.columns import EVENT, REASON, Columns, join_moment, match_columns
from cli.reading.csv_lines import Broken
from cli.reading.dialects import is_broken, name_encoding
from cli.reading.moments import MomentReader, find_order, has_dots
from cli.reading.numbers import NumberStyle, find_style, numbers_of, settle_styles
from cli.reading.options import DEFAULTS, Options
from cli.reading.tables import CsvTable, look_into, read_table
from contracts.errors import Fault, InvalidInput
from contracts.task import Kind, Task
from contracts.truth import TRUTHS, unify_truth

# No valid row is as long, and the API reads no longer line.
MAX_ROW_BYTES = 2**20
# Classes and categories that spell `true` and `false` with capitals.
_BOOLEANS = {text: unify_truth(text) for text in TRUTHS if unify_truth(text) != text}
# The key of the label's style among those of features.
LABEL = "label "
_DIGEST_BYTES = 12
_UNLABELLED = Fault("label", "is required: --unlabelled keeps events without a label until it comes")
_INFINITIES = ("inf", "infinity")

Read = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Row:
    """One event as a line of JSON, and what is wrong with it already.

    `cells` is the row of a CSV file, with the table that it belongs to; a broken one has its text as its only cell.
    A row is not sent if it is broken, or if the API could take what stands for an unreadable value. `place` is where it
    stands in its file, such as `line 7`, or `row 7` if the file has no lines.
    """

    line: bytes
    cells: Sequence[str] | None = None
    table: CsvTable | None = None
    faults: tuple[Fault, ...] = ()
    is_sent: bool = True
    place: str | None = None


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A value of a typed file that no event can hold, and why."""

    reason: str


def encode_row(event: Mapping[str, Any]) -> Row:
    """The row of an event. Raises ValueError for a number that JSON cannot express."""
    return Row(json.dumps(event, ensure_ascii=False, allow_nan=False).encode())


@dataclass
class RowReader:
    """Reads rows of cells as events. The cells of Parquet have types; those of CSV are texts.

    If ids are digests of rows, `num_equal` counts the rows that equal an earlier one. With `unlabelled`, a row with an
    empty label becomes an event without one.
    """

    columns: Columns
    event_id: Read
    moment: Read
    label: Read
    features: Sequence[tuple[str, int, Read]]
    notes: tuple[str, ...] = ()
    num_equal: int = 0
    unlabelled: bool = False
    _seen: Counter[bytes] = field(default_factory=Counter)

    def read(self, cells: Sequence[Any]) -> tuple[bytes, tuple[Fault, ...], bool]:
        """The line of an event, what is wrong with it, and whether the API can be left to refuse it."""
        faults: tuple[Fault, ...] = ()
        is_sent = True
        try:
            event = self._read_plain(cells)
        except ValueError:
            event, faults, is_sent = self._read_each(cells)
        try:
            line = _encode(event)
            if "event_id" not in event:
                line = self._add_digest(event, line)
        except ValueError as error:
            return b"", (*faults, Fault("row", str(error))), False
        if len(line) > MAX_ROW_BYTES:
            return b"", (*faults, Fault("row", f"is longer than {MAX_ROW_BYTES} bytes")), False
        return line, faults, is_sent

    def _read_plain(self, cells: Sequence[Any]) -> dict[str, Any]:
        columns = self.columns
        event: dict[str, Any] = {}
        if columns.event_id is not None:
            event["event_id"] = self.event_id(cells[columns.event_id])
        elif columns.id_from:
            event["event_id"] = self._join_id(cells)
        if columns.at:
            event["at"] = self.moment(join_moment(cells, columns.at))
        event["features"] = {name: read(cells[place]) for name, place, read in self.features}
        if columns.label is not None and not self._lacks_label(label := self.label(cells[columns.label])):
            event["label"] = label
        if columns.known_at is not None and (known_at := cells[columns.known_at]) not in ("", None):
            event["known_at"] = self.moment(known_at)
        return event

    def _read_each(self, cells: Sequence[Any]) -> tuple[dict[str, Any], tuple[Fault, ...], bool]:
        """As above; each cell that cannot be read is a fault, and stays unchanged if it is text."""
        columns, faults = self.columns, list[Fault]()
        is_sent = True

        def attempt(name: str, read: Read, cell: Any) -> Any:
            nonlocal is_sent
            try:
                return read(cell)
            except ValueError as error:
                faults.append(Fault(name, str(error)))
                if isinstance(cell, str):
                    return cell
                is_sent = False
                return None

        event: dict[str, Any] = {}
        if columns.event_id is not None:
            event["event_id"] = attempt("event_id", self.event_id, cells[columns.event_id])
        elif columns.id_from:
            event["event_id"] = attempt("event_id", self._join_id, cells)
        if columns.at:
            event["at"] = attempt("at", self.moment, join_moment(cells, columns.at))
        event["features"] = {
            name: attempt(f"features.{name}", read, cells[place]) for name, place, read in self.features
        }
        if columns.label is not None and not self._lacks_label(
            label := attempt("label", self.label, cells[columns.label])
        ):
            event["label"] = label
        if columns.known_at is not None and (known_at := cells[columns.known_at]) not in ("", None):
            event["known_at"] = attempt("known_at", self.moment, known_at)
        return event, tuple(faults), is_sent

    def _lacks_label(self, label: Any) -> bool:
        return self.unlabelled and label in ("", None)

    def _join_id(self, cells: Sequence[Any]) -> str:
        parts = [self.event_id(cells[place]) for place in self.columns.id_from]
        if any(part in ("", None) for part in parts):
            raise ValueError("is made of columns of which one is empty")
        return ":".join(map(str, parts))

    def _add_digest(self, event: dict[str, Any], line: bytes) -> bytes:
        """The line with an id made of its content. An equal row is another event, and its id is numbered."""
        digest = blake2b(line, digest_size=_DIGEST_BYTES)
        self._seen[digest.digest()] += 1
        number = self._seen[digest.digest()]
        self.num_equal += number > 1
        suffix = f"-{number}" if number > 1 else ""
        return _encode({"event_id": f"row-{digest.hexdigest()}{suffix}", **event})


def read_csv(stream: BinaryIO, task: Task, options: Options = DEFAULTS) -> Iterator[Row]:
    """Rows of a CSV file that can be read again from its beginning. Raises InvalidInput as `open_csv`."""

    def rewind() -> BinaryIO:
        stream.seek(0)
        return stream

    table = look_into(rewind, options)
    reader = make_reader(table, task, options)
    yield from read_rows(rewind(), table, reader)


def make_reader(table: CsvTable, task: Task, options: Options, needed_values: Sequence[str] = EVENT) -> RowReader:
    """The reader of a table's rows. Raises InvalidInput if a needed column is missing."""
    columns = match_columns(table.names, task, options, needed_values)
    numeric = {feature.name for feature in task.numbers if feature.kind != "boolean"}
    styles = {
        name: find_style(table.column(place), options.decimal) for name, place in columns.features if name in numeric
    }
    if columns.label is not None and not task.is_classification:
        styles[LABEL] = find_style(table.column(columns.label), options.decimal)
    styles = settle_styles(styles)
    moments = [table.column(place) for place in columns.at[:1]]
    reader = compile_reader(columns, task, options, styles, moments)
    return replace(reader, notes=(*reader.notes, *_describe_styles(styles)))


def _describe_styles(styles: Mapping[str, NumberStyle]) -> list[str]:
    """What to say about numbers that are not written as JSON has them."""
    commas = [name.strip() for name, style in styles.items() if style.decimal == "comma" and style.shows_mark]
    signs: dict[str, list[str]] = {}
    for name, style in styles.items():
        if style.sign:
            signs.setdefault(style.sign, []).append(name.strip())
    return [
        *([f"Decimal commas in {', '.join(commas)}."] if commas else []),
        *(f"Ignored {sign} in {', '.join(names)}." for sign, names in signs.items()),
    ]


def compile_reader(
    columns: Columns,
    task: Task,
    options: Options,
    styles: Mapping[str, NumberStyle],
    moments: Sequence[Sequence[str]] = (),
) -> RowReader:
    """The reader of rows of texts, by the styles of its number columns (the label's is `LABEL`) and some moments."""
    missing = dict.fromkeys(("", *options.missing))
    kinds = {feature.name: feature.kind for feature in task.features}
    day_first = options.day_first
    notes = columns.notes
    if day_first is None and moments and (day_first := find_order(moments[0])) is not None:
        notes = (*notes, f"Dates put the {'day' if day_first else 'month'} first.")
    if options.day_first is False and moments and (dotted := next(filter(has_dots, moments[0]), None)) is not None:
        notes = (*notes, f"{dotted!r} puts the day first, as all dates with dots do, whatever --monthfirst says.")
    return RowReader(
        columns=columns,
        event_id=_unchanged,
        moment=MomentReader(options.timezone, day_first, options.at_format),
        label=_label_reader(task, styles.get(LABEL, NumberStyle()), dict.fromkeys(options.missing)),
        features=[
            (name, place, _feature_reader(kinds[name], styles.get(name, NumberStyle()), missing))
            for name, place in columns.features
        ],
        notes=notes,
        unlabelled=options.unlabelled,
    )


def read_rows(stream: BinaryIO, table: CsvTable, reader: RowReader) -> Iterator[Row]:
    """The rows of a table in the order of the file, broken ones included."""
    encoding = name_encoding(table.dialect.encoding)
    for number, cells in read_table(stream, table):
        if isinstance(cells, Broken):
            yield Row(
                b"",
                [cells.text.rstrip("\r\n")],
                table,
                (Fault(f"line {number}", cells.reason),),
                False,
                f"line {number}",
            )
            continue
        if table.repeats_header(cells):
            fault = Fault(f"line {number}", "repeats the names of the columns")
            yield Row(b"", cells, table, (fault,), False, f"line {number}")
            continue
        line, faults, is_sent = reader.read(cells)
        if not is_sent and is_broken("".join(cells)):
            faults = (Fault(f"line {number}", f"holds bytes that are not {encoding}: give its --encoding"),)
        yield Row(line, cells, table, faults, is_sent, f"line {number}")


class _Labelled(msgspec.Struct):
    label: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_read_label = msgspec.json.Decoder(_Labelled).decode


def read_ndjson(stream: Iterable[bytes], *, needs_label: bool = True) -> Iterator[Row]:
    """Rows of a file with one event as JSON on each line. Lines are sent unchanged; empty ones are skipped.

    With `needs_label`, a line without a label is refused, as a row with an empty one is.
    """
    is_first = True
    for number, line in enumerate(stream, start=1):
        event = strip_line(line)
        if not event:
            continue
        if is_first and (event in (b"[", b"{") or event.startswith(b"[{")):
            kind = "one JSON array" if event.startswith(b"[") else "JSON over several lines"
            made = "'.[]'" if event.startswith(b"[") else "."
            reason = f"is {kind}; NDJSON has an event on each line: `jq -c {made} FILE` makes it so"
            raise InvalidInput([Fault("file", reason)])
        is_first = False
        if len(event) > MAX_ROW_BYTES:
            faults = (Fault("row", f"is longer than {MAX_ROW_BYTES} bytes"),)
            yield Row(event, faults=faults, is_sent=False, place=f"line {number}")
        elif needs_label and _lacks_label(event):
            yield Row(_without_reason(event), faults=(_UNLABELLED,), is_sent=False, place=f"line {number}")
        else:
            yield Row(_without_reason(event), place=f"line {number}")


def _lacks_label(line: bytes) -> bool:
    """Whether a line is an object without a label. One that is no object is left for the API to refuse."""
    try:
        return _read_label(line).label is msgspec.UNSET
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False


def strip_line(line: bytes) -> bytes:
    """A line without a byte-order mark and the blanks around it."""
    return line.removeprefix(b"\xef\xbb\xbf").strip(b" \t\r\n\x0b\x0c\x1a")


def _feature_reader(kind: Kind, style: NumberStyle, missing: Mapping[str, None]) -> Read:
    match kind:
        case "category":
            return partial(_look_up, {**_BOOLEANS, **missing})
        case "boolean":
            return partial(_look_up, {**TRUTHS, **missing})
    return _number_reader(style, missing)


def _label_reader(task: Task, style: NumberStyle, missing: Mapping[str, None]) -> Read:
    """`True` is the class `true`, unless the task lists `True`. An empty label is left for the API to refuse."""
    if not task.is_classification:
        return _number_reader(style, missing)
    listed = task.target.classes or ()
    return partial(_look_up, {**{text: truth for text, truth in _BOOLEANS.items() if text not in listed}, **missing})


def _number_reader(style: NumberStyle, missing: Mapping[str, None]) -> Read:
    read = style.read
    stand_ins = numbers_of(missing)

    def read_number(cell: str) -> Any:
        if cell in missing:
            return None
        found = read(cell)
        if stand_ins and found in stand_ins:
            return None
        if isinstance(found, str) and found.strip().lstrip("+-").lower() in _INFINITIES:
            raise ValueError(
                f"is {cell}, and events hold finite numbers only: --missing {cell} makes it a missing value"
            )
        return found

    return read_number


def _look_up(words: Mapping[str, Any], cell: str) -> Any:
    return words.get(cell, cell)


def _unchanged(cell: Any) -> Any:
    return cell


def _encode(event: Mapping[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(event)
    except OverflowError:  # an integer of more than 64 bits
        return json.dumps(event, ensure_ascii=False).encode()


def _without_reason(line: bytes) -> bytes:
    """The event without the reason that we wrote into an earlier file of rejects; any other line unchanged."""
    if REASON.encode() not in line:
        return line
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return line
    if not isinstance(event, dict) or REASON not in event:
        return line
    event.pop(REASON)
    return json.dumps(event, ensure_ascii=False).encode(errors="backslashreplace")  # JSON's escape of a lone surrogate
