"""The encoding depends only on the rows of its fit, and no absurd value can break or flatten it."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from contracts.errors import CycleError
from contracts.task import Calendar, Task
from store.events.reading.columns import NEVER, EventColumns
from trainer.data.encoder import MIN_SEEN, PERIODS, UNKNOWN_CLASS, UNSEEN, encode, fit_encoder, phase
from trainer.data.labels import LABEL_LIMIT, clip_labels
from trainer.data.numbers import DENSE_LIMIT

HOUR = 3_600_000_000
WEEK = 168 * HOUR
ORIGIN = 2400 * WEEK

numbers_or_missing = st.floats(allow_infinity=False)
moments = st.integers(-(2**57), 2**57)


def make_task(kind: str = "classification", classes: list[str] | None = None, **training: object) -> Task:
    target = {"name": "label", "kind": kind} | ({"classes": classes} if classes else {})
    features = [
        {"name": "x", "kind": "number"},
        {"name": "y", "kind": "number", "optional": True},
        {"name": "c", "kind": "category"},
    ]
    return Task.model_validate(
        {
            "name": "t",
            "features": features,
            "target": target,
            "window": "P7D",
            "training": {"number_form": "plain"} | training,
        }
    )


def make_rows(
    at: list[int],
    numbers: list[tuple[float, float]],
    categories: list[str],
    labels: list[str] | list[float],
    *,
    more_values: tuple[str, ...] = (),
) -> EventColumns:
    """Rows as the store gives them; `more_values` are in the vocabularies although no row has them."""
    vocabulary = tuple(sorted({*categories, *more_values}))
    is_classification = not labels or isinstance(labels[0], str)
    classes = tuple(sorted({*map(str, labels), *more_values})) if is_classification else ()
    return EventColumns(
        at=np.array(at, np.int64),
        known_at=np.array(at, np.int64),
        superseded_at=np.full(len(at), NEVER),
        numbers=np.array(numbers, np.float64).reshape(len(at), 2),
        categories=np.array([vocabulary.index(value) for value in categories], np.int32).reshape(len(at), 1),
        vocabularies=(vocabulary,),
        labels=(
            np.array([classes.index(str(label)) for label in labels], np.int32)
            if is_classification
            else np.array(labels, np.float64)
        ),
        classes=classes,
        withheld=np.zeros(len(at), np.bool_),
    )


def weeks_of_rows(num_rows: int, start: int, seed: int, values: list[str], labels: list[str]) -> EventColumns:
    """One row per hour from `start`."""
    random = np.random.default_rng(seed)
    numbers = random.normal(seed, 1 + seed, (num_rows, 2))
    numbers[::5, 1] = np.nan
    return make_rows(
        [start + i * HOUR for i in range(num_rows)],
        [(x, y) for x, y in numbers.tolist()],
        random.choice(values, num_rows).tolist(),
        random.choice(labels, num_rows).tolist(),
    )


def joined(first: EventColumns, second: EventColumns) -> EventColumns:
    """Both as one reading of the store would give them: with shared vocabularies."""
    vocabulary = tuple(sorted({*first.vocabularies[0], *second.vocabularies[0]}))
    classes = tuple(sorted({*first.classes, *second.classes}))

    def moved(old: tuple[str, ...], new: tuple[str, ...], positions: NDArray[np.int32]) -> NDArray[np.int32]:
        return np.array([new.index(value) for value in old], np.int32)[positions]

    parts = [
        replace(
            rows,
            categories=moved(rows.vocabularies[0], vocabulary, rows.categories),
            vocabularies=(vocabulary,),
            labels=moved(rows.classes, classes, rows.labels.astype(np.int32)),
            classes=classes,
        )
        for rows in (first, second)
    ]
    return replace(
        parts[0],
        at=np.concatenate([rows.at for rows in parts]),
        known_at=np.concatenate([rows.known_at for rows in parts]),
        superseded_at=np.concatenate([rows.superseded_at for rows in parts]),
        numbers=np.concatenate([rows.numbers for rows in parts]),
        categories=np.concatenate([rows.categories for rows in parts]),
        labels=np.concatenate([rows.labels for rows in parts]),
        withheld=np.concatenate([rows.withheld for rows in parts]),
    )


def test_columns_are_numbers_then_indicators_then_calendar() -> None:
    rows = make_rows([0, HOUR], [(1.0, math.nan), (3.0, 8.0)], ["a", "b"], ["no", "yes"])
    encoder = fit_encoder(make_task(calendar=["day"]), rows, 2 * HOUR)
    dense = encode(encoder, rows).dense
    assert encoder.num_dense == dense.shape[1] == 5
    np.testing.assert_array_equal(dense[:, 0], [-1.0, 1.0])
    np.testing.assert_array_equal(dense[:, 1], [0.0, 0.0])
    np.testing.assert_array_equal(dense[:, 2], [1.0, 0.0])
    hour = math.pi / 12
    np.testing.assert_allclose(dense[:, 3:], np.array([[0, 1], [math.sin(hour), math.cos(hour)]]), atol=1e-7)


def test_model_time_and_windows_follow_the_clock() -> None:
    rows = make_rows([-1, 0, WEEK, 27 * WEEK - 1], [(0, 0)] * 4, ["a"] * 4, ["no", "yes"] * 2)
    encoded = encode(fit_encoder(make_task(), rows, 26 * WEEK), rows)
    np.testing.assert_allclose(encoded.u, [-1.0, -1.0, -25 / 26, 1 / 26], rtol=1e-6)
    np.testing.assert_array_equal(encoded.windows, [-WEEK, 0, WEEK, 26 * WEEK])


def test_nothing_after_an_origin_changes_its_encoder() -> None:
    task = make_task()
    before = weeks_of_rows(1000, ORIGIN - 1000 * HOUR, 1, ["", "b", "d"], ["no", "yes"])
    futures = [
        weeks_of_rows(500, ORIGIN, 2, ["b"], ["no", "yes"]),
        weeks_of_rows(700, ORIGIN, 9, ["A", "a", "c", "e"], ["a", "no", "perhaps", "z"]),
    ]
    alone = encoded_bytes(task, before)
    for future in futures:
        everything = joined(before, future)
        late = replace(everything, known_at=np.where(everything.at < ORIGIN, ORIGIN, NEVER))
        assert encoded_bytes(task, everything) == alone
        assert encoded_bytes(task, late) == alone


def encoded_bytes(task: Task, rows: EventColumns) -> tuple[bytes, ...]:
    allowed = rows.as_of(ORIGIN)
    encoder = fit_encoder(task, allowed, ORIGIN)
    encoded = encode(encoder, allowed)
    columns = (encoded.dense, encoded.codes, encoded.u, encoded.targets, encoded.windows)
    return repr(encoder).encode(), *(column.tobytes() for column in columns)


@pytest.mark.parametrize("poison", [1e38, -1e38, 1.7e308, -1.7e308])
@pytest.mark.parametrize("num_rows", [100, 2000])
def test_one_absurd_value_neither_overflows_nor_flattens_its_feature(num_rows: int, poison: float) -> None:
    rows = weeks_of_rows(num_rows, 0, 3, ["a"], ["no", "yes"])
    clean = encode(fit_encoder(make_task(), rows, ORIGIN), rows).dense
    rows.numbers[7, :] = poison
    poisoned = encode(fit_encoder(make_task(), rows, ORIGIN), rows).dense
    assert np.isfinite(poisoned).all()
    np.testing.assert_array_equal(poisoned[7, :2], math.copysign(DENSE_LIMIT, poison))
    others = np.delete(np.arange(num_rows), 7)
    np.testing.assert_allclose(poisoned[others, :2].std(axis=0), clean[others, :2].std(axis=0), rtol=0.2)


def test_one_absurd_label_leaves_the_others_their_unit() -> None:
    labels = np.random.default_rng(0).normal(50, 3, 1000)
    rows = make_rows(list(range(1000)), [(0, 0)] * 1000, ["a"] * 1000, labels.tolist())
    rows.labels[3] = 1e300
    encoder = fit_encoder(make_task("regression"), rows, ORIGIN)
    assert encoder.label_unit.mean == pytest.approx(50, abs=0.5)
    assert encoder.label_unit.scale == pytest.approx(3, abs=0.5)
    targets = encode(encoder, rows).targets
    assert targets[3] == LABEL_LIMIT
    assert targets.dtype == np.float32


def test_labels_are_scored_within_what_a_fit_reads_of_them() -> None:
    labels = np.random.default_rng(0).normal(50, 3, 1000)
    rows = make_rows(list(range(1000)), [(0, 0)] * 1000, ["a"] * 1000, labels.tolist())
    rows.labels[3], rows.labels[4] = 1e300, -1e300
    task = make_task("regression")
    encoder = fit_encoder(task, rows, ORIGIN)
    drawn_in = clip_labels(task, rows, rows)
    np.testing.assert_allclose(
        drawn_in.labels[3:5], encoder.label_unit.mean + encoder.label_unit.scale * np.array([LABEL_LIMIT, -LABEL_LIMIT])
    )
    np.testing.assert_array_equal(np.delete(drawn_in.labels, [3, 4]), np.delete(rows.labels, [3, 4]))


def test_rare_labels_beside_a_constant_give_the_unit() -> None:
    rows = make_rows(list(range(2000)), [(0, 0)] * 2000, ["a"] * 2000, [0.0] * 1999 + [1e6])
    encoder = fit_encoder(make_task("regression"), rows, ORIGIN)
    assert encoder.label_unit.scale == pytest.approx(rows.labels.std())


@pytest.mark.parametrize("unit", [1e300, 1e-300])
def test_a_label_that_no_answer_could_hold_is_refused_in_words(unit: float) -> None:
    labels = (np.random.default_rng(0).normal(0, 1, 100) * unit).tolist()
    rows = make_rows(list(range(100)), [(0, 0)] * 100, ["a"] * 100, labels)
    with pytest.raises(CycleError, match="another unit"):
        fit_encoder(make_task("regression"), rows, ORIGIN)


def test_a_constant_or_absent_number_has_scale_one() -> None:
    rows = make_rows(list(range(50)), [(0.1, math.nan)] * 50, ["a"] * 50, ["no", "yes"] * 25)
    encoder = fit_encoder(make_task(), rows, ORIGIN)
    assert [number.scale for number in encoder.numbers] == [1.0, 1.0]
    np.testing.assert_array_equal(encode(encoder, rows).dense[:, :3], [[0.0, 0.0, 1.0]] * 50)


def test_rare_values_share_the_bucket_of_unseen_ones() -> None:
    values = ["b"] * MIN_SEEN + [""] * MIN_SEEN + ["a"] * (MIN_SEEN - 1)
    rows = make_rows(list(range(len(values))), [(0, 0)] * len(values), values, ["no", "yes"] * 7)
    encoder = fit_encoder(make_task(), rows, ORIGIN)
    assert encoder.vocabularies == (("", "b"),)
    assert encoder.vocabulary_sizes == (3,)
    later = make_rows([0, 1, 2, 3], [(0, 0)] * 4, ["new", "a", "b", ""], ["no"] * 4)
    np.testing.assert_array_equal(encode(encoder, later).codes[:, 0], [UNSEEN, UNSEEN, 2, 1])


def test_classes_are_those_seen_unless_they_are_listed() -> None:
    rows = make_rows([0, 1], [(0, 0)] * 2, ["a"] * 2, ["yes", "no"], more_values=("later",))
    seen = fit_encoder(make_task(), rows, ORIGIN)
    listed = fit_encoder(make_task(classes=["yes", "no", "never"]), rows, ORIGIN)
    assert (seen.classes, seen.num_outputs) == (("no", "yes"), 2)
    assert (listed.classes, listed.num_outputs) == (("yes", "no", "never"), 3)
    np.testing.assert_array_equal(encode(seen, rows).targets, [1, 0])
    np.testing.assert_array_equal(encode(listed, rows).targets, [0, 1])


def test_a_class_that_the_fit_has_not_seen_is_marked() -> None:
    rows = make_rows([0, 1], [(0, 0)] * 2, ["a"] * 2, ["yes", "no"])
    later = make_rows([2, 3], [(0, 0)] * 2, ["a"] * 2, ["perhaps", "yes"])
    np.testing.assert_array_equal(encode(fit_encoder(make_task(), rows, 2), later).targets, [UNKNOWN_CLASS, 1])


@pytest.mark.parametrize("labels", [[], ["yes"], ["yes", "yes"]])
def test_fewer_than_two_classes_end_the_cycle(labels: list[str]) -> None:
    count = len(labels)
    rows = make_rows(list(range(count)), [(0, 0)] * count, ["a"] * count, labels, more_values=("no",))
    with pytest.raises(CycleError, match="at least two"):
        fit_encoder(make_task(), rows, ORIGIN)


@given(st.lists(st.tuples(numbers_or_missing, numbers_or_missing), min_size=1, max_size=40))
def test_every_number_is_encoded_within_the_limit(numbers: list[tuple[float, float]]) -> None:
    count = len(numbers)
    rows = make_rows(list(range(count)), numbers, ["a"] * count, [0.5] * count)
    dense = encode(fit_encoder(make_task("regression"), rows, ORIGIN), rows).dense
    assert np.isfinite(dense).all()
    assert np.abs(dense).max() <= DENSE_LIMIT


@given(st.lists(st.sampled_from(["", "a", "b", "ä", "zz"]), max_size=60))
def test_a_code_names_its_value(values: list[str]) -> None:
    rows = make_rows(list(range(len(values))), [(0, 0)] * len(values), values, [0.5] * len(values))
    (vocabulary,) = (encoder := fit_encoder(make_task("regression"), rows, ORIGIN)).vocabularies
    assert vocabulary == tuple(sorted({value for value in values if values.count(value) >= MIN_SEEN}))
    for value, code in zip(values, encode(encoder, rows).codes[:, 0].tolist(), strict=True):
        assert (vocabulary[code - 1] == value) if code else (value not in vocabulary)


@given(st.lists(st.integers(-(10**8), 10**8).map(lambda cents: cents / 100), min_size=2, max_size=60))
def test_labels_come_back_from_targets_but_for_what_is_clipped(labels: list[float]) -> None:
    rows = make_rows(list(range(len(labels))), [(0, 0)] * len(labels), ["a"] * len(labels), labels)
    encoder = fit_encoder(make_task("regression"), rows, ORIGIN)
    targets = encode(encoder, rows).targets.astype(np.float64)
    back = targets * encoder.label_unit.scale + encoder.label_unit.mean
    bounds = encoder.label_unit.mean + encoder.label_unit.scale * np.array([-LABEL_LIMIT, LABEL_LIMIT])
    np.testing.assert_allclose(back, np.clip(labels, *bounds), atol=1e-6 * (1 + np.abs(labels).max()))


@given(st.permutations(range(60)))
def test_neither_constants_nor_codes_depend_on_the_order_of_rows(order: list[int]) -> None:
    rows = weeks_of_rows(60, 0, 4, ["a", "b", "c"], ["no", "yes"])
    shuffled = make_rows(
        rows.at[order].tolist(),
        [(x, y) for x, y in rows.numbers[order].tolist()],
        [rows.vocabularies[0][k] for k in rows.categories[order, 0]],
        [rows.classes[int(k)] for k in rows.labels[order]],
    )
    encoder = fit_encoder(make_task(), rows, ORIGIN)
    assert fit_encoder(make_task(), shuffled, ORIGIN) == encoder
    whole, moved = encode(encoder, rows), encode(encoder, shuffled)
    np.testing.assert_array_equal(moved.dense, whole.dense[order])
    np.testing.assert_array_equal(moved.codes, whole.codes[order])


@given(moments, st.sampled_from(sorted(PERIODS)))
def test_phases_repeat_after_their_period_and_lie_on_the_circle(at: int, name: Calendar) -> None:
    (sine, again_sine), (cosine, again_cosine) = phase(np.array([at, at + PERIODS[name]]), name)
    assert (sine, cosine) == (again_sine, again_cosine)
    assert math.hypot(sine, cosine) == pytest.approx(1)
