"""The uncertainty of a model from the cells of the error matrix: a temperature and conformal quantiles.

Cells hold sketches of their rows' nonconformity scores, and mean losses on a grid of temperatures. So nothing here
reads an event or runs a graph. No state is kept between calls: adaptive conformal inference (Gibbs and Candès, 2021)
runs over the cells from the start each time.

Legend: s  nonconformity of a row: |y − mean| / scale, or 1 − p_y before the temperature
        c  a nominal coverage    α = 1 − c    α_w  the miscoverage targeted in window w
        err_w  share of the window's rows whose s is above the quantile used there
        γ  step: α_{w+1} = α_w + γ (α − err_w)
        T  temperature: a graph of T answers p ∝ rawᐟᵀ (raw to the power 1/T)
"""

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from contracts.calibration import LEVELS, AgeQuantiles, Calibration, untempered
from contracts.clock import MICROSECOND, Clock
from contracts.task import Task
from store.error_cells import Cell
from store.events.reading.columns import EventColumns
from trainer.data.encoder import class_positions
from trainer.evaluation.suspect_windows import counted

# 0.4 … 4, in equal steps of log T; 1 is one of them.
TEMPERATURES: tuple[float, ...] = tuple(10 ** (k / 25) for k in range(-10, 16))
LEAST_PROBABILITY = 1e-6
# The smallest scale of an answer, whatever the label's unit: smaller numbers are 0 in 32 bits.
LEAST_SCALE = float(np.finfo(np.float32).tiny)
# The fewest rows of distinct target windows for which a temperature is fitted.
LEAST_ROWS = 200
# Numbers of newest target windows: those that a quantile or a temperature comes from, and those that are walked over.
POOLED_WINDOWS = 26
WALKED_WINDOWS = 104
# γ, and the bound of γ times the delay of errors in windows; beyond it the adaptation would oscillate.
STEP = 0.2
_LATE_STEP = 0.4

_SKETCH = 200
_ROUNDING = 1e-6
_ROWS_PER_BLOCK = 8192


def nonconformity(
    task: Task,
    classes: Sequence[str],
    outputs: Sequence[NDArray[np.float32]],
    rows: EventColumns,
    temperature: float = 1.0,
) -> NDArray[np.float64]:
    """s of every row, `(n,)`; 1 for a class that the fit never saw. `temperature` is that of the outputs."""
    if not task.is_classification:
        mean, scale = (output.astype(np.float64) for output in outputs)
        return np.abs(rows.labels - mean) / np.maximum(scale, LEAST_SCALE)
    truth = class_positions(classes, rows)
    given = untempered(outputs[0], temperature)[np.arange(len(truth)), truth]
    scores: NDArray[np.float64] = 1.0 - np.where(truth < 0, 0.0, given)
    return scores


def sketch(scores: NDArray[np.float64]) -> tuple[float, ...]:
    """The sorted scores if there are at most 201; else the scores at shares k/200 of their ranks, k = 0 … 200."""
    ordered = np.sort(scores)
    if len(ordered) > _SKETCH + 1:
        ordered = ordered[np.round(np.linspace(0, len(ordered) - 1, _SKETCH + 1)).astype(np.intp)]
    return tuple(ordered.tolist())


def tempered_losses(
    probabilities: NDArray[np.float32], truth: NDArray[np.int64], temperature: float
) -> tuple[float, ...]:
    """Mean log-loss at each of TEMPERATURES for outputs `(n, C)` of this temperature; `truth` is −1 for unseen classes.

    p ∝ raw^(1/T₀), so raw^(1/T) ∝ p^(T₀/T).
    """
    sums = np.zeros(len(TEMPERATURES))
    least = float(np.finfo(np.float32).tiny)
    for start in range(0, len(truth), _ROWS_PER_BLOCK):
        logs = np.log(probabilities[start : start + _ROWS_PER_BLOCK].astype(np.float64).clip(least))
        logs -= logs.max(axis=1, keepdims=True)
        positions = truth[start : start + _ROWS_PER_BLOCK]
        given = logs[np.arange(len(positions)), positions]
        for k, wanted in enumerate(TEMPERATURES):
            power = temperature / wanted
            log_of_p = given * power - np.log(np.exp(logs * power).sum(axis=1))
            sums[k] -= np.where(positions < 0, -np.inf, log_of_p).clip(math.log(LEAST_PROBABILITY)).sum()
    return tuple((sums / len(truth)).tolist())


def fit_temperature(cells: Iterable[Cell], method: str) -> float:
    """The temperature with the smallest mean log-loss over the rows of complete cells; 1 if there are too few rows.

    Between the points of the grid the loss is interpolated by a parabola in log T.
    """
    known = [cell for cell in cells if cell.method == method and cell.is_complete and cell.tempered]
    found = _newest(known, POOLED_WINDOWS)
    if sum({cell.window: cell.num_rows for cell in found}.values()) < LEAST_ROWS:
        return 1.0
    losses = np.average([cell.tempered for cell in found], axis=0, weights=[cell.num_rows for cell in found])
    k = int(losses.argmin())
    if not 0 < k < len(TEMPERATURES) - 1:
        return TEMPERATURES[k]
    before, least, after = losses[k - 1 : k + 2]
    curvature = before - 2 * least + after
    shift = 0.5 * (before - after) / curvature if curvature > 0 else 0.0
    return float(TEMPERATURES[k] * (TEMPERATURES[1] / TEMPERATURES[0]) ** shift)


def calibrate(
    cells: Sequence[Cell],
    *,
    method: str,
    clock: Clock,
    max_age: int,
    label_delay: int = 0,
    temperature: float | None = None,
) -> Calibration:
    """Temperature and conformal quantiles by age, from the complete cells of a method. `label_delay` in microseconds.

    Each age uses only its own cells: other ages hold the same rows, which would count a hard window again and say
    nothing about ageing. `temperature` is that of an existing graph; if None, it is fitted.
    """
    known = [cell for cell in cells if cell.method == method and cell.is_complete and cell.scores]
    by_age: dict[int, list[Cell]] = {}
    for cell in sorted(known, key=lambda cell: cell.window):
        by_age.setdefault(clock.age(cell.origin, cell.window), []).append(cell)
    ages = [
        _calibrate_age(age, _newest(by_age[age], WALKED_WINDOWS), clock.window, label_delay)
        for age in sorted(by_age)
        if 0 <= age < max_age
    ]
    return Calibration(fit_temperature(known, method) if temperature is None else temperature, ages)


def calibration_of(task: Task, cells: Sequence[Cell], temperature: float | None = None) -> Calibration:
    """`calibrate` for a task, on the windows of its matrix that count (`trainer.evaluation.suspect_windows`)."""
    return calibrate(
        counted(task, cells),
        method=task.training.method,
        clock=task.clock,
        max_age=task.guard.max_age,
        label_delay=task.label_delay // MICROSECOND,
        temperature=temperature,
    )


def share_covered(cell: Cell, quantiles: NDArray[np.float64]) -> NDArray[np.float64]:
    """The share of a cell's rows with a score of at most each quantile; from a sketch within half a 200th."""
    count = np.searchsorted(np.array(cell.scores), quantiles, side="right").astype(np.float64)
    if cell.num_rows <= len(cell.scores):
        return count / len(cell.scores)
    shares: NDArray[np.float64] = np.where(count > _SKETCH, 1.0, (count - 0.5) / _SKETCH).clip(0.0)
    return shares


def _newest(cells: Sequence[Cell], count: int) -> list[Cell]:
    """The cells of the `count` newest target windows."""
    windows = sorted({cell.window for cell in cells})[-count:]
    return [cell for cell in cells if cell.window >= windows[0]] if windows else []


@dataclass(frozen=True)
class _Pool:
    """The scores of all windows of an age, ascending `(N,)`, with the window and the number of rows of each."""

    scores: NDArray[np.float64]
    owner: NDArray[np.intp]
    weights: NDArray[np.float64]


def _pool(cells: Sequence[Cell]) -> _Pool:
    scores = np.concatenate([cell.scores for cell in cells])
    owner = np.repeat(np.arange(len(cells)), [len(cell.scores) for cell in cells])
    order = scores.argsort(kind="stable")
    weights = np.concatenate([_weights(cell) for cell in cells])
    return _Pool(scores[order], owner[order], weights[order])


def _weights(cell: Cell) -> NDArray[np.float64]:
    """The number of rows that each score of a cell represents; for a sketch by the trapezoid rule."""
    count = len(cell.scores)
    if cell.num_rows <= count:
        return np.ones(count)
    weights = np.full(count, cell.num_rows / _SKETCH)
    weights[[0, -1]] /= 2
    return weights


def _calibrate_age(age: int, cells: Sequence[Cell], window: int, label_delay: int) -> AgeQuantiles:
    """Walk over the target windows of one age, oldest first; returns the quantiles after the last.

    A fit knows the errors only of windows whose labels were due at its origin.
    """
    nominal = 1.0 - np.array(LEVELS)
    gamma = min(STEP, _LATE_STEP / (age + math.ceil((window + label_delay) / window)))
    pool = _pool(cells)
    windows = [cell.window for cell in cells]
    miscoverages = [nominal]
    for cell in cells:
        num_known = bisect_right(windows, cell.origin - window - label_delay)
        quantiles, num_supported = _quantiles(pool, num_known, miscoverages[num_known])
        step = gamma * (nominal - (1.0 - share_covered(cell, quantiles)))
        step[num_supported:] = 0.0
        miscoverages.append((miscoverages[-1] + step).clip(0.0, 1.0))
    quantiles, num_supported = _quantiles(pool, len(cells), miscoverages[-1])
    num_rows = sum(cell.num_rows for cell in cells[-POOLED_WINDOWS:])
    return AgeQuantiles(age, num_rows, quantiles[:num_supported].tolist())


def _quantiles(pool: _Pool, num_known: int, miscoverages: NDArray[np.float64]) -> tuple[NDArray[np.float64], int]:
    """For each level's α the ⌈(n + 1)(1 − α)⌉-th smallest of the n scores of the newest known windows.

    Also returns the number of levels that n supports. Quantiles never decrease from level to level. A rank beyond n,
    which only an adapted α needs, gives the largest score.
    """
    chosen = (pool.owner < num_known) & (pool.owner >= num_known - POOLED_WINDOWS)
    rows = np.cumsum(np.where(chosen, pool.weights, 0.0))
    n = rows[-1]
    if n < 1:
        return np.zeros(len(LEVELS)), 0
    ranks = np.ceil((n + 1) * (1.0 - miscoverages) - _ROUNDING).clip(1.0, n)
    quantiles = np.maximum.accumulate(pool.scores[np.searchsorted(rows, ranks - _ROUNDING)])
    return quantiles, int(np.sum(np.ceil((n + 1) * np.array(LEVELS) - _ROUNDING) <= n))
