"""The one thing to do next about a task: a sentence with a command to copy, or the action of the page that does it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Literal

from msgspec import Meta, Struct

from contracts.clock import count_windows, from_micros, to_micros
from contracts.cutoffs import newest_cutoff, useful_cutoff
from contracts.quality.far_errors import say_far_error
from contracts.quality.remedies import split_advice
from contracts.quality.skill import FEW_WINDOWS, Skill
from contracts.task import Task, Training
from service.advice.label_doubts import NO_DOUBTS, LabelDoubts, find_far_error
from service.advice.last_import import FileCommands, LastImport, spell_commands
from service.models.forecaster import Forecaster
from service.models.task_states.task_state import (
    ENDINGS,
    RecentAttempt,
    RegistryState,
    State,
    TaskState,
    next_cycle,
    say_withdrawn,
    state_of,
    why_stale,
)
from service.web.html import say_distance
from store.cycles.ledger import Cycle
from store.cycles.requests import find_gate
from store.tasks.catalog import Schema
from store.tasks.changes import Lifecycle

Action = Literal["retrain", "rollback", "override", "release-held"]


class NextStep(Struct, frozen=True):
    """What to do and why."""

    text: str
    command: Annotated[str | None, Meta(description="the command that does it")] = None
    action: Annotated[Action | None, Meta(description="the form of the page that does it")] = None
    is_needed: Annotated[bool, Meta(description="false if nothing need be done now")] = True


@dataclass(frozen=True, kw_only=True)
class Situation:
    """Everything that the next step depends on.

    `held` are the cycles that an admin may release in spite of their verdict, newest first. `asked` is the
    recipe as a person wrote it, if the trainer has chosen another one.
    """

    task: Task
    forecaster: Forecaster | None
    task_state: TaskState
    registry: RegistryState
    skill: Skill | None
    held: Sequence[Cycle]
    now: datetime
    cycle_limit: timedelta
    lifecycle: Lifecycle = "active"
    doubts: LabelDoubts = NO_DOUBTS
    last_import: LastImport | None = None
    asked: Training | None = None

    @property
    def at(self) -> int:
        """Now, in microseconds."""
        return to_micros(self.now)

    @property
    def state(self) -> State:
        """The state of the task in one word."""
        return state_of(self.forecaster, self.task_state, self.at)

    @property
    def newest(self) -> RecentAttempt | None:
        """The newest attempt at a cycle."""
        return self.task_state.recent[0] if self.task_state.recent else None

    @property
    def is_under_way(self) -> bool:
        """Whether the newest attempt at a cycle waits or runs."""
        return self.newest is not None and self.newest.state in ("requested", "running")

    @property
    def num_known(self) -> int | None:
        """The number of windows from the first row of the version that answers to its cutoff; None without one."""
        if self.forecaster is None:
            return None
        manifest = self.forecaster.manifest
        span = manifest.cutoff - manifest.trained_from - sum(end - begin for begin, end in manifest.gaps)
        return span // manifest.window

    @property
    def files(self) -> FileCommands:
        """The commands that read files, with the options of the newest import."""
        return spell_commands(self.task.name, self.last_import)

    @property
    def retrain(self) -> str:
        """The command that retrains."""
        return f"morrow cycle {self.task.name}"


def find_situation(
    schema: Schema,
    forecaster: Forecaster | None,
    registry: RegistryState,
    *,
    task_state: TaskState,
    skill: Skill | None,
    cycles: Sequence[Cycle],
    now: datetime,
    cycle_limit: timedelta,
    doubts: LabelDoubts,
    last_import: LastImport | None,
) -> Situation:
    """The situation of a task with these newest cycles."""
    return Situation(
        task=schema.task,
        forecaster=forecaster,
        task_state=task_state,
        registry=registry,
        skill=skill,
        held=find_overrulable(cycles),
        now=now,
        cycle_limit=cycle_limit,
        lifecycle=schema.lifecycle,
        doubts=doubts,
        last_import=last_import,
        asked=None if schema.choice is None else schema.choice.asked,
    )


def find_next_step(found: Situation) -> NextStep:
    """The most urgent step."""
    return next(step for rule in _RULES if (step := rule(found)) is not None)


def find_overrulable(cycles: Sequence[Cycle]) -> list[Cycle]:
    """Cycles that an override may release: held, but not by a gate, and without a newer released cutoff."""
    released = [cycle.cutoff for cycle in cycles if cycle.state == "released"]
    return [
        cycle
        for cycle in cycles
        if cycle.state == "held" and find_gate(cycle) is None and all(cutoff <= cycle.cutoff for cutoff in released)
    ]


def is_expiring(task: Task, forecaster: Forecaster, now: datetime, cycle_limit: timedelta) -> bool:
    """Whether a version that is still valid may expire before the next cycle can have replaced it.

    Without a schedule, whether less than a window is left.
    """
    at = to_micros(now)
    if at > forecaster.valid_until:
        return False
    if task.schedule == "manual":
        return forecaster.valid_until - at < task.clock.window
    boundary = task.clock.window_start(at) + task.clock.window
    return from_micros(forecaster.valid_until) < from_micros(boundary) + cycle_limit


def knows_all_events(task: Task, task_state: TaskState, now: datetime) -> bool:
    """Whether an attempt was released with all events of complete windows: a cycle now would find no others."""
    if task_state.newest is None:
        return False
    known = min(task_state.newest, newest_cutoff(task, now) - 1)
    cutoff = useful_cutoff(task, now, known)
    return any(attempt.state == "released" and attempt.cutoff >= cutoff for attempt in task_state.recent)


def _resume(found: Situation) -> NextStep | None:
    if found.lifecycle == "active":
        return None
    if found.lifecycle == "archived":
        return NextStep("Unarchive the task if it is needed again.", f"morrow task unarchive {found.task.name}")
    return NextStep("Resume the task once its cycles may go on.", f"morrow task resume {found.task.name}")


def _load(found: Situation) -> NextStep | None:
    if found.forecaster is not None or not (found.registry.champion or found.task_state.champion):
        return None
    return NextStep("Find out why the released version cannot be loaded.", "morrow doctor")


def _send_events(found: Situation) -> NextStep | None:
    if found.forecaster is not None or found.task_state.newest is not None:
        return None
    return NextStep("Send labelled events of the past.", found.files.events)


def _replace_events(found: Situation) -> NextStep | None:
    if found.forecaster is None or found.task_state.newest is not None:
        return None
    text = "Send labelled events, then retrain: none is stored, and this version knows only events that are gone."
    return _import(found, text, f" && {found.retrain} --again")


def _import(found: Situation, text: str, then: str = "") -> NextStep:
    """The step that imports another file, with what must be known of the options."""
    files = found.files
    return NextStep(f"{text} {files.remark}".strip(), f"{files.events}{then}")


def _forget_withdrawn(found: Situation) -> NextStep | None:
    """Replace a version that has learned from events that are gone, unless a cycle that reads none is under way."""
    forecaster, newest = found.forecaster, found.newest
    if forecaster is None or (withdrawn := say_withdrawn(forecaster, found.task_state)) is None:
        return None
    if newest is not None and newest.state in ("requested", "running"):
        return NextStep(f"Wait for the cycle that is under way: this version learned from {withdrawn}.")
    text = f"Import the right rows if they are missing, then retrain: this version learned from {withdrawn}."
    return NextStep(text, f"{found.retrain} --again")


def _wait(found: Situation) -> NextStep | None:
    return NextStep("Wait for the cycle that is under way.") if found.is_under_way and found.state != "valid" else None


def _release_held(found: Situation) -> NextStep | None:
    if not found.held or found.newest is None or found.held[0].cutoff != found.newest.cutoff:
        return None
    return NextStep(
        "Read the verdict of the held cycle below. Release its candidate if the labels are right.",
        f'morrow override {found.task.name} --cycle {found.held[0].cycle_id} --reason "…"',
        "release-held",
    )


def _send_more_events(found: Situation) -> NextStep | None:
    missing = found.task_state.missing_windows
    if found.forecaster is not None or not missing:
        return None
    needs = f"{count_windows(missing)} with events {'is' if missing == 1 else 'are'} still needed"
    return _import(found, f"Send events of earlier windows: {needs}.")


def _make_first_version(found: Situation) -> NextStep | None:
    last = found.task_state.last_ended
    if found.forecaster is not None:
        return None
    if last is not None and last.state == "held" and (advised := _improve(found)) is not None and advised.is_needed:
        return advised
    if last is not None and last.state != "released":
        why = f"See below why the last cycle {ENDINGS[last.state]}, fix that, and retrain."
        return NextStep(why, found.retrain, "retrain")
    return NextStep("Retrain for a first version.", found.retrain, "retrain")


def _retrain(found: Situation) -> NextStep | None:
    if found.state == "closed" and (check := find_far_error(found.task_state)) is not None:
        if found.doubts.is_retracted:
            text = "Import the right rows: an import was retracted after its errors had closed the horizon."
            return _import(found, f"{text} If the new errors are within the limit, the horizon opens again by itself.")
        text = say_far_error(found.task.name, check, found.doubts.import_id)
        return NextStep(text, f"morrow events history {found.task.name}")
    if found.state == "closed":
        return NextStep("Retrain on the labels that closed the horizon.", found.retrain, "retrain")
    if found.state == "expired" and knows_all_events(found.task, found.task_state, found.now):
        return _import(
            found, "Send newer events: this version knows the newest ones so far, and its validity has ended."
        )
    if found.state == "expired":
        return NextStep("Retrain: the validity of this version has ended.", found.retrain, "retrain")
    return None


def _reach_registry(found: Situation) -> NextStep | None:
    is_degraded = found.registry.state == "degraded"
    return NextStep("Find out why the registry cannot be followed.", "morrow doctor") if is_degraded else None


def _end_staleness(found: Situation) -> NextStep | None:
    if not why_stale(found.task, found.task_state, found.now, found.cycle_limit):
        return None
    last = found.task_state.last_ended
    if last is not None and last.state == "failed":
        return NextStep("Fix what made the last cycle fail, then retrain.", found.retrain, "retrain")
    return NextStep("Find out why no newer version was released.", "morrow doctor")


def _replace_expiring(found: Situation) -> NextStep | None:
    forecaster = found.forecaster
    if forecaster is None or not is_expiring(found.task, forecaster, found.now, found.cycle_limit):
        return None
    if knows_all_events(found.task, found.task_state, found.now):
        text = "Wait: a cycle can learn more only when this window has ended. See what limits the horizon."
        return NextStep(text, f"morrow backtest {found.task.name}")
    return NextStep("Retrain before this version expires.", found.retrain, "retrain")


def _settle(found: Situation) -> NextStep | None:
    """Score more windows, if the verdict waits for them and the past holds enough."""
    skill, num_known = found.skill, found.num_known
    if skill is None or num_known is None or not skill.is_uncertain:
        return None
    return settle_verdict(found.task, skill.num_windows, num_known)


def settle_verdict(task: Task, num_scored: int, num_known: int) -> NextStep | None:
    """The step that scores enough windows for a verdict; None if too few are known."""
    if num_known <= FEW_WINDOWS + task.guard.max_age:  # the oldest windows have too few rows before them
        return None
    are = "is" if num_scored == 1 else "are"
    text = (
        f"Settle the verdict: only {num_scored} of the {FEW_WINDOWS} windows needed {are} scored. "
        "Cycles score few windows to save time. A backtest scores more of the past, and the verdict counts them."
    )
    return NextStep(text, f"morrow backtest {task.name} --origins {min(26, num_known)}")


def _improve(found: Situation) -> NextStep | None:
    if found.skill is None or not found.skill.advice:
        return None
    text, command = split_advice(found.skill.advice[0])
    if command is None and " = " in text:  # a key of the task's file with its value
        command = f"morrow task apply FILE.toml && {found.retrain}"
    is_needed = command is not None or "morrow " in text  # else all that is known has been tried
    return NextStep(f"{text[0].upper()}{text[1:]}.", command, is_needed=is_needed)


def _rest(found: Situation) -> NextStep:
    if found.is_under_way:
        return NextStep("Wait for the cycle that is under way: this version answers meanwhile.", is_needed=False)
    boundary = next_cycle(found.task, found.at)
    if boundary is not None and found.skill is not None and found.skill.is_uncertain:
        more = FEW_WINDOWS - found.skill.num_windows
        text = f"Wait: the verdict needs {more} more window{'' if more == 1 else 's'}, and each cycle scores one."
        return NextStep(text, is_needed=False)
    if boundary is not None:
        return NextStep(f"Nothing to do. The next cycle begins {say_distance(boundary, found.at)}.", is_needed=False)
    return NextStep("Nothing to do. Retrain when new labels arrive.", found.retrain, is_needed=False)


# The most urgent first; the last one always applies.
_RULES: tuple[Callable[[Situation], NextStep | None], ...] = (
    _resume,
    _load,
    _send_events,
    _replace_events,
    _forget_withdrawn,
    _wait,
    _release_held,
    _send_more_events,
    _make_first_version,
    _retrain,
    _reach_registry,
    _end_staleness,
    _replace_expiring,
    _settle,
    _improve,
    _rest,
)
