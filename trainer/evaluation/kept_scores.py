"""What kept fits score on the rows of a reading, and the mixture of an origin that follows from such scores."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from store.error_cells import Cell
from trainer.data.snapshot import Reading
from trainer.data.windows import complete_until, in_window
from trainer.evaluation.fit_store import FitStore, score_fit
from trainer.evaluation.mixture import Mixture, mix
from trainer.export.opened_artefact import Artefact


def score_origin(reading: Reading, fit: Artefact, windows: Sequence[int]) -> list[Cell]:
    """Cells of one kept fit, and of naive at the same origin, on the rows of these windows known at the cutoff."""
    task = reading.schema.task
    return [
        cell
        for window in windows
        for cell in score_fit(
            fit,
            in_window(reading.current, window, task.clock),
            window=window,
            num_revisions=reading.fingerprints[window][1],
            is_complete=window < complete_until(task, reading.cutoff),
        )
    ]


def mix_as_of(reading: Reading, store: FitStore, cells: Sequence[Cell], origin: int) -> Mixture | None:
    """The mixture of an origin, from these cells as they were at the origin.

    Where rows of a window became known only later, its kept fits are scored again without them.
    """
    task, events = reading.schema.task, reading.events
    if not task.training.can_mix:
        return None
    is_late = (events.at < origin) & (events.known_at > origin)
    late = set(np.unique(task.clock.window_starts(events.at[is_late])).tolist())
    found = [cell for cell in cells if cell.window not in late]
    if late:
        then = replace(reading, cutoff=origin, events=events.select(events.known_at <= origin))
        for window in sorted(late & then.fingerprints.keys()):
            for earlier in sorted({cell.origin for cell in cells if cell.window == window and cell.origin < origin}):
                if (fit := store.find(earlier)) is not None:
                    found += score_origin(then, fit, [window])
    return mix(task, found, origin)
