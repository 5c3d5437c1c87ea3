"""Rows that methods of the paper make out of known ones: joined, thinned, and moved to the domain that follows."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from contracts.clock import Clock
from trainer.data.encoder import Encoded


def newest(rows: Encoded) -> Encoded:
    """The rows of the newest domain."""
    return rows.take(rows.windows == rows.windows.max())


def join(parts: Sequence[Encoded]) -> Encoded:
    """All rows of these parts, one part after the other; a fit needs them in the order of their windows."""
    return Encoded(
        dense=np.concatenate([part.dense for part in parts]),
        codes=np.concatenate([part.codes for part in parts]),
        u=np.concatenate([part.u for part in parts]),
        targets=np.concatenate([part.targets for part in parts]),
        windows=np.concatenate([part.windows for part in parts]),
        num_positions=parts[0].num_positions,
    )


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
