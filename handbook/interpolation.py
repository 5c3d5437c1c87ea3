"""Two pictures of Gradient Interpolation: the boundary that a network learns on a moving stream, and its tangents.

GI is compared with the same network from the same seeds without the interpolated loss (λ = 0). It is also compared with
one that does not get the time.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from handbook.example import DAY, grid, threshold
from trainer.data.encoder import encode
from trainer.evaluation.origin_fits import Fit
from trainer.network.training_loop import outputs
from trainer.plots.canvas import CLOSED, HORIZON, OURS, YARDSTICK, new_figure, save_figure

_COLORS = {"gi": OURS, "λ = 0": CLOSED, "baseline": YARDSTICK}
_DAYS_BEFORE, _DAYS_AFTER = 14, 8
_COLDEST, _WARMEST, _NUM_TEMPERATURES = -5.0, 35.0, 401
# A temperature that is busy for half of the days shown, and the length of the tangents in days.
_TEMPERATURE, _STEP = 12.0, 3


def save_boundary(fits: Mapping[str, Fit], file: Path) -> None:
    """Write a PNG: the temperature above which a working day is predicted busy, before and after the cutoff."""
    figure, axes = new_figure((8, 4.5), "The boundary of each network, on the days that it has seen and after them")
    for name, fit in fits.items():
        at = _moments(fit.origin, per_day=2)
        found = _boundary(fit, at)
        off = np.abs(found - threshold(at))[at >= fit.origin].mean()
        label = f"{name}: {off:.1f} °C off in the days not seen"
        axes.plot(_days(at, fit.origin), found, color=_COLORS[name], linewidth=2, label=label)
    cutoff = next(iter(fits.values())).origin
    at = _moments(cutoff, per_day=24)
    axes.plot(_days(at, cutoff), threshold(at), "k:", label="the truth")
    _mark_cutoff(axes)
    axes.set_ylabel("temperature from which it is busy, °C")
    axes.legend(loc="best", fontsize=8)
    save_figure(figure, file)


def save_tangents(fits: Mapping[str, Fit], file: Path) -> None:
    """Write a PNG: F(x, u) of one row over time, with tangents from earlier moments."""
    title = f"A working day of {_TEMPERATURE:g} °C; dots: the tangent of {_STEP} days before"
    figure, axes = new_figure((8, 4.5), title)
    for name, fit in fits.items():
        at = _moments(fit.origin, per_day=4)
        odds, _ = _log_odds(fit, at)
        axes.plot(_days(at, fit.origin), odds, color=_COLORS[name], linewidth=2, label=name)
        starts = fit.origin + np.arange(-_DAYS_BEFORE + 1, 1, _STEP) * DAY
        odds, rates = _log_odds(fit, starts)
        for day, value, rate in zip(_days(starts, fit.origin), odds, rates, strict=True):
            axes.plot([day, day + _STEP], [value, value + _STEP * rate], "-", color=_COLORS[name], linewidth=0.9)
            axes.plot([day + _STEP], [value + _STEP * rate], "o", color=_COLORS[name], markersize=4)
    _mark_cutoff(axes)
    axes.set_ylabel("log-odds of busy")
    axes.legend(loc="best", fontsize=8)
    save_figure(figure, file)


def _mark_cutoff(axes: Any) -> None:
    axes.axvline(0, color=YARDSTICK, linestyle="--")
    axes.axvspan(0, _DAYS_AFTER, color=HORIZON, alpha=0.08, label="not seen")
    axes.set_xlabel("days after the cutoff")


def _moments(cutoff: int, per_day: int) -> NDArray[np.int64]:
    count = (_DAYS_BEFORE + _DAYS_AFTER) * per_day
    return cutoff - _DAYS_BEFORE * DAY + np.arange(count) * (DAY // per_day)


def _days(at: NDArray[np.int64], cutoff: int) -> NDArray[np.float64]:
    days: NDArray[np.float64] = (at - cutoff) / DAY
    return days


def _boundary(fit: Fit, at: NDArray[np.int64]) -> NDArray[np.float64]:
    """The temperature of even odds at each moment, by the members' mean; NaN if the grid holds none."""
    temperatures = np.linspace(_COLDEST, _WARMEST, _NUM_TEMPERATURES)
    rows = grid(np.repeat(at, _NUM_TEMPERATURES), np.tile(temperatures, len(at)))
    raw = torch.from_numpy(outputs(fit.network, encode(fit.encoder, rows), fit.members))
    is_busy = raw.softmax(-1).mean(0)[:, 0].reshape(len(at), -1).numpy() > 0.5
    first = is_busy.argmax(axis=1)
    return np.where(is_busy.any(axis=1) & (first > 0), temperatures[first], np.nan)


def _log_odds(fit: Fit, at: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Log-odds of busy and their rates per day, as means over the members."""
    rows = encode(fit.encoder, grid(at, np.full(len(at), _TEMPERATURE)))
    network, num_members = fit.network.select(fit.members), len(fit.members)
    dense, codes, u = (
        torch.from_numpy(column).expand(num_members, *column.shape) for column in (rows.dense, rows.codes, rows.u)
    )
    with torch.no_grad():
        value, rate = network.dual(dense, codes, u)
    per_day = fit.encoder.clock.span / DAY
    odds, rates = ((raw[..., 0] - raw[..., 1]).mean(0).double().numpy() for raw in (value, rate))
    return odds, rates / per_day
