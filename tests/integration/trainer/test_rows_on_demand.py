"""Fits whose encoded rows would take too much memory are the same, bit by bit."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sqlalchemy import Engine

from store.events.reading import columns
from store.events.reading.columns import PickedColumns
from store.events.writes import append_events
from tests.integration.drifting_task import START, cutoff_after, define, drifting_events, drifting_task
from trainer.data.snapshot import Reading, read
from trainer.evaluation.fit_store import FitStore
from trainer.evaluation.origin_fits import fit_origins, keep_fit

ORIGINS = [cutoff_after(6), cutoff_after(8)]


def kept(reading: Reading, home: Path, encoded_mib: int) -> list[bytes]:
    """Graphs and manifests of two origins that are fitted side by side."""
    store, device = FitStore(home, reading.schema.task), torch.device("cpu")
    for fit in fit_origins(reading, ORIGINS, device, 64, lambda _epoch: None, encoded_mib=encoded_mib):
        keep_fit(fit, reading, store, device=device, git_sha="none", verdict=None)
    return [file.read_bytes() for origin in ORIGINS for file in sorted(store.folder(origin).iterdir())]


@pytest.mark.parametrize("as_numbers", [False, True])
def test_minibatches_encoded_when_drawn_give_the_same_bytes(engine: Engine, tmp_path: Path, as_numbers: bool) -> None:
    changes = {"target": {"name": "y", "kind": "regression"}} if as_numbers else {}
    schema = define(engine, drifting_task(**changes), 8, as_numbers=as_numbers)
    reading = read(engine, schema, cutoff_after(8), START)
    assert kept(reading, tmp_path / "once", 64) == kept(reading, tmp_path / "on demand", 0)


def test_rows_that_share_the_memory_of_the_reading_give_the_same_bytes(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = define(engine, drifting_task(), 4)
    rows = list(drifting_events(4, 8))
    late = [replace(row, known_at=row.known_at + 5_400_000_000 * (k % 3 == 0)) for k, row in enumerate(rows)]
    with engine.begin() as connection:
        append_events(connection, schema, late, START)
    reading = read(engine, schema, cutoff_after(8), START)
    before = kept(reading, tmp_path / "copied", 64)
    digest = reading.latest.digest
    monkeypatch.setattr(columns, "_ROWS_PER_BLOCK", 100)
    shared = read(engine, schema, cutoff_after(8), START)
    assert isinstance(shared.fit_rows(ORIGINS[0]), PickedColumns)
    assert shared.latest.digest == digest
    assert kept(shared, tmp_path / "shared", 0) == before


def test_picked_rows_are_those_of_a_copy(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = define(engine, drifting_task(), 3)
    events = read(engine, schema, cutoff_after(3), START).events
    mask = np.arange(len(events)) % 3 > 0
    copied = events.select(mask)
    monkeypatch.setattr(columns, "_ROWS_PER_BLOCK", 100)
    picked = events.select(mask)
    assert isinstance(picked, PickedColumns)
    assert not isinstance(copied, PickedColumns)
    for chosen in (slice(None), slice(5, 50), np.arange(len(picked)) % 2 > 0, np.array([3, 3, 250])):
        one, other = picked.select(chosen), copied.select(chosen)
        assert len(one) == len(other)
        assert all((getattr(one, name) == getattr(other, name)).all() for name in columns.COLUMNS)
        assert one.digest == other.digest
    assert (picked.number(0) == copied.number(0)).all()
    assert (picked.category(0) == copied.category(0)).all()
    changed = replace(picked, labels=1 - picked.labels)
    assert not isinstance(changed, PickedColumns)
    assert (changed.labels + copied.labels == 1).all()


def test_columns_take_no_more_memory_than_their_values_need(engine: Engine) -> None:
    schema = define(engine, drifting_task(), 3)
    events = read(engine, schema, cutoff_after(3), START).events
    assert events.known_at is events.at
    assert events.superseded_at.strides == (0,)
    assert [column.dtype.name for column in (events.categories, events.labels)] == ["uint8", "uint8"]
