"""What an erasure leaves of the windows that held the events: cells are scored again, and versions are named."""

from pathlib import Path

from sqlalchemy import Engine

from store.cycles.leases import end_cycle
from store.events.erasures import find_trained
from store.events.reading.columns import read_events
from store.events.reading.counts import read_fingerprints
from store.events.writes import correct_event
from tests.integration.drifting_task import (
    HOUR,
    ROWS_PER_WINDOW,
    START,
    claim,
    cutoff_after,
    define,
    drifting_events,
    drifting_task,
    now,
    settings,
)
from tests.integration.erased_events import erase
from tests.integration.live_job import NUM_WINDOWS, ages_on, fill, live, moment
from trainer.evaluation.backtest import backtest


def test_cells_that_stand_on_an_erased_event_are_scored_again(engine: Engine, tmp_path: Path) -> None:
    schema = fill(engine, drifting_task(), tmp_path)
    window = NUM_WINDOWS - 1
    before = ages_on(engine, schema, window)
    victims = [row.event_id for row in drifting_events(window, window + 1)][:40]
    erase(engine, schema, *victims)
    job = live(engine, tmp_path)
    assert job.score_new_labels(moment(NUM_WINDOWS)) > 0
    after = ages_on(engine, schema, window)
    assert before.keys() == after.keys()
    for age, cell in after.items():
        assert cell.num_rows == before[age].num_rows - 40
        assert cell.num_revisions == before[age].num_revisions + 40
        assert cell.loss != before[age].loss
    assert job.score_new_labels(moment(NUM_WINDOWS)) == 0


def test_a_window_whose_events_are_all_erased_has_no_cells(engine: Engine, tmp_path: Path) -> None:
    schema = fill(engine, drifting_task(), tmp_path)
    erase(engine, schema, *(row.event_id for row in drifting_events(NUM_WINDOWS - 1, NUM_WINDOWS)))
    live(engine, tmp_path).score_new_labels(moment(NUM_WINDOWS))
    assert ages_on(engine, schema, NUM_WINDOWS - 1) == {}
    assert ages_on(engine, schema, NUM_WINDOWS - 2) != {}


def test_a_backtest_that_has_read_before_leaves_no_cell_on_an_erased_event(engine: Engine, tmp_path: Path) -> None:
    schema = define(engine, drifting_task(), NUM_WINDOWS)
    window = NUM_WINDOWS - 1

    def erase_meanwhile(event: str, /, **_facts: object) -> None:
        if event == "matrix.missing":  # it has read, and fits and scores now
            erase(engine, schema, *(f"{window}-{k}" for k in range(40)))

    cutoff, when = cutoff_after(NUM_WINDOWS), moment(NUM_WINDOWS)
    backtest(engine, schema, cutoff, settings=settings(tmp_path), now=lambda: when, report=erase_meanwhile)
    assert {cell.num_rows for cell in ages_on(engine, schema, window).values()} == {ROWS_PER_WINDOW}
    with engine.connect() as connection:
        found = read_fingerprints(connection, schema.task_id, schema.task, cutoff, since=cutoff_after(window))
    num_left = ROWS_PER_WINDOW - 40
    assert found == {cutoff_after(window): (num_left, ROWS_PER_WINDOW + 40)}
    live(engine, tmp_path).score_new_labels(when)
    assert {cell.num_rows for cell in ages_on(engine, schema, window).values()} == {num_left}


def test_versions_that_were_trained_on_an_event_are_named(engine: Engine) -> None:
    schema = define(engine, drifting_task(), 4)
    for window, version in ((1, "1"), (2, "2"), (3, "3")):
        cycle = claim(engine, schema, cutoff_after(window))
        # The second reads before the event that is asked for has come in.
        read_at = START - HOUR if window == 2 else moment(4)
        with engine.begin() as connection:
            end_cycle(connection, cycle, "released", None, now(), version=version, read_at=read_at)
    with engine.begin() as connection:
        correct_event(connection, schema, next(drifting_events(2, 3)), moment(2.5))
        seen = [
            find_trained(connection, schema.task_id, [event_id]) for event_id in ("0-0", "1-0", "2-0", "3-0", "none")
        ]
    assert seen == [["1", "3"], ["3"], ["3"], [], []]
    erase(engine, schema, "0-0")
    with engine.connect() as connection:
        assert find_trained(connection, schema.task_id, ["0-0"]) == []


def test_the_matrix_of_a_task_whose_event_is_erased_is_filled_without_it(engine: Engine) -> None:
    schema = define(engine, drifting_task(), 2)
    cutoff = cutoff_after(2)
    with engine.connect() as connection:
        before = read_events(connection, schema.task_id, schema.task, cutoff)
    erase(engine, schema, "0-0")
    with engine.connect() as connection:
        after = read_events(connection, schema.task_id, schema.task, cutoff)
    assert after.as_of(cutoff).digest == before.select(before.at > cutoff_after(0)).digest
