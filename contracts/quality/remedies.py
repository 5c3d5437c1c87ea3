"""What may help if a model is poor, or if an age of its error matrix is not valid.

Each remedy names a command, or a key of the task's file with a value.
"""

import math
from collections.abc import Sequence
from datetime import datetime
from typing import Protocol, get_args

from msgspec.structs import replace

from contracts.clock import count_windows, format_moment, to_micros
from contracts.quality.skill import ComparedError, Skill, compare
from contracts.task import Method, Task

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
) -> Skill:
    """The skill of a task's model with advice if it is poor: first these hints, then what is the likeliest to help.

    `num_known` is the number of windows that the model knows, if a model answers: no more of the past can be scored.
    `import_command` imports another file; None if its options are not known.
    """
    return replace(
        skill, advice=(*hints, *_list_remedies(task, skill, num_known, import_command)) if skill.is_poor else ()
    )


def split_advice(advice: str) -> tuple[str, str | None]:
    """A sentence of advice without its full stop, and the command that puts it into effect, if it names one."""
    text, _, command = advice.partition(_THEN_RUN)
    return text, command or None


def _set(task: Task, value: str) -> str:
    """What to write where, and the commands that make it count."""
    return f"set {value} in the task's file{_THEN_RUN}morrow task apply FILE.toml && morrow cycle {task.name}"


def _list_remedies(task: Task, skill: Skill, num_known: int | None, import_command: str | None) -> list[str]:
    training, said = task.training, []
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
        said.append(_imitate(task, better))
    if not training.tune and (better is None or better.method in get_args(Method)):
        said.append(f"let the trainer choose a better recipe: {_set(task, 'training.tune = true')}")
    if training.number_form == "plain" and task.numbers:
        form = _set(task, 'training.number_form = "piecewise"')
        said.append(f"learn a slope for each part of a number's range, such as the hours of a day: {form}")
    if task.target.kind == "regression" and training.label_form == "plain":
        form = _set(task, 'training.label_form = "log"')
        said.append(f"learn the logarithm of the label, if labels differ by factors, as prices do: {form}")
    return said


def _imitate(task: Task, better: ComparedError) -> str:
    ahead = f"the model is {compare(better.skill)} {better.method} on the same {count_windows(better.num_windows)}"
    if better.method in get_args(Method):
        method = f'training.method = "{better.method}"'
        return f"train by the better method, since {ahead}: {_set(task, method)}"
    untapped = f"search for a better recipe, since {ahead}, from the same features"
    if not task.training.tune:
        return f"{untapped}: {_set(task, 'training.tune = true')}"
    more = min(1000, 2 * task.training.tune_trials)
    return f"{untapped}: {_set(task, f'training.tune_trials = {more} and a larger training.tune_seconds')}"
