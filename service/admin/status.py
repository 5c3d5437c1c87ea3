"""The status of a task: what answers, until when, how wrong it is, why it does not, and what to expect next."""

import math
from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec.structs import asdict

from contracts.clock import format_moment, to_micros
from contracts.errors import Fault, InvalidInput
from contracts.task import Task, Training
from service.admin import answers
from service.admin.releases import describe_release
from service.models.model import Forecaster
from service.models.task_state import (
    RealisedError,
    RegistryState,
    TaskState,
    seconds_since_release,
    state_of,
    why_stale,
)
from service.server.worker_heartbeats import Heartbeat
from store.catalog import Schema
from store.choices import Choice

# Steps of a pre-training below which a network has hardly begun: for bicycles in the tutorial, 20 steps leave the error
# half as high again as 300 do.
FEW_STEPS = 100
# The methods that begin with a phase on all rows.
PRETRAINED = frozenset({"gi", "baseline", "base_time", "grad_reg", "time_perturb"})


def describe_task(
    schema: Schema,
    forecaster: Forecaster | None,
    registry: RegistryState,
    task_state: TaskState,
    *,
    now: datetime,
    cycle_limit: timedelta,
) -> answers.TaskOverview:
    """A task, the version that answers for it, and what the registry and the database say of both."""
    stale = why_stale(schema.task, task_state, now, cycle_limit)
    closing, override = task_state.closing, task_state.override
    return answers.TaskOverview(
        **asdict(describe_revision(schema)),
        champion=None if forecaster is None else describe_champion(forecaster),
        registry=answers.Registry(registry.state, registry.reason, registry.champion),
        state=state_of(forecaster, task_state, to_micros(now)),
        closed=None if closing is None else describe_release(closing),
        override=None if override is None else describe_release(override),
        stale=stale is not None,
        stale_reason=stale,
        seconds_since_release=seconds_since_release(task_state, now),
        num_failed=task_state.num_failed,
        better_method=task_state.better_method,
        rivals=task_state.rivals,
        missing_windows=task_state.missing_windows,
    )


def describe_revision(schema: Schema) -> answers.TaskRevision:
    """A task's newest spec as it was written, and the recipe that was chosen for it."""
    choice = None if schema.choice is None else _describe_choice(schema.choice)
    return answers.TaskRevision(task=schema.task.name, revision=schema.revision, spec=schema.written, choice=choice)


def describe_workers(heartbeats: Sequence[Heartbeat], task: str) -> list[answers.Worker]:
    """The version that each process of this API serves, as it was last seen."""
    return [
        answers.Worker(one.pid, one.version(task), one.is_ready, format_moment(int(one.at * 1e6))) for one in heartbeats
    ]


def describe_champion(forecaster: Forecaster) -> answers.Champion:
    """What the version that answers promises."""
    manifest = forecaster.manifest
    return answers.Champion(
        version=forecaster.version,
        trained_from=format_moment(manifest.trained_from),
        trained_until=format_moment(manifest.cutoff),
        valid_until=format_moment(forecaster.valid_until),
        horizon=manifest.horizon,
        batch_size=batch_size_of(forecaster),
        error_name=manifest.error_name,
        errors=[
            answers.AgeError(
                age=age.age,
                mean=age.mean,
                low=age.low,
                high=age.high,
                limit=age.limit,
                num_windows=age.num_windows,
            )
            for age in manifest.ages
        ],
    )


def describe_manifest(forecaster: Forecaster) -> answers.Model:
    """The manifest of the version that answers, without its probe."""
    manifest = forecaster.manifest
    return answers.Model(
        **asdict(describe_champion(forecaster)),
        task=manifest.task,
        recipe=manifest.recipe,
        classes=manifest.classes,
        num_rows=manifest.num_rows,
        rows_digest=manifest.rows_digest,
        read_at=format_moment(manifest.read_at),
        seeds=manifest.seeds,
        device=manifest.device,
        git_sha=manifest.git_sha,
        checksums=manifest.checksums,
    )


def batch_size_of(forecaster: Forecaster) -> int:
    """Rows of a minibatch of the fit; where the manifest is too old to say so, the task does."""
    manifest = forecaster.manifest
    return manifest.batch_size or forecaster.task.training.rows_per_minibatch(manifest.num_rows)


def describe_live_errors(forecaster: Forecaster, errors: Sequence[RealisedError]) -> list[answers.LiveError]:
    """Expected and realised error by age: nothing is expected beyond the horizon, nor realised before labels arrive."""
    manifest = forecaster.manifest
    expected = {age.age: age for age in manifest.ages}
    realised = {found.age: found for found in errors}
    shown = []
    for age in sorted({*expected, *realised}):
        promise, found = expected.get(age), realised.get(age)
        shown.append(
            answers.LiveError(
                age=age,
                window=format_moment(manifest.cutoff + age * manifest.window),
                expected=promise.mean if promise else None,
                low=promise.low if promise else None,
                high=promise.high if promise else None,
                limit=promise.limit if promise else None,
                realised=found.error if found else None,
                num_rows=found.num_rows if found else 0,
                is_complete=found.is_complete if found else False,
            )
        )
    return shown


def _describe_choice(choice: Choice) -> answers.Choice:
    return answers.Choice(
        training=choice.training,
        cutoff=format_moment(choice.cutoff),
        error=choice.error,
        error_before=choice.error_before,
        num_trials=choice.num_trials,
        seconds=choice.seconds,
        run_id=choice.run_id,
        chosen_at=format_moment(to_micros(choice.chosen_at)),
    )


def check_budget(task: Task, cycle_limit: timedelta) -> None:
    """Raises InvalidInput where the trainer is to choose for longer than half of what a cycle may take."""
    longest = cycle_limit.total_seconds() / 2
    if task.training.tune and task.training.tune_seconds > longest:
        reason = f"is more than half the time limit of a cycle: {longest:g} s"
        raise InvalidInput([Fault("training.tune_seconds", reason)])


def warn_all(
    task: Task, forecaster: Forecaster | None, task_state: TaskState, now: datetime, cycle_limit: timedelta
) -> list[str]:
    """Every warning about a task and the version that answers for it."""
    manifest = None if forecaster is None else forecaster.manifest
    warnings = warn(task, cycle_limit, None if manifest is None else manifest.horizon)
    if forecaster is not None and manifest is not None:
        warnings += warn_of_fit(forecaster.task.training, manifest.num_rows, batch_size_of(forecaster))
    return [*warnings, *warn_of_version(forecaster, task_state), *warn_of_events(task, task_state, now)]


def warn(task: Task, cycle_limit: timedelta, horizon: int | None = None) -> list[str]:
    """What leaves gaps between versions: the horizon of the one that answers, else the spec.

    A version waits for the next boundary and a cycle. Where cycles may be longer than windows, it waits for the end of
    the one that runs instead, by when up to one more window has passed.
    """
    length, name = (task.guard.max_age, "guard.max_age") if horizon is None else (horizon, "the horizon")
    running = cycle_limit if cycle_limit > task.window else timedelta(0)
    if task.label_delay + running + task.window + cycle_limit <= length * task.window:
        return []
    if length == 1:
        return [f"{name} is one window: every version expires while the next one trains"]
    limits = "twice the time limit of a cycle" if running else "the time limit of a cycle"
    return [
        f"label_delay, one window and {limits} are together longer than {name} of {length} windows: "
        "a version may expire before the next one is released"
    ]


def warn_of_version(forecaster: Forecaster | None, task_state: TaskState) -> list[str]:
    """Where what answers was never released: the alias was moved to it, or a trainer ended before it wrote that down.

    The guard holds versions to what their release rows promised, so nothing closes the horizon of this one.
    """
    if forecaster is None or task_state.bound is not None:
        return []
    return [f"version {forecaster.version} answers but was never released: the guard does not watch it"]


def warn_of_events(task: Task, task_state: TaskState, now: datetime) -> list[str]:
    """Where an event is dated more than a window ahead: its sender may have meant another year."""
    if task_state.newest is None or task_state.newest <= to_micros(now + task.window):
        return []
    return [f"the newest event is of {format_moment(task_state.newest)}, a moment to come: no fit reads it before"]


def warn_of_fit(training: Training, num_rows: int, batch_size: int) -> list[str]:
    """Where a fit on so many rows took so few steps that its network can hardly have learned."""
    visits = min(num_rows, training.rows_per_epoch) * training.pretrain_epochs
    num_steps = max(training.pretrain_epochs, math.ceil(visits / batch_size))
    if training.method not in PRETRAINED or num_steps >= FEW_STEPS:
        return []
    return [
        f"the fit took {num_steps} steps only: {num_rows:,} rows in minibatches of {batch_size:,}, "
        f"{training.pretrain_epochs} times over; a smaller training.batch_size or more training.pretrain_epochs give "
        "it more"
    ]
