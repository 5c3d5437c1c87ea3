"""How right a replay's promises were: the error on each window compared with the error that each origin expected.

All figures cover windows whose labels were due at the end of the replay, scored on the labels known then.

    inside_band   share of (age, window) pairs, one for each origin and age, whose error was in the 90 % band that its
                  origin gave
    coverage      share of scored rows whose nonconformity was at most the 90 % quantile that their origin had for their
                  age: rows inside an interval, or classes inside a set
    error_inside_horizon, error_beyond_horizon
                  mean error of the pairs before, and from, the end of their origin's horizon, over origins with a
                  horizon shorter than `max_age`
"""

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Any

import numpy as np

from contracts.calibration import find_quantile
from contracts.clock import format_moment, from_micros
from contracts.verdict import LimitCheck, first_failure, to_json
from store.error_cells import NAIVE, error_of
from store.releases import Release
from trainer.evaluation.calibration import share_covered
from trainer.methods.gbdt import GBDT
from trainer.monitoring.promises import Outcome
from trainer.replay.replay import Replay, ReplayedCutoff

NOMINAL = 0.90
# Methods that every report names, besides the task's own.
METHODS = ("gi", "baseline", "last_window", NAIVE, GBDT)


def find_outcomes(replay: Replay) -> list[Outcome]:
    """Each origin's promise at each age that had a band, if that window is labelled by now."""
    task = replay.task
    outcomes: list[Outcome] = []
    for cutoff in replay.cutoffs:
        for expected in cutoff.expected:
            window = cutoff.origin + expected.age * task.clock.window
            cell = replay.cells.get((cutoff.origin, window, task.training.method))
            if cell is None or not cell.is_complete or not math.isfinite(expected.mean):
                continue
            quantile = find_quantile(cutoff.calibration, expected.age, NOMINAL)
            outcomes.append(
                Outcome(
                    origin=cutoff.origin,
                    age=expected.age,
                    window=window,
                    is_inside_horizon=expected.age < cutoff.horizon,
                    expected=expected.mean,
                    low=expected.low,
                    high=expected.high,
                    realised=error_of(cell, task.error_name),
                    num_rows=cell.num_rows,
                    covered=None if quantile is None else float(share_covered(cell, np.array([quantile]))[0]),
                )
            )
    return outcomes


def inside_band(outcomes: Sequence[Outcome]) -> float | None:
    """Share of outcomes inside their band; None if there are no outcomes."""
    return fmean(outcome.is_inside_band for outcome in outcomes) if outcomes else None


def realised_coverage(outcomes: Sequence[Outcome]) -> float | None:
    """Share of rows inside the interval or set that was promised to hold 90 % of them; None without a promise."""
    known = [(outcome.covered, outcome.num_rows) for outcome in outcomes if outcome.covered is not None]
    return fmean([share for share, _ in known], [rows for _, rows in known]) if known else None


def errors_by_horizon(replay: Replay, outcomes: Sequence[Outcome]) -> tuple[float | None, float | None]:
    """Mean error inside and beyond the horizon, over origins with a horizon shorter than `max_age`."""
    chosen = _origins_with_shorter_horizon(replay)
    inside, beyond = (
        [one.realised for one in outcomes if one.origin in chosen and one.is_inside_horizon is is_inside]
        for is_inside in (True, False)
    )
    return (fmean(inside), fmean(beyond)) if inside and beyond else (None, None)


def _origins_with_shorter_horizon(replay: Replay) -> set[int]:
    return {cutoff.origin for cutoff in replay.cutoffs if 0 < cutoff.horizon < replay.task.guard.max_age}


def paired_difference(replay: Replay, outcomes: Sequence[Outcome]) -> float | None:
    """How much larger errors beyond a horizon are than errors inside one, on the same windows; None if there are none.

    A hard week counts on both sides, so it is not mistaken for ageing. Origins are those of `errors_by_horizon`.
    """
    chosen = _origins_with_shorter_horizon(replay)
    sides: dict[int, tuple[list[float], list[float]]] = {}
    for one in outcomes:
        if one.origin in chosen:
            inside, beyond = sides.setdefault(one.window, ([], []))
            (inside if one.is_inside_horizon else beyond).append(one.realised)
    differences = [fmean(beyond) - fmean(inside) for inside, beyond in sides.values() if inside and beyond]
    return fmean(differences) if differences else None


def served_outcomes(replay: Replay) -> list[Outcome]:
    """The expected and the realised error of each window that a version answered in."""
    found = {(outcome.origin, outcome.window): outcome for outcome in find_outcomes(replay)}
    keys = [(cutoff.served[1], cutoff.origin) for cutoff in replay.cutoffs if cutoff.served]
    return [found[key] for key in keys if key in found]


def errors_on_window(replay: Replay, cutoff: ReplayedCutoff) -> dict[str, float | None]:
    """Method -> error on the window that begins at the cutoff; ours is that of the version that answered there.

    The other methods' fits have the same origin as that version. If none answered, their origin is the cutoff, and our
    error is None.
    """
    task = replay.task
    origin = cutoff.served[1] if cutoff.served else cutoff.origin
    errors: dict[str, float | None] = {}
    for method in dict.fromkeys((task.training.method, *METHODS)):
        cell = replay.cells.get((origin, cutoff.origin, method))
        is_ours = method == task.training.method
        is_known = cell is not None and cell.is_complete and not (is_ours and cutoff.served is None)
        errors[method] = error_of(cell, task.error_name) if cell is not None and is_known else None
    return errors


def closings(replay: Replay) -> list[Release]:
    """Releases that closed a horizon at the first reported origin or later, oldest first."""
    first = from_micros(replay.cutoffs[0].origin)
    return [row for row in reversed(replay.releases) if row.action == "close" and row.at >= first]


def as_document(replay: Replay) -> dict[str, Any]:
    """The replay as a JSON document, moments in RFC 3339."""
    outcomes = find_outcomes(replay)
    inside, beyond = errors_by_horizon(replay, outcomes)
    return {
        "task": replay.task.name,
        "windows": [_window(replay, cutoff) for cutoff in replay.cutoffs],
        "cells": [
            {
                "age": outcome.age,
                "window": format_moment(outcome.window),
                "expected": outcome.expected,
                "low": outcome.low,
                "high": outcome.high,
                "realised": outcome.realised,
                "num_rows": outcome.num_rows,
            }
            for outcome in outcomes
        ],
        "inside_band": inside_band(outcomes),
        "coverage": {"nominal": NOMINAL, "realised": realised_coverage(outcomes)},
        "error_inside_horizon": inside,
        "error_beyond_horizon": beyond,
        "closings": [_closing(row) for row in closings(replay)],
    }


def reason_of(cutoff: ReplayedCutoff) -> str:
    """`released`, or the reason why not."""
    failure = first_failure(cutoff.decisions)
    return "released" if failure is None else failure.reason or failure.rule


def _window(replay: Replay, cutoff: ReplayedCutoff) -> dict[str, Any]:
    return {
        "origin": format_moment(cutoff.origin),
        "version": cutoff.served[0] if cutoff.served else None,
        "horizon": cutoff.horizon,
        "verdict": reason_of(cutoff),
        "metric": errors_on_window(replay, cutoff),
        "seconds": {stage: round(seconds, 3) for stage, seconds in cutoff.seconds.items()},
    }


def _closing(row: Release) -> dict[str, Any]:
    assert isinstance(row.verdict, LimitCheck)
    figures = to_json(row.verdict)
    return {"version": row.version, **{key: figures[key] for key in ("window", "age", "value", "threshold")}}
