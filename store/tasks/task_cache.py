"""What is computed from a task, kept for as many tasks as there are: a cache of a fixed size is a cliff one task later.

Walking through one task more than such a cache holds computes every value once more.
"""

from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

# As many are kept in any case.
LEAST = 64


class TaskCache(Generic[K, T]):
    """A function of one argument that remembers what it returned last, for at least `make_room` arguments."""

    def __init__(self, compute: Callable[[K], T]) -> None:
        self._compute = compute
        self._size = LEAST
        self._cached = lru_cache(maxsize=LEAST)(compute)

    def __call__(self, key: K) -> T:
        return self._cached(key)

    def make_room(self, num_tasks: int) -> None:
        """Remember this many; what is known is computed once more."""
        if num_tasks > self._size:
            self._size = 2 * num_tasks
            self._cached = lru_cache(maxsize=self._size)(self._compute)
