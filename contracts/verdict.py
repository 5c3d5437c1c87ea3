"""The findings of a cycle, and the grounds of each row of `releases`, as the store keeps them in columns of JSON.

`cycles.verdict` holds a Verdict, and so does the row of a release. Rows of other actions hold other figures, by
ROW_TYPES. Only `decode_verdict`, `decode_row` and `encode` convert between these types and a column; `to_json` gives
the document that the API shows.

A stored document holds its `format_version`. Documents from before that field have the same form without it. A field
with a default may be missing from an old row.
"""

import math
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any, Self

import msgspec

from contracts.failure import Failure, FailureCode

FORMAT_VERSION = 1
# The newest target windows, which count: a year of weeks. The errors of old models say little about the next one.
COUNTED_WINDOWS = 52
# Target windows beyond `guard.min_pairs` that a cycle looks back on, so that one odd window does not stand for a third.
# Rivals are scored on as many.
EXTRA_WINDOWS = 1

# Another method is better only if it saves this share of our error: less does not matter in practice.
_LEAST_GAIN = 0.01


def is_gain(saved: float, ours: float) -> bool:
    """Whether another method saves enough of our error to matter. A verdict also asks how likely that is chance."""
    return ours > 0 and saved >= _LEAST_GAIN * ours


class Decision(msgspec.Struct, frozen=True):
    """One rule as it was applied: the value found, the threshold, and a reason if there is more to say."""

    rule: str
    passed: bool
    value: int | float | None = None
    threshold: int | float | None = None
    reason: str | None = None


class AgeFigures(msgspec.Struct, frozen=True):
    """The error matrix's figures of one age, None if not finite. `reason` says why the age is not valid.

    `low` and `high` bound the error of one future window; an error above `limit` closes the horizon. `growth` is the
    mean increase over age 0, `increase` its upper bound, and `allowed` the largest value that it may have.
    """

    age: int
    num_windows: int = 0
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    limit: float | None = None
    naive: float | None = None
    num_pairs: int = 0
    increase: float | None = None
    growth: float | None = None
    allowed: float | None = None
    reason: str | None = None


class Comparison(msgspec.Struct, frozen=True):
    """A rival compared with our method on the same target windows."""

    method: str
    num_windows: int
    error: Annotated[float, msgspec.Meta(description="our mean error")]
    difference: Annotated[float, msgspec.Meta(description="mean of the rival's error less ours")]
    upper: Annotated[float, msgspec.Meta(description="upper bound of that mean")]

    @property
    def is_better(self) -> bool:
        """Whether the rival is clearly better: seldom by chance, and by 1 % of our error at least."""
        return self.upper < 0 and is_gain(-self.difference, self.error)


class MatrixFigures(msgspec.Struct, frozen=True):
    """The error matrix's figures of a candidate: horizon in windows, the guard's thresholds, ages and rivals.

    A horizon cannot be judged before `missing_windows` more windows are complete. `aside` are the starts of windows
    that count nowhere here: their errors were odd, and no later window has confirmed them.
    """

    cutoff: datetime | None = None
    recipe: str = ""
    better_method: Comparison | None = None
    rivals: tuple[Comparison, ...] = ()
    horizon: int = 0
    missing_windows: int = 0
    error_name: str = ""
    tolerance: float | None = None
    min_pairs: int | None = None
    max_error: float | None = None
    ages: tuple[AgeFigures, ...] = ()
    aside: tuple[datetime, ...] = ()


class Verdict(msgspec.Struct, frozen=True):
    """Whether a candidate passed, why not, and every rule with its figures.

    `matrix` is None if the cycle ended before the matrix was judged.
    """

    passed: bool = False
    reason: str | None = None
    decisions: tuple[Decision, ...] = ()
    matrix: MatrixFigures | None = None

    @classmethod
    def of(cls, *decisions: Decision, matrix: MatrixFigures | None = None) -> Self:
        """The verdict of these decisions: the first broken rule gives the reason, and only finite figures are kept."""
        broken = first_failure(decisions)
        kept = tuple(
            msgspec.structs.replace(one, value=finite(one.value), threshold=finite(one.threshold)) for one in decisions
        )
        return cls(broken is None, None if broken is None else broken.reason, kept, matrix)

    def failed(self, decision: Decision) -> "Verdict":
        """The same with one more decision, a rule that the cycle broke at the end."""
        return Verdict(False, decision.reason, (*self.decisions, decision), self.matrix)

    @property
    def failure(self) -> Failure | None:
        """Why nothing was released; None if every rule is kept."""
        if (broken := first_failure(self.decisions)) is None:
            return None
        code = FailureCode.OVERTAKEN if broken.rule == "newest_cutoff" else FailureCode.RULE_BROKEN
        return Failure(code, str(broken.reason))


def finite(value: float | None) -> float | None:
    """The figure if JSON can hold it, else None."""
    if value is None or not math.isfinite(value):
        return None
    return value if isinstance(value, int) else float(value)


def first_failure(decisions: Iterable[Decision]) -> Decision | None:
    """The first rule that was broken."""
    return next((decision for decision in decisions if not decision.passed), None)


class LimitCheck(msgspec.Struct, frozen=True, tag_field="rule", tag="limit"):
    """A realised error compared with its limit: above it, the horizon closes at this window; else it reopens."""

    window: datetime
    age: int
    error_name: str
    value: float
    threshold: float
    num_rows: int


class Recalibration(msgspec.Struct, frozen=True, tag_field="rule", tag="calibrate"):
    """The newest window whose labels the quantiles include."""

    window: datetime


class Rollback(msgspec.Struct, frozen=True):
    """The version that was champion before."""

    replaced: str | None


class BoundOverride(msgspec.Struct, frozen=True):
    """The bound before an admin set it by hand, and the one that the release promised."""

    replaced_valid_until: datetime
    promised_valid_until: datetime


RowFigures = Verdict | LimitCheck | Recalibration | Rollback | BoundOverride

# By the action of a row of `releases`.
ROW_TYPES: Mapping[str, type[RowFigures]] = {
    "release": Verdict,
    "rollback": Rollback,
    "calibrate": Recalibration,
    "close": LimitCheck,
    "reopen": LimitCheck,
    "override": BoundOverride,
}


def decode_verdict(document: Mapping[str, Any]) -> Verdict:
    """A column of `cycles`, or of a release, as a verdict. Raises ValueError if it is of another form."""
    document = msgspec.convert(document, dict[str, Any])
    has_matrix = not document.keys().isdisjoint(MatrixFigures.__struct_fields__)
    matrix = msgspec.convert(document, MatrixFigures) if has_matrix else None
    return msgspec.structs.replace(msgspec.convert(document, Verdict), matrix=matrix)


def decode_row(action: str, document: Mapping[str, Any]) -> RowFigures:
    """A column of a row of `releases` by its action."""
    kind = ROW_TYPES[action]
    return decode_verdict(document) if kind is Verdict else msgspec.convert(document, kind)


def encode(figures: RowFigures) -> dict[str, Any]:
    """The document that a column keeps."""
    return {"format_version": FORMAT_VERSION, **to_json(figures)}


def to_json(figures: RowFigures) -> dict[str, Any]:
    """The document that the API shows: the matrix's figures are at the level of the decisions."""
    document: dict[str, Any] = msgspec.to_builtins(figures)
    if isinstance(figures, Verdict):
        matrix: dict[str, Any] = document.pop("matrix") or {}
        # Rows of former releases have no cutoff, and nothing that was set aside.
        document |= {key: value for key, value in matrix.items() if key not in ("cutoff", "aside") or value}
    return document
