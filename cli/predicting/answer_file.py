"""The file of answers: CSV, NDJSON or Parquet, by its name. Until it is complete, it has `.part` behind its name.

One command at a time holds that file.

NDJSON holds each row as the API was asked, with the answer as the API gave it. Parquet holds a row's id, moment and
features, and columns of the answer. So does CSV, but of a CSV file it keeps the columns as they are.
"""

import csv
import fcntl
import io
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Self

import msgspec

from cli.errors import cannot_write
from cli.file_rows.formats import Format, find_format
from cli.file_rows.rows import Row
from contracts.errors import Fault, InvalidInput, Unavailable
from contracts.task import Task

if TYPE_CHECKING:
    import pyarrow as pa

Answer = dict[str, Any]
Answered = tuple[Row, Answer]
Read = Callable[[Answer], Any]

# The columns of an answer in CSV and Parquet.
_OF_ALL: Mapping[str, Read] = {
    "prediction": lambda answer: answer["prediction"],
    "expected_error": lambda answer: answer["expected_error"],
    "valid_until": lambda answer: answer["valid_until"],
    "version": lambda answer: answer["version"],
}
_OF_CLASSES: Mapping[str, Read] = {
    "probability": lambda answer: answer["probabilities"][answer["prediction"]],
    "prediction_set": lambda answer: "|".join(answer.get("prediction_set", ())),
}
_OF_NUMBERS: Mapping[str, Read] = {
    "low": lambda answer: (answer.get("interval") or (None, None))[0],
    "high": lambda answer: (answer.get("interval") or (None, None))[1],
}
_OF_CATEGORIES: Mapping[str, Read] = {"unseen": lambda answer: "|".join(answer.get("unseen", ())) or None}
# Those of them that are texts in Parquet, whatever the task.
_TEXTS = ("version", "prediction_set", "unseen")
# A line of the file of answers must fit into one block of Arrow's reader; no row is longer than 1 MiB.
_BLOCK_BYTES = 4 * 2**20


def name_part(path: Path) -> Path:
    """The path of a file of answers until it is complete."""
    return path.with_name(f"{path.name}.part")


def choose_format(path: Path) -> Format:
    """The format of a file of answers, by its name. Raises InvalidInput if that says none."""
    found = find_format(path) if path.suffix.lower() in (".csv", ".ndjson", ".jsonl", ".parquet") else None
    if found is None:
        raise InvalidInput([Fault("--out", f"{path.name} ends in none of .csv, .ndjson and .parquet")])
    return found


class AnswerFile:
    """Appends rows with their answers.

    `columns` are those of a CSV file, and `has_ids` tells whether ids are the file's own. Raises Unavailable, as its
    methods do, if it cannot be written, and InvalidInput if a column has the name of one of the answers.
    """

    def __init__(self, path: Path, task: Task, *, columns: Sequence[str] | None, has_ids: bool) -> None:
        self._path = path
        self._format = choose_format(path)
        self._part = name_part(path)
        self._task = task
        self._has_ids = has_ids
        self._answers = {**_OF_ALL, **(_OF_CLASSES if task.is_classification else _OF_NUMBERS)}
        if any(feature.kind == "category" for feature in task.features):
            self._answers |= _OF_CATEGORIES
        self._keeps_cells = self._format == "csv" and columns is not None
        if self._keeps_cells:
            self._kept = [*(columns or ())]
        else:
            self._kept = [*(["event_id"] if has_ids else []), "at", *(feature.name for feature in task.features)]
        taken = [] if self._format == "ndjson" else [name for name in self._kept if name in self._answers]
        if taken:
            advice = "rename the file's" if self._keeps_cells else "choose an --out that ends in .ndjson"
            raise InvalidInput([Fault(name, f"names a column of the answers: {advice}") for name in taken])
        self._stream = _open_alone(self._part, path)

    @property
    def columns(self) -> list[str]:
        """The names of all columns of CSV and Parquet."""
        return [*self._kept, *self._answers]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # what a full disk does not take is beyond the bookmark
            self._stream.close()

    def resume(self, num_bytes: int) -> bool:
        """Go on behind the first bytes, which an earlier command wrote; whether they are all there."""
        try:
            is_whole = self._stream.seek(0, os.SEEK_END) >= num_bytes
            start = num_bytes if is_whole else 0
            self._stream.seek(start)
            self._stream.truncate()
            if start == 0 and self._format == "csv":
                self._stream.write(_line(self.columns))
        except OSError as error:
            raise cannot_write(self._part, error) from error
        return is_whole

    def append(self, answered: Iterable[Answered]) -> int:
        """Append rows; returns the size of the file."""
        write = {"csv": self._write_csv, "ndjson": self._write_json, "parquet": self._write_flat}[self._format]
        try:
            self._stream.write(b"".join(write(row, answer) for row, answer in answered))
            self._stream.flush()
        except OSError as error:
            raise cannot_write(self._part, error) from error
        return self._stream.tell()

    def finish(self) -> None:
        """Give the complete file its name."""
        try:
            self._stream.flush()
            if self._format == "parquet":
                whole = self._path.with_name(f"{self._path.name}.new")
                try:
                    self._convert(whole)
                    whole.replace(self._path)
                finally:
                    whole.unlink(missing_ok=True)
                self._part.unlink()
            else:
                self._part.replace(self._path)
        except OSError as error:
            raise cannot_write(self._path, error) from error

    def _write_json(self, row: Row, answer: Answer) -> bytes:
        return msgspec.json.encode({**self._question(row), "answer": answer}) + b"\n"

    def _write_flat(self, row: Row, answer: Answer) -> bytes:
        return msgspec.json.encode({**self._flatten(row, answer), **self._describe(answer)}) + b"\n"

    def _write_csv(self, row: Row, answer: Answer) -> bytes:
        if self._keeps_cells:
            kept: Sequence[Any] = row.cells or ()
        else:
            values = self._flatten(row, answer)
            kept = [values.get(name) for name in self._kept]
        return _line([*kept, *self._describe(answer).values()])

    def _flatten(self, row: Row, answer: Answer) -> dict[str, Any]:
        """The id, moment and features of a row, by their columns."""
        question = self._question(row)
        return {**question, "at": answer["at"], **question.pop("features")}

    def _question(self, row: Row) -> dict[str, Any]:
        """The row as it was asked, with its id if that is the file's own."""
        event: dict[str, Any] = msgspec.json.decode(row.line)
        kept = ("event_id", "at", "features") if self._has_ids else ("at", "features")
        return {name: event[name] for name in kept if name in event}

    def _describe(self, answer: Answer) -> dict[str, Any]:
        return {name: read(answer) for name, read in self._answers.items()}

    def _convert(self, whole: Path) -> None:
        """Make Parquet of the lines, some at a time."""
        import pyarrow.json as pj
        import pyarrow.parquet as pq

        schema = self._schema()
        with pq.ParquetWriter(whole, schema, compression="zstd") as writer:
            if self._part.stat().st_size == 0:
                return
            options = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
            blocks = pj.ReadOptions(block_size=_BLOCK_BYTES)
            with pj.open_json(self._part, read_options=blocks, parse_options=options) as batches:
                for batch in batches:
                    writer.write_batch(batch)

    def _schema(self) -> "pa.Schema":
        import pyarrow as pa

        moment, text, number = pa.timestamp("us", tz="UTC"), pa.string(), pa.float64()
        kinds = {"number": number, "integer": pa.int64(), "boolean": pa.bool_(), "category": text}
        label = text if self._task.is_classification else number
        answers = {"prediction": label, "valid_until": moment} | dict.fromkeys(_TEXTS, text)
        return pa.schema(
            [
                *([("event_id", text)] if self._has_ids else []),
                ("at", moment),
                *((feature.name, kinds[feature.kind]) for feature in self._task.features),
                *((name, answers.get(name, number)) for name in self._answers),
            ]
        )


def _open_alone(part: Path, path: Path) -> BinaryIO:
    """The file of answers to `path` until it is complete. Raises Unavailable if another command writes it."""
    with ExitStack() as closing:
        try:
            stream = closing.enter_context(os.fdopen(os.open(part, os.O_RDWR | os.O_CREAT, 0o666), "r+b"))
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Else the other command has just given it its last name.
            is_there = part.exists() and os.path.samestat(part.stat(), os.fstat(stream.fileno()))
        except BlockingIOError:
            is_there = False
        except OSError as error:
            raise cannot_write(part, error) from error
        if not is_there:
            raise Unavailable(f"Another command writes {path}: wait for its end, or choose another --out.")
        closing.pop_all()
        return stream


def _line(cells: Sequence[Any]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue().encode(errors="surrogateescape")
