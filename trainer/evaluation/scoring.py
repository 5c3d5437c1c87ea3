"""One cell of the error matrix: the error of one fit on one target window.

Every fit is scored through its exported graph in ONNX Runtime, as the service will answer with it. So the errors behind
a horizon belong to the very program that serves, and none of this needs torch. Rows whose class a fit never saw count:
they cost what a probability of 0 costs, because a client pays that for them.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from onnxruntime import InferenceSession

from contracts.clock import format_moment
from contracts.errors import CycleError
from contracts.manifest import graph_feed
from contracts.task import Task
from store.error_cells import ALONE, MIXTURE, NAIVE, Cell
from store.events.reading.columns import EventColumns
from trainer.data.encoder import class_positions
from trainer.evaluation.calibration import LEAST_PROBABILITY, LEAST_SCALE, nonconformity, sketch, tempered_losses
from trainer.export.opened_artefact import Artefact, raw_categories
from trainer.methods.gbdt import GBDT, mix_answers

_ROWS_PER_BLOCK = 8192


def answer(session: InferenceSession, task: Task, rows: EventColumns) -> list[NDArray[np.float32]]:
    """The graph's outputs on these rows: [probabilities (n, C)], or [mean (n,), scale (n,)]."""
    blocks = [_answer_block(session, task, rows.select(slice(k, k + _ROWS_PER_BLOCK))) for k in _starts(len(rows))]
    return [np.concatenate(parts) for parts in zip(*blocks, strict=True)]


def _starts(count: int) -> range:
    return range(0, max(1, count), _ROWS_PER_BLOCK)


def _answer_block(session: InferenceSession, task: Task, rows: EventColumns) -> list[NDArray[np.float32]]:
    feed = graph_feed(task, rows.at, rows.numbers, raw_categories(rows))
    found: list[NDArray[np.float32]] = session.run(None, feed)
    return found


def score(
    task: Task, classes: Sequence[str], outputs: Sequence[NDArray[np.float32]], rows: EventColumns
) -> tuple[float, float]:
    """(loss, metric) of outputs on rows: mean log-loss and error rate, or mean Gaussian NLL and absolute error.

    Raises CycleError if an output is not finite.
    """
    errors = row_errors(task, classes, outputs, rows)
    if task.is_classification:
        is_wrong = outputs[0].argmax(axis=1) != class_positions(classes, rows)
        return float(errors.mean()), float(is_wrong.mean())
    scale = np.maximum(outputs[1].astype(np.float64), LEAST_SCALE)
    nll = 0.5 * math.log(2 * math.pi) + np.log(scale) + 0.5 * (errors / scale) ** 2
    return float(nll.mean()), float(errors.mean())


def row_errors(
    task: Task, classes: Sequence[str], outputs: Sequence[NDArray[np.float32]], rows: EventColumns
) -> NDArray[np.float64]:
    """The errors `(n,)` whose mean is the task's error: log-losses, or absolute errors.

    Raises CycleError if an output is not finite.
    """
    if not all(np.isfinite(output).all() for output in outputs):
        raise CycleError("The model gives answers that are not finite.")
    if not task.is_classification:
        return np.abs(rows.labels - outputs[0].astype(np.float64))
    truth = class_positions(classes, rows)
    given = outputs[0][np.arange(len(truth)), truth].astype(np.float64)
    losses: NDArray[np.float64] = -np.log(np.where(truth < 0, 0.0, given).clip(LEAST_PROBABILITY, 1.0))
    return losses


def make_cell(
    task: Task,
    classes: Sequence[str],
    outputs: Sequence[NDArray[np.float32]],
    rows: EventColumns,
    *,
    origin: int,
    window: int,
    method: str,
    num_revisions: int = 0,
    is_complete: bool = True,
    temperature: float = 1.0,
) -> Cell:
    """The cell of outputs on the rows of a target window, with the sketches that calibration needs (naive has none).

    `temperature` is the graph's own. Raises CycleError if an output is not finite.
    """
    loss, metric = score(task, classes, outputs, rows)
    scores: tuple[float, ...] = ()
    tempered: tuple[float, ...] = ()
    if method != NAIVE:
        scores = sketch(nonconformity(task, classes, outputs, rows, temperature))
        if task.is_classification:
            tempered = tempered_losses(outputs[0], class_positions(classes, rows), temperature)
    return Cell(origin, window, method, len(rows), loss, metric, num_revisions, is_complete, scores, tempered)


def score_cell(
    task: Task,
    session: InferenceSession,
    classes: Sequence[str],
    rows: EventColumns,
    *,
    origin: int,
    window: int,
    num_revisions: int = 0,
    is_complete: bool = True,
    temperature: float = 1.0,
) -> Cell:
    """The cell of the fit of `origin` on the rows of a target window; `temperature` is that of its graph."""
    try:
        return make_cell(
            task,
            classes,
            answer(session, task, rows),
            rows,
            origin=origin,
            window=window,
            method=task.training.method,
            num_revisions=num_revisions,
            is_complete=is_complete,
            temperature=temperature,
        )
    except CycleError as error:
        raise CycleError(f"{error} It is the fit of {format_moment(origin)}.") from error


def score_experts(
    fit: Artefact, rows: EventColumns, *, window: int, num_revisions: int = 0, is_complete: bool = True
) -> list[Cell]:
    """The cells of LightGBM and of what the fit would have answered otherwise; none if it has no experts.

    A fit of a backtest, whose graph holds no trees, gets the cell of its mixture here as well, if that answers.
    """
    task, manifest = fit.task, fit.manifest
    if fit.experts is None or manifest.experts is None:
        return []
    outputs, count = answer(fit.experts, task, rows), len(manifest.output_names)
    alone, trees = outputs[:count], outputs[count:]
    found = {GBDT: trees}
    if (weight := manifest.experts.weight) is not None:
        mixture = [output.astype(np.float32) for output in mix_answers(alone, trees, weight)]
        found |= {ALONE: alone} if manifest.weights else {MIXTURE: mixture}
        if manifest.weights and not manifest.experts.is_blended:
            found[task.training.method] = mixture
    return [
        make_cell(
            task,
            manifest.classes,
            given,
            rows,
            origin=manifest.cutoff,
            window=window,
            method=method,
            num_revisions=num_revisions,
            is_complete=is_complete,
        )
        for method, given in found.items()
    ]


def score_naive(
    task: Task,
    given: Sequence[float],
    classes: Sequence[str],
    rows: EventColumns,
    *,
    origin: int,
    window: int,
    num_revisions: int = 0,
    is_complete: bool = True,
) -> Cell:
    """The cell of the naive answer of that origin (`trainer.methods.naive_answer`), given to every row."""
    return make_cell(
        task,
        classes,
        _repeat(task, given, len(rows)),
        rows,
        origin=origin,
        window=window,
        method=NAIVE,
        num_revisions=num_revisions,
        is_complete=is_complete,
    )


def _repeat(task: Task, given: Sequence[float], count: int) -> list[NDArray[np.float32]]:
    """One answer repeated for `count` rows in the form of a graph's outputs: [probabilities], or [mean, scale]."""
    if task.is_classification:
        return [np.tile(np.array(given, np.float32), (count, 1))]
    return [np.full(count, value, np.float32) for value in given]
