"""Checked rows as the columns that a fit would read if they had been stored."""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contracts.task import Task
from store.events.batches import EventBatch
from store.events.reading.columns import NEVER, EventColumns
from store.events.reading.copied_tuples import WITHHELD_BYTES


def lay_out_unstored(task: Task, rows: EventBatch, cutoff: int) -> EventColumns:
    """The columns that `read_events` returns for these rows, if the store holds them alone and none is corrected."""
    allowed = np.flatnonzero((rows.at < cutoff) & (rows.known_at <= cutoff)).tolist()
    ordered = rows.select(sorted(allowed, key=lambda place: (rows.at[place], rows.event_ids[place])))
    count, num_categories = len(ordered.event_ids), len(task.categories)
    columns = [_code(ordered.categories[place::num_categories]) for place in range(num_categories)]
    if task.is_classification:
        labels, classes = _code(ordered.labels)
    else:
        labels, classes = np.array(ordered.labels, np.float64), ()
    return EventColumns(
        at=ordered.at,
        known_at=ordered.known_at,
        superseded_at=np.broadcast_to(np.int64(NEVER), count),
        numbers=ordered.numbers,
        categories=np.column_stack([places for places, _ in columns]) if columns else np.empty((count, 0), np.int32),
        vocabularies=tuple(vocabulary for _, vocabulary in columns),
        labels=labels,
        classes=classes,
        withheld=np.array([is_withheld(event_id) for event_id in ordered.event_ids], np.bool_),
    )


def is_withheld(event_id: str) -> bool:
    """Whether the event of an id is among the fixed share that no fit uses, as the store's query finds it."""
    return sha256(event_id.encode()).digest()[0] < WITHHELD_BYTES


def _code(texts: Sequence[str]) -> tuple[NDArray[Any], tuple[str, ...]]:
    """The place of each text among all that occur, which are sorted."""
    known = tuple(sorted(set(texts)))
    places = {text: place for place, text in enumerate(known)}
    return np.array([places[text] for text in texts], np.int32), known
