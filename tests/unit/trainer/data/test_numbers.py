"""Network and graph alike standardise numbers, or read them by rank or by pieces, whatever else is in a column."""

import math

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.unit.trainer.export.exported_network import (
    CUTOFF,
    DAY,
    assert_graph_is_torch,
    make_network,
    make_rows,
    make_task,
    make_training,
)
from trainer.data.encoder import encode, fit_encoder
from trainer.data.numbers import DENSE_LIMIT, fit_number, num_pieces
from trainer.export.onnx_export import build_graph
from trainer.network.layers import split_pieces

TASK = make_task(training=make_training(number_form="quantile"))
values = st.floats(allow_nan=False, width=64)


def places(column: NDArray[np.float64], asked: NDArray[np.float64]) -> NDArray[np.float64]:
    return fit_number(column, False, "quantile").encode(asked)


def test_normal_numbers_stay_about_what_they_are() -> None:
    column = np.random.default_rng(0).normal(0, 1, 20_000)
    asked = np.linspace(-1.8, 1.8, 50)
    np.testing.assert_allclose(places(column, asked), asked, atol=0.1)


@pytest.mark.parametrize("bend", [np.exp, np.cbrt, lambda x: 1e9 * x - 3])
def test_only_the_order_of_values_counts(bend: np.ufunc) -> None:
    column = np.random.default_rng(0).normal(0, 1, 3201)
    np.testing.assert_allclose(places(bend(column), bend(column)), places(column, column), atol=0.1)


def test_equal_values_share_their_mean_place_and_ends_hold() -> None:
    column = np.array([0.0] * 500 + list(np.linspace(1, 2, 500)))
    found = places(column, np.array([0.0, 2.0, 1e6, -1e6, np.inf, -np.inf]))
    assert found[0] == pytest.approx(-0.67, abs=0.1)  # the score of a quarter
    assert found[1] == found[2] == found[4] > 2
    assert found[0] == found[3] == found[5]


def test_a_missing_value_stands_at_the_median() -> None:
    column = np.random.default_rng(0).normal(7, 2, 1001)
    assert places(column, np.array([np.nan]))[0] == pytest.approx(0, abs=0.05)


@pytest.mark.parametrize("column", [[], [math.nan, math.nan], [3.0], [3.0, 3.0, 3.0]])
def test_a_number_that_says_nothing_is_read_as_nought(column: list[float]) -> None:
    np.testing.assert_array_equal(places(np.array(column), np.array([3.0, 9.0, np.nan])), 0)


@given(st.lists(values, max_size=40), st.lists(values, min_size=1, max_size=10))
def test_any_values_are_read_within_the_limit_and_in_their_order(column: list[float], asked: list[float]) -> None:
    for form in ("plain", "quantile"):
        found = fit_number(np.array(column), False, form).encode(np.sort(asked))
        assert np.isfinite(found).all()
        assert np.abs(found).max() <= DENSE_LIMIT
        assert (np.diff(found) >= -1e-12).all()


@pytest.mark.parametrize("least", [0.0, 2.3e-308, 1e-290])
def test_what_lies_between_values_that_hardly_differ_is_finite(least: float) -> None:
    """Likelihoods that underflow are such values: a score divided by such a small difference would be infinite."""
    column = least + np.spacing(least) * np.arange(0, 400, 7)
    asked = least + np.spacing(least) * np.arange(400)
    found = places(column, asked)
    assert np.isfinite(found).all()
    assert (np.diff(found) >= -1e-12).all()


@given(st.floats(allow_nan=False))
def test_one_absurd_value_moves_no_other_from_its_place(poison: float) -> None:
    column = np.random.default_rng(0).normal(0, 1, 2000)
    asked, clean = column[1:].copy(), places(column, column[1:])
    column[0] = poison
    np.testing.assert_allclose(places(column, asked), clean, atol=0.2)  # the outermost interval is the widest


def test_the_graph_reads_places_as_torch_does() -> None:
    encoder = fit_encoder(TASK, make_rows(TASK, 900), CUTOFF)
    assert [len(number.knots) > 2 for number in encoder.numbers] == [True, True]
    rows = make_rows(TASK, 100, seed=1, end=CUTOFF + 90 * DAY)
    rows.numbers[:6] = [[np.nan, np.nan], [1e308, 1e38], [-1e308, 0.0], [np.inf, -np.inf], [5e-324, 1.0], [0.0, -0.0]]
    assert_graph_is_torch(TASK, encoder, make_network(encoder, TASK.training, 2), [1, 0], rows)


def test_the_graph_computes_nothing_larger_for_places_than_for_amounts() -> None:
    """Otherwise a few thousand rows of many numbers take gigabytes, which ONNX Runtime keeps."""
    rows = make_rows(make_task(), 900)
    largest = []
    for form in ("plain", "quantile"):
        task = make_task(training=make_training(number_form=form, width=4, num_trelu=0))
        encoder = fit_encoder(task, rows, CUTOFF)
        graph = build_graph(encoder, make_network(encoder, task.training, 2), [0, 1])
        known = onnx.shape_inference.infer_shapes(graph).graph.value_info
        shapes = [[size.dim_value or 1 for size in value.type.tensor_type.shape.dim] for value in known]
        largest.append(max(map(math.prod, shapes)))
    assert largest[1] == largest[0]


@pytest.mark.parametrize("constant", [3.0, np.nan])
def test_the_graph_holds_numbers_with_fewer_knots_than_others(constant: float) -> None:
    rows = make_rows(TASK, 900)
    rows.numbers[:, 1] = constant
    rows.numbers[:, 0] = np.round(rows.numbers[:, 0] / 30).clip(0, 3)
    encoder = fit_encoder(TASK, rows, CUTOFF)
    assert len(encoder.numbers[1].knots) == 1 < len(encoder.numbers[0].knots) < 6
    assert_graph_is_torch(TASK, encoder, make_network(encoder, TASK.training, 2), [1, 0], rows.select(slice(50)))


def positions(column: NDArray[np.float64], asked: NDArray[np.float64], max_pieces: int = 24) -> NDArray[np.float64]:
    return fit_number(column, False, "piecewise", max_pieces).encode(asked)


def test_pieces_hold_equally_many_values() -> None:
    column = np.random.default_rng(0).lognormal(0, 2, 24_000)
    held = np.bincount(positions(column, column).astype(np.intp).clip(0, 23))
    assert len(held) == 24
    assert held[1:-1].min() > 950
    assert held[1:-1].max() < 1050


def test_each_of_a_few_values_is_a_bound_of_pieces() -> None:
    hours = np.repeat(np.arange(24.0), 50)
    np.testing.assert_array_equal(positions(hours, np.array([0.0, 7.0, 7.5, 23.0])), [0, 7, 7.5, 23])


def test_a_position_stays_among_the_pieces_for_any_value() -> None:
    column = np.random.default_rng(0).normal(0, 1, 2000)
    asked = np.array([-np.inf, -1e308, 0.0, 1e308, np.inf, np.nan])
    found = positions(column, asked)
    assert found[[0, 1, 3, 4]].tolist() == [0, 0, 24, 24]
    assert 11 < found[2] < 13
    assert 11 < found[5] < 13  # the median


@pytest.mark.parametrize("column", [[], [np.nan, np.nan], [3.0, 3.0, 3.0], [-1e308, 1e308], [5e-324, 0.0, -5e-324]])
def test_a_column_that_says_little_has_finite_positions(column: list[float]) -> None:
    found = positions(np.array(column), np.array([-1.0, 0.0, 3.0, np.nan]))
    assert np.isfinite(found).all()
    assert (found >= 0).all()
    assert (found <= max(0, len(column) - 1)).all()


@pytest.mark.parametrize(("num_numbers", "expected"), [(0, 24), (1, 24), (42, 24), (128, 8), (512, 2)])
def test_many_numbers_have_fewer_pieces_each(num_numbers: int, expected: int) -> None:
    assert num_pieces(num_numbers) == expected


def test_the_graph_reads_pieces_as_torch_does() -> None:
    task = make_task(training=make_training(number_form="piecewise"))
    known = make_rows(task, 900)
    known.numbers[:, 1] = np.round(known.numbers[:, 1]).clip(0, 3)  # fewer pieces than the other
    encoder = fit_encoder(task, known, CUTOFF)
    rows = make_rows(task, 100, seed=1, end=CUTOFF + 90 * DAY)
    rows.numbers[:6] = [[np.nan, np.nan], [1e308, 1e38], [-1e308, 0.0], [np.inf, -np.inf], [5e-324, 1.0], [0.0, -0.0]]
    assert_graph_is_torch(task, encoder, make_network(encoder, task.training, 2), [1, 0], rows)


def test_a_linear_layer_over_pieces_learns_a_slope_for_each() -> None:
    """A valley and a peak in one number, which no single slope can follow."""
    column = np.linspace(0, 24, 2400)
    wanted = np.abs(column - 12) * (column < 18) + (24 - column) * (column >= 18)
    found = split_pieces(torch.from_numpy(positions(column, column))[None, :, None], 24)[0].numpy()
    inputs = np.column_stack([found, np.ones(len(column))])
    weights = np.linalg.lstsq(inputs, wanted, rcond=None)[0]
    np.testing.assert_allclose(inputs @ weights, wanted, atol=0.15)


def test_rows_are_encoded_by_the_form_that_the_recipe_names() -> None:
    rows = make_rows(TASK, 900)
    plain, placed = (encode(fit_encoder(task, rows, CUTOFF), rows).dense for task in (make_task(), TASK))
    assert plain.shape == placed.shape
    np.testing.assert_array_equal(plain[:, 2:], placed[:, 2:])
    assert np.abs(placed[:, :2]).max() < 3 < np.abs(plain[:, :2]).max()
