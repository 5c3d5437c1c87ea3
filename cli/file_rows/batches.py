"""What a file holds, in batches: each goes into one request."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

from cli.file_rows.rows import Row

T = TypeVar("T")

ROWS_PER_BATCH = 1000
# Half of the largest body that the API takes unless its settings say otherwise.
BYTES_PER_BATCH = 8 * 2**20


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Lists of `size` items; the last one may be shorter."""
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch


def batch_rows(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Batches that are limited in rows and in bytes."""
    batch: list[Row] = []
    num_bytes = 0
    for row in rows:
        batch.append(row)
        num_bytes += len(row.line)
        if len(batch) >= ROWS_PER_BATCH or num_bytes >= BYTES_PER_BATCH:
            yield batch
            batch, num_bytes = [], 0
    if batch:
        yield batch
