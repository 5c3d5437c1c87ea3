"""What may help if a model is poor, or if an age of its error matrix is not valid.

Each remedy names a command, or a key of the task's file with a value.
"""

import math
from collections.abc import Sequence
from datetime import datetime
from typing import Protocol, get_args

from msgspec.structs import replace

from contracts.clock import count_windows, format_moment, to_micros
from contracts.quality.skill import ComparedError, Skill, compare, say_rival
from contracts.task import Method, Task, Training

# The largest value of `training.tune_trials`.
_MOST_TRIALS = 1000
_THEN_RUN = ", then run "


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


def suggest(age: JudgedAge, tolerance: float | None, max_error: float | None, *, is_tuned: bool = False) -> str | None:
    """What would make the age valid, or might; None if it is valid, or if only more labels help.

    `is_tuned` says that the trainer has searched for a better recipe, or will.
    """
    if age.reason is None or age.mean is None or not math.isfinite(age.mean):
        return None
    if age.increase is not None and age.allowed and tolerance and age.increase > age.allowed:
        needed = math.ceil(100 * tolerance * age.increase / age.allowed) / 100
        return f"guard.tolerance = {needed:g} in the task file would allow age {age.age}"
    if age.naive is not None and not age.mean < age.naive:
        help_most = "more informative features help most"
        return help_most if is_tuned else f"training.tune = true searches for a better recipe; {help_most}"
    if max_error is not None and age.mean > max_error:
        return f"guard.max_error = {math.ceil(100 * age.mean) / 100:g} in the task file would allow age {age.age}"
    return None


def say_aside(aside: Sequence[datetime]) -> str:
    """Which windows a release left out, and why."""
    first, last = (format_moment(to_micros(moment)) for moment in (min(aside), max(aside)))
    them, their = (f"of {first}", "its") if len(aside) == 1 else (f"from {first} to {last}", "their")
    return (
        f"{count_windows(len(aside))} {them} {'was' if len(aside) == 1 else 'were'} set aside, because {their} errors "
        "are far above the usual and no later window confirms them"
    )


def advise_model(
    task: Task,
    skill: Skill,
    hints: Sequence[str] = (),
    num_known: int | None = None,
    import_command: str | None = None,
    *,
    asked: Training | None = None,
) -> Skill:
    """The skill of a task's model with advice if it is poor: first these hints, then what is the likeliest to help.

    `num_known` is the number of windows that the model knows, if a model answers: no more of the past can be scored.
    `import_command` imports another file; None if its options are not known. `asked` is the recipe as a person wrote
    it, if the trainer has chosen another one in its place. No advice names a value that is in force or written already.
    """
    if not skill.is_poor:
        return replace(skill, advice=())
    remedies = _list_remedies(task, skill, num_known, import_command, asked)
    said = (*hints, *remedies)
    return replace(skill, advice=said or (_say_all_tried(task, skill, asked),))


def split_advice(advice: str) -> tuple[str, str | None]:
    """A sentence of advice without its full stop, and the command that puts it into effect, if it names one."""
    text, _, command = advice.partition(_THEN_RUN)
    return text, command or None


def _set(task: Task, value: str) -> str:
    """What to write where, and the commands that make it count."""
    return f"set {value} in the task's file{_THEN_RUN}morrow task apply FILE.toml && morrow cycle {task.name}"


def _list_remedies(
    task: Task, skill: Skill, num_known: int | None, import_command: str | None, asked: Training | None
) -> list[str]:
    said = []
    written = task.training if asked is None else asked
    import_file = import_command or f"morrow events import {task.name} FILE"
    if skill.is_uncertain:
        only = f"only {count_windows(skill.num_windows)} {'is' if skill.num_windows == 1 else 'are'} scored"
        if num_known is not None and num_known <= skill.num_windows + 1:  # the oldest has no model before it
            said.append(
                f"{only}, and the stored past holds no more: wait for the next windows, or import earlier events"
                f"{'' if import_command else ' with the options of the last import'}{_THEN_RUN}{import_file} && "
                f"morrow cycle {task.name} --again"
            )
        else:
            said.append(
                f"{only}: score more of the past, after {import_file} if too little of it is "
                f"stored{_THEN_RUN}morrow backtest {task.name} --origins 26"
            )
    if (better := skill.better) is not None:
        said += _imitate(task, better, written)
    if not _was_searched(written) and (better is None or better.method in get_args(Method)):
        said.append(f"let the trainer choose a better recipe: {_search(task, written)}")
    forms = {
        "number_form": ("piecewise", "learn a slope for each part of a number's range, such as the hours of a day"),
        "label_form": ("log", "learn the logarithm of the label, if labels differ by factors, as prices do"),
    }
    is_read = {"number_form": bool(task.numbers), "label_form": not task.is_classification}
    for key, (value, why) in forms.items():
        if is_read[key] and not _was_searched(written) and _is_plain(task, written, key):
            setting = f'training.{key} = "{value}"'
            said.append(f"{why}: {_set(task, setting)}")
    return said


def _is_plain(task: Task, written: Training, key: str) -> bool:
    """Whether neither the recipe that is trained nor the one that was written has another form than the plain one."""
    return bool(getattr(task.training, key) == getattr(written, key) == "plain")


def _was_searched(written: Training) -> bool:
    """Whether the trainer searches all settings for a better recipe, or has done so. A quick look is no search."""
    return written.tune is True


def _search(task: Task, written: Training) -> str:
    """The key that makes the trainer search, in place of a look at a few recipes if it has had that."""
    value = _set(task, "training.tune = true")
    return f'training.tune = "quick" compares a few only; to search them all, {value}' if written.tune else value


def _imitate(task: Task, better: ComparedError, written: Training) -> list[str]:
    ahead = f"the model is {compare(better.skill)} {better.method} on the same {count_windows(better.num_windows)}"
    if better.method in get_args(Method):
        if better.method in (task.training.method, written.method):
            return []
        method = f'training.method = "{better.method}"'
        return [f"train by the better method, since {ahead}: {_set(task, method)}"]
    untapped = f"search for a better recipe, since {ahead}, from the same features"
    if not _was_searched(written):
        return [f"{untapped}: {_search(task, written)}"]
    more = min(_MOST_TRIALS, 2 * written.tune_trials)
    if more == written.tune_trials:
        return []
    return [f"{untapped}: {_set(task, f'training.tune_trials = {more} and a larger training.tune_seconds')}"]


def _say_all_tried(task: Task, skill: Skill, asked: Training | None) -> str:
    """One sentence for a poor model about which nothing is left to advise."""
    if asked is None:
        done = "the next cycle searches recipes" if task.training.tune else "no other setting is known to help"
    else:
        done = "the trainer has searched recipes and found none better"
    return f"{done}; {say_rival(skill) or 'no rival is scored yet'}: more would come from other features or more rows"
