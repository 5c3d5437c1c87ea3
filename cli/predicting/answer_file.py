"""The file of answers: CSV, NDJSON or Parquet, by its name. Until it is complete, it has `.part` behind its name.

NDJSON holds each row as the API was asked, with the answer as the API gave it. Parquet holds a row's id, moment and
features, and columns of the answer. So does CSV, but of a CSV file it keeps the columns as they are.
"""

import csv
import io
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec

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


def choose_format(path: Path) -> Format:
    """The format of a file of answers, by its name. Raises InvalidInput if that says none."""
    found = find_format(path) if path.suffix.lower() in (".csv", ".ndjson", ".jsonl", ".parquet") else None
    if found is None:
        raise InvalidInput([Fault("--out", f"{path.name} ends in none of .csv, .ndjson and .parquet")])
    return found


class AnswerFile:
    """Appends rows with their answers, behind the first `num_bytes` that an earlier command wrote.

    `has_ids` tells whether ids are the file's own. Raises Unavailable, as its methods do, if it cannot be written.
    """

    def __init__(self, path: Path, num_bytes: int, task: Task, *, has_ids: bool) -> None:
        self._path = path
        self._format = choose_format(path)
        self._part = path.with_name(f"{path.name}.part")
        self._task = task
        self._has_ids = has_ids
        self._columns = {**_OF_ALL, **(_OF_CLASSES if task.is_classification else _OF_NUMBERS)}
        self._names: list[str] = []
        try:
            self._stream = self._part.open("r+b" if num_bytes else "w+b")
            if self._stream.seek(0, os.SEEK_END) < num_bytes:
                raise Unavailable(f"{self._part} is shorter than it was: delete its bookmark, and begin again.")
            self._stream.seek(0)
            if num_bytes and self._format == "csv":
                self._names = next(csv.reader([self._stream.readline().decode()]))
            self._stream.truncate(num_bytes)
            self._stream.seek(num_bytes)
        except OSError as error:
            raise _explain(self._part, error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def append(self, answered: Iterable[Answered]) -> int:
        """Append rows; returns the size of the file."""
        write = {"csv": self._write_csv, "ndjson": self._write_json, "parquet": self._write_flat}[self._format]
        try:
            self._stream.write(b"".join(write(row, answer) for row, answer in answered))
            self._stream.flush()
        except OSError as error:
            raise _explain(self._part, error) from error
        return self._stream.tell()

    def finish(self) -> None:
        """Give the complete file its name."""
        self._stream.close()
        try:
            if self._format == "parquet":
                self._convert()
                self._part.unlink()
            else:
                self._part.replace(self._path)
        except OSError as error:
            raise _explain(self._path, error) from error

    def _write_json(self, row: Row, answer: Answer) -> bytes:
        return msgspec.json.encode({**self._question(row), "answer": answer}) + b"\n"

    def _write_flat(self, row: Row, answer: Answer) -> bytes:
        question = self._question(row)
        features = question.pop("features")
        return msgspec.json.encode({**question, **features, **self._describe(answer)}) + b"\n"

    def _write_csv(self, row: Row, answer: Answer) -> bytes:
        if row.table is not None and row.cells is not None:
            cells: Mapping[str, Any] = dict(zip(row.table.names, row.cells, strict=True))
        else:
            question = self._question(row)
            cells = {**question, **dict.fromkeys(feature.name for feature in self._task.features)}
            cells |= question.pop("features")
            cells.pop("features")
        if taken := [name for name in cells if name in self._columns]:
            raise InvalidInput([Fault(name, "names a column of the answers: rename the file's") for name in taken])
        values = {**cells, **self._describe(answer)}
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if not self._names:
            self._names = list(values)
            writer.writerow(self._names)
        writer.writerow([values.get(name) for name in self._names])
        return text.getvalue().encode(errors="surrogateescape")

    def _question(self, row: Row) -> dict[str, Any]:
        """The row as it was asked, with its id if that is the file's own."""
        event: dict[str, Any] = msgspec.json.decode(row.line)
        kept = ("event_id", "at", "features") if self._has_ids else ("at", "features")
        return {name: event[name] for name in kept if name in event}

    def _describe(self, answer: Answer) -> dict[str, Any]:
        return {name: read(answer) for name, read in self._columns.items()}

    def _convert(self) -> None:
        """Make Parquet of the lines, some at a time."""
        import pyarrow.json as pj
        import pyarrow.parquet as pq

        schema = self._schema()
        with pq.ParquetWriter(self._path, schema, compression="zstd") as writer:
            if self._part.stat().st_size == 0:
                return
            options = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
            with pj.open_json(self._part, parse_options=options) as batches:
                for batch in batches:
                    writer.write_batch(batch)

    def _schema(self) -> "pa.Schema":
        import pyarrow as pa

        moment, text, number = pa.timestamp("us", tz="UTC"), pa.string(), pa.float64()
        kinds = {"number": number, "integer": pa.int64(), "boolean": pa.bool_(), "category": text}
        label = text if self._task.is_classification else number
        answers = {"prediction": label, "valid_until": moment, "version": text, "prediction_set": text}
        return pa.schema(
            [
                *([("event_id", text)] if self._has_ids else []),
                ("at", moment),
                *((feature.name, kinds[feature.kind]) for feature in self._task.features),
                *((name, answers.get(name, number)) for name in self._columns),
            ]
        )


def _explain(path: Path, error: OSError) -> Unavailable:
    return Unavailable(f"{path} cannot be written: {error.strerror}.")
