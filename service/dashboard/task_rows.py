"""The list of tasks as people scan it: one row a task, the worst first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import fmean

from contracts.clock import format_moment, to_micros
from contracts.quality.skill import compare
from contracts.quality.trust import Trust
from service.advice.row_states import RowState, find_row_state
from service.dashboard.queries import Overview
from service.dashboard.summary import Sentence, Tone
from service.models.forecaster import Forecaster
from service.models.task_states.task_state import next_cycle
from service.web.html import say_length

# The worst first; those that are not in service come last.
ORDER: tuple[RowState, ...] = ("closed", "expired", "no_model", "expiring", "valid", "paused", "archived")
WORDS: Mapping[RowState, str] = {"no_model": "without model"}
TONES: Mapping[RowState, Tone] = {
    "closed": "bad",
    "expired": "bad",
    "no_model": "soft",
    "expiring": "warn",
    "paused": "soft",
    "archived": "soft",
}


@dataclass(frozen=True)
class TimeLeft:
    """How much of a version's validity is left, as a share in percent and in words."""

    share: float
    words: str


@dataclass(frozen=True)
class Sparkline:
    """Realised errors of the newest windows and the expected one, placed in a square of 100 by 100; y grows downwards.

    `words` say the same to people who do not see it.
    """

    points: str
    last: tuple[float, float]
    expected: float | None
    is_worse: bool
    words: str


@dataclass(frozen=True)
class TaskRow:
    """One task of the list. Moments are RFC 3339."""

    name: str
    state: RowState
    version: str | None
    valid_until: str | None
    left: TimeLeft | None
    sparkline: Sparkline | None
    skill: str | None
    last_state: str | None
    last_cutoff: str | None
    next_cycle: str | None
    headline: Sentence
    notes: Sequence[Sentence]
    last_ended: str | None = None
    trust: Trust | None = None

    @property
    def tone(self) -> Tone:
        """The colour of its dot: that of its state, unless a note is worse."""
        tones = {TONES.get(self.state, "good"), *(note.tone for note in self.notes)}
        return next((tone for tone in ("bad", "warn") if tone in tones), TONES.get(self.state, "good"))

    @property
    def words(self) -> str:
        """Its state in words."""
        return WORDS.get(self.state, self.state)


def describe_row(
    overview: Overview | None,
    name: str,
    forecaster: Forecaster | None,
    sentences: Sequence[Sentence],
    *,
    now: datetime,
    cycle_limit: timedelta,
) -> TaskRow:
    """A row of the list; `overview` is None while no database answers."""
    at = to_micros(now)
    task_state = None if overview is None else overview.task_state
    task = overview.schema.task if overview is not None else forecaster.task if forecaster is not None else None
    skill = None if overview is None else overview.skill
    lifecycle = "active" if overview is None else overview.schema.lifecycle
    state = find_row_state(forecaster, task_state, task, lifecycle, now=now, cycle_limit=cycle_limit)
    last = None if task_state is None or not task_state.recent else task_state.recent[0]
    return TaskRow(
        name=name,
        state=state,
        version=None if forecaster is None else forecaster.version,
        valid_until=None if forecaster is None else format_moment(forecaster.valid_until),
        left=None if forecaster is None else find_time_left(forecaster, at),
        sparkline=None if overview is None else draw_sparkline(overview.recent, _expected(forecaster)),
        skill=None if skill is None else f"{compare(skill.skill)} naive",
        last_state=None if last is None else last.state,
        last_cutoff=None if last is None else format_moment(last.cutoff),
        last_ended=None if last is None or last.ended_at is None else format_moment(to_micros(last.ended_at)),
        next_cycle=None if task is None or lifecycle != "active" else next_cycle(task, at),
        headline=sentences[0],
        notes=[sentence for sentence in sentences[1:] if sentence.tone in ("bad", "warn")],
        trust=None if overview is None else overview.trust,
    )


def order_rows(rows: Sequence[TaskRow]) -> list[TaskRow]:
    """The worst first; of equal states the one with the worse notes, then the one that expires first."""
    tones = ("bad", "warn", "good", "soft")
    return sorted(
        rows, key=lambda row: (ORDER.index(row.state), tones.index(row.tone), row.valid_until or "", row.name)
    )


def find_time_left(forecaster: Forecaster, at: int) -> TimeLeft:
    """What is left of the time from a version's cutoff to the end of its validity."""
    whole, left = forecaster.valid_until - forecaster.manifest.cutoff, forecaster.valid_until - at
    if left < 0:
        return TimeLeft(0.0, f"ended {say_length(-left)} ago")
    return TimeLeft(
        round(min(100.0, 100 * left / whole), 1) if whole > 0 else 0.0, f"{say_length(left, at_most=True)} left"
    )


def draw_sparkline(errors: Sequence[tuple[int, float]], expected: float | None) -> Sparkline | None:
    """The picture of these windows' errors, oldest first; None for fewer than two."""
    if len(errors) < 2:
        return None
    values = [error for _, error in errors]
    bounds = values if expected is None else [*values, expected]
    least, spread = min(bounds), max(bounds) - min(bounds) or 1.0

    def height(value: float) -> float:
        return round(90 - 80 * (value - least) / spread, 1)

    places = [(round(100 * place / (len(values) - 1), 1), height(value)) for place, value in enumerate(values)]
    recent = fmean(values[-3:])
    words = f"Realised error of the newest {len(values)} windows: {values[0]:.4g} at first, {values[-1]:.4g} at last"
    return Sparkline(
        points=" ".join(f"{x},{y}" for x, y in places),
        last=places[-1],
        expected=None if expected is None else height(expected),
        is_worse=expected is not None and recent > 1.25 * expected,
        words=words if expected is None else f"{words}; {expected:.4g} is expected",
    )


def _expected(forecaster: Forecaster | None) -> float | None:
    """The mean error that a version promises inside its horizon."""
    errors = [] if forecaster is None else [age.mean for age in forecaster.manifest.ages]
    return fmean(errors) if errors else None
