"""The guard on real fits: labels that are flipped close a horizon, and their correction opens it again."""

from pathlib import Path

import pytest
from sqlalchemy import Engine

from contracts.verdict import Verdict
from store.events.writes import correct_event
from tests.integration.drifting_task import cutoff_after, drifting_events, drifting_task, flip
from tests.integration.guarded_task import rows_of, story, write
from tests.integration.live_job import append, copy_home, fill, fill_as_of, live, moment
from trainer.evaluation.release_gates import describe_matrix

TASK = drifting_task(name="guarded", guard={"max_age": 3, "tolerance": 5.0, "min_rows": 100})


@pytest.fixture(scope="module")
def fits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fits")


def test_flipped_labels_close_the_horizon_within_a_look_and_their_correction_reopens_it(
    engine: Engine, fits: Path, tmp_path: Path
) -> None:
    schema = fill(engine, TASK, fits)
    home = copy_home(fits, tmp_path)
    verdict = fill_as_of(engine, schema, home, 8)
    assert verdict.horizon >= 2
    described = Verdict.of(matrix=describe_matrix(TASK, cutoff_after(7), verdict, []))
    bound = 7 + verdict.horizon
    write(engine, schema, "release", bound, verdict=described, at=7)
    job = live(engine, home)
    assert job.score_new_labels(moment(8)) == 0
    before = [row.action for row in rows_of(engine, schema)]
    assert "close" not in before

    poisoned = [flip(event) for event in drifting_events(8, 9)]
    append(engine, schema, poisoned)
    job.score_new_labels(moment(8.9))
    assert [row.action for row in rows_of(engine, schema)] == before, "not all labels of the window are there"
    job.score_new_labels(moment(9))
    assert story(engine, schema)[-1] == ("1", "close", 8)
    live(engine, home).score_new_labels(moment(9.1))
    assert [row.action for row in rows_of(engine, schema)] == [*before, "close"]

    with engine.begin() as connection:
        for event in poisoned:
            correct_event(connection, schema, flip(event), moment(9.5))
    live(engine, home).score_new_labels(moment(9.6))
    assert [row.action for row in rows_of(engine, schema)][len(before) :][:2] == ["close", "reopen"]
    assert story(engine, schema)[-1][2] == bound


def test_a_bunch_of_a_windows_labels_closes_nothing_before_the_rest_is_late(
    engine: Engine, fits: Path, tmp_path: Path
) -> None:
    schema = fill(engine, TASK, fits)
    home = copy_home(fits, tmp_path)
    verdict = fill_as_of(engine, schema, home, 8)
    described = Verdict.of(matrix=describe_matrix(TASK, cutoff_after(7), verdict, []))
    write(engine, schema, "release", 7 + verdict.horizon, verdict=described)
    job = live(engine, home)
    append(engine, schema, [flip(event) for event in drifting_events(8, 9)][:20])
    job.score_new_labels(moment(9))
    assert "close" not in [row.action for row in rows_of(engine, schema)]
    job.score_new_labels(moment(9.9))
    assert "close" not in [row.action for row in rows_of(engine, schema)]
    assert job.score_new_labels(moment(10)) == 0
    assert story(engine, schema)[-1] == ("1", "close", 8)
