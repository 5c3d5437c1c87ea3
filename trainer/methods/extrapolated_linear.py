"""A rival without a network: one linear model per window, whose coefficients are extrapolated in time.

Each of the newest windows has its own model, fitted to its rows alone with a ridge: logistic for classes, least squares
for numbers. A polynomial in time is fitted to each coefficient over the newest `reach` windows, each weighted by its
number of rows, and is evaluated at the time of the row to answer. If there are few columns, their products are inputs
too, so the model is linear in its coefficients only. The order of the products, the degree in time and the reach are
chosen by one criterion: the best forecasts of the newest known windows, each from the windows before it.

Legend: D inputs: a constant, the columns of dense and their products up to an order, and one for each code of each
        category   K logits, or one mean   C coefficients `(D, K)` of a window   t time in windows, 0 at the cutoff
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse import csr_array, hstack
from scipy.sparse.linalg import lsqr
from scipy.special import log_softmax, softmax

from contracts.clock import Clock
from contracts.errors import ArtefactRefused
from contracts.task import Task
from store.events.reading.columns import EventColumns
from trainer.data.encoder import Encoded, Encoder, encode, fit_encoder
from trainer.data.labels import LABEL_LIMIT
from trainer.methods.without_network import (
    LEAST_STANDARD_SCALE,
    in_units_of_labels,
    keep_body,
    read_body,
    without_views,
)

EXTRAPOLATED_LINEAR = "extrapolated_linear"
TREND_FILE = "extrapolated_linear.msgpack"

# Weight of ‖C‖² / 2 relative to the sum of the rows' losses.
_RIDGE = 1.0
_DEGREES = (0, 1, 2)
_REACHES = (1, 2, 3, 4, 6, 9, 13)
_NUM_FORECAST = 8
_ORDERS = (1, 2, 3)
# Orders with more products are not tried; a window with more rows is thinned evenly.
_MAX_PRODUCTS = 200
_MAX_ROWS = 20_000

Floats = NDArray[np.float64]


class Trend(msgspec.Struct, frozen=True):
    """All that an answer depends on: coefficients as polynomials of t; `coefficients[k]` `(D, K)` belongs to t^k.

    `order` is the highest order of products of columns. `scale` is the deviation of a regression's residuals, else 1;
    `windows_per_span` turns model time into t.
    """

    order: int
    reach: int
    vocabulary_sizes: tuple[int, ...]
    windows_per_span: float
    scale: float
    coefficients: list[list[list[float]]]

    @property
    def degree(self) -> int:
        return len(self.coefficients) - 1


@dataclass(frozen=True)
class Linear:
    """A fit whose errors can stand in a matrix."""

    encoder: Encoder
    trend: Trend


@dataclass(frozen=True)
class _Window:
    """One window and its own model: inputs `(n, D)`, targets and t `(n,)`, coefficients `(D, K)`."""

    inputs: csr_array
    targets: NDArray[np.int64] | NDArray[np.float32]
    t: Floats
    coefficients: Floats


def fit_linear(task: Task, rows: EventColumns, origin: int) -> Linear:
    """Fit on the rows of this origin (microseconds). Raises CycleError if they have fewer than two classes.

    It reads amounts where a network reads pieces: positions among them would bend what is linear.
    """
    form = "plain" if task.training.number_form == "piecewise" else task.training.number_form
    encoder = fit_encoder(without_views(task, number_form=form), rows, origin)
    return Linear(encoder, fit_trend(encode(encoder, rows), encoder.vocabulary_sizes, encoder.num_outputs, task.clock))


def answer_linear(fit: Linear, rows: EventColumns) -> list[NDArray[np.float32]]:
    """Answers in the form of a graph's outputs: [probabilities (n, C)], or [mean (n,), scale (n,)]."""
    encoder = fit.encoder
    found = extrapolate(fit.trend, encode(encoder, rows))
    if not encoder.is_classification:
        return in_units_of_labels(encoder, found[:, 0], fit.trend.scale)
    return [softmax(found, axis=1).astype(np.float32)]


def keep_linear(folder: Path, fit: Linear, recipe: str) -> None:
    """Write the trend and its notes into `folder`, which appears whole or not at all."""
    body = msgspec.msgpack.encode(fit.trend)
    keep_body(folder, TREND_FILE, body, recipe=recipe, encoder=fit.encoder, scale=fit.trend.scale)


def read_linear(folder: Path, recipe: str) -> Linear:
    """The fit that is kept in `folder`. Raises ArtefactRefused if it is damaged or of another recipe."""
    notes, body = read_body(folder, TREND_FILE, recipe)
    try:
        return Linear(notes.encoder, msgspec.msgpack.decode(body, type=Trend))
    except msgspec.MsgspecError as error:
        raise ArtefactRefused(f"The kept trend cannot be read: {error}") from error


def fit_trend(rows: Encoded, vocabulary_sizes: tuple[int, ...], num_outputs: int, clock: Clock) -> Trend:
    """Fit on encoded rows; integer targets are `num_outputs` classes."""
    windows_per_span = clock.span / clock.window
    is_classification = np.issubdtype(rows.targets.dtype, np.integer)
    newest = _newest_windows(rows)
    by_order = {
        order: [
            _fit_window(
                _inputs(window, vocabulary_sizes, order),
                window.targets,
                window.u.astype(np.float64) * windows_per_span,
                num_outputs if is_classification else 1,
            )
            for window in newest
        ]
        for order in _ORDERS
        if order == 1 or _num_products(rows.dense.shape[1], order) <= _MAX_PRODUCTS
    }
    # The simplest first: `min` takes the first of equal losses.
    candidates = (choice for choice in itertools.product(by_order, _DEGREES, _REACHES) if choice[2] > choice[1])
    order, degree, reach = min(candidates, key=lambda choice: _loss(by_order[choice[0]], *choice[1:]))
    return Trend(
        order=order,
        reach=reach,
        vocabulary_sizes=vocabulary_sizes,
        windows_per_span=windows_per_span,
        scale=1.0 if is_classification else _scale(by_order[order], degree, reach),
        coefficients=_polynomial(by_order[order], degree, reach).tolist(),
    )


def extrapolate(trend: Trend, rows: Encoded) -> Floats:
    """Logits `(n, C)`, or standardised means `(n, 1)` within the limit of labels, at each row's own time."""
    inputs = _inputs(rows, trend.vocabulary_sizes, trend.order)
    t = rows.u.astype(np.float64) * trend.windows_per_span
    found = _evaluate(np.array(trend.coefficients), inputs, t)
    return found.clip(-LABEL_LIMIT, LABEL_LIMIT) if found.shape[1] == 1 else found


def _newest_windows(rows: Encoded) -> list[Encoded]:
    """The rows of each window that any reach or forecast needs, oldest first."""
    windows = []
    for start in np.unique(rows.windows)[-(max(_REACHES) + _NUM_FORECAST) :]:
        first, end = np.searchsorted(rows.windows, [start, start + 1])
        kept = slice(int(first), int(end), math.ceil((end - first) / _MAX_ROWS))
        windows.append(rows.take(kept))
    return windows


def _num_products(num_columns: int, order: int) -> int:
    """The number of products of one to `order` columns, out of `num_columns`."""
    return math.comb(num_columns + order, order) - 1


def _inputs(rows: Encoded, vocabulary_sizes: Sequence[int], order: int) -> csr_array:
    """The inputs `(n, D)`: a constant, products of up to `order` columns of dense, and a column for each code."""
    count, num_columns = rows.dense.shape
    columns = rows.dense.astype(np.float64).T
    products = [
        np.prod(columns[list(chosen)], axis=0)
        for size in range(order + 1)  # the empty product is the constant
        for chosen in itertools.combinations_with_replacement(range(num_columns), size)
    ]
    ends = np.cumsum([0, *vocabulary_sizes])
    places = rows.codes + ends[:-1]
    marks = (np.ones(places.size), places.ravel(), np.arange(count + 1) * places.shape[1])
    return csr_array(hstack([csr_array(np.stack(products, axis=1)), csr_array(marks, shape=(count, int(ends[-1])))]))


def _fit_window(
    inputs: csr_array, targets: NDArray[np.int64] | NDArray[np.float32], t: Floats, num_outputs: int
) -> _Window:
    """The coefficients that minimise the sum of the rows' losses plus the ridge."""
    if num_outputs == 1:
        coefficients = lsqr(inputs, targets.astype(np.float64), damp=np.sqrt(_RIDGE))[0][:, None]
        return _Window(inputs, targets, t, coefficients)
    shape = inputs.shape[1], num_outputs
    truth = np.eye(num_outputs)[targets.astype(np.int64)]

    def loss_and_slope(flat: Floats) -> tuple[float, Floats]:
        coefficients = flat.reshape(shape)
        logs = log_softmax(inputs @ coefficients, axis=1)
        slope = inputs.T @ (np.exp(logs) - truth) + _RIDGE * coefficients
        return float(-(logs * truth).sum() + 0.5 * _RIDGE * (flat**2).sum()), slope.ravel()

    found = minimize(loss_and_slope, np.zeros(shape).ravel(), jac=True, method="L-BFGS-B")
    return _Window(inputs, targets, t, found.x.reshape(shape))


def _polynomial(windows: Sequence[_Window], degree: int, reach: int) -> Floats:
    """Coefficients `(degree + 1, D, K)` by least squares over the newest `reach` windows, or over all if fewer exist.

    If there are fewer windows than the degree needs, the degree is lowered.
    """
    newest = windows[-reach:]
    times = np.array([window.t.mean() for window in newest])
    weights = np.sqrt([len(window.t) for window in newest])[:, None]
    powers = np.vander(times, min(degree, len(newest) - 1) + 1, increasing=True)
    values = np.stack([window.coefficients for window in newest])
    solution = np.linalg.lstsq(weights * powers, weights * values.reshape(len(newest), -1), rcond=None)[0]
    polynomial: Floats = solution.reshape(-1, *values.shape[1:])
    return polynomial


def _evaluate(polynomial: Floats, inputs: csr_array, t: Floats) -> Floats:
    """Outputs `(n, K)`: Σ_k t^k · inputs · polynomial[k]."""
    outputs = np.zeros((inputs.shape[0], polynomial.shape[2]))
    for power, coefficients in enumerate(polynomial):
        outputs += t[:, None] ** power * (inputs @ coefficients)
    return outputs


def _forecasts(windows: Sequence[_Window], degree: int, reach: int) -> Iterator[tuple[_Window, Floats]]:
    """The newest windows, each with its forecast from the windows before it; none if there is only one window."""
    for end in range(max(1, len(windows) - _NUM_FORECAST), len(windows)):
        window = windows[end]
        yield window, _evaluate(_polynomial(windows[:end], degree, reach), window.inputs, window.t)


def _loss(windows: Sequence[_Window], degree: int, reach: int) -> float:
    """Mean log-loss or absolute error over the forecast windows; 0 if there are none."""
    return float(np.mean([_errors(window, found).mean() for window, found in _forecasts(windows, degree, reach)] or 0))


def _errors(window: _Window, outputs: Floats) -> Floats:
    if outputs.shape[1] == 1:
        return np.abs(outputs[:, 0] - window.targets)
    logs: Floats = log_softmax(outputs, axis=1)
    return -logs[np.arange(len(logs)), window.targets.astype(np.int64)]


def _scale(windows: Sequence[_Window], degree: int, reach: int) -> float:
    """Deviation of the forecasts, or of the only window's model on its own rows."""
    only = windows[-1]
    forecast = list(_forecasts(windows, degree, reach)) or [(only, only.inputs @ only.coefficients)]
    squares = np.concatenate([_errors(window, found) ** 2 for window, found in forecast])
    return max(LEAST_STANDARD_SCALE, float(np.sqrt(squares.mean())))
