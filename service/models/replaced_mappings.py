"""What is derived from the follower's mappings, which are replaced as a whole and never changed.

Health checks and heartbeats ask every second about every task. Between two changes the answer is the same.
"""

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Derived(Generic[T]):
    """The value of `make` for some mappings; it is made again once one of them has been replaced."""

    def __init__(self, make: Callable[..., T]) -> None:
        self._make = make
        self._made: tuple[tuple[Mapping[str, Any], ...], T] | None = None

    def of(self, *mappings: Mapping[str, Any]) -> T:
        """The value for these mappings. Any thread may ask."""
        made = self._made
        if made is None or any(former is not now for former, now in zip(made[0], mappings, strict=True)):
            self._made = made = (mappings, self._make(*mappings))
        return made[1]
