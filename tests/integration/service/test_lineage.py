"""Which rows a version was fitted on, and which versions an event has been part of."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from math import isnan
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio
import httpx
import pytest
from sqlalchemy import Engine

from contracts.clock import format_moment, from_micros, to_micros
from contracts.task import Task
from store.api_keys import Scope, add_key
from store.cycles.leases import end_cycle
from store.events.batches import Event, EventBatch
from store.events.imports import add_import, retract_events
from store.events.reading.columns import EventColumns
from store.events.sealed.sealing import seal
from store.events.writes import append_batch, append_events, correct_event
from store.tasks.catalog import Schema, define_task
from tests.integration.api_keys import sent
from tests.integration.drifting_task import (
    ROWS_PER_WINDOW,
    START,
    claim,
    cutoff_after,
    define,
    drifting_events,
    drifting_task,
    flip,
    now,
)
from tests.integration.erased_events import erase
from tests.integration.sealed_tasks import SMALL
from trainer.data.snapshot import read

pytestmark = pytest.mark.anyio

LATER = timedelta(seconds=1)


def train(engine: Engine, schema: Schema, num_windows: int, version: str) -> EventColumns:
    """A released cycle that has read the rows as the trainer does; these rows."""
    cutoff = cutoff_after(num_windows)
    cycle = claim(engine, schema, cutoff)
    reading = read(engine, schema, cutoff, now())
    rows = reading.latest
    with engine.begin() as connection:
        read_at = from_micros(reading.read_at)
        found: dict[str, Any] = {
            "num_rows": len(rows),
            "rows_digest": rows.digest,
            "read_at": read_at,
            "version": version,
        }
        end_cycle(connection, cycle, "released", None, now(), **found)
    return rows


def store(engine: Engine, schema: Schema, events: Sequence[Event], received_at: datetime = START) -> None:
    with engine.begin() as connection:
        append_events(connection, schema, events, received_at)


def correct(engine: Engine, schema: Schema, event: Event, received_at: datetime) -> None:
    with engine.begin() as connection:
        correct_event(connection, schema, event, received_at)


async def ask(client: httpx.AsyncClient, schema: Schema, path: str, **given: Any) -> Any:
    answer = await client.get(f"/tasks/{schema.task.name}/{path}", params=given)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def all_rows(client: httpx.AsyncClient, schema: Schema, version: str, limit: int = 97) -> list[dict[str, Any]]:
    """Every page, one after the other."""
    rows: list[dict[str, Any]] = []
    given: dict[str, Any] = {"limit": limit}
    while True:
        page = await ask(client, schema, f"versions/{version}/rows", **given)
        assert len(page["rows"]) <= limit
        rows += page["rows"]
        if page["next"] is None:
            return rows
        given["after"] = page["next"]


def shown(rows: Sequence[dict[str, Any]], task: Task) -> list[tuple[object, ...]]:
    return [
        (
            row["at"],
            row["known_at"],
            row["withheld"],
            row["label"],
            *(row["features"][one.name] for one in (*task.numbers, *task.categories)),
        )
        for row in rows
    ]


def read_by_fit(rows: EventColumns) -> list[tuple[object, ...]]:
    """What the trainer has read, in the same form."""
    labels = rows.labels.tolist()
    return [
        (
            format_moment(int(rows.at[i])),
            format_moment(int(rows.known_at[i])),
            bool(rows.withheld[i]),
            rows.classes[int(labels[i])] if rows.classes else labels[i],
            *(None if isnan(number) else number for number in rows.numbers[i].tolist()),
            *(
                vocabulary[place] or None
                for vocabulary, place in zip(rows.vocabularies, rows.categories[i].tolist(), strict=True)
            ),
        )
        for i in range(len(rows))
    ]


@pytest.mark.parametrize("history", [None, 2])
async def test_the_pages_of_a_version_hold_exactly_the_rows_that_its_fit_has_read(
    client: httpx.AsyncClient, engine: Engine, history: int | None
) -> None:
    task = drifting_task()
    if history is not None:
        task = drifting_task(training={**task.training.model_dump(exclude={"experts"}), "history": history})
    schema = define(engine, task, 6)
    early, late = list(drifting_events(3, 4))[:2], list(drifting_events(2, 3))[:1]
    correct(engine, schema, flip(early[0]), from_micros(cutoff_after(4) - 1))
    fitted = train(engine, schema, 4, "1")
    correct(engine, schema, flip(early[1]), now())
    arrived = [replace(one, event_id=f"late-{one.event_id}") for one in late]
    store(engine, schema, arrived, now() + LATER)

    page = await ask(client, schema, "versions/1/rows", limit=1)
    assert (page["num_rows"], page["digest"]) == (len(fitted), fitted.digest)
    assert (page["version"], page["state"], page["cutoff"]) == ("1", "released", format_moment(cutoff_after(4)))
    assert (page["num_erased_since"], page["num_retracted_since"]) == (0, 0)
    rows = await all_rows(client, schema, "1")
    assert shown(rows, task) == read_by_fit(fitted)
    revisions = {row["event_id"]: row["revision"] for row in rows}
    assert (revisions[early[0].event_id], revisions[early[1].event_id]) == (2, 1)
    assert not any(row["erased"] for row in rows)


async def test_rows_dated_far_from_all_others_are_left_out_as_the_fit_leaves_them_out(
    client: httpx.AsyncClient, engine: Engine
) -> None:
    schema = define(engine, drifting_task(), 4)
    first = next(drifting_events(0, 1))
    odd = [
        replace(first, event_id=f"odd-{k}", at=to_micros(datetime(1970, 1, 1 + k, tzinfo=START.tzinfo)))
        for k in range(3)
    ]
    store(engine, schema, [replace(one, known_at=one.at) for one in odd])
    fitted = train(engine, schema, 4, "1")
    assert len(fitted) == 4 * ROWS_PER_WINDOW
    assert shown(await all_rows(client, schema, "1"), schema.task) == read_by_fit(fitted)
    assert (await ask(client, schema, "events/odd-1/versions"))["versions"] == []


async def test_rows_have_the_features_of_the_task_as_it_was_when_the_version_was_trained(
    client: httpx.AsyncClient, engine: Engine
) -> None:
    schema = define(engine, drifting_task(), 3)
    before = train(engine, schema, 2, "1")
    features = [*schema.task.model_dump()["features"], {"name": "z", "kind": "integer", "optional": True}]
    wider = Task.model_validate({**schema.task.model_dump(exclude_unset=True), "features": features})
    with engine.begin() as connection:
        new, _ = define_task(connection, wider, now())
    store(engine, new, [replace(one, numbers=(*one.numbers, 7.0)) for one in drifting_events(3, 4)])
    after = train(engine, new, 4, "2")
    assert shown(await all_rows(client, schema, "1"), schema.task) == read_by_fit(before)
    rows = await all_rows(client, new, "2")
    assert shown(rows, wider) == read_by_fit(after)
    assert (rows[0]["features"]["z"], rows[-1]["features"]["z"]) == (None, 7)


async def test_the_labels_of_a_regression_are_numbers(client: httpx.AsyncClient, engine: Engine) -> None:
    schema = define(engine, drifting_task(target={"name": "y", "kind": "regression"}), 2, as_numbers=True)
    fitted = train(engine, schema, 2, "1")
    assert shown(await all_rows(client, schema, "1"), schema.task) == read_by_fit(fitted)


async def test_an_erased_row_is_said_to_be_erased_and_shows_nothing_else(
    client: httpx.AsyncClient, engine: Engine
) -> None:
    schema = define(engine, drifting_task(), 3)
    before, victim = "0-3", "1-7"
    erase(engine, schema, before, at=START + LATER)
    fitted = train(engine, schema, 3, "1")
    erase(engine, schema, victim, at=now() + LATER)
    page = await ask(client, schema, "versions/1/rows", limit=1)
    assert (page["num_rows"], page["num_erased_since"]) == (len(fitted), 1)
    rows = {row["event_id"]: row for row in await all_rows(client, schema, "1", limit=50)}
    assert len(rows) == len(fitted)
    assert before not in rows
    erased = rows.pop(victim)
    start = format_moment(cutoff_after(1))
    assert (erased["at"], erased["known_at"]) == (start, start)
    assert (erased["erased"], erased["revision"], erased["features"], erased["label"]) == (True, None, None, None)
    assert not any(row["erased"] for row in rows.values())

    versions = (await ask(client, schema, f"events/{victim}/versions"))["versions"]
    assert [(one["version"], one["revision"]) for one in versions] == [("1", None)]
    assert (await ask(client, schema, f"events/{before}/versions"))["versions"] == []


async def test_retracted_rows_are_counted(client: httpx.AsyncClient, engine: Engine) -> None:
    schema = define(engine, drifting_task(), 2)
    with engine.begin() as connection:
        imported = add_import(connection, schema.task_id, actor="who", source="more.csv", now=START)
        batch = EventBatch.of(list(drifting_events(2, 3)))
        append_batch(connection, schema, batch, START, import_id=imported.import_id)
    fitted = train(engine, schema, 3, "1")
    with engine.begin() as connection:
        retract_events(connection, schema, imported.import_id, actor="who", reason="odd", now=now() + LATER)
    page = await ask(client, schema, "versions/1/rows", limit=1000)
    assert (page["num_rows"], page["num_retracted_since"]) == (len(fitted), ROWS_PER_WINDOW)
    assert len(page["rows"]) == len(fitted) - ROWS_PER_WINDOW


async def test_each_version_that_has_read_an_event_is_named_with_the_revision_that_it_read(
    client: httpx.AsyncClient, engine: Engine
) -> None:
    schema = define(engine, drifting_task(), 5)
    event = next(drifting_events(2, 3))
    train(engine, schema, 2, "1")  # before the event
    train(engine, schema, 3, "2")
    correct(engine, schema, flip(event), from_micros(cutoff_after(4) - 1))
    train(engine, schema, 4, "3")
    found = await ask(client, schema, f"events/{event.event_id}/versions")
    assert found["event_id"] == event.event_id
    assert [(one["version"], one["revision"]) for one in found["versions"]] == [("3", 2), ("2", 1)]
    assert found["versions"][0]["cutoff"] == format_moment(cutoff_after(4))
    assert found["next"] is None
    page = await ask(client, schema, f"events/{event.event_id}/versions", limit=1)
    assert [one["version"] for one in page["versions"]] == ["3"]
    page = await ask(client, schema, f"events/{event.event_id}/versions", limit=1, after=page["next"])
    assert [one["version"] for one in page["versions"]] == ["2"]


async def test_the_history_of_a_fit_bounds_the_events_that_it_has_seen(
    client: httpx.AsyncClient, engine: Engine
) -> None:
    plain = drifting_task()
    task = drifting_task(training={**plain.training.model_dump(exclude={"experts"}), "history": 1})
    schema = define(engine, task, 3)
    for num_windows in (1, 2, 3):
        train(engine, schema, num_windows, str(num_windows))
    for window in range(3):
        found = await ask(client, schema, f"events/{window}-0/versions")
        assert [one["version"] for one in found["versions"]] == [str(window + 1)]


async def test_ids_with_slashes_and_signs_have_versions(client: httpx.AsyncClient, engine: Engine) -> None:
    schema = define(engine, drifting_task(), 1)
    odd = [replace(one, event_id=f"a/b?{k}/versions 'é'") for k, one in enumerate(drifting_events(0, 1))]
    store(engine, schema, odd)
    train(engine, schema, 1, "1")
    found = await ask(client, schema, f"events/{quote(odd[3].event_id, safe='')}/versions")
    assert (found["event_id"], len(found["versions"])) == (odd[3].event_id, 1)
    rows = await all_rows(client, schema, "1", limit=7)
    assert len(rows) == 2 * ROWS_PER_WINDOW


@pytest.mark.parametrize(
    ("path", "status", "problem"),
    [
        ("versions/7/rows", 404, "No cycle of this task has trained a version 7"),
        ("versions/x/rows", 422, "is not an id, such as 17"),
        ("versions/1/rows?after=nobody", 404, "Version 1 has read no event with the id 'nobody'."),
        ("versions/1/rows?after=%00", 422, "holds a control character"),
        ("versions/1/rows?limit=0", 422, "limit"),
        ("versions/1/rows?before=3", 422, "is not a parameter of this path; it takes after, limit"),
        ("events/nobody/versions", 404, "There is no event with the id 'nobody'."),
        ("events/%00/versions", 404, "There is no event with the id"),
    ],
)
async def test_what_is_not_there_is_named(
    client: httpx.AsyncClient, engine: Engine, path: str, status: int, problem: str
) -> None:
    schema = define(engine, drifting_task(), 1)
    train(engine, schema, 1, "1")
    answer = await client.get(f"/tasks/{schema.task.name}/{path}")
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    assert problem in answer.text


async def test_an_event_without_a_label_is_part_of_no_version(client: httpx.AsyncClient, engine: Engine) -> None:
    schema = define(engine, drifting_task(), 1)
    one = {"event_id": "open", "at": format_moment(cutoff_after(0)), "features": {"x": 1, "kind": "a"}}
    assert (await client.post("/events", params={"task": schema.task.name}, json=one)).status_code == 200
    train(engine, schema, 1, "1")
    assert (await ask(client, schema, "events/open/versions"))["versions"] == []


async def test_rows_are_for_admins_and_the_versions_of_an_event_for_keys_that_ingest(
    client: httpx.AsyncClient, engine: Engine
) -> None:
    schema = define(engine, drifting_task(), 1)
    train(engine, schema, 1, "1")
    scopes: tuple[Scope, ...] = ("admin", "ingest", "predict")
    with engine.begin() as connection:
        keys = {scope: sent(add_key(connection, scope, [scope], None, now())) for scope in scopes}
    while (await client.get("/tasks")).status_code != 401:  # until the process knows that there are keys
        await anyio.sleep(0.05)
    allowed = {"versions/1/rows": {"admin"}, "events/0-0/versions": {"admin", "ingest"}}
    for path, some in allowed.items():
        for scope in scopes:
            answer = await client.get(f"/tasks/{schema.task.name}/{path}", headers=keys[scope])
            assert answer.status_code == (200 if scope in some else 403), (path, scope)


async def test_sealed_rows_stay_among_those_of_a_version(
    client: httpx.AsyncClient, engine: Engine, tmp_path: Path
) -> None:
    schema = define(engine, drifting_task(), 4)
    fitted = train(engine, schema, 4, "1")
    assert seal(engine, f"file://{tmp_path}", schema, cutoff_after(3), now(), limits=SMALL).num_rows > 0
    rows = await all_rows(client, schema, "1")
    assert shown(rows, schema.task) == read_by_fit(fitted)
    for event_id in {rows[0]["event_id"], rows[200]["event_id"], rows[-1]["event_id"]}:
        versions = (await ask(client, schema, f"events/{event_id}/versions"))["versions"]
        assert [(one["version"], one["revision"]) for one in versions] == [("1", 1)]
