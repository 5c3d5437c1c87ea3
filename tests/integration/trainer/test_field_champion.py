"""A champion that cannot be asked has lost its comparison, says so in the verdict, and never ends a cycle."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from mlflow import MlflowClient
from msgspec import to_builtins
from sqlalchemy import Engine

from contracts.manifest import GRAPH_FILE, MANIFEST_FILE
from contracts.task import Task
from store.cycles.ledger import Cycle
from store.events.writes import append_events
from store.releases import record_release
from store.tasks.catalog import Schema, define_task
from tests.integration.drifting_task import (
    HOUR,
    START,
    add_windows,
    cutoff_after,
    define,
    drifting_events,
    drifting_task,
    retrain,
)
from tests.integration.drifting_task import now as clock
from trainer.tracking.registry import Registry

NUM_KNOWN = 10


@pytest.fixture
def schema(engine: Engine, registry: Registry, tmp_path: Path) -> Schema:
    """A task whose version 1 is champion, and one window more."""
    schema = define(engine, drifting_task(), NUM_KNOWN)
    assert retrain(engine, registry, schema, NUM_KNOWN, tmp_path).state == "released"
    add_windows(engine, schema, NUM_KNOWN, NUM_KNOWN + 1)
    return schema


def withheld(cycle: Cycle) -> dict[str, Any]:
    assert cycle.verdict is not None, cycle.reason
    return next(to_builtins(decision) for decision in cycle.verdict.decisions if decision.rule == "withheld_rows")


def file_url(mlflow_client: MlflowClient, url: str, schema: Schema, name: str) -> str:
    """Where MLflow serves a file of version 1."""
    uri = mlflow_client.get_model_version_download_uri(schema.task.name, "1").removeprefix("mlflow-artifacts:/")
    return f"{url}/api/2.0/mlflow-artifacts/artifacts/{uri.lstrip('/')}/{name}"


@pytest.mark.parametrize("name", [GRAPH_FILE, MANIFEST_FILE])
def test_a_champion_whose_files_are_broken_in_mlflow_has_lost(
    engine: Engine, mlflow_url: str, schema: Schema, tmp_path: Path, name: str
) -> None:
    registry, mlflow_client = Registry(mlflow_url), MlflowClient(mlflow_url, mlflow_url)
    address = file_url(mlflow_client, mlflow_url, schema, name)
    content = httpx.get(address).raise_for_status().content
    httpx.put(address, content=content[:-100]).raise_for_status()
    cycle = retrain(engine, registry, schema, NUM_KNOWN + 1, tmp_path)
    assert (cycle.state, cycle.version) == ("released", "2")
    assert withheld(cycle)["reason"].startswith("the champion cannot be asked: ")


def test_a_champion_whose_files_are_gone_from_mlflow_has_lost(
    engine: Engine, registry: Registry, mlflow_client: MlflowClient, schema: Schema, tmp_path: Path
) -> None:
    httpx.delete(file_url(mlflow_client, registry.url, schema, GRAPH_FILE)).raise_for_status()
    cycle = retrain(engine, registry, schema, NUM_KNOWN + 1, tmp_path)
    assert (cycle.state, cycle.version) == ("released", "2")
    assert withheld(cycle)["reason"].startswith("the champion cannot be asked: ")


def test_a_deleted_champion_leaves_the_place_to_the_candidate(
    engine: Engine, registry: Registry, mlflow_client: MlflowClient, schema: Schema, tmp_path: Path
) -> None:
    mlflow_client.delete_model_version(schema.task.name, "1")
    cycle = retrain(engine, registry, schema, NUM_KNOWN + 1, tmp_path)
    assert (cycle.state, cycle.version) == ("released", "2")


def test_an_alias_on_what_is_not_ours_leaves_the_place_to_the_candidate_and_says_so(
    engine: Engine, registry: Registry, mlflow_client: MlflowClient, schema: Schema, tmp_path: Path
) -> None:
    mlflow_client.delete_model_version_tag(schema.task.name, "1", "morrow.cutoff")
    cycle = retrain(engine, registry, schema, NUM_KNOWN + 1, tmp_path)
    assert (cycle.state, cycle.version) == ("released", "2")
    assert withheld(cycle)["reason"] == "the champion does not say of which cutoff it is"


def test_a_champion_closed_before_the_rows_to_compare_on_decides_nothing(
    engine: Engine, registry: Registry, schema: Schema, tmp_path: Path
) -> None:
    with engine.begin() as connection:
        record_release(
            connection,
            schema.task_id,
            "1",
            action="close",
            valid_until=cutoff_after(NUM_KNOWN) - 1,
            actor="trainer",
            reason="test",
            now=clock(),
        )
    cycle = retrain(engine, registry, schema, NUM_KNOWN + 1, tmp_path)
    assert cycle.state == "released"
    assert withheld(cycle)["reason"] == "only 0 withheld rows to compare on"


def test_a_champion_that_expired_windows_ago_is_compared_on_what_it_could_answer(
    engine: Engine, registry: Registry, schema: Schema, tmp_path: Path
) -> None:
    add_windows(engine, schema, NUM_KNOWN + 1, NUM_KNOWN + 6)
    cycle = retrain(engine, registry, schema, NUM_KNOWN + 6, tmp_path)
    assert cycle.state == "released"
    with engine.connect() as connection:
        count = connection.exec_driver_sql(
            "SELECT count(*) FROM events WHERE get_byte(sha256(event_id::bytea), 0) < 13 AND at >= %s AND at < %s",
            (START + 10 * HOUR, START + 12 * HOUR),
        ).scalar_one()
    assert withheld(cycle)["reason"] == f"only {count} withheld rows to compare on"


def test_a_champion_of_other_features_is_not_asked(
    engine: Engine, registry: Registry, schema: Schema, tmp_path: Path
) -> None:
    features = [*schema.task.model_dump(mode="json")["features"], {"name": "z", "kind": "number", "optional": True}]
    changed = Task.model_validate(schema.task.model_dump(mode="json") | {"features": features})
    with engine.begin() as connection:
        wider, _ = define_task(connection, changed, clock())
        rows = [
            replace(event, event_id=f"wider {event.event_id}", numbers=(*event.numbers, float("nan")))
            for event in drifting_events(0, NUM_KNOWN + 1)
        ]
        append_events(connection, wider, rows, START)
    cycle = retrain(engine, registry, wider, NUM_KNOWN + 1, tmp_path)
    assert (cycle.state, cycle.version) == ("released", "2")
    assert withheld(cycle)["reason"] == "the champion answers rows of another schema"
