"""The candidate compared with the champion, on rows that neither was fitted on.

A cycle fetches the champion from MLflow as a service would; a replay finds both among its kept fits.
"""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from contracts.errors import CycleError
from contracts.task import Task
from contracts.verdict import Decision, first_failure
from store.error_cells import Cell
from store.events.reading.columns import EventColumns
from store.releases import read_overlay
from trainer.data.labels import clip_labels
from trainer.data.snapshot import Reading
from trainer.evaluation.fit_store import open_fit
from trainer.evaluation.release_gates import check_withheld
from trainer.evaluation.scoring import answer, row_errors
from trainer.evaluation.suspect_windows import check_newest_window, set_aside
from trainer.export.opened_artefact import Artefact, open_artefact
from trainer.retraining.attempt import Attempt
from trainer.tracking.registry import Champion


@dataclass(frozen=True)
class Pair:
    """Candidate and champion, opened. The champion may answer until `valid_until` (microseconds)."""

    candidate: Artefact
    champion: Artefact
    valid_until: int


def judge_with_champion(attempt: Attempt, reading: Reading, cells: Sequence[Cell], candidate: Path) -> list[Decision]:
    """Check that no newer cutoff is released, then the newest window and the withheld rows. Raises Unavailable.

    An override replaces the last two checks, but never lets an older cutoff take the alias.
    """
    champion = attempt.registry.champion(attempt.task)
    with attempt.engine.connect() as connection:
        decision = attempt.check_newest_cutoff(connection, champion)
    if not decision.passed:
        return [decision]
    if (actor := attempt.cycle.override_actor) is not None:
        return [decision, Decision("override", True, reason=f"{actor}: {attempt.cycle.override_reason}")]
    if champion is None:
        return [decision, *compare_with_champion(reading, cells, None, None)]
    open_pair = partial(_open_pair, attempt, candidate, champion)
    return [decision, *compare_with_champion(reading, cells, champion.cutoff, open_pair)]


def compare_with_champion(
    reading: Reading,
    cells: Sequence[Cell],
    champion_cutoff: int | None,
    open_pair: Callable[[], Pair | str] | None,
) -> list[Decision]:
    """Check the newest window and, if it is ordinary, the withheld rows that the champion may answer.

    `open_pair` opens both versions, or says why they cannot be compared; it is None if there is no champion.
    """
    task = reading.schema.task
    decisions = [check_newest_window(task, cells, champion_cutoff)]
    if open_pair is None or first_failure(decisions) is not None:
        return decisions
    pair = open_pair()
    if isinstance(pair, str):
        return [*decisions, Decision("withheld_rows", True, reason=pair)]
    rows = _rows_to_compare_on(reading, pair.champion.manifest.cutoff, pair.valid_until, set_aside(task, cells))
    return [*decisions, check_withheld(_errors_on(pair.candidate, task, rows), _errors_on(pair.champion, task, rows))]


def _open_pair(attempt: Attempt, candidate_folder: Path, champion: Champion) -> Pair | str:
    if champion.cutoff is None:
        return "the champion does not say of which cutoff it is"
    with tempfile.TemporaryDirectory(prefix="morrow-") as temporary:
        try:
            attempt.registry.download(attempt.task, champion.version, Path(temporary))
            fetched = open_artefact(Path(temporary))
        except CycleError as error:
            return f"the champion cannot be asked: {error}"
    # Opened from its folder again, because that is what will be registered.
    candidate = open_fit(candidate_folder)
    if fetched.task.row_schema != candidate.task.row_schema:
        return "the champion answers rows of another schema"
    with attempt.engine.connect() as connection:
        overlay = read_overlay(connection, attempt.cycle.task_id, champion.version)
    return Pair(candidate, fetched, fetched.manifest.valid_until if overlay is None else overlay.valid_until)


def _rows_to_compare_on(reading: Reading, cutoff: int, valid_until: int, aside: set[int]) -> EventColumns:
    """The withheld rows that the champion of this cutoff may answer, without windows that are set aside."""
    task, known = reading.schema.task, reading.latest
    is_meant = known.withheld & (known.at >= cutoff) & (known.at <= valid_until)
    is_meant &= ~np.isin(task.clock.window_starts(known.at), list(aside))
    return clip_labels(task, known.select(is_meant), known)


def _errors_on(version: Artefact, task: Task, rows: EventColumns) -> NDArray[np.float64]:
    """A version's error on each of these rows, `(n,)`."""
    return row_errors(task, version.manifest.classes, answer(version.session, task, rows), rows)
