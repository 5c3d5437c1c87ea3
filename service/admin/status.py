"""The status of a task: the version that answers, its horizon and errors, and why it may not answer."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec.structs import asdict

from contracts.clock import format_moment, to_micros
from contracts.quality.skill import Skill
from service.admin import answers
from service.admin.releases import describe_release
from service.models.forecaster import Forecaster
from service.models.model_skills import find_trust
from service.models.task_states.task_state import (
    RealisedError,
    RegistryState,
    TaskState,
    seconds_since_release,
    state_of,
    why_stale,
)
from service.server.worker_heartbeats import Heartbeat
from store.predictions.answer_scores import INSIDE_FIT, ScoredAnswers
from store.recipe_choices import Choice
from store.tasks.catalog import Schema


def describe_task(
    schema: Schema,
    forecaster: Forecaster | None,
    registry: RegistryState,
    task_state: TaskState,
    skill: Skill | None,
    *,
    now: datetime,
    cycle_limit: timedelta,
) -> answers.TaskOverview:
    """A task and the version that answers for it, with what registry and database say of both."""
    stale = why_stale(schema.task, task_state, now, cycle_limit) if schema.lifecycle == "active" else None
    closing, override = task_state.closing, task_state.override
    return answers.TaskOverview(
        **asdict(describe_revision(schema)),
        lifecycle=schema.lifecycle,
        champion=None if forecaster is None else describe_champion(forecaster),
        registry=answers.Registry(
            registry.state,
            registry.reason,
            task_state.champion if schema.lifecycle == "archived" else registry.champion,  # nothing follows its alias
        ),
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
        skill=skill,
        trust=find_trust(forecaster, skill, task_state),
    )


def describe_revision(schema: Schema) -> answers.TaskRevision:
    """A task's newest spec as it was written, and the recipe that was chosen for it."""
    choice = None if schema.choice is None else _describe_choice(schema.choice)
    return answers.TaskRevision(task=schema.task.name, revision=schema.revision, spec=schema.written, choice=choice)


def describe_workers(heartbeats: Sequence[Heartbeat], task: str) -> list[answers.Worker]:
    """The version that each process of this API serves, from its last heartbeat."""
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
        gaps=[answers.Gap(*map(format_moment, gap)) for gap in manifest.gaps],
        horizon=manifest.horizon,
        batch_size=forecaster.batch_size,
        error_name=manifest.error_name,
        weights=manifest.weights,
        errors=[
            answers.AgeError(
                age=age.age,
                mean=age.mean,
                low=max(age.low, 0.0),  # older versions promise bands from below 0
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


def describe_live_errors(forecaster: Forecaster, errors: Sequence[RealisedError]) -> list[answers.LiveError]:
    """Expected error by age within the horizon, and realised error of the ages that have labels."""
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
                low=max(promise.low, 0.0) if promise else None,
                high=promise.high if promise else None,
                limit=promise.limit if promise else None,
                realised=found.error if found else None,
                num_rows=found.num_rows if found else 0,
                is_complete=found.is_complete if found else False,
            )
        )
    return shown


def describe_given_answers(schema: Schema, scored: Sequence[ScoredAnswers]) -> answers.GivenAnswers:
    """What has become of the logged answers, by version and age."""
    rule = schema.task.log
    return answers.GivenAnswers(rule.share, rule.days, [*map(_describe_answered, scored)])


def _describe_answered(scored: ScoredAnswers) -> answers.AnsweredAge:
    quality = scored.quality
    return answers.AnsweredAge(
        version=scored.version,
        age=None if scored.age == INSIDE_FIT else scored.age,
        waiting=quality.waiting,
        scored_at=format_moment(to_micros(scored.scored_at)),
        **asdict(quality),
    )


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
