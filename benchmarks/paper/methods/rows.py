"""Rows that methods of the paper make out of known ones: joined, thinned, and moved to the domain that follows."""

from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np
from numpy.typing import NDArray

from contracts.clock import Clock
from trainer.data.encoder import Encoded


def take(rows: Encoded, chosen: NDArray[np.bool_] | NDArray[np.intp]) -> Encoded:
    """The rows of a mask `(n,)` or of these positions, in their order."""
    return Encoded(*(getattr(rows, field.name)[chosen] for field in fields(Encoded)))


def newest(rows: Encoded) -> Encoded:
    """The rows of the newest domain."""
    return take(rows, rows.windows == rows.windows.max())


def join(parts: Sequence[Encoded]) -> Encoded:
    """All rows of these parts, one part after the other; a fit needs them in the order of their windows."""
    columns = (np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(Encoded))
    return Encoded(*columns)


def spread(rows: NDArray[np.intp], most: int) -> NDArray[np.intp]:
    """At most this many of these positions, evenly spread over them."""
    if len(rows) <= most:
        return rows
    return rows[np.linspace(0, len(rows) - 1, most).astype(np.intp)]


def moved_on(rows: Encoded, numbers: NDArray[np.float32], clock: Clock) -> Encoded:
    """The rows one window later, with other values `(n, p)` in their first p columns; codes and targets stay."""
    dense = rows.dense.copy()
    dense[:, : numbers.shape[1]] = numbers
    u = (rows.u + clock.window / clock.span).astype(np.float32)
    return replace(rows, dense=dense, u=u, windows=rows.windows + clock.window)
