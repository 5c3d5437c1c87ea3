"""Levels are what was known at a window's start, and members of one cohort read different views of the same rows."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from contracts.task import Feature, Target, Task, Training, View
from store.events.reading.columns import NEVER, EventColumns
from trainer.data.encoder import Encoder, encode, fit_encoder
from trainer.data.levels import Levels, fit_levels
from trainer.network.training_loop import Member, finish, fit, outputs

HOUR = 3_600_000_000
DAY = 24 * HOUR


def make_task(*views: View, window: str = "P1D", label_delay: str = "PT0S", **training: object) -> Task:
    recipe = Training.model_validate({"views": views or ("plain",), "calendar": (), "number_form": "plain"} | training)
    return Task(
        name="t",
        features=(Feature(name="x", kind="number", optional=True),),
        target=Target(name="y", kind="regression"),
        window=window,
        label_delay=label_delay,
        training=recipe,
    )


def make_rows(at: NDArray[np.int64], x: NDArray[np.float64], known_at: NDArray[np.int64] | None = None) -> EventColumns:
    return EventColumns(
        at=at,
        known_at=at if known_at is None else known_at,
        superseded_at=np.full(len(at), NEVER),
        numbers=x[:, None],
        categories=np.zeros((len(at), 0), np.int32),
        vocabularies=(),
        labels=np.arange(len(at), dtype=np.float64),
        classes=(),
        withheld=np.zeros(len(at), np.bool_),
    )


def hours(*values: float, first: int = 0) -> EventColumns:
    """A row every hour."""
    return make_rows((first + np.arange(len(values))) * HOUR, np.array(values))


def levels_of(task: Task, rows: EventColumns, cutoff: int) -> Levels:
    (levels,) = fit_encoder(task, rows, cutoff).levels.values()
    return levels


def levels_at(task: Task, rows: EventColumns, cutoff: int, *at: int) -> list[float]:
    levels = levels_of(task, rows, cutoff)
    return [float(level) for level in levels.values[levels.places(np.array(at)), 0]]


def test_a_level_is_the_mean_of_the_last_day_before_the_window() -> None:
    rows = hours(*[1.0] * 24, *[3.0] * 12, *[5.0] * 12)
    # Within a window it stays; from the cutoff on it is that of the cutoff.
    at = (DAY, 2 * DAY - 1, 2 * DAY, 2 * DAY + 1, 9 * DAY)
    assert levels_at(make_task("last_day"), rows, 2 * DAY, *at) == pytest.approx([1, 1, 4, 4, 4])


def test_each_view_has_its_own_time() -> None:
    rows, cutoff = hours(*[0.0] * 24 * 6, *[7.0] * 24, *[1.0] * 12), 7 * DAY + 12 * HOUR
    task = make_task("last_day", "last_week", "last_window", window="PT12H")
    levels = fit_encoder(task, rows, cutoff).levels
    found = {view: float(one.values[-1, 0]) for view, one in levels.items()}
    assert found == pytest.approx({"last_day": 4, "last_week": (24 * 7 + 12) / (24 * 7), "last_window": 1})


def test_a_row_counts_once_it_is_known() -> None:
    at = np.array([0, 20 * HOUR, 44 * HOUR])
    known_at = np.array([0, 30 * HOUR, 45 * HOUR])
    rows = make_rows(at, np.array([1.0, 5.0, 3.0]), known_at)
    # The second row is known only in the second day, and at its end it is older than a day.
    assert levels_at(make_task("last_day"), rows, 2 * DAY, DAY, 2 * DAY) == pytest.approx([1, 3])
    assert levels_at(make_task("last_day", window="PT12H"), rows, 2 * DAY, 36 * HOUR) == pytest.approx([5])


def test_levels_of_labels_that_come_late_are_those_of_the_newest_day_that_is_known() -> None:
    values = hours(*[1.0] * 24, *[3.0] * 24, *[8.0] * 24)
    rows = replace(values, at=values.at + HOUR // 2, known_at=values.at + HOUR // 2 + DAY)
    task = make_task("last_day", label_delay="P1D")
    assert levels_at(task, rows.as_of(3 * DAY), 3 * DAY, 2 * DAY, 3 * DAY) == pytest.approx([1, 3])


def test_without_rows_in_its_time_a_level_is_the_last_one_and_before_all_rows_the_mean() -> None:
    rows = make_rows(np.array([0, HOUR, 5 * DAY]), np.array([2.0, 4.0, 9.0]))
    found = levels_at(make_task("last_day"), rows, 6 * DAY, -DAY, 0, DAY, 4 * DAY, 5 * DAY, 6 * DAY)
    mean = fit_encoder(make_task(), rows, 6 * DAY).numbers[0].mean
    assert found == pytest.approx([mean, mean, 3, 3, 3, 9])
    blank = make_rows(rows.at, np.array([2.0, 4.0, np.nan]))
    assert levels_at(make_task("last_day"), blank, 6 * DAY, 6 * DAY) == pytest.approx([3])
    empty = make_rows(rows.at, np.full(3, np.nan))
    assert levels_at(make_task("last_day"), empty, 6 * DAY, 6 * DAY) == [0]


@given(st.integers(0, 2**32 - 1), st.sampled_from(["PT1H", "PT5H", "P1D", "P3D"]), st.sampled_from([0, 7, 30]))
def test_levels_are_the_means_that_their_definition_says(seed: int, window: str, delay: int) -> None:
    random = np.random.default_rng(seed)
    at = np.sort(random.integers(0, 12 * DAY, 60))
    rows = make_rows(at, random.normal(100, 10, 60), at + random.integers(0, 2 * DAY, 60))
    task = make_task("last_day", window=window, label_delay=f"PT{delay}H")
    cutoff = task.clock.window_start(10 * DAY)
    known = rows.as_of(cutoff)
    levels = levels_of(task, known, cutoff)
    last = fit_encoder(task, known, cutoff).numbers[0].mean
    for number, level in enumerate(levels.values[:, 0]):
        start = levels.first + number * levels.window
        counts = (known.at < start) & (known.known_at <= start) & (known.at >= start - DAY - delay * HOUR)
        last = float(known.numbers[counts, 0].mean()) if counts.any() else last
        assert level == pytest.approx(last)


def test_nothing_that_happens_or_becomes_known_later_changes_a_level() -> None:
    task, random = make_task("plain", "last_day", "last_week"), np.random.default_rng(0)
    at = np.sort(random.integers(0, 30 * DAY, 2000))
    known_at = at + random.integers(0, 3 * DAY, 2000)
    rows = make_rows(at, random.normal(0, 1, 2000).cumsum(), known_at)
    cutoff = 20 * DAY
    is_later = (at >= cutoff) | (known_at > cutoff)
    poisoned = replace(rows, numbers=np.where(is_later[:, None], 1e9, rows.numbers))
    found = [fit_encoder(task, one.as_of(cutoff), cutoff) for one in (rows, poisoned)]
    assert_same_levels(*found)
    before = rows.select(at < cutoff)
    clean, bad = (encode(one, before).dense.tobytes() for one in found)
    assert clean == bad
    # Within a fit, a row reads nothing of its own window or of later ones.
    numbers = fit_encoder(task, rows.as_of(cutoff), cutoff).numbers
    middle = 10 * DAY
    later = (at >= middle) | (known_at > middle)
    tables = []
    for one in (rows, replace(rows, numbers=np.where(later[:, None], rows.numbers + 1, rows.numbers))):
        allowed = one.as_of(cutoff)
        levels = fit_levels(task, "last_day", numbers, allowed, cutoff=cutoff, max_pieces=24)
        tables.append(levels.values[: int(levels.places(np.array([middle]))[0]) + 1].tobytes())
    assert tables[0] == tables[1]


def assert_same_levels(one: Encoder, other: Encoder) -> None:
    for view, levels in one.levels.items():
        assert levels.values.tobytes() == other.levels[view].values.tobytes()
        assert levels.differences == other.levels[view].differences


@pytest.mark.parametrize("poison", [1e300, -1.7e308, np.inf])
def test_one_absurd_value_neither_overflows_nor_moves_a_level_far(poison: float) -> None:
    values = np.sin(np.arange(24 * 40.0))
    values[24 * 20] = poison
    rows = hours(*values)
    encoder = fit_encoder(make_task("last_day"), rows, 40 * DAY)
    assert np.isfinite(encode(encoder, rows).dense).all()
    assert np.abs(levels_of(make_task("last_day"), rows, 40 * DAY).values).max() < 1


def test_a_member_with_a_view_reads_its_differences_and_others_do_not() -> None:
    rows = hours(*np.arange(24.0 * 20))
    encoder = fit_encoder(make_task("plain", "last_day", "last_week"), rows, 20 * DAY)
    assert encoder.num_dense == 3 + 1  # a number, two differences, whether it is missing
    assert encoder.unread == ((1, 2), (2,), (1,))


def wandering(num_days: int, seed: int) -> EventColumns:
    """A number around a level that rises by ten times its deviation every fourth day; the label is its distance."""
    random = np.random.default_rng(seed)
    level = np.repeat(10.0 * np.arange(num_days // 4 + 1), 4 * 48)[: num_days * 48]
    x = level + random.normal(0, 1, num_days * 48)
    rows = make_rows(np.arange(num_days * 48) * (HOUR // 2), x)
    return replace(rows, labels=x - level)


def test_members_that_read_differences_do_better_where_levels_wander() -> None:
    rows, cutoff = wandering(40, 0), 39 * DAY
    known = rows.as_of(cutoff)
    later = rows.select(rows.at >= cutoff)
    errors = {}
    for views in (("plain",), ("plain", "last_day")):
        task = make_task(*views, number_form="piecewise", num_seeds=2)
        encoder = fit_encoder(task, known, cutoff)
        data = encode(encoder, known)
        unread = encoder.unread * (2 // len(views))
        members = [Member(data, (), 2, seed, columns) for seed, columns in enumerate(unread)]
        network = finish(fit(members, task.training, task.clock, torch.device("cpu")))
        means = encoder.label_unit.means(outputs(network, encode(encoder, later))[..., 0].mean(0))
        errors[views] = np.abs(means - later.labels).mean()
    assert errors["plain", "last_day"] < 0.7 * errors["plain",]
