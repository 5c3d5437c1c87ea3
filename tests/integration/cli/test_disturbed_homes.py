"""A home that is gone costs no answer, and is filled again."""

import shutil
from pathlib import Path

from sqlalchemy import Engine

from store.tasks.catalog import Schema
from tests.integration.artefacts import CUTOFF, WEEK, publish, write_version
from tests.integration.make_follower import MakeFollower, ask
from tests.integration.published_versions import note


def test_a_home_that_was_removed_is_filled_again_while_its_version_answers(
    make_follower: MakeFollower, engine: Engine, schema: Schema, mlflow_url: str, tmp_path: Path
) -> None:
    task, home = schema.task.name, tmp_path / "home"
    version = publish(mlflow_url, task, write_version(tmp_path / "one", task=task))
    note(engine, schema, version, "release")
    note(engine, schema, version, "close", valid_until=CUTOFF + WEEK)
    follower = make_follower()
    follower.poll(0)
    answer = ask(follower, task)
    shutil.rmtree(home)
    assert ask(follower, task) == answer
    follower.poll(1)
    assert follower.registries[task].state == "ok"
    assert ask(follower, task) == answer
    offline = make_follower(offline=True)
    assert ask(offline, task) == answer
    assert offline.forecasters[task].valid_until == CUTOFF + WEEK


def test_what_stands_in_the_place_of_a_home_is_named_and_costs_no_answer(
    make_follower: MakeFollower, task: str, mlflow_url: str, tmp_path: Path
) -> None:
    models = tmp_path / "home" / "models"
    version = publish(mlflow_url, task, write_version(tmp_path / "one", task=task))
    follower = make_follower()
    follower.poll(0)
    shutil.rmtree(models)
    models.write_bytes(b"")
    follower.poll(1)
    assert ask(follower, task).version == version
    assert follower.registries[task].reason == "The local copy cannot be written: Not a directory."
    assert follower.is_ready
    models.unlink()
    follower.poll(1 + 60)
    assert follower.registries[task].state == "ok"
    assert (models / task / version).is_dir()
