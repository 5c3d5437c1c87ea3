"""What may help if an age of the error matrix is not valid: a key of the task with a value, or a command."""

import math
from typing import Protocol


class JudgedAge(Protocol):
    """The figures of one age, of the trainer or as stored; None if there is none."""

    @property
    def age(self) -> int: ...
    @property
    def mean(self) -> float | None: ...
    @property
    def naive(self) -> float | None: ...
    @property
    def increase(self) -> float | None: ...
    @property
    def allowed(self) -> float | None: ...
    @property
    def reason(self) -> str | None: ...


def suggest(age: JudgedAge, tolerance: float | None, max_error: float | None) -> str | None:
    """What would make the age valid, or might; None if it is valid, or if only more labels help."""
    if age.reason is None or age.mean is None or not math.isfinite(age.mean):
        return None
    if age.increase is not None and age.allowed and tolerance and age.increase > age.allowed:
        needed = math.ceil(100 * tolerance * age.increase / age.allowed) / 100
        return f"guard.tolerance = {needed:g} in the task file would allow age {age.age}"
    if age.naive is not None and not age.mean < age.naive:
        return "training.tune = true searches for a better recipe; features that tell more help most"
    if max_error is not None and age.mean > max_error:
        return f"guard.max_error = {math.ceil(100 * age.mean) / 100:g} in the task file would allow age {age.age}"
    return None
