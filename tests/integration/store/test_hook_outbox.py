"""The outbox: an event is written with what it reports, is claimed by one process at a time, and keeps its order."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, select, text

from contracts.failure import FailureCode
from contracts.hooks.events import EVENT_TYPES
from contracts.verdict import LimitCheck, Rollback
from store.cycles.leases import claim_cycle, expire_leases
from store.cycles.requests import request_cycle
from store.database import deliveries, expiries, hooks, metadata, tasks
from store.hooks.expiries import EXPIRED, EXPIRING, Expiry, list_bounds, note_expiries
from store.hooks.ledger import count_events, list_dead_letters, list_hooks, remove_hook
from store.hooks.outbox import (
    Delivery,
    claim_due,
    delete_ended_before,
    note_delivered,
    note_failed,
    retry_dead,
)
from store.tasks.catalog import Schema
from store.tasks.deletion import finish_deletion, list_deleted
from store.tasks.lifecycle import begin_deletion, rename_task
from tests.integration.artefacts import CUTOFF, WEEK
from tests.integration.hook_receiver import events_of, make_hook, states_of
from tests.integration.published_versions import LEASE, NOW, define, note, run_cycle

URL = "https://example.com/hook"
SECOND = timedelta(seconds=1)
CHECK = LimitCheck(NOW, 1, "log_loss", 0.9, 0.5, 100)


def written(engine: Engine, name: str = "ops") -> list[tuple[str, dict[str, Any]]]:
    """The types and data of a hook's events, oldest first."""
    query = select(deliveries.c.type, deliveries.c.data).join(hooks, hooks.c.id == deliveries.c.hook_id)
    with engine.connect() as connection:
        rows = connection.execute(query.where(hooks.c.name == name).order_by(deliveries.c.id)).all()
    return [(row.type, row.data) for row in rows]


def claim(engine: Engine, *, busy: list[int] | None = None, after: timedelta = SECOND) -> list[Delivery]:
    with engine.begin() as connection:
        return list(claim_due(connection, NOW + after, LEASE, busy or []))


def test_each_row_of_the_ledger_is_reported_by_its_type(engine: Engine) -> None:
    schema = define(engine)
    make_hook(engine, URL)
    note(engine, schema, "1", "release")
    note(engine, schema, "1", "calibrate")
    note(engine, schema, "1", "close", valid_until=CUTOFF, verdict=CHECK)
    note(engine, schema, "1", "reopen", verdict=CHECK)
    note(engine, schema, "1", "override", valid_until=CUTOFF + WEEK)
    note(engine, schema, "1", "close", valid_until=CUTOFF, verdict=CHECK)
    note(engine, schema, "1", "override", valid_until=CUTOFF + WEEK)
    note(engine, schema, "2", "rollback", verdict=Rollback("1"))
    run_cycle(engine, schema, CUTOFF, "held", "the newest window is suspect")
    run_cycle(engine, schema, CUTOFF + WEEK, "failed", "the registry is away", run_id="run")
    run_cycle(engine, schema, CUTOFF + 2 * WEEK, "skipped", "a newer cutoff is due")
    found = written(engine)
    assert [kind.removeprefix("morrow.") for kind, _ in found] == [
        "version.released",
        "horizon.closed",
        "horizon.reopened",
        "horizon.overridden",
        "horizon.closed",
        "horizon.reopened",
        "version.rolled_back",
        "cycle.held",
        "cycle.failed",
    ]
    assert {kind for kind, _ in found} <= set(EVENT_TYPES)
    assert all(data["task"] == schema.task.name for _, data in found)
    released, closed, rolled_back, failed = (found[place][1] for place in (0, 1, 6, 8))
    assert released["version"] == "1"
    assert released["valid_until"].endswith("Z")
    assert released["cutoff"]
    assert (closed["error"]["value"], closed["error"]["limit"], closed["error"]["name"]) == (0.9, 0.5, "log_loss")
    assert rolled_back["replaced_version"] == "1"
    assert failed["reason"] == "the registry is away"
    assert (failed["failure_code"], failed["attempt"], failed["run_id"]) == (FailureCode.CYCLE_ERROR, 1, "run")


def test_a_cycle_whose_lease_runs_out_is_reported_as_failed(engine: Engine) -> None:
    schema = define(engine)
    make_hook(engine, URL)
    with engine.begin() as connection:
        request_cycle(connection, schema.task_id, CUTOFF, NOW)
        claim_cycle(connection, "lease", NOW, LEASE)
    with engine.begin() as connection:
        expire_leases(connection, NOW + 2 * LEASE)
    ((kind, data),) = written(engine)
    assert (kind, data["failure_code"]) == ("morrow.cycle.failed", FailureCode.LEASE_EXPIRED)


def test_an_event_is_written_in_the_transaction_of_what_it_reports(engine: Engine) -> None:
    schema = define(engine)
    make_hook(engine, URL)
    add = text(
        "INSERT INTO releases (task_id, version, action, valid_until, actor, reason, at) "
        "VALUES (:task_id, '1', 'release', now(), 'trainer', 'test', now())"
    )
    with engine.connect() as connection:
        connection.execute(add, {"task_id": schema.task_id})
        assert connection.execute(select(deliveries.c.type)).scalars().all() == ["morrow.version.released"]
        connection.rollback()
    assert written(engine) == []


def test_all_hooks_get_an_event_by_the_same_id_and_each_event_has_its_own(engine: Engine) -> None:
    schema = define(engine)
    make_hook(engine, URL, "one")
    make_hook(engine, URL, "two")
    note(engine, schema, "1", "release")
    note(engine, schema, "2", "release")
    ids = [[event.event_id for event in events_of(engine, name)] for name in ("one", "two")]
    assert ids[0] == ids[1]
    assert len({*ids[0]}) == 2


def test_a_hook_gets_only_what_it_is_for(engine: Engine) -> None:
    schema, other = define(engine), define(engine)
    make_hook(engine, URL, "task", task_ids=[schema.task_id])
    make_hook(engine, URL, "type", types=["morrow.version.released"])
    for one in (schema, other):
        note(engine, one, "1", "release")
        note(engine, one, "1", "close", verdict=CHECK)
    assert {data["task"] for _, data in written(engine, "task")} == {schema.task.name}
    assert len(written(engine, "task")) == 2
    assert [kind for kind, _ in written(engine, "type")] == ["morrow.version.released"] * 2


def test_a_claimed_event_belongs_to_nobody_else_until_the_claim_runs_out(engine: Engine) -> None:
    schema = define(engine)
    make_hook(engine, URL)
    note(engine, schema, "1", "release")
    (first,) = claim(engine)
    assert claim(engine) == []
    (again,) = claim(engine, after=LEASE + 2 * SECOND)
    assert (again.event_id, again.data, again.attempt) == (first.event_id, first.data, first.attempt + 1)


def test_two_processes_claim_different_events_at_the_same_time(engine: Engine) -> None:
    for name in ("one", "two"):
        make_hook(engine, URL, name)
    note(engine, define(engine), "1", "release")
    with engine.connect() as holder, engine.connect() as other:
        (held,) = list(claim_due(holder, NOW + SECOND, LEASE, []))[:1]
        assert not {one.delivery_id for one in claim_due(other, NOW + SECOND, LEASE, [])} & {held.delivery_id}
        holder.rollback()
        other.rollback()


def test_events_of_a_task_wait_for_each_other_and_those_of_another_task_do_not(engine: Engine) -> None:
    schema, other = define(engine), define(engine)
    make_hook(engine, URL)
    note(engine, schema, "1", "release")
    note(engine, schema, "1", "close", verdict=CHECK)
    note(engine, other, "1", "release")
    (first,) = claim(engine)
    (second,) = claim(engine)
    assert [one.event_type for one in (first, second)] == ["morrow.version.released"] * 2
    assert claim(engine) == []
    with engine.begin() as connection:
        note_failed(connection, first, "500", NOW, due_at=NOW + timedelta(hours=1))
    assert claim(engine) == []
    with engine.begin() as connection:
        note_delivered(connection, first, "204", NOW)
    (third,) = claim(engine)
    assert third.event_type == "morrow.horizon.closed"


def test_a_hook_with_a_request_under_way_is_passed_over(engine: Engine) -> None:
    hook = make_hook(engine, URL)
    note(engine, define(engine), "1", "release")
    assert claim(engine, busy=[hook.hook_id]) == []
    assert len(claim(engine)) == 1


def test_an_event_that_was_given_up_is_a_dead_letter_of_its_task_until_it_is_retried(engine: Engine) -> None:
    schema = define(engine)
    hook = make_hook(engine, URL)
    note(engine, schema, "1", "release")
    (claimed,) = claim(engine)
    with engine.begin() as connection:
        note_failed(connection, claimed, "500 Internal Server Error", NOW, due_at=None)
        (letters,) = list_dead_letters(connection, schema.task_id)
        (listed,) = list_hooks(connection)
    assert (letters.hook, letters.num_events) == ("ops", 1)
    assert (listed.num_dead, listed.num_failed, listed.answer) == (1, 1, "500 Internal Server Error")
    assert claim(engine, after=timedelta(days=1)) == []
    with engine.begin() as connection:
        assert retry_dead(connection, hook.hook_id, NOW) == 1
    (again,) = claim(engine)
    assert (again.event_id, again.attempt) == (claimed.event_id, 1)


def test_what_another_process_has_claimed_since_is_not_noted_as_failed(engine: Engine) -> None:
    make_hook(engine, URL)
    note(engine, define(engine), "1", "release")
    (late,) = claim(engine)
    (again,) = claim(engine, after=LEASE + 2 * SECOND)
    with engine.begin() as connection:
        note_failed(connection, late, "too slow", NOW, due_at=None)
    assert states_of(engine) == ["waiting"]
    with engine.begin() as connection:
        note_delivered(connection, late, "204", NOW)
        note_failed(connection, again, "409", NOW, due_at=None)
        (counts,) = count_events(connection)
    assert states_of(engine) == ["delivered"]
    assert (counts.num_delivered, counts.num_failed, counts.num_waiting, counts.num_dead) == (1, 0, 0, 0)


def test_old_events_are_deleted_and_none_that_waits(engine: Engine) -> None:
    for name in ("delivered", "dead", "waiting"):
        make_hook(engine, URL, name)
    note(engine, define(engine), "1", "release")
    by_hook = {one.hook: one for one in claim(engine)}
    with engine.begin() as connection:
        note_delivered(connection, by_hook["delivered"], "204", NOW)
        note_failed(connection, by_hook["dead"], "500", NOW, due_at=None)
        assert delete_ended_before(connection, NOW, NOW, 10) == 0
        assert delete_ended_before(connection, NOW + SECOND, NOW, 10) == 1
        assert delete_ended_before(connection, NOW + SECOND, NOW + SECOND, 10) == 1
    assert [len(events_of(engine, name)) for name in ("delivered", "dead", "waiting")] == [0, 0, 1]


def test_a_removed_hook_takes_its_events_with_it(engine: Engine) -> None:
    make_hook(engine, URL)
    note(engine, define(engine), "1", "release")
    (claimed,) = claim(engine)
    with engine.begin() as connection:
        assert remove_hook(connection, "ops").num_waiting == 1
    with engine.begin() as connection:
        note_delivered(connection, claimed, "204", NOW)
        assert connection.execute(select(deliveries)).all() == []


def test_a_deleted_task_takes_its_events_with_it_and_leaves_the_hook(engine: Engine) -> None:
    schema, other = define(engine), define(engine)
    make_hook(engine, URL)
    for one in (schema, other):
        note(engine, one, "1", "release")
    with engine.begin() as connection:
        begin_deletion(connection, schema.task.name, actor="Ada", reason="", now=NOW)
    with engine.begin() as connection:
        (deleted,) = list_deleted(connection)
        assert finish_deletion(connection, deleted, NOW)
    assert [data["task"] for _, data in written(engine)] == [other.task.name]


def test_the_previous_release_deletes_a_task_with_its_events(engine: Engine) -> None:
    """It knows neither table, and deletes what it knows."""
    schema = define(engine)
    make_hook(engine, URL)
    note(engine, schema, "1", "release")
    assert noted(engine, schema, EXPIRED, SECOND) == 1
    with engine.begin() as connection:
        for table in ("releases", "cycles", "schemas"):
            connection.execute(
                metadata.tables[table].delete().where(metadata.tables[table].c.task_id == schema.task_id)
            )
        connection.execute(tasks.delete().where(tasks.c.id == schema.task_id))
        assert connection.execute(select(deliveries)).all() == connection.execute(select(expiries)).all() == []


def test_an_event_keeps_the_name_that_its_task_had(engine: Engine) -> None:
    schema = define(engine)
    make_hook(engine, URL, task_ids=[schema.task_id])
    note(engine, schema, "1", "release")
    with engine.begin() as connection:
        rename_task(connection, schema.task.name, "renamed", actor="Ada", reason="", now=NOW)
    note(engine, schema, "1", "close", verdict=CHECK)
    assert [data["task"] for _, data in written(engine)] == [schema.task.name, "renamed"]
    assert [event.task for event in events_of(engine)] == ["renamed", "renamed"]


def noted(engine: Engine, schema: Schema, kind: str, at: timedelta) -> int:
    with engine.begin() as connection:
        bounds = [one for one in list_bounds(connection) if one.task_id == schema.task_id]
        return note_expiries(connection, [Expiry(one.release_id, kind, NOW + at) for one in bounds])


def test_an_end_of_validity_is_reported_once_for_each_bound(engine: Engine) -> None:
    schema = define(engine)
    make_hook(engine, URL)
    note(engine, schema, "1", "release")
    assert noted(engine, schema, EXPIRING, SECOND) == 1
    assert noted(engine, schema, EXPIRING, SECOND) == 0
    assert noted(engine, schema, EXPIRED, 2 * SECOND) == 1
    assert noted(engine, schema, EXPIRED, 2 * SECOND) == 0
    note(engine, schema, "1", "override", valid_until=CUTOFF + 3 * WEEK)
    assert noted(engine, schema, EXPIRED, 3 * SECOND) == 1
    kinds = [kind for kind, _ in written(engine)]
    assert (kinds.count(EXPIRING), kinds.count(EXPIRED)) == (1, 2)


def test_only_the_bound_of_the_version_that_answers_is_looked_at(engine: Engine) -> None:
    schema = define(engine)
    for version in ("1", "2"):
        note(engine, schema, version, "release")
    note(engine, schema, "1", "close", verdict=CHECK)
    with engine.connect() as connection:
        (bound,) = list_bounds(connection)
        found = connection.execute(text("SELECT version FROM releases WHERE id = :id"), {"id": bound.release_id})
        assert found.scalar_one() == "2"


def test_a_hook_hears_nothing_of_what_had_expired_before_it_was_made(engine: Engine) -> None:
    schema = define(engine)
    note(engine, schema, "1", "release")
    make_hook(engine, URL, "early", now=NOW)
    make_hook(engine, URL, "late", now=NOW + timedelta(days=1))
    assert noted(engine, schema, EXPIRED, SECOND) == 1
    assert [kind for kind, _ in written(engine, "early")] == [EXPIRED]
    assert written(engine, "late") == []


@pytest.mark.parametrize("verdict", ["null", '"text"', "[1]", "17"])
def test_a_row_that_was_written_past_the_api_is_reported_too(engine: Engine, verdict: str) -> None:
    schema = define(engine)
    make_hook(engine, URL)
    with engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO releases (task_id, version, action, valid_until, verdict, actor, reason, at) "
                "VALUES (:task_id, '1', 'close', now(), CAST(:verdict AS jsonb), 'a script', 'none', now())"
            ),
            {"task_id": schema.task_id, "verdict": verdict},
        )
    ((kind, data),) = written(engine)
    assert (kind, data["actor"]) == ("morrow.horizon.closed", "a script")


def test_without_hooks_nothing_is_written(engine: Engine) -> None:
    schema = define(engine)
    note(engine, schema, "1", "release")
    run_cycle(engine, schema, CUTOFF, "failed", "for a test")
    with engine.connect() as connection:
        assert connection.execute(select(deliveries)).all() == []
