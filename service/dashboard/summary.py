"""The state of a task in sentences: what answers, what is missing, and what to do about it.

Each sentence has a tone for the page to colour; no sentence depends on its colour.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from contracts.clock import count_windows, format_moment, to_micros
from contracts.task import Task
from service.advice.task_warnings import warn
from service.models.forecaster import Forecaster
from service.models.task_states.task_state import ENDINGS, RegistryState, TaskState, next_cycle, state_of, why_stale
from service.web.html import shorten_moment
from store.tasks.changes import Lifecycle

Tone = Literal["good", "warn", "bad", "soft"]


@dataclass(frozen=True)
class Sentence:
    """A sentence and its tone."""

    tone: Tone
    text: str


def summarize(
    task: Task | None,
    forecaster: Forecaster | None,
    task_state: TaskState | None,
    registry: RegistryState,
    has_events: bool | None,
    *,
    now: datetime,
    cycle_limit: timedelta,
    lifecycle: Lifecycle = "active",
) -> list[Sentence]:
    """The sentences about one task, the most important first.

    `task` is None if neither a database nor a version knows its spec. `task_state` and `has_events` are None if no
    database answers; `has_events` also if a version does.
    """
    if lifecycle == "archived":
        return [Sentence("soft", "The task is archived: it takes no events and no questions, and nothing is deleted.")]
    said = [_describe_version(forecaster, task_state, registry, to_micros(now))]
    if lifecycle == "paused":
        said.append(Sentence("warn", "The task is paused: no cycle begins until it is resumed."))
    if forecaster is None and task_state is not None and has_events is not None and task is not None:
        said += _describe_missing(task, task_state.missing_windows, has_events)
    if registry.state == "degraded":
        said.append(Sentence("bad", f"Following the registry is degraded. {registry.reason or ''}".strip()))
    if task is not None and lifecycle == "active":
        said += _describe_cycles(
            task, task_state, now, cycle_limit, is_empty=forecaster is None and has_events is False
        )
    warnings = warn(task, forecaster, task_state, now=now, cycle_limit=cycle_limit, lifecycle=lifecycle)
    return [*said, *(Sentence("warn", f"Note: {warning}.") for warning in warnings)]


def _describe_version(
    forecaster: Forecaster | None, task_state: TaskState | None, registry: RegistryState, now: int
) -> Sentence:
    if forecaster is None:
        released = registry.champion or (task_state.champion if task_state else None)
        if released is None:
            return Sentence("soft", "No version has been released yet, so nothing answers.")
        why = registry.reason or "It is being loaded."
        return Sentence("bad", f"Version {released} is released, but this process cannot answer with it. {why}")
    version, until = forecaster.version, _say(forecaster.valid_until)
    match state_of(forecaster, task_state, now):
        case "valid":
            return Sentence(
                "good",
                f"Version {version} answers for moments from {_say(forecaster.manifest.trained_from)} until {until}"
                f"{_name_gaps(forecaster)}.",
            )
        case "closed":
            closing = task_state.closing if task_state else None
            why = f" ({closing.reason})" if closing else ""
            return Sentence(
                "bad",
                f"The horizon of version {version} was closed at {until}{why}. Later moments are refused until a newer "
                "version is released or an admin overrides the bound.",
            )
        case _:
            return Sentence(
                "bad",
                f"Version {version} expired at {until}. Earlier moments are still answered. Later ones, and requests "
                "without a moment, are refused until a newer version is released.",
            )


def _name_gaps(forecaster: Forecaster) -> str:
    """The gaps in which it does not answer; nothing for most versions."""
    gaps = forecaster.manifest.gaps
    return "".join(
        f", but not from {_say(begin)} until {_say(end)}, a time of which it knows no rows" for begin, end in gaps
    )


def _describe_missing(task: Task, missing: int, has_events: bool) -> list[Sentence]:
    """What is still needed for a first version."""
    if not has_events:
        return [
            Sentence(
                "soft",
                f"No event is stored. Send labelled rows to POST /events?task={task.name}, or run: "
                f"morrow events import {task.name} FILE",
            )
        ]
    if not missing:
        return []
    needed = "complete window with events is" if missing == 1 else "complete windows with events are"
    return [Sentence("warn", f"{missing} more {needed} needed before a first horizon can be judged.")]


def _describe_cycles(
    task: Task, task_state: TaskState | None, now: datetime, cycle_limit: timedelta, *, is_empty: bool
) -> list[Sentence]:
    """The last and the next cycle; `is_empty` if another sentence says that no event is stored."""
    said = []
    last = task_state.last_ended if task_state else None
    newest = task_state.recent[0] if task_state and task_state.recent else None
    if task_state is not None and not is_empty and (stale := why_stale(task, task_state, now, cycle_limit)):
        said.append(Sentence("bad", _end(f"No new version for too long: {stale}")))
    elif last is not None and last.state != "released":
        tone: Tone = "bad" if last.state == "failed" else "warn"
        because = f": {last.reason}" if last.reason else ""
        said.append(Sentence(tone, _end(f"The cycle of {_say(last.cutoff)} {ENDINGS[last.state]}{because}")))
    if task_state is not None and task_state.num_failed > 1:
        said.append(Sentence("bad", f"The last {task_state.num_failed} cycles failed."))
    if task_state is not None and (better := task_state.better_method):
        errors = f"{better.error + better.difference:.4g} against {better.error:.4g}"
        found = f"{errors} on the same {count_windows(better.num_windows)}"
        said.append(Sentence("warn", f"In the newest verdict the rival {better.method} was clearly better: {found}."))
    if newest is not None and newest.state in ("requested", "running"):
        waits = "waits for the trainer" if newest.state == "requested" else "is running"
        said.append(Sentence("soft", f"The cycle of {_say(newest.cutoff)} {waits}."))
    elif (boundary := next_cycle(task, to_micros(now))) is not None:
        said.append(Sentence("soft", f"The next cycle begins at {shorten_moment(boundary)}."))
    else:
        said.append(Sentence("soft", "Cycles of this task run on request only."))
    return said


def _end(sentence: str) -> str:
    """With a full stop, unless it ends with a quoted sentence."""
    return sentence if sentence.endswith((".", "?", "!")) else f"{sentence}."


def _say(micros: int) -> str:
    return shorten_moment(format_moment(micros))
