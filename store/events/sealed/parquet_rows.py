"""Rows of events as Parquet: written once, read as NumPy arrays or as rows to store again.

Columns: event_id, at, known_at, received_at, schema_id, label, import_id, withheld, and number_0 … and category_0 …
in the order of a row's own form, null beyond its width. pyarrow and obstore come with the trainer.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, select

from contracts.clock import from_micros
from contracts.task import is_numeric
from store.database import schemas
from store.errors import SealedRowsUnreadable
from store.events.sealed.manifest import SealedFile, unreadable

if TYPE_CHECKING:
    import pyarrow as pa

    from store.objects import Objects

# schema id -> numbers and categories of a row.
Widths = dict[int, tuple[int, int]]


@dataclass(frozen=True)
class StoredRow:
    """One row of the table of events, of an event without further revisions."""

    event_id: str
    at: datetime
    known_at: datetime
    received_at: datetime
    schema_id: int
    numbers: Sequence[float]
    categories: Sequence[str]
    label: str
    import_id: int | None


def read_widths(connection: Connection, task_id: int) -> Widths:
    """How many numbers and categories rows of each schema of a task hold."""
    widths: Widths = {}
    for schema_id, spec in connection.execute(select(schemas.c.id, schemas.c.spec).where(schemas.c.task_id == task_id)):
        num_numbers = sum(is_numeric(one["kind"]) for one in spec["features"])
        widths[schema_id] = num_numbers, len(spec["features"]) - num_numbers
    return widths


def to_table(rows: Sequence[StoredRow], withheld: Sequence[bool], width: tuple[int, int]) -> "pa.Table":
    """Rows as a table with this many columns of numbers and of categories."""
    import pyarrow as pa

    moment = pa.timestamp("us", tz="UTC")
    columns: dict[str, pa.Array] = {
        "event_id": pa.array([row.event_id for row in rows], pa.string()),
        "at": pa.array([row.at for row in rows], moment),
        "known_at": pa.array([row.known_at for row in rows], moment),
        "received_at": pa.array([row.received_at for row in rows], moment),
        "schema_id": pa.array([row.schema_id for row in rows], pa.int32()),
        "label": pa.array([row.label for row in rows], pa.string()),
        "import_id": pa.array([row.import_id for row in rows], pa.int64()),
        "withheld": pa.array(withheld, pa.bool_()),
    }
    for place in range(width[0]):
        values = [row.numbers[place] if place < len(row.numbers) else None for row in rows]
        columns[f"number_{place}"] = pa.array(values, pa.float64(), from_pandas=False)
    for place in range(width[1]):
        texts = [row.categories[place] if place < len(row.categories) else None for row in rows]
        columns[f"category_{place}"] = pa.array(texts, pa.string())
    return pa.table(columns)


def to_rows(table: "pa.Table", widths: Widths) -> list[StoredRow]:
    """The rows of a table as they were."""
    numbers = [table.column(name).to_pylist() for name in _named(table, "number_")]
    categories = [table.column(name).to_pylist() for name in _named(table, "category_")]
    moments = [map(from_micros, micros(table, name).tolist()) for name in ("at", "known_at", "received_at")]
    plain = [table.column(name).to_pylist() for name in ("event_id", "schema_id", "label", "import_id")]
    found = []
    for row, values in enumerate(zip(plain[0], *moments, *plain[1:], strict=True)):
        event_id, at, known_at, received_at, schema_id, label, import_id = values
        width = widths[schema_id]
        found.append(
            StoredRow(
                event_id,
                at,
                known_at,
                received_at,
                schema_id,
                [numbers[place][row] for place in range(width[0])],
                [categories[place][row] for place in range(width[1])],
                label,
                import_id,
            )
        )
    return found


def _named(table: "pa.Table", prefix: str) -> list[str]:
    return [f"{prefix}{place}" for place in range(sum(name.startswith(prefix) for name in table.column_names))]


def pack(tables: Iterable["pa.Table"]) -> bytes:
    """A Parquet file of these tables, one row group each."""
    import pyarrow.parquet as pq

    into, writer = BytesIO(), None
    for table in tables:
        if writer is None:
            writer = pq.ParquetWriter(
                into, table.schema, compression="zstd", write_page_checksum=True, use_dictionary=_texts(table)
            )
        writer.write_table(table)
    assert writer is not None, "a file has rows"
    writer.close()
    return into.getvalue()


def _texts(table: "pa.Table") -> list[str]:
    return [name for name in table.column_names if name in ("label", "schema_id") or name.startswith("category_")]


class SealedFiles:
    """The files of a transaction's tasks, read from their stores; a store is opened once."""

    def __init__(self) -> None:
        self._stores: dict[str, Objects] = {}

    def store(self, url: str) -> "Objects":
        """The object store at an address."""
        try:
            from store.objects import Objects
        except ImportError as error:
            raise SealedRowsUnreadable(
                f"Sealed events in {url.partition('?')[0]} cannot be read: {error.name} is not installed. "
                "pip install 'morrow[sealed]'"
            ) from error
        if url not in self._stores:
            self._stores[url] = Objects(url, is_logged=False)
        return self._stores[url]

    def read(self, file: SealedFile, columns: Sequence[str] | None = None) -> "pa.Table":
        """Some columns of a file, or all. Raises SealedRowsUnreadable, which names the file."""
        with self._named(file):
            import pyarrow.parquet as pq

            content = self.store(file.store).read_at(file.path, file.digest)
            opened = pq.ParquetFile(BytesIO(content), page_checksum_verification=True)
            held = opened.schema_arrow.names
            table = opened.read(columns=None if columns is None else [name for name in columns if name in held])
            if table.num_rows < file.num_rows:
                raise ValueError(f"it holds {table.num_rows} rows instead of {file.num_rows}")
            return table

    def write(self, url: str, path: str, content: bytes) -> str:
        """Write a file; returns its digest. Raises ObjectStoreAway."""
        objects = self.store(url)
        objects.write_at(path, content)
        return hashlib.sha256(content).hexdigest()

    @contextmanager
    def _named(self, file: SealedFile) -> Iterator[None]:
        try:
            yield
        except SealedRowsUnreadable:
            raise
        except Exception as error:
            import pyarrow as pa

            from store.errors import ObjectLost, ObjectStoreAway

            if isinstance(error, ObjectLost | ObjectStoreAway | pa.ArrowException | OSError | ValueError):
                raise unreadable(file, str(error)) from error
            raise


def micros(table: "pa.Table", column: str) -> NDArray[np.int64]:
    """A column of moments in microseconds `(n,)`."""
    import pyarrow as pa

    found: NDArray[np.int64] = table.column(column).cast(pa.int64()).to_numpy()
    return found


def codes(table: "pa.Table", column: str) -> tuple[list[str], NDArray[np.int32]]:
    """The texts of a column, and the place among them of each row's; a null is the empty text."""
    import pyarrow.compute as pc

    coded = pc.fill_null(table.column(column), "").combine_chunks().dictionary_encode()
    return coded.dictionary.to_pylist(), coded.indices.to_numpy(zero_copy_only=False).astype(np.int32)
