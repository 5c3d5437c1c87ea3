"""Whether a model is any good: its error compared with naive and with each rival.

A skill score is the share of another method's error that ours saves, `1 − ours / theirs`, in percent: 0 if both are
equal, 100 for a perfect model, below zero if the other method is better. Both errors are means over the same windows.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Annotated

from msgspec import Meta, Struct

from contracts.clock import count_windows
from contracts.verdict import is_gain

# Below this skill against naive a model is poor, in percent: an average of the newest window does nearly as well.
POOR = 10.0
# A rival that saves no more of the error hardly does better, in percent: the data may allow no more.
LITTLE = 2.0
# With fewer windows a mean error is uncertain.
FEW_WINDOWS = 8
# While rivals are fitted or scored again, none is better by fewer windows.
_FEWEST_SHARED = 3


class ComparedError(Struct, frozen=True, kw_only=True):
    """Another method compared with ours on the same target windows."""

    method: str
    num_windows: Annotated[int, Meta(description="target windows that both were scored on")]
    error: Annotated[float, Meta(description="its mean error")]
    ours: Annotated[float, Meta(description="our mean error on these windows")]
    skill: Annotated[float | None, Meta(description="share of its error that ours saves, percent; null if it has none")]
    margin: Annotated[
        float | None,
        Meta(
            description="half the width of the 80 % interval of the skill, by its spread over the windows, in percent"
        ),
    ] = None

    @property
    def is_clear(self) -> bool:
        """Whether the sign of the skill is hardly by chance; True if nothing says how it varies."""
        return self.margin is None or self.skill is None or abs(self.skill) > self.margin

    @property
    def gain(self) -> float:
        """The share of our error that it saves, in percent."""
        return score(self.error, self.ours) or 0.0


class Skill(Struct, frozen=True, kw_only=True):
    """How good a model is: its mean error inside its horizon, and its skill against naive and against each rival."""

    error_name: str
    num_windows: Annotated[int, Meta(description="windows behind `error`, `naive` and `skill`")]
    error: Annotated[float, Meta(description="mean error of the model")]
    naive: Annotated[float, Meta(description="mean error of the answer of the newest known window")]
    skill: Annotated[float | None, Meta(description="share of naive's error that the model saves, in percent")]
    rivals: Annotated[
        tuple[ComparedError, ...], Meta(description="each on the windows that both were scored on; the best first")
    ]
    advice: Annotated[tuple[str, ...], Meta(description="what to try next; empty if the model is not poor")] = ()
    pending: Annotated[
        tuple[str, ...], Meta(description="rivals that are still being fitted; what they show may change the verdict")
    ] = ()
    compared: Annotated[
        tuple[ComparedError, ...],
        Meta(description="naive, then the rivals from the best, all on the windows that all were scored on"),
    ] = ()
    rescored: Annotated[
        tuple[str, ...],
        Meta(description="rivals that are being scored again, since rows have changed; such windows do not count yet"),
    ] = ()

    @property
    def against_naive(self) -> ComparedError:
        """The comparison with naive, in the form of one with a rival."""
        return ComparedError(
            method="naive", num_windows=self.num_windows, error=self.naive, ours=self.error, skill=self.skill
        )

    @property
    def is_poor(self) -> bool:
        """Whether naive or a rival does as well."""
        return self.skill is None or self.skill < POOR or self.better is not None

    @property
    def is_uncertain(self) -> bool:
        """Whether few windows stand behind it."""
        return self.num_windows < FEW_WINDOWS

    @property
    def best_rival(self) -> ComparedError | None:
        """The rival with the smallest error, on the windows that all were scored on."""
        return self.compared[1] if len(self.compared) > 1 else None

    @property
    def better(self) -> ComparedError | None:
        """The best rival, if it is better than the model by more than chance explains.

        None is better by a few windows while others are still to come.
        """
        best = self.best_rival
        if best is not None and not best.is_clear:
            return None
        if best is not None and best.num_windows < _FEWEST_SHARED and (self.pending or self.rescored):
            return None
        return best if best is not None and is_gain(best.ours - best.error, best.ours) else None


def find_margin(spread: float | None, num_windows: int, reference: float) -> float | None:
    """Half the width of the 80 % interval of a skill, in percent of the other method's error.

    `spread` is the standard deviation of the differences of errors over the windows. The quantile of Student's t is
    expanded in the reciprocal of its degrees of freedom (Abramowitz and Stegun, 26.7.5).
    """
    if spread is None or num_windows < 2 or not reference > 0:
        return None
    z, freedom = NormalDist().inv_cdf(0.9), num_windows - 1
    t = z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    return 100 * t * spread / math.sqrt(num_windows) / reference


def score(error: float, reference: float) -> float | None:
    """The skill of an error against a reference, in percent; None if the reference alone is without error."""
    if reference > 0:
        return 100 * (1 - error / reference)
    return 0.0 if error == reference else None


def compare_errors(
    error_name: str,
    naive: ComparedError,
    rivals: Sequence[ComparedError],
    pending: Sequence[str] = (),
    compared: Sequence[ComparedError] | None = None,
    *,
    rescored: Sequence[str] = (),
) -> Skill:
    """The skill of a model from its error compared with naive and with rivals, without advice.

    `compared` is naive and rivals on the same windows; None if all of these are already.
    """
    on_naive, *on_rivals = [naive, *rivals] if compared is None else compared
    return Skill(
        error_name=error_name,
        num_windows=naive.num_windows,
        error=naive.ours,
        naive=naive.error,
        skill=naive.skill,
        rivals=_order(rivals),
        pending=tuple(pending),
        compared=(on_naive, *_order(on_rivals)),
        rescored=tuple(rescored),
    )


def describe_skill(skill: Skill) -> str:
    """The skill in one line: against naive, with the windows behind it, and against the best rival."""
    few = " only" if skill.is_uncertain else ""
    said = f"{compare(skill.skill)} naive on {count_windows(skill.num_windows)}{few}"
    if (best := skill.best_rival) is not None:
        so_far = " so far" if skill.pending or skill.rescored else ""
        said += f"; {compare(best.skill)} {best.method}, the best rival{so_far}, on {count_windows(best.num_windows)}"
    return f"{said}; {describe_pending(skill)}" if skill.pending or skill.rescored else said


def say_rival(skill: Skill) -> str | None:
    """How far the best rival is; None without one, or while rivals are still being fitted."""
    best = skill.best_rival
    if best is None or skill.pending or skill.rescored:
        return None
    if best.gain <= 0:
        errors = f"has an error of {best.error:.4g}, and the model {best.ours:.4g}"
        return f"no rival does better: the best, {best.method}, {errors}"
    if best.gain <= LITTLE:
        return f"the best rival, {best.method}, saves only {best.gain:.1f} % of the model's error"
    return f"the best rival, {best.method}, saves {best.gain:.0f} % of the model's error"


def describe_pending(skill: Skill) -> str:
    """Which rivals are still being fitted, and which are scored again."""
    fitted = f"still being fitted: {', '.join(skill.pending)}" if skill.pending else ""
    again = f"being scored again on changed rows: {', '.join(skill.rescored)}" if skill.rescored else ""
    return "; ".join(filter(None, (fitted, again)))


def compare(skill: float | None) -> str:
    """A skill as words that go before the other method's name."""
    if skill is None:
        return "worse than"
    percent = round(skill)
    return "as good as" if percent == 0 else f"{abs(percent)} % {'better' if percent > 0 else 'worse'} than"


def _order(rivals: Sequence[ComparedError]) -> tuple[ComparedError, ...]:
    """The best first."""
    return tuple(sorted(rivals, key=lambda rival: (_saved(rival), rival.method)))


def _saved(rival: ComparedError) -> float:
    """A rival's error as a share of ours: rivals may have been scored on different windows."""
    return rival.error / rival.ours if rival.ours > 0 else float("inf")
