"""The champion as the judge meets it: fetched from MLflow as a service would, and asked rows that no fit has used."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from onnxruntime import InferenceSession

from contracts.errors import CycleError
from contracts.manifest import Manifest
from contracts.task import Task
from store.cells import Cell
from store.columns import EventColumns
from store.releases import read_overlay
from trainer.data.labels import draw_in_labels
from trainer.data.snapshot import Reading
from trainer.evaluation.fit_store import candidate_folder
from trainer.evaluation.release_gates import Decision, check_withheld, first_failure
from trainer.evaluation.scoring import answer, row_errors
from trainer.evaluation.suspect_windows import check_newest_window, set_aside
from trainer.export.session import verify_artefact
from trainer.retraining.ledger import Attempt
from trainer.tracking.registry import Champion


def judge_beside(
    attempt: Attempt, reading: Reading, cells: Sequence[Cell], candidate: Manifest, champion: Champion | None
) -> list[Decision]:
    """What the newest window and the withheld rows say of a candidate beside the champion. Raises Unavailable."""
    task = attempt.schema.task
    decisions = [check_newest_window(task, cells, None if champion is None else champion.cutoff)]
    if champion is None or first_failure(decisions) is not None:
        return decisions
    if champion.cutoff is None:
        decisions.append(Decision("withheld_rows", True, reason="the champion does not say of which cutoff it is"))
    else:
        decisions.append(_compare(attempt, reading, candidate, champion, set_aside(task, cells)))
    return decisions


def _compare(attempt: Attempt, reading: Reading, candidate: Manifest, champion: Champion, aside: set[int]) -> Decision:
    """On the withheld rows after the champion's cutoff that it may answer; where it cannot answer, it has lost."""
    task = attempt.schema.task
    with tempfile.TemporaryDirectory(prefix="morrow-") as temporary:
        try:
            manifest = attempt.run.registry.fetch(task.name, champion.version, Path(temporary))
            session = verify_artefact(Path(temporary))
            theirs = manifest.parse_task()
        except CycleError as error:
            return Decision("withheld_rows", True, reason=f"the champion cannot be asked: {error}")
    if theirs.row_schema != task.row_schema:
        return Decision("withheld_rows", True, reason="the champion answers rows of another schema")
    with attempt.engine.connect() as connection:
        overlay = read_overlay(connection, attempt.cycle.task_id, champion.version)
    valid_until = manifest.valid_until if overlay is None else overlay.valid_until
    rows = rows_to_compare_on(reading, manifest.cutoff, valid_until, aside)
    ours = verify_artefact(candidate_folder(attempt.settings.home, task, candidate.cutoff))
    return check_withheld(errors_on(ours, task, candidate, rows), errors_on(session, task, manifest, rows))


def rows_to_compare_on(reading: Reading, cutoff: int, valid_until: int, aside: set[int]) -> EventColumns:
    """The withheld rows that the champion of this cutoff may answer, without windows that are set aside."""
    task, known = reading.schema.task, reading.known(reading.cutoff)
    is_meant = known.withheld & (known.at >= cutoff) & (known.at <= valid_until)
    is_meant &= ~np.isin(task.clock.window_starts(known.at), list(aside))
    return draw_in_labels(task, known.select(is_meant), known)


def errors_on(session: InferenceSession, task: Task, manifest: Manifest, rows: EventColumns) -> NDArray[np.float64]:
    """A version's error on each of these rows, `(n,)`."""
    return row_errors(task, manifest.classes, answer(session, task, rows), rows)
