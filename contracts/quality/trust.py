"""Whether a model can be trusted, in one word: from its skill, the windows behind it, and its errors since the release.

The rule, from the top; the first line that applies decides:

poor               an error above its limit has closed its horizon
too early to say   fewer than 8 windows are scored
poor               the error is less than 10 % below naive's, or most of 3 or more windows since the release had an
                   error above the promised band, or the error of a rival is surely at least 20 % smaller on 3 or more
                   windows: at the near end of its 80 % interval
fair               less than 20 % below naive's, or a rival is better on 3 or more windows by more than chance explains,
                   or more than a fifth of the windows since the release, and at least two, had an error above the band
good               everything else

If errors are twice the promised ones or more, a good verdict says so. It is provisional while rivals are still being
fitted: one of them may turn out better.
"""

import math
from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import Meta, Struct

from contracts.clock import count_windows
from contracts.quality.skill import FEW_WINDOWS, LITTLE, POOR, ComparedError, Skill, describe_pending, say_rival

Word = Literal["good", "fair", "poor", "too early to say"]

# From this skill against naive on a model can be good, in percent.
GOOD = 20.0
# A rival that surely saves this share of the error leaves no reason to trust the model, in percent.
_FAR_BEHIND = 20.0
# A rival, or a row of errors above the band, counts from this number of windows on.
_FEWEST = 3
_MAX_ABOVE = 0.2
# From as many times the promised error on, a good verdict mentions it.
_FAR_WORSE = 2.0


class Trust(Struct, frozen=True, kw_only=True):
    """Whether the model can be trusted, and why."""

    verdict: Word
    reason: Annotated[str, Meta(description="what decided, as a sentence without its full stop")]
    num_followed: Annotated[int, Meta(description="windows since the release whose labels are complete")]
    num_above: Annotated[int, Meta(description="those of them with an error above the promised band")]
    is_provisional: Annotated[
        bool, Meta(description="whether rivals that are still being fitted may change the verdict")
    ] = False

    @property
    def words(self) -> str:
        """The verdict, marked if it is provisional."""
        return f"{self.verdict}, provisional" if self.is_provisional else self.verdict


def judge_trust(
    skill: Skill | None,
    are_above: Sequence[bool] = (),
    *,
    is_closed: bool = False,
    live: tuple[float, float] | None = None,
    withdrawn: str | None = None,
) -> Trust:
    """The verdict on a model; `are_above` says of each followed window whether its error is above the band.

    `live` is the mean error since the release, and the one that was promised for the same ages. `withdrawn` names
    events that are gone, and whose errors count until the next cycle.
    """
    word, reason = _judge(skill, len(are_above), sum(are_above))
    if is_closed:
        word, reason = "poor", "an error above its limit has closed its horizon"
    if word == "good" and live is not None and live[0] >= _FAR_WORSE * live[1]:
        reason += f"; but the error since the release is {live[0]:.4g}, and {live[1]:.4g} was promised"
    if skill is not None and withdrawn is not None:
        reason += f"; errors of {withdrawn} still count: the next cycle takes them out"
    is_provisional = word == "good" and skill is not None and bool(skill.pending or skill.rescored)
    if is_provisional and skill is not None:
        reason += f"; rivals {describe_pending(skill)}"
    return Trust(
        verdict=word,
        reason=reason,
        num_followed=len(are_above),
        num_above=sum(are_above),
        is_provisional=is_provisional,
    )


def _judge(skill: Skill | None, num_followed: int, num_above: int) -> tuple[Word, str]:
    if skill is None:
        return "too early to say", "no window is scored yet"
    if skill.num_windows < FEW_WINDOWS:
        are = "is" if skill.num_windows == 1 else "are"
        return "too early to say", f"only {skill.num_windows} of the {FEW_WINDOWS} windows needed {are} scored"
    saved = _say_saved(skill.skill)
    above = f"{num_above} of {count_windows(num_followed)} since the release had an error above the band"
    percent = -math.inf if skill.skill is None else skill.skill
    if percent < POOR:
        return "poor", f"{saved}, and a useful model saves at least {POOR:.0f} %{_say_limit(skill)}"
    if num_followed >= _FEWEST and num_above > num_followed / 2:
        return "poor", above
    because = f"{saved} on {count_windows(skill.num_windows)}"
    better = skill.better if skill.better is not None and skill.better.num_windows >= _FEWEST else None
    if better is not None and _is_far_ahead(better):
        return "poor", _say_better(better)
    doubts = [
        _say_better(better) if better is not None else None,
        above if num_above > max(1.0, _MAX_ABOVE * num_followed) else None,
        f"{because}, and a good model saves at least {GOOD:.0f} %" if percent < GOOD else None,
    ]
    doubt = next(filter(None, doubts), None)
    best = skill.best_rival
    if doubt is None and best is not None and best.num_windows >= _FEWEST and not best.is_clear and best.gain > 0:
        because += f"; {_say_better(best)}, which chance may explain"
    return "good" if doubt is None else "fair", doubt or because


def _say_limit(skill: Skill) -> str:
    """That no rival does much better, if so: then it may be the data that allow no more."""
    best, said = skill.best_rival, say_rival(skill)
    if best is None or said is None or best.num_windows < _FEWEST or best.gain > LITTLE:
        return ""
    return f"; {said}, so the data may allow no more"


def _is_far_ahead(rival: ComparedError) -> bool:
    """Whether the rival's error is far below ours even at the near end of the interval."""
    if rival.skill is None or rival.margin is None:
        return False
    least = -rival.skill - rival.margin  # by how much ours is larger, in percent of the rival's
    return least > 0 and 100 * least / (100 + least) >= _FAR_BEHIND


def _say_better(rival: ComparedError) -> str:
    """By how much a rival is better, in the percent of its skill; no percent if the rival has no error."""
    percent = "" if rival.skill is None else f"{round(-rival.skill)} % "
    between = ""
    if rival.skill is not None and rival.margin is not None:
        low, high = round(-rival.skill - rival.margin), round(-rival.skill + rival.margin)
        between = f" ({low} to {high} % with 80 % confidence)"
    return f"its error is {percent}larger than {rival.method}'s on the same {count_windows(rival.num_windows)}{between}"


def _say_saved(skill: float | None) -> str:
    if skill is None or round(skill) < 0:
        return "its error is larger than naive's"
    return f"its error is {round(skill)} % smaller than naive's"
