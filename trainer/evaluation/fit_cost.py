"""What the fits of a matrix have cost, which decides whether more windows are scored."""


class FitCost:
    """The time that fits have taken so far, and whether more of them are within the limit (seconds)."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._num_fits = 0
        self._seconds = 0.0
        self._extra_seconds = 0.0

    def add(self, num_fits: int, seconds: float, *, is_extension: bool) -> None:
        """Count a round of fits."""
        if num_fits:
            self._num_fits, self._seconds = self._num_fits + num_fits, self._seconds + seconds
        if is_extension:
            self._extra_seconds += seconds

    def allows(self, num_fits: int) -> bool:
        """Whether this many further fits stay within the limit, if they take as long as those before."""
        each = self._seconds / self._num_fits if self._num_fits else 0.0
        return self._extra_seconds + num_fits * each <= self._limit
