"""The answers of the paths below /tasks, except those about events, and of /livez and /readyz.

One struct encodes an answer and describes it in the OpenAPI document, so that the two cannot differ. Its docstring and
the descriptions of its fields are the words of the document.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct
from starlette.responses import Response

from contracts.quality.skill import Skill
from contracts.quality.trust import Trust
from contracts.spec.spec_values import Spec
from contracts.task import Task, Training
from contracts.verdict import Comparison
from service.advice.next_step import NextStep
from service.models.task_states.task_state import State
from service.validation.json_types import Count, Moment
from service.web.bodies import JSON
from store import releases
from store.cycles import ledger
from store.tasks.changes import Action, Lifecycle


class Override(Struct, frozen=True):
    """The admin who wants a cycle released in spite of its verdict."""

    actor: str
    reason: str | None


class Cycle(Struct, frozen=True, kw_only=True):
    """One attempt to retrain as of a cutoff."""

    id: Count
    cutoff: Moment
    attempt: Count
    state: ledger.State
    step: str | None
    version: str | None
    num_rows: Count | None
    reason: Annotated[str | None, Meta(description="why the cycle did not release a version")]
    verdict: Annotated[dict[str, Any] | None, Meta(description="every rule with its value and its threshold")]
    override: Override | None
    replaces: Annotated[
        Count | None, Meta(description="the released cycle of the same cutoff that this one was requested to replace")
    ]
    followed: Annotated[bool, Meta(description="whether another attempt at the same cutoff is requested when it ends")]
    run_id: Annotated[str | None, Meta(description="the run in MLflow")]
    requested_at: Moment | None
    started_at: Moment | None
    ended_at: Moment | None


class CycleRequested(Cycle, frozen=True, kw_only=True):
    """A requested retraining."""

    note: Annotated[
        str | None, Meta(description="why the cutoff is not the newest window boundary, or what the cycle waits for")
    ]


class RunningCycle(Struct, frozen=True, kw_only=True):
    """A cycle of another task that a trainer carries out."""

    task: str
    id: Count
    cutoff: Moment
    step: str | None
    started_at: Moment | None


class Cycles(Struct, frozen=True):
    """Newest cutoff and attempt first."""

    cycles: list[Cycle]
    waits_for: Annotated[
        list[RunningCycle],
        Meta(description="if a cycle of the task is requested: what trainers carry out for other tasks before it"),
    ]
    warnings: Annotated[list[str], Meta(description="about rows that cannot be read, and are left out")]


class Release(Struct, frozen=True, kw_only=True):
    """A row of the history: an action on a version, and the bound of its validity since then."""

    action: releases.Action
    version: str
    valid_until: Moment
    actor: str
    reason: str
    at: Moment
    verdict: Annotated[dict[str, Any] | None, Meta(description="the figures behind the action")]


class ReleaseRecorded(Release, frozen=True, kw_only=True):
    """The row of a rollback, or of an override of a bound."""

    note: Annotated[str | None, Meta(description="what to pass to an override if the bound was the same before")]


class Releases(Struct, frozen=True):
    """Newest first."""

    releases: list[Release]
    warnings: Annotated[list[str], Meta(description="about rows that cannot be read, and are left out")]


class AgeError(Struct, frozen=True, kw_only=True):
    """The validated error of a version in the window of this age, with its 90 % band and the guard's limit."""

    age: Annotated[Count, Meta(description="windows since the cutoff")]
    mean: float
    low: float | None
    high: float | None
    limit: float | None
    num_windows: Count


class Gap(Struct, frozen=True):
    """A time without rows, from `begin` until just before `end`."""

    begin: Moment
    end: Moment


class Champion(Struct, frozen=True, kw_only=True):
    """The version that answers, and what it promises."""

    version: str
    trained_from: Moment
    trained_until: Moment
    valid_until: Moment
    gaps: Annotated[list[Gap], Meta(description="long gaps between the rows of training, in which nothing is answered")]
    horizon: Annotated[Count, Meta(description="validated windows after the cutoff")]
    batch_size: Annotated[Count, Meta(description="rows of a minibatch of its fit")]
    error_name: str
    errors: list[AgeError]
    weights: Annotated[
        dict[str, float], Meta(description="the weight of each expert in the answers; empty if the network is alone")
    ]


class Model(Champion, frozen=True, kw_only=True):
    """The manifest of the version that answers, without its probe."""

    task: Annotated[dict[str, Any], Meta(description="the spec that it was trained by")]
    recipe: Annotated[str, Meta(description="digest of the recipe")]
    classes: list[str]
    num_rows: Count
    rows_digest: str
    read_at: Moment
    seeds: list[int]
    device: str
    git_sha: str
    checksums: Annotated[dict[str, str], Meta(description="SHA-256 by file")]


class Choice(Struct, frozen=True, kw_only=True):
    """The recipe that the trainer chose in place of the written one (`training.tune`)."""

    training: Annotated[Training, Meta(description="the chosen recipe")]
    cutoff: Moment
    error: Annotated[float | None, Meta(description="mean error of the chosen recipe")]
    error_before: Annotated[float | None, Meta(description="mean error of the written recipe")]
    num_trials: Count
    seconds: float
    run_id: Annotated[str | None, Meta(description="the run in MLflow")]
    chosen_at: Moment


class TaskRevision(Struct, frozen=True, kw_only=True):
    """The newest revision of a task's spec."""

    task: str
    revision: Count
    spec: Task
    choice: Choice | None


class TaskDefined(TaskRevision, frozen=True, kw_only=True):
    """A task after PUT /tasks/{task}."""

    changed: Annotated[bool, Meta(description="whether this request changed the task")]
    changes: Annotated[list[str], Meta(description="what differs from the revision before, and what follows from it")]
    warnings: list[str]


class Registry(Struct, frozen=True):
    """How the API follows MLflow's registry."""

    state: str
    reason: str | None
    champion: Annotated[str | None, Meta(description="the version that the alias named last")]


class TaskOverview(TaskRevision, frozen=True, kw_only=True):
    """A task, the version that answers for it, and why that version is valid or not."""

    champion: Champion | None
    registry: Registry
    state: State
    closed: Annotated[Release | None, Meta(description="the row that closed the horizon")]
    override: Annotated[Release | None, Meta(description="the row by which an admin set the horizon")]
    stale: Annotated[bool, Meta(description="whether a new version is overdue")]
    stale_reason: str | None
    lifecycle: Annotated[
        Lifecycle,
        Meta(description="paused: answers, and no cycle begins; archived: takes no events and no questions"),
    ]
    seconds_since_release: float | None
    num_failed: Annotated[Count, Meta(description="attempts that failed one after the other, up to now")]
    better_method: Annotated[Comparison | None, Meta(description="a rival that the newest verdict found better")]
    rivals: tuple[Comparison, ...]
    missing_windows: Annotated[Count, Meta(description="complete windows still needed to judge a horizon")]
    skill: Annotated[
        Skill | None, Meta(description="how good the model is; null until windows of its recipe are scored")
    ]
    trust: Annotated[Trust, Meta(description="whether the model can be trusted, in one word and with the reason")]


class ListedTask(TaskOverview, frozen=True, kw_only=True):
    """A task of the list."""

    spec: Annotated[Task | None, Meta(description="null if this release cannot read it; `registry` says why")]  # type: ignore[assignment]  # null only in a list


class Tasks(Struct, frozen=True):
    """By name."""

    tasks: list[ListedTask]
    next: Annotated[str | None, Meta(description="`after` of the next page; null on the last one")]


class TaskContents(Struct, frozen=True, kw_only=True):
    """What the store holds of a task; every number is exact."""

    num_events: Annotated[Count, Meta(description="events, each in its present revision")]
    num_revisions: Annotated[Count, Meta(description="all revisions of events")]
    num_rejected: Annotated[Count, Meta(description="stored refused rows")]
    num_unlabelled: Annotated[Count, Meta(description="events that wait for their label")]
    num_waiting: Annotated[Count, Meta(description="labels that wait for their event")]
    num_cycles: Count
    num_versions: Annotated[Count, Meta(description="released versions")]
    num_erasures: Count
    most_counted: Annotated[Count, Meta(description="`num_revisions`: no count ends early")]


class TaskChange(Struct, frozen=True, kw_only=True):
    """What somebody did with a task as a whole."""

    id: Count
    task: Annotated[str, Meta(description="its name before")]
    action: Action
    new_name: str | None
    actor: str
    reason: str
    at: Moment
    contents: Annotated[TaskContents | None, Meta(description="of a deletion: what the task held")]


class TaskChanged(TaskChange, frozen=True, kw_only=True):
    """A change that has just been made, and what it means."""

    effect: Annotated[str, Meta(description="what this means for events, versions, MLflow, metrics and alerts")]


class TaskChanges(Struct, frozen=True):
    """Newest first."""

    changes: list[TaskChange]


class Worker(Struct, frozen=True):
    """One process of this API, as it was last seen."""

    pid: Count
    version: Annotated[str | None, Meta(description="the version that it serves")]
    is_ready: bool
    seen_at: Moment


class LiveError(Struct, frozen=True, kw_only=True):
    """Expected and realised error of the champion in one window; null if there is none."""

    age: Annotated[Count, Meta(description="windows since the cutoff")]
    window: Annotated[Moment, Meta(description="start of the window")]
    expected: float | None
    low: float | None
    high: float | None
    limit: float | None
    realised: float | None
    num_rows: Count
    is_complete: Annotated[bool, Meta(description="whether all labels of the window were due")]


class AnsweredAge(Struct, frozen=True, kw_only=True):
    """How right the logged answers of one version and age were. A figure without labelled answers is null."""

    version: str
    age: Annotated[
        Count | None, Meta(description="windows since the cutoff; null for moments of the version's own rows")
    ]
    num_answers: Annotated[Count, Meta(description="answers in the log")]
    num_labelled: Annotated[Count, Meta(description="those of them whose label has come")]
    waiting: Annotated[float, Meta(description="the share whose label has not come")]
    error_name: str
    error: Annotated[float | None, Meta(description="mean error of the labelled answers")]
    expected_error: Annotated[float | None, Meta(description="mean `expected_error` of the same answers")]
    error_rate: Annotated[float | None, Meta(description="of classes: the share of wrong predictions")]
    num_given: Annotated[Count, Meta(description="labelled answers with an interval or a prediction set")]
    coverage: Annotated[float | None, Meta(description="the share of these that holds the label")]
    promised_coverage: Annotated[float | None, Meta(description="mean `coverage` of the same answers")]
    calibration_error: Annotated[
        float | None, Meta(description="of classes: the expected calibration error, in ten bins")
    ]
    label_delay_median: Annotated[
        float | None, Meta(description="seconds from the moment that was asked about to the label")
    ]
    label_delay_p90: Annotated[float | None, Meta(description="the delay that nine labels in ten do not exceed")]
    scored_at: Moment


class GivenAnswers(Struct, frozen=True):
    """How right the answers in the log of predictions were, of the five versions that answered last."""

    share: Annotated[float, Meta(description="of the answers that are logged: the figures are of this sample")]
    days: Annotated[Count, Meta(description="for which an answer is logged, and counts here")]
    by_age: Annotated[list[AnsweredAge], Meta(description="the version that answered last first")]


class FileCommands(Struct, frozen=True):
    """Commands that read a file for the task, with the options of its newest import as far as they are known."""

    import_events: str
    predict: str


class TaskStatus(TaskOverview, frozen=True, kw_only=True):
    """Everything that is known of a task."""

    workers: list[Worker]
    num_events: Annotated[Count, Meta(description="events with their labels")]
    num_unlabelled: Annotated[Count, Meta(description="events that wait for their label")]
    num_waiting: Annotated[Count, Meta(description="labels that wait for their event")]
    live_errors: list[LiveError]
    answers: GivenAnswers
    last_verdict: Annotated[dict[str, Any] | None, Meta(description="the newest verdict, with its cycle")]
    cycles: list[Cycle]
    next_cycle: Annotated[Moment | None, Meta(description="null if cycles run on request only")]
    next_step: Annotated[NextStep, Meta(description="the one thing to do next")]
    warnings: Annotated[list[str], Meta(description="about the task, the version that answers and the newest rows")]
    doubts: Annotated[list[str], Meta(description="those of the warnings that say why labels may be wrong")]
    commands: FileCommands


class Liveness(Struct, frozen=True):
    """The event loop turns."""

    status: Literal["ok"] = "ok"


class TaskReadiness(Struct, frozen=True):
    """The version of a task that this process serves, and how it follows the registry."""

    version: str | None
    registry: str


class Readiness(Struct, frozen=True):
    """Whether this process can answer."""

    status: Literal["ok", "not ready"]
    database: Literal["ok", "unavailable"]
    tasks: dict[str, TaskReadiness]


def respond(answer: Struct, status: int = 200, *, etag: str | None = None) -> Response:
    """The response with this answer."""
    headers = None if etag is None else {"ETag": etag}
    return Response(_ENCODER.encode(answer), status, headers, media_type=JSON)


def _dump(model: object) -> object:
    """A task or a part of it, which msgspec cannot encode by itself."""
    assert isinstance(model, Spec)
    return model.model_dump(mode="json")


_ENCODER = msgspec.json.Encoder(enc_hook=_dump)
