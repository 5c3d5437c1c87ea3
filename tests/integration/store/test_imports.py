"""Imports: rows that came together are retracted together, and nothing else goes with them."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine, select, text

from contracts.errors import Conflict, NotFound
from contracts.task import Task
from service.advice.import_options import ImportOptions
from service.advice.last_import import LastImport, read_last_import
from store.database import events
from store.events import imports
from store.events.batches import EventBatch
from store.events.imports import (
    add_import,
    find_import,
    find_newest_import,
    read_import,
    require_open,
    retract_events,
)
from store.events.reading.columns import read_events
from store.events.reading.counts import read_fingerprints
from store.events.writes import append_batch, append_events, correct_event
from store.tasks.catalog import Schema, define_task
from tests.integration.erased_events import erase
from tests.integration.service_app import an_event
from tests.integration.store.test_corrections import DEMAND, HOUR, NOW, START, event
from tests.integration.store.test_erasures import LISTED, REGRESSION
from trainer.data.snapshot import Reading

pytestmark = pytest.mark.anyio

LINES = {"content-type": "application/x-ndjson"}


@pytest.fixture
def schema(engine: Engine) -> Schema:
    with engine.begin() as connection:
        return define_task(connection, DEMAND, NOW)[0]


def begin(engine: Engine, schema: Schema, *rows: Any) -> int:
    """The id of an import of these rows."""
    with engine.begin() as connection:
        found = add_import(connection, schema.task_id, actor="who", source="x.csv", now=NOW).import_id
        append_batch(connection, schema, EventBatch.of(rows), NOW, found)
    return found


def retract(engine: Engine, schema: Schema, import_id: int) -> int:
    with engine.begin() as connection:
        return retract_events(connection, schema, import_id, actor="who", reason="why", now=NOW)[1]


def current(engine: Engine) -> dict[str, str]:
    """The labels of current events by id."""
    with engine.connect() as connection:
        rows = connection.execute(select(events.c.event_id, events.c.label).where(events.c.superseded_at.is_(None)))
        return {row.event_id: row.label for row in rows}


@pytest.mark.parametrize("task", [DEMAND, LISTED, REGRESSION], ids=["free classes", "listed classes", "regression"])
def test_no_training_set_has_a_retracted_event_and_every_count_goes_up(engine: Engine, task: Task) -> None:
    label = "1.0" if task is REGRESSION else "yes"
    with engine.begin() as connection:
        schema, _ = define_task(connection, task, NOW)
        append_events(connection, schema, [event("kept", START + 7, label)], NOW)
    mistaken = begin(engine, schema, *(event(k, START + 7, label) for k in "ab"), event("c", START + HOUR + 7, label))
    with engine.connect() as connection:
        before = read_fingerprints(connection, schema.task_id, task, START + 3 * HOUR, since=START)
    assert retract(engine, schema, mistaken) == 3
    for cutoff in (START + 1, START + HOUR, START + 30 * HOUR):
        with engine.connect() as connection:
            found = read_events(connection, schema.task_id, task, cutoff)
            counted = read_fingerprints(connection, schema.task_id, task, cutoff, since=START)
        assert counted == Reading(schema, cutoff, cutoff, found).fingerprints
        for origin in range(START, cutoff + 1, HOUR // 2):
            assert len(found.as_of(origin)) == (origin >= START + 7 and cutoff >= START + 7)
    assert before == {START: (3, 3), START + HOUR: (1, 1)}
    assert counted == {START: (1, 4), START + HOUR: (0, 2)}


def test_the_same_ids_can_be_imported_again(engine: Engine, schema: Schema) -> None:
    mistaken = begin(engine, schema, event("a", label="no"), event("b", label="no"))
    assert retract(engine, schema, mistaken) == 2
    assert current(engine) == {}
    again = begin(engine, schema, event("a"), event("b"))
    assert current(engine) == {"a": "yes", "b": "yes"}
    assert retract(engine, schema, mistaken) == 0
    assert retract(engine, schema, again) == 2


def test_events_that_were_corrected_or_erased_and_rows_of_others_stay(engine: Engine, schema: Schema) -> None:
    with engine.begin() as connection:
        append_events(connection, schema, [event("before")], NOW)
    mistaken = begin(engine, schema, *(event(k) for k in ("before", "plain", "corrected", "erased")))
    other = begin(engine, schema, event("plain"), event("other"))
    with engine.begin() as connection:
        correct_event(connection, schema, event("corrected", label="no"), NOW)
    erase(engine, schema, "erased")
    with engine.connect() as connection:
        left = read_import(connection, schema.task_id, mistaken)
    assert (left.num_events, left.num_corrected, left.versions) == (1, 1, [])
    assert retract(engine, schema, mistaken) == 1
    assert current(engine) == {"before": "yes", "corrected": "no", "other": "yes"}
    with engine.connect() as connection:
        assert read_import(connection, schema.task_id, mistaken).num_events == 0
        assert read_import(connection, schema.task_id, other).num_events == 1
        assert find_import(connection, schema.task_id, mistaken).num_retracted == 1
    with engine.begin() as connection, pytest.raises(Conflict, match="erased"):
        correct_event(connection, schema, event("erased"), NOW)


def test_a_large_import_is_retracted_in_parts(engine: Engine, schema: Schema, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imports, "MAX_RETRACTED", 2)
    mistaken = begin(engine, schema, *(event(f"e{k}", START + k) for k in range(5)))
    assert [retract(engine, schema, mistaken) for _ in range(4)] == [2, 2, 1, 0]
    assert current(engine) == {}
    with engine.connect() as connection:
        found = find_import(connection, schema.task_id, mistaken)
    assert (found.num_retracted, found.retraction_reason) == (5, "why")


def test_nothing_joins_a_retracted_import_or_one_of_another_task(engine: Engine, schema: Schema) -> None:
    mistaken = begin(engine, schema, event("a"))
    with engine.begin() as connection:
        other, _ = define_task(connection, DEMAND.model_copy(update={"name": "other"}), NOW)
        require_open(connection, schema.task_id, mistaken)
        with pytest.raises(NotFound, match="no import"):
            require_open(connection, other.task_id, mistaken)
    retract(engine, schema, mistaken)
    with engine.begin() as connection, pytest.raises(Conflict, match="is retracted"):
        require_open(connection, schema.task_id, mistaken)


def test_a_retraction_waits_for_rows_that_are_joining(engine: Engine, schema: Schema) -> None:
    mistaken = begin(engine, schema, event("a"))
    with ThreadPoolExecutor(1) as pool, engine.connect() as connection:
        with connection.begin():
            require_open(connection, schema.task_id, mistaken)
            append_batch(connection, schema, EventBatch.of([event("b")]), NOW, mistaken)
            retracting = pool.submit(retract, engine, schema, mistaken)
            with pytest.raises(TimeoutError):
                retracting.result(timeout=0.5)
        assert retracting.result(timeout=30) == 2
    assert current(engine) == {}


def test_rows_that_arrive_while_their_ids_are_retracted_are_stored_once(engine: Engine, schema: Schema) -> None:
    for turn in range(10):
        mistaken, barrier = begin(engine, schema, event(f"e{turn}", label="no")), threading.Barrier(4)

        def take_part(
            k: int, turn: int = turn, mistaken: int = mistaken, barrier: threading.Barrier = barrier
        ) -> object:
            barrier.wait()
            if k == 0:
                return retract(engine, schema, mistaken)
            with engine.begin() as connection:
                return append_events(connection, schema, [event(f"e{turn}")], NOW)[0]

        with ThreadPoolExecutor(4) as pool:
            outcomes = list(pool.map(take_part, range(4)))
        assert outcomes[0] == 1
        assert outcomes[1:].count("created") == (current(engine).get(f"e{turn}") is not None)
        assert current(engine).get(f"e{turn}") in (None, "yes")


def test_a_version_that_was_trained_on_an_import_is_named(engine: Engine, schema: Schema) -> None:
    mistaken = begin(engine, schema, event("a"))
    with engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO cycles (task_id, cutoff, attempt, state, version, read_at, requested_at) "
                "VALUES (:task_id, :cutoff, 1, 'released', '7', :read_at, :cutoff)"
            ),
            {"task_id": schema.task_id, "cutoff": NOW + timedelta(hours=1), "read_at": NOW + timedelta(hours=1)},
        )
        assert read_import(connection, schema.task_id, mistaken).versions == ["7"]
    retract(engine, schema, mistaken)
    with engine.connect() as connection:
        assert read_import(connection, schema.task_id, mistaken).versions == []


async def test_an_import_is_begun_filled_listed_and_retracted_over_http(client: httpx.AsyncClient) -> None:
    begun = (await client.post("/tasks/flights/imports", json={"source": "x.csv", "actor": "ana"})).json()
    assert (begun["source"], begun["actor"], begun["retracted_at"]) == ("x.csv", "ana", None)
    of_import = {"task": "flights", "import": begun["id"]}
    one = await client.post("/events", params=of_import, json=an_event("e1"))
    assert one.json()["created"] == 1
    lines = httpx.Request("POST", "http://x", json=an_event("e2")).content + b"\n"
    assert (await client.post("/events", params=of_import, content=lines, headers=LINES)).json()["created"] == 1
    assert (await client.post("/events", params=of_import, json=[an_event("e3")])).json()["created"] == 1
    await client.post("/events", json=an_event("e4"))
    await client.put("/events/e3", json=an_event("e3", label="late"))
    path = f"/tasks/flights/imports/{begun['id']}"
    found = (await client.get(path)).json()
    assert (found["num_events"], found["num_corrected"], found["versions"]) == (2, 1, [])
    left = (await client.post(f"{path}/retract", json={"reason": "wrong file"})).json()
    assert (left["num_events"], left["num_corrected"], left["num_retracted"]) == (0, 1, 2)
    assert (left["retraction_actor"], left["retraction_reason"]) == ("admin", "wrong file")
    (listed,) = (await client.get("/tasks/flights/imports")).json()["imports"]
    assert listed == {name: left[name] for name in listed}
    assert (await client.get("/tasks/flights")).json()["num_events"] == 2
    late = await client.post("/events", params=of_import, content=lines, headers=LINES)
    assert (late.status_code, late.json()["type"]) == (409, "/problems/conflict")
    again = await client.post("/events", json=[an_event("e1"), an_event("e2")])
    assert again.json()["created"] == 2


async def test_the_options_of_an_import_are_kept_and_repeated_by_the_next_step(client: httpx.AsyncClient) -> None:
    options = {"columns": {"at": "Zeit punkt", "label": "y"}, "timezone": "Europe/Berlin", "day_first": None}
    begun = (await client.post("/tasks/flights/imports", json={"source": "x.csv", "options": options})).json()
    kept = {"columns": {"at": "Zeit punkt", "label": "y"}, "timezone": "Europe/Berlin"}
    assert begun["options"] == kept
    (listed,) = (await client.get("/tasks/flights/imports")).json()["imports"]
    assert listed["options"] == kept
    status = (await client.get("/tasks/flights")).json()
    command = "morrow events import flights FILE --map 'at=Zeit punkt' --map label=y --timezone Europe/Berlin"
    assert status["commands"]["import_events"] == status["next_step"]["command"] == command
    assert status["commands"]["predict"].endswith("--map 'at=Zeit punkt' --timezone Europe/Berlin")
    assert "--map label" not in status["commands"]["predict"]
    page = (await client.get("/pages/flights")).text
    assert "--timezone" in page


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "is not an object of options"),
        ({"url": "http://elsewhere"}, "holds url, which is no option of an import"),
        ({"timezone": 3}, "holds timezone, which is a number, not a string"),
        ({"columns": ["at=when"]}, "holds columns, which is not an object of names"),
        ({"missing": "NA"}, "holds missing, which is not a list"),
        ({"decimal": "dot"}, "holds decimal, which is none of point, comma"),
        ({"day_first": "yes"}, "holds day_first, which is not true or false"),
        ({"encoding": "a\nb"}, "holds encoding, which holds a control character"),
    ],
)
async def test_options_that_no_command_has_are_refused(client: httpx.AsyncClient, options: object, words: str) -> None:
    answer = await client.post("/tasks/flights/imports", json={"source": "x.csv", "options": options})
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert error["field"] == "options"
    assert error["reason"].startswith(words)


def test_options_that_were_written_by_hand_count_as_unknown(engine: Engine, schema: Schema) -> None:
    begin(engine, schema, event("a", START + 1))
    with engine.begin() as connection:
        connection.execute(text("UPDATE imports SET options = '{\"timezone\": 3}'"))
        assert read_last_import(connection, schema.task_id) == LastImport(None)


def test_options_of_a_retracted_import_count_if_there_is_no_other(engine: Engine, schema: Schema) -> None:
    first = begin(engine, schema, event("a", START + 1))
    second = begin(engine, schema, event("b", START + 2))
    with engine.begin() as connection:
        connection.execute(text("UPDATE imports SET options = jsonb_build_object('timezone', 'zone ' || id)"))
    retract(engine, schema, second)
    with engine.connect() as connection:
        assert read_last_import(connection, schema.task_id) == LastImport(ImportOptions(timezone=f"zone {first}"))
    retract(engine, schema, first)
    with engine.connect() as connection:
        newest = LastImport(ImportOptions(timezone=f"zone {second}"), is_retracted=True)
        assert read_last_import(connection, schema.task_id) == newest


@pytest.mark.parametrize("given", ["0", "x", "-1", "1.0", "9" * 19])
async def test_an_id_of_another_form_is_refused(client: httpx.AsyncClient, given: str) -> None:
    answer = await client.post("/events", params={"import": given}, json=[an_event()])
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "import")
    assert (await client.get(f"/tasks/flights/imports/{given}")).status_code == 422


async def test_an_unknown_import_stores_nothing(client: httpx.AsyncClient) -> None:
    for send in ({"json": [an_event()]}, {"json": an_event()}):
        assert (await client.post("/events", params={"import": "7"}, **send)).status_code == 404
    assert (await client.get("/tasks/flights")).json()["num_events"] == 0


def test_the_newest_import_with_events_of_a_window_is_found(engine: Engine, schema: Schema) -> None:
    first = begin(engine, schema, event("a", START + 1), event("b", START + 2))
    second = begin(engine, schema, event("c", START + 3))
    begin(engine, schema, event("d", START + 9 * HOUR))

    def find(hour: int) -> int | None:
        with engine.connect() as connection:
            return find_newest_import(connection, schema.task_id, START + hour * HOUR, START + (hour + 1) * HOUR)

    assert (find(0), find(4)) == (second, None)
    retract(engine, schema, second)
    assert find(0) == first
