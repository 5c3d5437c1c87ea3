"""The picture of windows, versions and horizons along a line of time.

Places are percentages of the picture's width, so it scales with the page while its text keeps its size.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from contracts.clock import Clock, count_windows, format_moment, to_micros
from store.releases import BOUND_ACTIONS, Release

MAX_VERSIONS = 8
_MAX_TICKS, _MAX_LABELS = 64, 4


@dataclass(frozen=True)
class Span:
    """One version: its cutoff, the bound that its release promised, and its bound now, all in microseconds."""

    version: str
    cutoff: int
    promised: int
    valid_until: int


@dataclass(frozen=True)
class Bar:
    """A version as drawn: `start` and `width` of its valid part; `lost` is the width that a closing took away."""

    version: str
    cutoff: str
    valid_until: str
    promised: str
    is_champion: bool
    start: float
    width: float
    lost: float


@dataclass(frozen=True)
class Tick:
    """A window boundary; only some are labelled."""

    place: float
    label: str | None


@dataclass(frozen=True)
class Timeline:
    """`now` is a place, or None if now is too far away to draw; `away` then says how far."""

    bars: tuple[Bar, ...]
    ticks: tuple[Tick, ...]
    now: float | None
    away: str | None


def list_spans(releases: Sequence[Release]) -> list[Span]:
    """The released versions, newest cutoff first, from rows in the order newest first."""
    bounds: dict[str, int] = {}
    promises: dict[str, Release] = {}
    for row in releases:
        if row.action in BOUND_ACTIONS:
            bounds.setdefault(row.version, row.valid_until)
        if row.action == "release":
            promises[row.version] = row
    spans = [
        Span(version, to_micros(row.matrix.cutoff), row.valid_until, bounds[version])
        for version, row in promises.items()
        if row.matrix is not None and row.matrix.cutoff is not None
    ]
    return sorted(spans, key=lambda span: span.cutoff, reverse=True)


def draw_timeline(spans: Sequence[Span], champion: str | None, clock: Clock, now: int) -> Timeline | None:
    """The newest versions and the champion; None if there are none. `now` in microseconds."""
    shown = [span for place, span in enumerate(spans) if place < MAX_VERSIONS or span.version == champion]
    if not shown:
        return None
    first = min(span.cutoff for span in shown) - clock.window
    last = max(max(span.promised, span.valid_until) for span in shown)
    is_near = first <= now <= last + (last - first)
    last = max(last, now) if is_near else last
    distance = (now - last) // clock.window if now > last else (first - now) // clock.window
    side = "after the end" if now > last else "before the beginning"
    away = None if is_near else f"The present moment is {count_windows(distance)} {side} of this picture."

    def place(at: int) -> float:
        return round(100 * (at - first) / (last - first), 3)

    bars = tuple(
        Bar(
            span.version,
            format_moment(span.cutoff),
            format_moment(span.valid_until),
            format_moment(span.promised),
            span.version == champion,
            place(span.cutoff),
            round(max(0.0, place(span.valid_until) - place(span.cutoff)), 3),
            round(max(0.0, place(span.promised) - place(max(span.valid_until, span.cutoff))), 3),
        )
        for span in shown
    )
    return Timeline(bars, _tick(first, last, clock, place), place(now) if is_near else None, away)


def _tick(first: int, last: int, clock: Clock, place: Callable[[int], float]) -> tuple[Tick, ...]:
    num_windows = math.ceil((last - first) / clock.window)
    step, every = math.ceil(num_windows / _MAX_TICKS), max(1, math.ceil(num_windows / _MAX_LABELS))
    every = math.ceil(every / step) * step
    boundaries = range(first, last + 1, step * clock.window)
    return tuple(
        Tick(place(at), _label(at, clock) if number * step % every == 0 else None)
        for number, at in enumerate(boundaries)
    )


def _label(at: int, clock: Clock) -> str:
    """The date of a boundary, with its time of day if windows are not whole days."""
    moment = format_moment(at)
    return moment[:10] if clock.window % 86_400_000_000 == 0 else f"{moment[5:10]} {moment[11:16]}"
