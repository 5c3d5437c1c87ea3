"""Producers append and correct while two trainers look: in the end the matrix is as if it had been filled at once."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, delete

from store.database import error_cells
from store.engine import make_engine
from store.events.writes import correct_event
from store.tasks.catalog import Schema
from tests.integration.drifting_task import ROWS_PER_WINDOW, cutoff_after, drifting_events, drifting_task, flip
from tests.integration.live_job import append, cells_of, fill, fill_as_of, live, moment


@pytest.fixture
def schema(engine: Engine, tmp_path: Path) -> Schema:
    return fill(engine, drifting_task(), tmp_path)


@pytest.fixture
def hammered(engine: Engine, schema: Schema, tmp_path: Path, database_url: str) -> Iterator[None]:
    """Two windows appended in small batches and corrected meanwhile, by three producers, while two trainers look."""
    batch = [*drifting_events(8, 9), *drifting_events(7, 8)]
    done = threading.Event()
    engines = [make_engine(database_url) for _ in range(5)]

    def produce(number: int) -> None:
        own = batch[number::3]
        for start in range(0, len(own), 5):
            append(engines[number], schema, own[start : start + 5], moment(9))
            event = own[start]
            flipped = flip(event)
            with engines[number].begin() as connection:
                correct_event(connection, schema, flipped, moment(9) + timedelta(seconds=start))

    def look(number: int) -> None:
        job, k = live(engines[number], tmp_path), 0
        while not done.is_set():
            job.score_new_labels(moment(9) + timedelta(seconds=k))
            k += 1

    with ThreadPoolExecutor(5) as pool:
        lookers = [pool.submit(look, number) for number in (3, 4)]
        for producer in [pool.submit(produce, number) for number in range(3)]:
            producer.result()
        done.set()
        for looker in lookers:
            looker.result()
    yield
    for own in engines:
        own.dispose()


@pytest.mark.usefixtures("hammered")
def test_after_a_hammering_the_cells_equal_a_fresh_scoring_of_everything(
    engine: Engine, schema: Schema, tmp_path: Path
) -> None:
    live(engine, tmp_path).score_new_labels(moment(10))
    grown = cells_of(engine, schema)
    with engine.begin() as connection:
        connection.execute(delete(error_cells))
    live(engine, tmp_path).score_new_labels(moment(10))
    fresh = cells_of(engine, schema)
    assert {cell.num_revisions for cell in fresh if cell.window == cutoff_after(8)} == {ROWS_PER_WINDOW + 30}
    assert grown == fresh
    with engine.begin() as connection:
        connection.execute(delete(error_cells))
    fill_as_of(engine, schema, tmp_path, 10)
    by_backtest = cells_of(engine, schema)
    assert {cell for cell in by_backtest if cell.origin <= cutoff_after(7)} <= set(fresh)
