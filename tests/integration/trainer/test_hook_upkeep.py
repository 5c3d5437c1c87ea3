"""The trainer looks for ends of validity, each of which the hooks hear once, and lets old events go."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

from sqlalchemy import Engine, select

from contracts.clock import from_micros
from contracts.verdict import Rollback
from store.database import expiries
from store.hooks.outbox import claim_due, note_delivered, note_failed
from store.tasks.catalog import Schema
from store.tasks.lifecycle import Move, move_task
from tests.integration.artefacts import CUTOFF, WEEK
from tests.integration.hook_receiver import events_of, make_hook, states_of
from tests.integration.published_versions import LEASE, NOW, define, note
from trainer.hooks.upkeep import DELIVERED_KEPT, GIVEN_UP_KEPT, HookUpkeep

# The versions of these tests are valid until then; a window is a week.
END = from_micros(CUTOFF + 2 * WEEK)
HOUR = timedelta(hours=1)
URL = "https://example.com/hook"


def look(engine: Engine, *moments: datetime) -> None:
    for now in moments:
        HookUpkeep(engine, threading.Event()).tick(now)


def ends_of(engine: Engine, name: str = "ops") -> list[str]:
    """The ends of validity that a hook heard of, oldest first."""
    types = [event.event_type.removeprefix("morrow.version.") for event in events_of(engine, name)]
    return [one for one in types if one in ("expiring", "expired")]


def release(engine: Engine, version: str = "1") -> Schema:
    schema = define(engine)
    note(engine, schema, version, "release")
    return schema


def move(engine: Engine, schema: Schema, how: Move) -> None:
    with engine.begin() as connection:
        move_task(connection, schema.task.name, how, actor="Ada", reason="", now=NOW)


def test_a_version_expires_soon_and_has_expired_once_each(engine: Engine) -> None:
    make_hook(engine, URL)
    release(engine)
    look(engine, END - 48 * HOUR)
    assert ends_of(engine) == []
    look(engine, END - 24 * HOUR, END - HOUR)
    assert ends_of(engine) == ["expiring"]
    look(engine, END + HOUR, END + 48 * HOUR)
    assert ends_of(engine) == ["expiring", "expired"]
    assert [event.at for event in events_of(engine)][1:] == [END - 33.6 * HOUR, END]


def test_a_version_that_was_replaced_in_time_expires_unheard(engine: Engine) -> None:
    make_hook(engine, URL)
    schema = release(engine)
    note(engine, schema, "2", "release", valid_until=CUTOFF + 4 * WEEK)
    look(engine, END + HOUR)
    assert ends_of(engine) == []


def test_after_a_rollback_the_version_that_answers_again_counts(engine: Engine) -> None:
    make_hook(engine, URL)
    schema = release(engine)
    note(engine, schema, "2", "release", valid_until=CUTOFF + 4 * WEEK)
    note(engine, schema, "1", "rollback", verdict=Rollback("2"))
    look(engine, END + HOUR, END + 2 * HOUR)
    assert ends_of(engine) == ["expired"]


def test_a_paused_task_expires_and_an_archived_one_does_not(engine: Engine) -> None:
    make_hook(engine, URL)
    paused, archived = release(engine), release(engine)
    move(engine, paused, "pause")
    move(engine, archived, "archive")
    look(engine, END + HOUR)
    (event,) = (event for event in events_of(engine) if event.event_type == "morrow.version.expired")
    assert event.task == paused.task.name


def test_two_trainers_note_an_end_once(engine: Engine) -> None:
    make_hook(engine, URL)
    for _ in range(20):
        release(engine)
    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(look, engine, END + HOUR) for _ in range(2)]:
            done.result()
    assert ends_of(engine) == ["expired"] * 20


def test_without_a_hook_nothing_is_noted(engine: Engine) -> None:
    release(engine)
    look(engine, END + HOUR)
    with engine.connect() as connection:
        assert connection.execute(select(expiries)).all() == []
    make_hook(engine, URL, now=END + 2 * HOUR)
    look(engine, END + 3 * HOUR)
    assert ends_of(engine) == []


def test_old_events_go_and_waiting_ones_stay(engine: Engine) -> None:
    for name in ("delivered", "dead", "waiting"):
        make_hook(engine, URL, name, types=["morrow.version.released"])
    release(engine)
    with engine.begin() as connection:
        by_hook = {one.hook: one for one in claim_due(connection, NOW, LEASE)}
        note_delivered(connection, by_hook["delivered"], "204", NOW)
        note_failed(connection, by_hook["dead"], "500", NOW, due_at=None)
    look(engine, NOW + DELIVERED_KEPT - HOUR)
    assert [states_of(engine, name) for name in ("delivered", "dead", "waiting")] == [
        ["delivered"],
        ["dead"],
        ["waiting"],
    ]
    look(engine, NOW + DELIVERED_KEPT + HOUR)
    assert [states_of(engine, name) for name in ("delivered", "dead", "waiting")] == [[], ["dead"], ["waiting"]]
    look(engine, NOW + GIVEN_UP_KEPT + HOUR)
    assert [states_of(engine, name) for name in ("delivered", "dead", "waiting")] == [[], [], ["waiting"]]
