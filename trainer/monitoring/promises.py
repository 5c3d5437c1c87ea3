"""What released versions promised, read off the rows of `releases`, and the rows that they should get since."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from contracts.calibration import Calibration
from contracts.clock import parse_moment
from store.cells import Mark, error_of
from store.releases import Action, Release


@dataclass(frozen=True)
class Promise:
    """What a release row promised, in microseconds. `limits`: start of a window inside the horizon -> (age, limit)."""

    version: str
    recipe: str
    cutoff: int
    valid_until: int
    error_name: str
    limits: Mapping[int, tuple[int, float]]

    def error(self, mark: Mark) -> float:
        """The realised error that the limits are of."""
        return error_of(mark, self.error_name)


@dataclass(frozen=True)
class Change:
    """A row that a version should get, and why."""

    version: str
    action: Action
    valid_until: int
    reason: str
    verdict: dict[str, Any]
    calibration: Calibration | None = None


def read_promise(row: Release) -> Promise | None:
    """The promise of a release row; None for any other row, and for a release that kept no figures."""
    if row.action != "release" or row.verdict is None or not row.verdict.get("horizon"):
        return None
    verdict = row.verdict
    cutoff, horizon = parse_moment(verdict["cutoff"]), int(verdict["horizon"])
    window = (row.valid_until - cutoff) // horizon
    limits = {
        cutoff + age["age"] * window: (age["age"], age["limit"])
        for age in verdict["ages"]
        if age["age"] < horizon and age["limit"] is not None
    }
    return Promise(row.version, verdict["recipe"], cutoff, row.valid_until, verdict["error_name"], limits)
