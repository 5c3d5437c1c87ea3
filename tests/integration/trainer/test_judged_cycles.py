"""What the judge makes of real fits: poison, drift, overrides, and candidates that are worse than the champion."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from msgspec import to_builtins
from sqlalchemy import Engine

from contracts.errors import Conflict
from contracts.verdict import Verdict
from store.cycles.leases import claim_cycle
from store.cycles.ledger import Cycle
from store.cycles.requests import override_cycle, request_cycle
from store.events.batches import Event
from store.events.writes import append_events
from store.releases import list_releases
from store.tasks.catalog import Schema
from tests.integration.drifting_task import (
    START,
    carry_out,
    claim,
    cutoff_after,
    define,
    drifting_events,
    drifting_task,
    flip,
    now,
    retrain,
)
from trainer.tracking.registry import Registry

NUM_KNOWN = 10
PATIENT = {"max_age": 4, "tolerance": 5.0}
FORGETFUL = drifting_task().training.model_dump() | {"history": 2}


def jump(event: Event) -> Event:
    """The boundary has moved: who was just above it is below it now."""
    return replace(event, label="yes" if event.label == "yes" and event.numbers[0] > 1.2 else "no")


def add(engine: Engine, schema: Schema, window: int, change: Callable[[Event], Event] = lambda event: event) -> None:
    with engine.begin() as connection:
        append_events(connection, schema, [change(event) for event in drifting_events(window, window + 1)], START)


def decisions(cycle: Cycle) -> dict[str, dict[str, Any]]:
    assert cycle.verdict is not None
    return {decision.rule: to_builtins(decision) for decision in cycle.verdict.decisions}


def started(engine: Engine, registry: Registry, home: Path, **changes: Any) -> Schema:
    """A task with a first release after ten windows."""
    schema = define(engine, drifting_task(**changes), NUM_KNOWN)
    assert retrain(engine, registry, schema, NUM_KNOWN, home).state == "released"
    return schema


def test_a_window_of_flipped_labels_is_held_and_the_next_ordinary_one_frees_the_way(
    engine: Engine, registry: Registry, tmp_path: Path
) -> None:
    schema = started(engine, registry, tmp_path)
    add(engine, schema, NUM_KNOWN, flip)
    held = retrain(engine, registry, schema, NUM_KNOWN + 1, tmp_path)
    assert held.state == "held"
    assert "suspect" in str(held.reason)
    suspect = decisions(held)["newest_window"]
    assert suspect["value"] > suspect["threshold"]
    champion = registry.champion(schema.task.name)
    assert champion is not None
    assert champion.cutoff == cutoff_after(NUM_KNOWN)

    add(engine, schema, NUM_KNOWN + 1)
    next_one = retrain(engine, registry, schema, NUM_KNOWN + 2, tmp_path)
    assert decisions(next_one)["newest_window"]["passed"]
    # It has read the poison: only what it says of rows nobody disputes can release it.
    assert "withheld_rows" in decisions(next_one)


def test_drift_that_stays_is_confirmed_by_the_held_fit_and_released(
    engine: Engine, registry: Registry, tmp_path: Path
) -> None:
    schema = started(engine, registry, tmp_path, guard=PATIENT, training=FORGETFUL)
    add(engine, schema, NUM_KNOWN, jump)
    assert retrain(engine, registry, schema, NUM_KNOWN + 1, tmp_path).state == "held"
    cycles = []
    for window in range(NUM_KNOWN + 1, NUM_KNOWN + 5):
        add(engine, schema, window, jump)
        cycles.append(retrain(engine, registry, schema, window + 1, tmp_path))
        if cycles[-1].state == "released":
            break
    assert cycles[-1].state == "released", [cycle.reason for cycle in cycles]
    assert "confirms" in decisions(cycles[-1])["newest_window"]["reason"]


def test_an_override_releases_what_a_suspect_window_held_and_says_who_and_why(
    engine: Engine, registry: Registry, tmp_path: Path
) -> None:
    schema = started(engine, registry, tmp_path)
    add(engine, schema, NUM_KNOWN, flip)
    held = retrain(engine, registry, schema, NUM_KNOWN + 1, tmp_path)
    with engine.begin() as connection:
        override_cycle(
            connection, schema.task_id, held.cycle_id, actor="ada", reason="the new tariff is real", now=now()
        )
        cycle = claim_cycle(connection, uuid4().hex, now(), timedelta(seconds=600))
    assert cycle is not None
    ended = carry_out(engine, registry, cycle, tmp_path)
    assert ended.state == "released"
    assert decisions(ended)["override"]["reason"] == "ada: the new tariff is real"
    with engine.connect() as connection:
        newest = list_releases(connection, schema.task_id)[0]
    assert (newest.actor, newest.reason, newest.version) == ("ada", "the new tariff is real", ended.version)


def test_an_override_cannot_release_what_has_no_horizon(engine: Engine, registry: Registry, tmp_path: Path) -> None:
    schema = define(engine, drifting_task(guard={"max_age": 2, "max_error": 1e-3}), NUM_KNOWN)
    held = retrain(engine, registry, schema, NUM_KNOWN, tmp_path)
    assert held.state == "held"
    with engine.begin() as connection:
        with pytest.raises(Conflict, match=r"held by the gate horizon"):
            override_cycle(connection, schema.task_id, held.cycle_id, actor="ada", reason="I insist", now=now())
        # As where the horizon is lost between the override and the attempt.
        request_cycle(connection, schema.task_id, held.cutoff, now(), override=("ada", "I insist"))
        cycle = claim_cycle(connection, uuid4().hex, now(), timedelta(seconds=600))
    assert cycle is not None
    assert carry_out(engine, registry, cycle, tmp_path).state == "held"


def test_a_release_says_what_it_rests_on(engine: Engine, registry: Registry, tmp_path: Path) -> None:
    schema = started(engine, registry, tmp_path)
    with engine.connect() as connection:
        (row,) = list_releases(connection, schema.task_id)
    assert isinstance(row.verdict, Verdict)
    assert row.verdict.passed is True
    assert row.matrix is not None
    assert row.matrix.cutoff == datetime(2026, 1, 1, 10, tzinfo=UTC)
    assert row.matrix.recipe == schema.task.recipe
    assert [age.age for age in row.matrix.ages] == [0, 1]
    assert all(age.limit > age.mean for age in row.matrix.ages if age.limit is not None and age.mean is not None)
    assert all(age.limit is not None and age.mean is not None for age in row.matrix.ages)


def test_a_failed_cycle_leaves_a_decision(engine: Engine, registry: Registry, tmp_path: Path) -> None:
    schema = define(engine, drifting_task(), NUM_KNOWN)
    cycle = claim(engine, schema, cutoff_after(NUM_KNOWN))
    ended = carry_out(engine, Registry("http://127.0.0.1:9"), cycle, tmp_path)
    assert ended.state == "failed"
    assert decisions(ended)["completed"]["reason"] == ended.reason
