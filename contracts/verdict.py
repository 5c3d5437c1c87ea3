"""What a cycle found, and what each row of `releases` rests on, as the store keeps it in columns of JSON.

`cycles.verdict` holds a Verdict, and so does the row of a release. Rows of other actions hold the figures of theirs:
ROW_TYPES says which. `decode_verdict`, `decode_row` and `encode` are the only ways between these types and a column;
`to_json` is what the API shows.

A stored document says its `format_version`; those written before there was one are of the same form without it. A field
with a default may be absent from an old row.
"""

import math
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any, Self

import msgspec

from contracts.failure import Failure, FailureCode

FORMAT_VERSION = 1

# A rival is clearly better only if it saves this share of our error: below it nobody need care.
_LEAST_GAIN = 0.01


class Decision(msgspec.Struct, frozen=True):
    """One rule as it was applied: what was found, what it was held to, and in words if there is more to say."""

    rule: str
    passed: bool
    value: int | float | None = None
    threshold: int | float | None = None
    reason: str | None = None


class AgeFigures(msgspec.Struct, frozen=True):
    """What the error matrix says of one age; a figure is None if it is not finite. `reason` says why it is not valid.

    `low` and `high` bound the error of one future window; an error above `limit` closes the horizon. `growth` is the
    mean increase over age 0, `increase` its upper bound, and `allowed` what that may be.
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
        return self.upper < 0 and -self.difference >= _LEAST_GAIN * self.error


class MatrixFigures(msgspec.Struct, frozen=True):
    """What the error matrix said of a candidate: its horizon in windows, what was asked of that, ages and rivals.

    `missing_windows` complete windows more are needed before a horizon can be judged.
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
        """The verdict of these decisions: the first broken rule gives the reason. Figures that are not finite go."""
        broken = first_failure(decisions)
        kept = tuple(
            msgspec.structs.replace(one, value=finite(one.value), threshold=finite(one.threshold)) for one in decisions
        )
        return cls(broken is None, None if broken is None else broken.reason, kept, matrix)

    def failed(self, decision: Decision) -> "Verdict":
        """The same with one more rule, which the cycle broke in the end."""
        return Verdict(False, decision.reason, (*self.decisions, decision), self.matrix)

    @property
    def failure(self) -> Failure | None:
        """Why nothing was released, None if every rule is kept."""
        if (broken := first_failure(self.decisions)) is None:
            return None
        code = FailureCode.OVERTAKEN if broken.rule == "newest_cutoff" else FailureCode.RULE_BROKEN
        return Failure(code, str(broken.reason))


def finite(value: float | None) -> float | None:
    """A figure that JSON can hold, None in place of any other."""
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
    """The newest window whose labels the quantiles know."""

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
    """A column of `cycles`, or of a release, as a verdict."""
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
    """The document that the API shows: what the matrix said stands at the level of the decisions."""
    document: dict[str, Any] = msgspec.to_builtins(figures)
    if isinstance(figures, Verdict):
        matrix: dict[str, Any] = document.pop("matrix") or {}
        document |= {key: value for key, value in matrix.items() if key != "cutoff" or value is not None}
    return document
