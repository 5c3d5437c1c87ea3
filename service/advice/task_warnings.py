"""Warnings about a task: settings that will leave gaps between versions, and likely mistakes."""

import math
from collections.abc import Mapping, Sequence, Set
from datetime import datetime, timedelta
from statistics import fmean
from types import MappingProxyType

from contracts.clock import count_windows, format_moment, to_micros
from contracts.errors import Fault, InvalidInput
from contracts.manifest import AgeError
from contracts.quality.remedies import say_aside
from contracts.quality.skill import Skill
from contracts.shown import say_count
from contracts.task import Task, Training, is_numeric
from service.advice.future_events import warn_of_future
from service.models.forecaster import Forecaster
from service.models.task_states.task_state import RealisedError, TaskState, say_withdrawn
from service.web.html import four_figures
from store.events.far_rows import FutureEvents
from store.hooks.ledger import DeadLetters
from store.tasks.catalog import Schema
from store.tasks.changes import Lifecycle

# With fewer steps of pre-training, a network has hardly learned. On the bicycles of the tutorial, the error after 20
# steps is one and a half times the error after 300.
FEW_STEPS = 100
# A fit whose loss on withheld rows fell by this share in the last third of pre-training ended too early. How much more
# budget it is told to get.
STILL_FALLING, _MORE_STEPS = 0.05, 4
# An expected error is contradicted by one that is larger by this factor, and since the release on this many windows.
CONTRADICTED, FEWEST_FOLLOWED = 1.05, 3
# Rows that end by this share of a window before the cutoff are warned of. A week of work ends with a free weekend.
UNSEEN_SHARE = 0.4
# The methods whose training begins with a phase on all rows.
PRETRAINED = frozenset({"gi", "baseline", "base_time", "grad_reg", "time_perturb"})


def check_budget(task: Task, cycle_limit: timedelta) -> None:
    """Raise InvalidInput if the search for a recipe may take longer than half of a cycle's time limit."""
    longest = cycle_limit.total_seconds() / 2
    if task.training.tune and task.training.tune_seconds > longest:
        reason = f"is more than half the time limit of a cycle: {longest:g} s"
        raise InvalidInput([Fault("training.tune_seconds", reason)])


def warn(
    task: Task | None,
    forecaster: Forecaster | None,
    task_state: TaskState | None,
    *,
    now: datetime,
    cycle_limit: timedelta,
    lifecycle: Lifecycle = "active",
    future: FutureEvents | None = None,
) -> list[str]:
    """Every warning about a task and the version that answers for it, as far as they are known.

    A paused or archived task leaves gaps on purpose. `future` are its events dated more than a window ahead.
    """
    manifest = None if forecaster is None else forecaster.manifest
    warnings = []
    if task is not None and lifecycle == "active":
        warnings += warn_of_gaps(task, cycle_limit, None if manifest is None else manifest.horizon)
    if forecaster is not None and manifest is not None:
        training, batch_size = forecaster.task.training, forecaster.batch_size
        warnings += warn_of_fit(training, manifest.num_rows, batch_size) or warn_of_early_end(
            training, manifest.num_rows, batch_size, manifest.late_gain
        )
    if forecaster is not None and task_state is not None and task_state.version == forecaster.version:
        warnings += warn_of_version(forecaster, task_state)
        warnings += warn_of_withdrawn(forecaster, task_state)
    if task is not None and task_state is not None:
        warnings += warn_of_events(task, task_state, now, future)
    return warnings


def warn_of_gaps(task: Task, cycle_limit: timedelta, horizon: int | None = None) -> list[str]:
    """Warn if a version may expire before the next one is released.

    `horizon` is the horizon of the version that answers; without one, the longest that the task allows counts. A new
    version waits for the next window boundary and for its cycle. If cycles may last longer than windows, it first waits
    for the end of the running cycle, and up to one more window passes meanwhile.
    """
    length, name = (task.guard.max_age, "guard.max_age") if horizon is None else (horizon, "the horizon")
    running = cycle_limit if cycle_limit > task.window else timedelta(0)
    if task.label_delay + running + task.window + cycle_limit <= length * task.window:
        return []
    if length == 1:
        return [f"{name} is one window: every version expires while the next one trains; {_longer(task, horizon)}"]
    limits = "twice the time limit of a cycle" if running else "the time limit of a cycle"
    return [
        f"label_delay, one window and {limits} are together longer than {name} of {length} windows: "
        f"a version may expire before the next one is released; {_longer(task, horizon)}"
    ]


def _longer(task: Task, horizon: int | None) -> str:
    """What makes versions valid for longer: a longer limit, or else a horizon that reaches it."""
    if horizon is None or horizon >= task.guard.max_age:
        return f"set guard.max_age above {task.guard.max_age}, or MORROW_CYCLE_LIMIT_SECONDS lower"
    return f"see what limits it: morrow backtest {task.name} --origins 52"


def warn_of_kinds(
    before: Task | None, task: Task, held: Mapping[str, Set[bool]] | None = MappingProxyType({})
) -> list[str]:
    """Warn of features whose kind a new revision changes; `held` as in `describe_differences`."""
    if held is None:
        return []
    former = {} if before is None else {feature.name: feature.kind for feature in before.features}
    warnings = []
    for feature in task.features:
        kind = former.get(feature.name, feature.kind)
        if kind == feature.kind:
            continue
        if is_numeric(kind) == is_numeric(feature.kind):
            values = "earlier rows keep their values, which nothing checks again"
        elif is_numeric(feature.kind) in held.get(feature.name, ()):
            again, lost = ("numbers", "texts") if is_numeric(feature.kind) else ("texts", "numbers")
            values = f"rows that were stored with {again} keep their values, and those with {lost} count as missing"
        else:
            values = (
                "its values in earlier rows count as missing; to use them, store the rows again with other ids, or set "
                f'kind = "{kind}" again'
            )
        warnings.append(f"feature {feature.name} was of kind {kind} and is of kind {feature.kind} now: {values}")
    return warnings


def warn_of_renaming(schema: Schema) -> list[str]:
    """Warn if MLflow refuses the new name of a renamed task, which holds up its cycles."""
    if schema.renaming_trouble is None:
        return []
    name, former = schema.task.name, schema.registry_name
    back = "another name with" if former == name else f"its former name with morrow task rename {name} {former}, or"
    return [
        f"no cycle of the task begins until MLflow has its new name, and MLflow refuses {name}: "
        f"{schema.renaming_trouble.removesuffix('.')}; give it {back} morrow task rename {name} NEW_NAME, or free the "
        "name in MLflow: the trainer tries again every few seconds"
    ]


def warn_of_dead_letters(found: Sequence[DeadLetters]) -> list[str]:
    """Warn of events about the task that a hook has given up."""
    return [
        f"the hook {one.hook} has given up {say_count(one.num_events, 'event')} about the task: morrow hooks list "
        f"shows why; repair its receiver, then send them again with morrow hooks retry {one.hook}"
        for one in found
    ]


def warn_of_version(forecaster: Forecaster, task_state: TaskState) -> list[str]:
    """Warn if the version that answers was never released.

    Someone moved the alias to it, or a trainer ended before it recorded the release. The guard compares errors with the
    promise in a release's row, so it does not close the horizon of such a version.
    """
    if task_state.bound is not None:
        return []
    return [
        f"version {forecaster.version} answers but was never released: the guard does not watch it; release one with "
        f"morrow cycle {forecaster.task.name}, or go back with morrow rollback {forecaster.task.name} --reason TEXT"
    ]


def warn_of_withdrawn(forecaster: Forecaster, task_state: TaskState) -> list[str]:
    """Warn if the version that answers has learned from events that are gone."""
    withdrawn = say_withdrawn(forecaster, task_state)
    if withdrawn is None:
        return []
    name = forecaster.task.name
    return [
        f"version {forecaster.version} learned from {withdrawn}, and answers as before: import the right rows if they "
        f"are missing, and retrain with morrow cycle {name} --again"
    ]


def warn_of_unseen_end(forecaster: Forecaster, task_state: TaskState) -> list[str]:
    """Warn if rows end well before the cutoff of a version that does not know where: it counts the rest as known."""
    manifest, newest = forecaster.manifest, task_state.newest
    if manifest.newest is not None or newest is None or manifest.cutoff - newest < UNSEEN_SHARE * manifest.window:
        return []
    until = format_moment(manifest.cutoff)
    return [
        f"the newest row is of {format_moment(newest)}, so moments until {until} have no expected error: "
        f"version {forecaster.version} was trained until {until}, the end of a window, and counts them as known; send "
        "the rows between, or ask about later moments"
    ]


def warn_of_bands(version: str, ages: Sequence[AgeError]) -> list[str]:
    """Warn if a band does not hold its own expected error, and say why."""
    outside = [age for age in ages if not age.low <= age.mean <= age.high]
    if not outside:
        return []
    side = "above" if outside[0].mean < outside[0].low else "below"
    return [
        f"at {say_count(len(outside), 'age')}, the 90 % band of version {version} lies {side} the expected error: the "
        f"band follows the newest windows, and the expected error is the mean of all "
        f"{count_windows(outside[0].num_windows)}; check the newest labels, since they differ from earlier ones"
    ]


def warn_of_promise(
    task: str,
    version: str,
    ages: Sequence[AgeError],
    skill: Skill | None,
    realised: Sequence[RealisedError],
    *,
    aside: Sequence[datetime] = (),
) -> list[str]:
    """Warn if the windows of a backtest, or those since the release, contradict the expected error of a version.

    The promise stays as it is, since the guard compares each window with it. If the release set windows aside, that is
    why, and another release would do the same: then the labels are asked about.
    """
    promised = {age.age: age for age in ages}
    if not promised:
        return []
    expected = fmean(age.mean for age in promised.values())
    num_windows = max(age.num_windows for age in promised.values())
    found = []
    if skill is not None and skill.num_windows > num_windows and skill.error > CONTRADICTED * expected:
        found.append(f"{four_figures(skill.error)} on all {skill.num_windows} scored windows")
    followed = [one for one in realised if one.is_complete and one.age in promised]
    error = fmean(one.error for one in followed) if followed else 0.0
    if len(followed) >= FEWEST_FOLLOWED and error > CONTRADICTED * fmean(promised[one.age].mean for one in followed):
        found.append(f"{four_figures(error)} on the {count_windows(len(followed))} since the release")
    if not found:
        return []
    if aside:
        return [
            f"version {version} expects an error of {four_figures(expected)} by {count_windows(num_windows)}, and the "
            f"error is {' and '.join(found)}: {say_aside(aside)}; check the labels of these windows: wrong ones can be "
            f"retracted (morrow events history {task}), and right ones count once a later window is like them"
        ]
    return [
        f"the expected error of version {version} is too low: it is {four_figures(expected)} by "
        f"{count_windows(num_windows)}, but the error is {' and '.join(found)}; the next version takes "
        f"all scored windows into account: morrow cycle {task} --again"
    ]


def warn_of_events(task: Task, task_state: TaskState, now: datetime, future: FutureEvents | None = None) -> list[str]:
    """Warn if an event is dated more than a window ahead: its sender may have meant another year."""
    if task_state.newest is None or task_state.newest <= to_micros(now + task.window):
        return []
    return [warn_of_future(task.name, task_state.newest, future)]


def warn_of_fit(training: Training, num_rows: int, batch_size: int) -> list[str]:
    """Warn if a fit on `num_rows` rows took too few steps for its network to have learned much."""
    num_steps = _count_steps(training, num_rows, batch_size)
    if training.method not in PRETRAINED or num_steps >= FEW_STEPS:
        return []
    steps, rows = say_count(num_steps, "step"), say_count(num_rows, "row")
    return [
        f"the fit took only {steps}: {rows} in minibatches of {batch_size:,}, "
        f"{training.pretrain_epochs} times over; set a smaller training.batch_size or more training.pretrain_epochs"
    ]


def warn_of_early_end(training: Training, num_rows: int, batch_size: int, late_gain: float | None) -> list[str]:
    """Warn if pre-training reached its budget while the loss on rows that it had not seen still fell."""
    if training.method not in PRETRAINED or late_gain is None or late_gain < STILL_FALLING:
        return []
    num_steps = training.pretrain_steps or _count_steps(training, num_rows, batch_size)
    return [
        f"the fit stopped at its budget of {say_count(num_steps, 'step')} while its loss on withheld rows still fell, "
        f"by {100 * late_gain:.0f} % in the last third of pre-training: "
        f"set training.pretrain_steps = {_MORE_STEPS * num_steps}"
    ]


def _count_steps(training: Training, num_rows: int, batch_size: int) -> int:
    """The steps of one round of pre-training."""
    visits = min(num_rows, training.rows_per_epoch) * training.pretrain_epochs
    return max(training.pretrain_epochs, math.ceil(visits / batch_size))
