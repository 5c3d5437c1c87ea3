"""When a prediction changes: the first moment after the requested one at which another class is the likeliest."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

NUM_MOMENTS = 256
_SECOND = 1_000_000

Classes = NDArray[np.intp]


def find_class_change(
    classes_at: Callable[[NDArray[np.int64]], Classes], given: int, at: int, until: int
) -> int | None:
    """The moment of the first flip in `(at, until]`, to the second; None if no moment of the grid shows one.

    `classes_at` returns the likeliest class at each of the given moments `(n,)`; `given` is the class at `at`. The grid
    has 256 moments, so a class that is the likeliest for less than a 256th of the time left may be overlooked. Each
    flip that the grid finds is checked by a run of that single moment, as a request would make it. A run of many
    moments can differ from it in the last bit.
    """

    def differs_at(moment: int) -> bool:
        return bool(classes_at(np.array([moment]))[0] != given)

    moments = _grid(at, until)
    if not moments:
        return None
    flipped: NDArray[Any] = np.flatnonzero(classes_at(np.array(moments)) != given)
    first = next((int(k) for k in flipped if differs_at(moments[k])), None)
    if first is None:
        return None
    while first > 0 and differs_at(moments[first - 1]):
        first -= 1
    return _bisect(differs_at, moments[first - 1] if first else at, moments[first])


def _grid(at: int, until: int) -> list[int]:
    """Moments in `(at, until]`, ascending: whole seconds after `at`, except the last."""
    left = until - at
    steps = {min(-(-k * left // (NUM_MOMENTS * _SECOND)) * _SECOND, left) for k in range(1, NUM_MOMENTS + 1)}
    return [at + step for step in sorted(steps) if step > 0]


def _bisect(differs_at: Callable[[int], bool], low: int, high: int) -> int:
    """The class changes between two moments at most a second apart: return the later one. It differs at `high`."""
    while high - low > _SECOND:
        middle = low + max((high - low) // (2 * _SECOND), 1) * _SECOND
        if differs_at(middle):
            high = middle
        else:
            low = middle
    return high
