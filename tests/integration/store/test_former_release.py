"""A database of the release before is upgraded: its cycles and releases are retried, shown and judged as before.

`former_release.json` holds rows that the code at 9453d6e wrote (revision 0005), by real cycles, guards and overrides,
and what that code said of them.
"""

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, Engine, text

import migrations
from contracts.clock import from_micros, to_micros
from contracts.failure import FailureCode
from contracts.task import Task
from migrations import migrate
from service.advice.next_step import find_overrulable
from service.models.task_states.stored_states import read_task_state
from store.cycles.leases import claim_cycle
from store.cycles.ledger import Cycle, list_cycles
from store.cycles.requests import find_gate, request_cycle
from store.engine import make_engine
from store.releases import list_releases
from store.tasks.catalog import Schema, find_task
from tests.integration.published_versions import LEASE, NOW
from tests.integration.service_app import service_settings, serving
from trainer.monitoring.promises import read_promise
from trainer.scheduling.due_cutoffs import due_cutoff

pytestmark = pytest.mark.anyio

FORMER: dict[str, Any] = json.loads(Path(__file__).with_name("former_release.json").read_bytes())
SHOWN: dict[str, Any] = FORMER["shown"]
CODES = {
    1: "rule_broken",
    2: "rule_broken",
    3: None,
    4: "rule_broken",
    5: None,
    6: "registry_unreachable",
    7: "stopped",
    8: "lease_expired",
    9: "time_limit",
    10: "store_silent",
    11: "store_disk_full",
    12: "store_busy",
    13: "killed",
    14: "crashed",
    15: "file_error",
    16: "unforeseen",
    17: "device_out_of_memory",
    18: "out_of_memory",
    19: "cycle_error",
    20: "lease_lost",
    21: "stopped",
    22: "registry_unreachable",
    23: "conflict",
    24: "overtaken",
    25: "overtaken",
    26: "store_silent",
}


@pytest.fixture
def engine(empty_url: str) -> Iterator[Engine]:
    """The database of the release before, upgraded."""
    engine = make_engine(empty_url)
    (folder,) = migrations.__path__
    config = Config()
    config.set_main_option("script_location", folder)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0005")
        for table, rows in FORMER["rows"].items():
            for row in rows:
                statement = f"INSERT INTO {table} SELECT * FROM json_populate_record(NULL::{table}, :row)"  # noqa: S608 our own tables
                connection.execute(text(statement), {"row": json.dumps(row)})
            connection.execute(text(f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), {len(rows)})"))
    assert migrate(empty_url).startswith("The database was brought from revision 5 to ")
    yield engine
    engine.dispose()


@pytest.fixture
async def client(engine: Engine, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    url = engine.url.render_as_string(hide_password=False)
    async with serving(service_settings(url, tmp_path)) as client:
        yield client


def tasks(connection: Connection) -> dict[str, tuple[Schema, Sequence[Cycle]]]:
    schemas = {name: find_task(connection, name) for name in SHOWN}
    return {name: (schema, list_cycles(connection, schema.task_id)) for name, schema in schemas.items()}


def test_each_cycle_that_ended_without_a_release_gets_the_code_of_its_sentence(engine: Engine) -> None:
    with engine.connect() as connection:
        found = {cycle.cycle_id: cycle.failure_code for _, cycles in tasks(connection).values() for cycle in cycles}
    assert found == CODES


def test_tasks_keep_the_network_that_they_were_trained_with(engine: Engine) -> None:
    with engine.connect() as connection:
        known = tasks(connection)
    for name, (schema, _) in known.items():
        assert schema.task.training.experts == ("gi",)
        assert {promise[1] for promise in SHOWN[name]["promises"]} <= {schema.task.recipe}
        # Applying what the API shows changes nothing; a file without the key asks for what is the default now.
        again = Task.model_validate(schema.task.model_dump(mode="json"))
        assert again == schema.task
        (spec,) = (row["spec"] for row in FORMER["rows"]["schemas"] if row["spec"]["name"] == name)
        assert Task.model_validate(spec).training.experts == "auto"


def test_failed_cycles_are_retried_as_before(engine: Engine) -> None:
    with engine.connect() as connection:
        known = tasks(connection)
    for name, (schema, cycles) in known.items():
        found = {
            str(cycle.cycle_id): is_due(schema, [one for one in cycles if one.cutoff == cycle.cutoff])
            for cycle in cycles
            if cycle.state == "failed"
        }
        assert found == SHOWN[name]["due"]


def is_due(schema: Schema, attempts: Sequence[Cycle]) -> list[bool]:
    """Whether it is: by hand and by schedule, each with and without a registry. Half an hour after they ended."""
    now = from_micros(attempts[0].cutoff) + timedelta(minutes=59)
    ended = [
        replace(one, ended_at=now - timedelta(minutes=30), requested_at=now - timedelta(minutes=40)) for one in attempts
    ]
    return [
        due_cutoff(
            schema.task.model_copy(update={"schedule": schedule}),
            ended,
            now,
            max_attempts=2,
            pause=timedelta(seconds=30),
            has_registry=partial(bool, answers),
            newest_event=to_micros(now),
            last_received=None,
        )
        is not None
        for schedule in ("manual", "window")
        for answers in (True, False)
    ]


async def test_cycles_and_releases_are_shown_as_before(client: httpx.AsyncClient) -> None:
    for task in FORMER["rows"]["tasks"]:
        for table, key in (("cycles", "id"), ("releases", "at")):
            shown = (await client.get(f"/tasks/{task['name']}/{table}")).raise_for_status().json()[table]
            rows = [row for row in FORMER["rows"][table] if row["task_id"] == task["id"]]
            told = {one[key] if key == "id" else one["reason"]: (one["reason"], one["verdict"]) for one in shown}
            assert told == {row[key] if key == "id" else row["reason"]: (row["reason"], row["verdict"]) for row in rows}


async def test_a_status_says_as_before_what_was_missing_better_and_failed(client: httpx.AsyncClient) -> None:
    for name, shown in SHOWN.items():
        status = (await client.get(f"/tasks/{name}")).raise_for_status().json()
        assert {key: status[key] for key in shown["status"]} == shown["status"]
        assert (await client.get(f"/pages/{name}")).status_code == 200


def test_held_cycles_and_promises_are_judged_as_before(engine: Engine) -> None:
    with engine.connect() as connection:
        for name, (schema, cycles) in tasks(connection).items():
            gates = {str(cycle.cycle_id): find_gate(cycle) for cycle in cycles if cycle.state == "held"}
            assert gates == SHOWN[name]["gates"]
            assert [cycle.cycle_id for cycle in find_overrulable(cycles)] == SHOWN[name]["overrulable"]
            promises = [
                [
                    promise.version,
                    promise.recipe,
                    promise.cutoff,
                    promise.valid_until,
                    promise.error_name,
                    sorted([window, *limit] for window, limit in promise.limits.items()),
                ]
                for row in list_releases(connection, schema.task_id)
                if (promise := read_promise(row))
            ]
            assert promises == SHOWN[name]["promises"]
            assert read_task_state(connection, schema, None).num_failed == SHOWN[name]["status"]["num_failed"]


# As the release before ends a cycle that failed, and one whose lease has run out.
_END = text("""
    UPDATE cycles SET state = :state, reason = :reason, ended_at = :now,
        verdict = coalesce(verdict, '{}'::jsonb) || jsonb_build_object('passed', false, 'reason', :reason ::text)
            || jsonb_build_object('decisions', coalesce(verdict['decisions'], '[]'::jsonb) || jsonb_build_array(
                jsonb_build_object('rule', 'completed', 'passed', false, 'value', null, 'threshold', null,
                                   'reason', :reason ::text)))
    WHERE id = :id AND state = 'running' AND lease = :lease AND lease_until > :now
""")


@pytest.mark.parametrize(
    ("state", "reason", "code"),
    [
        ("failed", "The registry does not answer.", FailureCode.REGISTRY_UNREACHABLE),
        ("failed", "The database takes no more connections.", FailureCode.STORE_NO_CONNECTIONS),
        ("failed", "The trainer was stopped.", FailureCode.STOPPED),
        ("failed", "the loss of member 0 (seed 7) is nan in epoch 2", FailureCode.CYCLE_ERROR),
        ("held", "the newest window is suspect", FailureCode.RULE_BROKEN),
        ("held", "a newer cutoff is released", FailureCode.OVERTAKEN),
        ("skipped", "too few rows (3 of 100)", FailureCode.RULE_BROKEN),
    ],
)
def test_what_a_trainer_of_the_release_before_writes_meanwhile_has_a_code(
    engine: Engine, state: str, reason: str, code: FailureCode
) -> None:
    with engine.begin() as connection:
        schema = find_task(connection, "former")
        asked = request_cycle(connection, schema.task_id, 0, NOW)
        cycle = claim_cycle(connection, "a lease", NOW, LEASE)
        assert cycle is not None
        assert cycle.cycle_id == asked.cycle_id
        values = {"id": cycle.cycle_id, "state": state, "reason": reason, "lease": cycle.lease, "now": NOW}
        assert connection.execute(_END, values).rowcount == 1
        ended = next(one for one in list_cycles(connection, schema.task_id) if one.cycle_id == cycle.cycle_id)
    assert (ended.state, ended.reason, ended.failure_code) == (state, reason, code)


def test_a_code_of_a_newer_release_is_read_as_unforeseen(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("UPDATE cycles SET failure_code = 'eaten_by_a_grue' WHERE id = 10"))
        _, cycles = tasks(connection)["former"]
    assert next(cycle for cycle in cycles if cycle.cycle_id == 10).failure_code is FailureCode.UNFORESEEN
