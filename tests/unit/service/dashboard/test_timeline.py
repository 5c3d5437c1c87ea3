"""Where versions, window boundaries and now lie in the picture of horizons."""

from datetime import UTC, datetime

import pytest

from contracts.clock import Clock, from_micros
from contracts.verdict import MatrixFigures, Verdict
from service.dashboard.timeline import MAX_VERSIONS, Span, draw_timeline, list_spans
from store.releases import Action, Release

DAY = 86_400_000_000
CLOCK = Clock(window=DAY, offset=0, span=26 * DAY)


def row(version: str, action: Action, valid_until: int, cutoff: int | None = None) -> Release:
    verdict = None if cutoff is None else Verdict(matrix=MatrixFigures(cutoff=from_micros(cutoff)))
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    return Release(1, version, action, valid_until, None, verdict, "trainer", "test", moment)


def test_the_newest_bound_counts_and_what_was_promised_is_kept() -> None:
    newest_first = [
        row("2", "release", 14 * DAY, cutoff=11 * DAY),
        row("1", "close", 11 * DAY),
        row("1", "rollback", 13 * DAY),
        row("1", "release", 13 * DAY, cutoff=10 * DAY),
        row("0", "release", 9 * DAY),
    ]
    assert list_spans(newest_first) == [
        Span("2", 11 * DAY, 14 * DAY, 14 * DAY),
        Span("1", 10 * DAY, 13 * DAY, 11 * DAY),
    ]


def test_places_are_shares_of_the_time_from_one_window_before_the_first_cutoff() -> None:
    spans = [Span("2", 11 * DAY, 14 * DAY, 14 * DAY), Span("1", 10 * DAY, 13 * DAY, 11 * DAY)]
    drawn = draw_timeline(spans, "2", CLOCK, 12 * DAY)
    assert drawn is not None
    assert [(bar.start, bar.width, bar.lost) for bar in drawn.bars] == [(40, 60, 0), (20, 20, 40)]
    assert [bar.is_champion for bar in drawn.bars] == [True, False]
    assert [tick.place for tick in drawn.ticks] == [0, 20, 40, 60, 80, 100]
    assert [tick.label for tick in drawn.ticks if tick.label] == ["1970-01-10", "1970-01-12", "1970-01-14"]
    assert (drawn.now, drawn.away) == (60, None)


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (1000 * DAY, "The present moment is 986 windows after the end"),
        (DAY, "The present moment is 9 windows before the beginning"),
    ],
)
def test_a_now_far_away_is_told_in_words_and_squeezes_nothing(now: int, words: str) -> None:
    drawn = draw_timeline([Span("2", 11 * DAY, 14 * DAY, 14 * DAY)], "2", CLOCK, now)
    assert drawn is not None
    assert drawn.now is None
    assert words in str(drawn.away)


def test_a_horizon_longer_than_promised_and_one_closed_at_the_cutoff_stay_inside() -> None:
    spans = [Span("2", 11 * DAY, 12 * DAY, 15 * DAY), Span("1", 10 * DAY, 12 * DAY, 10 * DAY)]
    drawn = draw_timeline(spans, "2", CLOCK, 11 * DAY)
    assert drawn is not None
    for bar in drawn.bars:
        assert bar.width >= 0
        assert bar.start + bar.width + bar.lost <= 100


def test_only_the_newest_versions_and_an_older_champion_are_drawn() -> None:
    spans = [Span(str(cutoff), cutoff * DAY, (cutoff + 1) * DAY, (cutoff + 1) * DAY) for cutoff in range(40, 0, -1)]
    drawn = draw_timeline(spans, "20", CLOCK, 41 * DAY)
    assert drawn is not None
    assert [bar.version for bar in drawn.bars] == [*map(str, range(40, 40 - MAX_VERSIONS, -1)), "20"]
    assert draw_timeline([], None, CLOCK, 41 * DAY) is None
