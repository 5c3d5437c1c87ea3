"""What the page of one task shows: its health, and the pictures and tables of its history.

While no database answers, the state of the follower's last poll and the version's own promises are shown.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from contracts.clock import to_micros
from contracts.quality.methods import explain_methods, explain_weights
from contracts.quality.skill import Skill
from contracts.task import Task
from contracts.verdict import MatrixFigures
from service.admin.cycles import describe_cycle
from service.admin.releases import describe_release
from service.admin.status import describe_champion, describe_given_answers
from service.admin.task_changes import EFFECTS
from service.advice.advice import Advice, advise
from service.advice.next_step import find_overrulable, find_situation
from service.advice.row_states import find_row_state
from service.advice.task_warnings import warn_of_dead_letters, warn_of_renaming
from service.dashboard.heatmap import tabulate
from service.dashboard.horizon_ages import list_ages
from service.dashboard.queries import Board, Overview
from service.dashboard.summary import Sentence, summarize
from service.dashboard.task_rows import WORDS, TaskRow, describe_row, find_time_left
from service.dashboard.timeline import Span, draw_timeline, list_spans
from service.models.follower import Follower
from service.models.forecaster import Forecaster
from service.models.model_skills import find_trust
from service.models.task_states.task_state import RegistryState, TaskState, next_cycle
from service.web.html import say_length
from store.tasks.changes import Lifecycle
from store.tasks.lifecycle import Move

# What can be done with a task as a whole.
_MOVES: dict[Lifecycle, tuple[Move, ...]] = {
    "active": ("pause", "archive"),
    "paused": ("resume", "archive"),
    "archived": ("unarchive",),
}


@dataclass(frozen=True, kw_only=True)
class Known:
    """What is known of a task now: by the database if it answers, else by the follower alone."""

    name: str
    forecaster: Forecaster | None
    registry: RegistryState
    task: Task | None
    task_state: TaskState | None
    has_database: bool
    now: datetime
    cycle_limit: timedelta
    lifecycle: Lifecycle = "active"
    renaming: Sequence[str] = ()

    @property
    def sentences(self) -> list[Sentence]:
        """The sentences about the task, the most important first."""
        has_events = self.task_state.newest is not None if self.has_database and self.task_state is not None else None
        first, *others = summarize(
            self.task,
            self.forecaster,
            self.task_state,
            self.registry,
            has_events,
            now=self.now,
            cycle_limit=self.cycle_limit,
            lifecycle=self.lifecycle,
        )
        return [first, *(Sentence("bad", f"{text[:1].upper()}{text[1:]}.") for text in self.renaming), *others]


def find_known(
    follower: Follower, name: str, found: Overview | Board | None, *, now: datetime, cycle_limit: timedelta
) -> Known:
    """What follower and database say of a task; `found` is None while no database answers."""
    forecaster = follower.forecasters.get(name)
    task = found.schema.task if found is not None else forecaster.task if forecaster is not None else None
    return Known(
        name=name,
        forecaster=forecaster,
        registry=follower.registries.get(name, RegistryState()),
        task=task,
        task_state=follower.task_states.get(name) if found is None else found.task_state,
        has_database=found is not None,
        now=now,
        cycle_limit=cycle_limit,
        lifecycle="active" if found is None else found.schema.lifecycle,
        renaming=() if found is None else warn_of_renaming(found.schema),
    )


def describe_listed(known: Known, found: Overview | None) -> TaskRow:
    """A task as a row of the list."""
    return describe_row(
        found, known.name, known.forecaster, known.sentences, now=known.now, cycle_limit=known.cycle_limit
    )


def describe_health(known: Known, board: Board | None) -> dict[str, Any]:
    """The version that answers, its skill, its cycles and what to do next."""
    forecaster, at = known.forecaster, to_micros(known.now)
    advice = None if board is None else _advise(known, board)
    skill = None if advice is None else advice.skill
    state = find_row_state(
        forecaster, known.task_state, known.task, known.lifecycle, now=known.now, cycle_limit=known.cycle_limit
    )
    return {
        "name": known.name,
        "now": at,
        "revision": None if board is None else board.schema.revision,
        "state": state,
        "state_words": WORDS.get(state, state),
        "released": None if known.task_state is None else known.registry.champion or known.task_state.champion,
        "sentences": [*known.sentences, *_add_sentences(board)],
        "champion": None if forecaster is None else describe_champion(forecaster),
        "left": None if forecaster is None else find_time_left(forecaster, at),
        "window": None if forecaster is None else say_length(forecaster.manifest.window),
        "override": None if known.task_state is None else known.task_state.override,
        "skill": skill,
        "trust": None if board is None else find_trust(forecaster, skill, board.task_state),
        "comparisons": [] if skill is None else skill.compared,
        "methods": [] if skill is None else _explain(board, skill),
        "weights": None if forecaster is None else explain_weights(forecaster.manifest.weights),
        "next_cycle": None if known.task is None or known.lifecycle != "active" else next_cycle(known.task, at),
        "moves": [(move, move.capitalize(), EFFECTS[move]) for move in _MOVES[known.lifecycle]],
        "actions": _list_actions(known),
        "registered": known.name if board is None else board.schema.registry_name or known.name,
        "runs": _find_runs(board),
        "promise": [] if advice is None else advice.promise,
        "step": None if advice is None else advice.next_step,
    }


def _explain(board: Board | None, skill: Skill) -> list[tuple[str, str]]:
    """What the compared methods are, for this kind of task."""
    names = ["model", *(one.method for one in skill.compared)]
    return explain_methods(names, is_classification=None if board is None else board.schema.task.is_classification)


def _advise(known: Known, board: Board) -> Advice:
    situation = find_situation(
        board.schema,
        known.forecaster,
        known.registry,
        task_state=board.task_state,
        skill=board.skill,
        cycles=board.cycles,
        now=known.now,
        cycle_limit=known.cycle_limit,
        doubts=board.doubts,
        last_import=board.last_import,
    )
    return advise(situation, board.rows)


def _add_sentences(board: Board | None) -> list[Sentence]:
    """What only the page of a task says: rows that cannot be read, dead letters, and a name that MLflow lacks."""
    if board is None:
        return []
    said = [Sentence("bad", fault) for fault in board.faults]
    dead_letters = warn_of_dead_letters(board.dead_letters)
    said += [Sentence("warn", f"{text[:1].upper()}{text[1:]}.") for text in dead_letters]
    former = board.schema.registry_name
    if former is not None and board.schema.renaming_trouble is None:
        said.append(Sentence("soft", f"MLflow still calls the task {former}, until the trainer has renamed it there."))
    return said


def _list_actions(known: Known) -> list[tuple[str, str]]:
    """Ids of dialogs with their titles: the one that is most likely wanted first, and the one beyond repair last."""
    moves = [(move, move.capitalize()) for move in _MOVES[known.lifecycle]]
    steering = [("retrain", "Retrain")] if known.lifecycle == "active" else []
    if known.forecaster is not None and known.lifecycle != "archived":
        steering += [("rollback", "Roll back"), ("override", "Override")]
    first = steering if known.lifecycle == "active" else [*moves[:1], *steering]
    return [*first, *(move for move in moves if move not in first), ("rename", "Rename"), ("delete", "Delete")]


def _find_runs(board: Board | None) -> dict[str, str]:
    """Version -> the run in MLflow of the cycle that released it, for the newest cycles."""
    cycles = () if board is None else board.cycles
    return {one.version: one.run_id for one in cycles if one.version and one.run_id and one.state == "released"}


def describe_history(
    board: Board | None, forecaster: Forecaster | None, now: datetime, before: int | None = None
) -> dict[str, Any]:
    """Pictures and tables of one task; without a database, only the promises of the version itself.

    With `before` (microseconds) the matrix shows the newest windows that start before it.
    """
    spans = [] if board is None else list_spans(board.releases)
    if forecaster is not None and forecaster.version not in {span.version for span in spans}:
        spans.insert(0, _span(forecaster))
    task = forecaster.task if forecaster else board.schema.task if board else None
    champion = None if forecaster is None else forecaster.version
    realised = () if board is None else board.task_state.realised
    figures, marks = (None, ()) if board is None else (_find_figures(board, forecaster), board.marks)
    ages = [] if task is None else list_ages(task, forecaster, figures, marks, realised)
    cycles = [] if board is None else [describe_cycle(cycle) for cycle in board.cycles]
    return {
        "mark": _mark(board, forecaster),
        "timeline": None if task is None else draw_timeline(spans, champion, task.clock, to_micros(now)),
        "ages": ages,
        "num_banded": sum(age.high is not None for age in ages),
        "num_wide": sum(age.high is not None and age.limit is not None and age.high > age.limit for age in ages),
        "refused": next((age for age in ages if age.reason is not None), None),
        "points": [asdict(age) for age in ages],
        "matrix": None if task is None else tabulate(marks, task.training.method, task.error_name, task.clock, before),
        "error_name": None if task is None else task.error_name,
        "given": None if board is None else describe_given_answers(board.schema, board.answered),
        "cycles": cycles,
        "held": [] if board is None else [describe_cycle(cycle) for cycle in find_overrulable(board.cycles)],
        "releases": [] if board is None else [describe_release(row) for row in board.releases],
        "former": [span.version for span in spans if span.version != champion],
        "asked": None if forecaster is None or _is_archived(board) else forecaster.task,
        "default_at": None if forecaster is None else min(to_micros(now), forecaster.valid_until),
    }


def _is_archived(board: Board | None) -> bool:
    return board is not None and board.schema.lifecycle == "archived"


def _find_figures(board: Board, forecaster: Forecaster | None) -> MatrixFigures | None:
    """The figures behind the horizon that is shown: of the version that answers, else of the newest candidate."""
    if forecaster is None:
        judged = board.task_state.judged
        return None if judged is None else judged.matrix
    return next(
        (row.matrix for row in board.releases if row.action == "release" and row.version == forecaster.version), None
    )


def _span(forecaster: Forecaster) -> Span:
    manifest = forecaster.manifest
    return Span(forecaster.version, manifest.cutoff, manifest.valid_until, forecaster.valid_until)


def _mark(board: Board | None, forecaster: Forecaster | None) -> str:
    """A digest that changes if pictures and tables would show something new."""
    seen: list[object] = [None if forecaster is None else (forecaster.version, forecaster.valid_until)]
    if board is not None:
        seen += [(cycle.cycle_id, cycle.state, cycle.step, cycle.override_reason) for cycle in board.cycles]
        seen += [board.releases[0].release_id if board.releases else None]
        seen += [(mark.origin, mark.window, mark.num_rows) for mark in board.marks]
        seen += [(one.version, one.age, one.quality) for one in board.answered]
    return hashlib.sha256(repr(seen).encode()).hexdigest()[:16]
