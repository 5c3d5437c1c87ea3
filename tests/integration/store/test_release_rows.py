"""What a row of `releases` changes of a loaded version counts within a look, and a restart offline remembers it."""

from pathlib import Path

from sqlalchemy import Engine

from contracts.calibration import LEVELS, AgeQuantiles, Calibration
from contracts.clock import format_moment
from service.models.answer import Answer
from service.validation.values import json_moment
from store.releases import Action
from store.tasks.catalog import Schema
from tests.integration.artefacts import CUTOFF, WEEK, publish, write_version
from tests.integration.make_follower import MakeFollower, ask
from tests.integration.published_versions import note


def calibrated(half: float) -> Calibration:
    """An interval of `half` scales to each side at age 0."""
    return Calibration(1.0, [AgeQuantiles(0, 1000, [half] * len(LEVELS))])


def width(answer: Answer) -> float | None:
    """Half of an interval, in scales."""
    if not isinstance(answer.interval, list):
        return None
    assert isinstance(answer.scale, float)
    return round((answer.interval[1] - answer.interval[0]) / (2 * answer.scale), 6)


def test_a_release_row_moves_the_horizon_and_a_restart_offline_remembers_it(
    make_follower: MakeFollower, schema: Schema, mlflow_url: str, engine: Engine, tmp_path: Path
) -> None:
    task = schema.task.name
    version = publish(mlflow_url, task, write_version(tmp_path / "one", task=task))
    follower = make_follower()
    follower.poll(0)
    assert json_moment(ask(follower, task).valid_until) == CUTOFF + 2 * WEEK
    for bound in (CUTOFF + WEEK, CUTOFF + 2 * WEEK, CUTOFF + WEEK // 2):
        note(engine, schema, version, "close", valid_until=bound)
        follower.poll(1)
        assert ask(follower, task).valid_until == format_moment(bound)
        assert ask(make_follower(offline=True), task).valid_until == format_moment(bound)


def test_a_calibrate_row_counts_within_a_look_and_a_restart_offline_remembers_it(
    make_follower: MakeFollower, schema: Schema, mlflow_url: str, engine: Engine, tmp_path: Path
) -> None:
    task, spec = schema.task.name, {"target": {"name": "delay", "kind": "regression"}}
    folder = write_version(tmp_path / "one", task=task, spec=spec, calibration=calibrated(1.0))
    version = publish(mlflow_url, task, folder)
    follower = make_follower()
    follower.poll(0)
    session = follower.find(task).session

    def widths() -> list[float | None]:
        return [width(ask(one, task, CUTOFF + 1)) for one in (follower, make_follower(offline=True))]

    assert widths() == [1.0, 1.0]
    rows: list[tuple[Action, Calibration | None, int, float]] = [
        ("close", None, CUTOFF + WEEK, 1.0),
        ("calibrate", calibrated(2.0), CUTOFF + WEEK, 2.0),
        ("reopen", None, CUTOFF + 2 * WEEK, 2.0),
    ]
    for action, calibration, bound, expected in rows:
        note(engine, schema, version, action, valid_until=bound, calibration=calibration)
        follower.poll(1)
        assert widths() == [expected, expected]
        for one in (follower, make_follower(offline=True)):
            assert one.find(task).valid_until == bound
    assert follower.find(task).session is session
