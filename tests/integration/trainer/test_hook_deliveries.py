"""Events reach their receivers signed, at least once and by one id, whatever a receiver does."""

import base64
import hashlib
import hmac
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta

import pytest
from sqlalchemy import Engine, text

from contracts.hooks.events import MEDIA_TYPE
from store.hooks.ledger import list_hooks, remove_hook
from store.hooks.outbox import add_test, claim_due, retry_dead
from store.tasks.installation import read_installation
from tests.integration.artefacts import CUTOFF, WEEK
from tests.integration.hook_receiver import (
    SECRET,
    answer,
    be_patient,
    deliveries,
    events_of,
    make_hook,
    receiving,
    states_of,
    waits_for,
)
from tests.integration.published_versions import NOW, define, note
from trainer.hooks.deliveries import LEASE

SECOND = timedelta(seconds=1)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is busy with other tests may take long for a request."""
    be_patient(monkeypatch)


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What a slow receiver waits for; open at the end, so that no thread stays behind."""
    gate = threading.Event()
    yield gate
    gate.set()


def test_an_event_is_a_cloud_event_whose_signature_its_receiver_can_verify(engine: Engine) -> None:
    schema = define(engine)
    with receiving() as receiver:
        make_hook(engine, f"{receiver.url}?room=7")
        note(engine, schema, "1", "release")
        deliveries(engine).tick(NOW + SECOND)
    (got,) = receiver.got
    with engine.begin() as connection:
        source = f"morrow/{read_installation(connection)}"
    assert got.path == "/hook?room=7"
    assert got.headers["content-type"] == MEDIA_TYPE
    assert got.headers["host"] == f"127.0.0.1:{receiver.server_port}"
    event, (stored,) = got.event, events_of(engine)
    data = event.pop("data")
    assert event == {
        "specversion": "1.0",
        "id": str(stored.event_id),
        "source": source,
        "type": "morrow.version.released",
        "subject": schema.task.name,
        "time": "2026-02-01T00:00:00Z",
        "datacontenttype": "application/json",
    }
    assert (data["task"], data["version"], data["actor"], data["reason"]) == (schema.task.name, "1", "trainer", "test")
    assert got.headers["webhook-id"] == str(stored.event_id)
    signed = f"{got.headers['webhook-id']}.{got.headers['webhook-timestamp']}.".encode() + got.body
    expected = base64.b64encode(hmac.new(SECRET, signed, hashlib.sha256).digest()).decode()
    assert got.headers["webhook-signature"] == f"v1,{expected}"
    assert 0 <= int(got.headers["webhook-timestamp"]) - NOW.timestamp() < 3600
    assert (stored.state, stored.answer) == ("delivered", "204 No Content")


def test_events_of_one_task_come_in_order(engine: Engine) -> None:
    schema = define(engine)
    with receiving() as receiver:
        make_hook(engine, receiver.url)
        for version in range(1, 8):
            note(engine, schema, str(version), "release")
        deliveries(engine).tick(NOW + SECOND)
    assert [one.event["data"]["version"] for one in receiver.got] == list("1234567")


def test_a_failure_is_retried_after_a_pause_and_given_up_after_the_last_attempt(engine: Engine) -> None:
    schema = define(engine)
    with receiving(answer(500, b"<b>out of order</b>\x00\r\n")) as receiver:
        make_hook(engine, receiver.url)
        note(engine, schema, "1", "release")
        sender, now = deliveries(engine, hooks_max_attempts=3, hooks_retry_seconds=1000), NOW + SECOND
        for attempt, pause in enumerate((1000, 3000, 0), 1):
            sender.tick(now)
            assert len(receiver.got) == attempt
            sender.tick(now + timedelta(seconds=900))
            assert len(receiver.got) == attempt
            now += timedelta(seconds=pause + 60)
        (event,) = events_of(engine)
        assert (event.state, event.num_attempts) == ("dead", 3)
        assert event.answer == "500 Internal Server Error: <b>out of order</b>"
        with engine.begin() as connection:
            (hook,) = list_hooks(connection)
            assert (hook.num_dead, hook.num_failed, hook.num_delivered) == (1, 3, 0)
            assert retry_dead(connection, hook.hook_id, now) == 1
        receiver.behave = answer(200, b"thanks")
        sender.tick(now)
    assert states_of(engine) == ["delivered"]
    assert len({*receiver.ids}) == 1
    assert len(receiver.ids) == 4


def test_an_event_that_has_waited_for_a_day_is_given_up_at_once(engine: Engine) -> None:
    """Events of a task wait for each other, and would pile up while a receiver is away for days."""
    with receiving(answer(500)) as receiver:
        make_hook(engine, receiver.url)
        schema = define(engine)
        for version in ("1", "2"):
            note(engine, schema, version, "release")
        with engine.begin() as connection:
            old = {"old": NOW - timedelta(days=1)}
            connection.execute(text("UPDATE deliveries SET added_at = :old"), old)
        deliveries(engine).tick(NOW + SECOND)
        assert states_of(engine) == ["dead", "dead"]
        with engine.begin() as connection:
            (hook,) = list_hooks(connection)
            assert retry_dead(connection, hook.hook_id, NOW) == 2
        deliveries(engine).tick(NOW + SECOND)
    assert states_of(engine) == ["waiting", "waiting"]
    assert len(receiver.got) == 3


def test_a_receiver_that_asks_for_a_pause_gets_it(engine: Engine) -> None:
    with receiving(answer(503, Retry_After="7200")) as receiver:
        make_hook(engine, receiver.url)
        note(engine, define(engine), "1", "release")
        deliveries(engine, hooks_retry_seconds=1).tick(NOW + SECOND)
        (event,) = events_of(engine)
        assert event.due_at is not None
        assert timedelta(hours=2) <= event.due_at - NOW < timedelta(hours=3)


def test_a_hook_that_is_removed_during_a_request_leaves_nothing(engine: Engine, gate: threading.Event) -> None:
    with receiving(waits_for(gate)) as receiver:
        make_hook(engine, receiver.url)
        note(engine, define(engine), "1", "release")
        thread = threading.Thread(target=deliveries(engine).tick, args=[NOW + SECOND])
        thread.start()
        receiver.wait_for(1)
        with engine.begin() as connection:
            remove_hook(connection, "ops")
        gate.set()
        thread.join()
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM deliveries")).scalar_one() == 0


def test_a_mistake_of_ours_about_one_event_holds_up_no_other_hook(engine: Engine) -> None:
    with receiving() as receiver:
        for name in ("broken", "ops"):
            make_hook(engine, receiver.url, name)
        note(engine, define(engine), "1", "release")
        with engine.begin() as connection:
            connection.execute(
                text("UPDATE deliveries SET data = '[]' FROM hooks WHERE hook_id = hooks.id AND name = 'broken'")
            )
        deliveries(engine).tick(NOW + SECOND)
    assert (states_of(engine, "broken"), states_of(engine)) == (["waiting"], ["delivered"])
    assert events_of(engine, "broken")[0].answer == "Morrow made a mistake, which the log of the trainer shows"


def test_two_trainers_send_each_event_once(engine: Engine) -> None:
    tasks = [define(engine) for _ in range(5)]
    with receiving() as receiver, ExitStack() as hooks:
        for name in ("one", "two", "three"):
            make_hook(engine, receiver.url, name)
        for version in ("1", "2", "3", "4"):
            for schema in tasks:
                note(engine, schema, version, "release")
        threads = [threading.Thread(target=deliveries(engine).tick, args=[NOW + SECOND]) for _ in range(2)]
        for thread in threads:
            thread.start()
            hooks.callback(thread.join)
        hooks.close()
        assert len(receiver.got) == 3 * 5 * 4
        assert all(receiver.ids.count(one) == 3 for one in receiver.ids)
    assert all({*states_of(engine, name)} == {"delivered"} for name in ("one", "two", "three"))


def test_an_event_whose_sender_died_before_it_sent_is_sent_by_another(engine: Engine) -> None:
    with receiving() as receiver:
        make_hook(engine, receiver.url)
        note(engine, define(engine), "1", "release")
        with engine.begin() as connection:
            (claimed,) = claim_due(connection, NOW + SECOND, LEASE)
        deliveries(engine).tick(NOW + SECOND)
        assert receiver.got == []
        deliveries(engine).tick(NOW + LEASE + 2 * SECOND)
    assert receiver.ids == [str(claimed.event_id)]


def test_while_the_database_is_away_nothing_is_lost(engine: Engine, gate: threading.Event) -> None:
    """The answer cannot be noted, so the event is sent again, by the same id."""
    with receiving(waits_for(gate)) as receiver:
        make_hook(engine, receiver.url)
        note(engine, define(engine), "1", "release")
        thread = threading.Thread(target=deliveries(engine).tick, args=[NOW + SECOND])
        thread.start()
        receiver.wait_for(1)
        with engine.begin() as connection:
            connection.execute(text("SELECT FROM deliveries FOR UPDATE"))
            gate.set()
            thread.join()  # it gives up after the longest wait for a lock
        assert states_of(engine) == ["waiting"]
        deliveries(engine).tick(NOW + LEASE + 60 * SECOND)
    assert states_of(engine) == ["delivered"]
    assert len(receiver.ids) == 2
    assert len({*receiver.ids}) == 1


def test_a_trainer_that_stops_leaves_a_request_under_way(engine: Engine, gate: threading.Event) -> None:
    with receiving(waits_for(gate)) as receiver:
        make_hook(engine, receiver.url)
        note(engine, define(engine), "1", "release")
        sender = deliveries(engine)
        thread = threading.Thread(target=sender.tick, args=[NOW + SECOND])
        thread.start()
        receiver.wait_for(1)
        sender._stopping.set()
        thread.join()
        assert states_of(engine) == ["waiting"]


def test_a_test_goes_first_and_is_tried_once(engine: Engine) -> None:
    with receiving(answer(418)) as receiver:
        hook = make_hook(engine, receiver.url)
        note(engine, define(engine), "1", "release", valid_until=CUTOFF + WEEK)
        with engine.begin() as connection:
            event_id = add_test(connection, hook.hook_id, NOW)
        deliveries(engine, hooks_retry_seconds=3600).tick(NOW + SECOND)
        assert receiver.ids[0] == str(event_id)
        assert receiver.got[0].event["type"] == "morrow.hook.test"
    found = {event.event_id: event for event in events_of(engine)}
    assert (found[event_id].state, found[event_id].answer) == ("dead", "418 I'm a Teapot")
    with engine.connect() as connection:
        (hook,) = list_hooks(connection)
    assert (hook.num_dead, hook.num_waiting) == (0, 1)
