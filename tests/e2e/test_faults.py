"""Parts of a deployment fail under load, one after the other; nothing acknowledged is lost and no answer is wrong.

Each story breaks something, waits until the clients have met the fault, mends it, and waits until they are served
again. What they sent and heard is judged by `House.load`, whose figures `pytest -s` shows.
"""

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil
import pytest
from sqlalchemy import text

from benchmarks.mixed.clients import NO_ANSWER, PREDICT
from contracts.clock import to_micros
from contracts.failure import LEASE_EXPIRED, REGISTRY_UNREACHABLE
from service.models.registry.client import download_version, make_client
from store.cycles.ledger import Cycle, list_cycles
from store.tasks.catalog import Schema, define_task
from tests.e2e.processes import champion, kill, process, released
from tests.e2e.test_schedule import releases_of, schedule
from tests.e2e.whole_stack import INGEST, NUM_APIS, POOL_SIZE, TASK, House
from tests.integration.artefacts import move_alias, publish, remove_alias
from tests.integration.drifting_task import cycles_of, now

pytestmark = pytest.mark.story

SERVED = {200, 422}
NUM_AT_ONCE = 100
NUM_PRODUCERS = 3


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with House(tmp_path_factory.mktemp("house")) as house:
        yield house


def test_a_killed_database_costs_no_acknowledged_event_and_no_answer(house: House) -> None:
    with house.load() as load:
        house.kill_database()
        load.await_more(INGEST, 503)
        load.await_more(PREDICT, 200)
        house.postgres.start()
    assert set(load.statuses(PREDICT)) <= SERVED
    assert set(load.statuses(INGEST)) <= {200, 503}


def test_a_killed_registry_costs_no_answer_and_what_was_fitted_meanwhile_is_released_later(house: House) -> None:
    with house.load() as load:
        house.kill_registry()
        house.await_registry("degraded")
        cutoff = house.ask_for_cycle()
        house.wait_for("a fit without a registry", lambda: has_ended(house, cutoff, REGISTRY_UNREACHABLE.reason))
        house.restart_registry()
        house.await_release(cutoff)
    assert set(load.statuses(PREDICT)) <= SERVED
    assert set(load.statuses(INGEST)) == {200}


def test_a_killed_trainer_costs_a_cycle_but_no_window(house: House) -> None:
    with house.load() as load:
        cutoff = house.ask_for_cycle()
        house.wait_for("a running cycle", lambda: is_running(house, cutoff))
        children = psutil.Process(house.trainer.pid).children(recursive=True)
        os.kill(house.trainer.pid, signal.SIGKILL)
        house.trainer.wait()
        assert psutil.wait_procs(children, timeout=30)[1] == []
        assert released(house.engine, house.schema, cutoff) is None
        house.restart_trainer()
        house.await_release(cutoff)
    assert set(load.statuses(PREDICT)) <= SERVED
    assert set(load.statuses(INGEST)) == {200}


def test_a_trainer_frozen_over_a_boundary_and_past_its_lease_releases_nothing_twice(house: House) -> None:
    with house.load() as load:
        clocked = schedule(house.engine, [])
        house.wait_for("a running cycle", lambda: running_cycle(house, clocked))
        trainer = psutil.Process(house.trainer.pid)
        trainer.suspend()
        children = trainer.children(recursive=True)
        for child in children:
            child.suspend()
        frozen = running_cycle(house, clocked)
        assert frozen is not None
        boundary = clocked.task.clock.window_start(to_micros(now())) + clocked.task.clock.window
        with process("trainer", house.environment("second"), house.log):
            house.wait_for("the release of a later boundary", lambda: newest_release(house, clocked) >= boundary)
            for one in (*children, trainer):
                one.resume()
            assert psutil.wait_procs(children, timeout=60)[1] == []
        with house.engine.begin() as connection:
            define_task(connection, clocked.task.model_copy(update={"schedule": "manual"}), now())
    cycles = {cycle.cycle_id: cycle for cycle in cycles_of(house.engine, clocked)}
    assert (cycles[frozen.cycle_id].state, cycles[frozen.cycle_id].reason) == ("failed", LEASE_EXPIRED.reason)
    found = [cycle.cutoff for cycle in releases_of(house.engine, clocked)]
    assert len(found) == len(set(found))
    assert set(load.statuses(PREDICT)) <= SERVED
    assert set(load.statuses(INGEST)) == {200}


def test_a_killed_api_process_costs_its_clients_a_retry_and_the_others_nothing(house: House) -> None:
    with house.load() as load:
        kill(house.apis[0])
        load.await_more(INGEST, NO_ANSWER, place=0)
        load.await_more(PREDICT, 200, place=1)
        house.restart_api(0)
    assert set(load.statuses(PREDICT, 0)) <= SERVED | {NO_ANSWER}
    assert set(load.statuses(INGEST, 0)) == {200, NO_ANSWER}
    assert set(load.statuses(PREDICT, 1)) <= SERVED
    assert set(load.statuses(INGEST, 1)) == {200}


def test_a_filled_connection_pool_is_waited_for_so_long_and_then_said(house: House) -> None:
    with house.load() as load, ThreadPoolExecutor(NUM_AT_ONCE) as pool:
        with house.engine.begin() as connection:
            connection.execute(text("LOCK TABLE events IN ACCESS EXCLUSIVE MODE"))
            rows = house.new_rows("at-once", NUM_AT_ONCE)
            asked = [pool.submit(house.post, 0, row) for row in rows]
            load.await_more(INGEST, 503, count=NUM_PRODUCERS)
            load.await_more(PREDICT, 200)
            answers = [one.result() for one in asked]
        assert {answer.status_code for answer in answers} == {503}
        assert all("Retry-After" in answer.headers for answer in answers)
        house.post_until_stored(0, rows)
    assert set(load.statuses(PREDICT)) <= SERVED
    assert set(load.statuses(INGEST)) == {200, 503}


def test_requests_in_flight_are_answered_after_sigterm(house: House) -> None:
    with house.load() as load, ThreadPoolExecutor(POOL_SIZE) as pool:
        with house.engine.begin() as connection:
            connection.execute(text("LOCK TABLE events IN ACCESS EXCLUSIVE MODE"))
            rows, api = house.new_rows("in-flight", POOL_SIZE), psutil.Process(house.apis[0].pid)
            num_before = len(api.net_connections("tcp"))
            asked = [pool.submit(house.post, 0, row) for row in rows]
            house.wait_for("all requests", lambda: len(api.net_connections("tcp")) >= num_before + POOL_SIZE)
            # One more turn of its loop: what it had accepted it has begun.
            assert httpx.get(f"{house.urls[0]}/livez", timeout=60).status_code == 200
            house.apis[0].send_signal(signal.SIGTERM)
            house.wait_for("a closed port", lambda: not listens(house.urls[0]))
        answers = [one.result() for one in asked]
        assert house.apis[0].wait(30) in (0, -signal.SIGTERM)
        house.restart_api(0)
        house.post_until_stored(0, rows)
    # One that waited for its place until the limit was told so.
    assert {answer.status_code for answer in answers} <= {200, 503}
    assert set(load.statuses(PREDICT, 1)) <= SERVED
    assert set(load.statuses(INGEST, 1)) <= {200, 503}


def test_a_truncated_artefact_is_refused_and_the_last_good_version_answers_on(house: House, tmp_path: Path) -> None:
    good = champion(house.mlflow_url, TASK)
    with make_client(house.mlflow_url) as client:
        download_version(client, TASK, good, tmp_path, stopping=threading.Event())
    bad = publish(house.mlflow_url, TASK, tmp_path, champion=False)
    stored = max((house.folder / "artifacts").rglob("model.onnx"), key=lambda file: file.stat().st_mtime)
    os.truncate(stored, stored.stat().st_size - 100)
    with house.load() as load:
        move_alias(house.mlflow_url, TASK, bad)
        house.await_registry("degraded")
        load.await_more(PREDICT, 200)
        assert [house.ask(place)["champion"]["version"] for place in range(NUM_APIS)] == [good] * NUM_APIS
        move_alias(house.mlflow_url, TASK, good)
    assert set(load.statuses(PREDICT)) <= SERVED
    assert set(load.statuses(INGEST)) == {200}


def test_an_alias_is_followed_wherever_it_goes_and_missed_by_nobody(house: House) -> None:
    with house.load() as load:
        former, newest = champion(house.mlflow_url, TASK), house.release()
        assert former != newest
        move_alias(house.mlflow_url, TASK, former)
        house.await_served(former)
        remove_alias(house.mlflow_url, TASK)
        house.await_registry("degraded")
        load.await_more(PREDICT, 200)
        move_alias(house.mlflow_url, TASK, newest)
        house.await_served(newest)
    assert set(load.statuses(PREDICT)) <= SERVED
    assert set(load.statuses(INGEST)) == {200}


def test_statements_that_may_take_a_millisecond_are_refused_whole(house: House) -> None:
    with house.load() as load:
        house.limit_statements("1ms")
        try:
            load.await_more(INGEST, 503)
            load.await_more(PREDICT, 200)
            assert 'status="503"' in httpx.get(f"{house.urls[0]}/metrics", timeout=60).text
        finally:
            house.limit_statements("0")
    assert set(load.statuses(PREDICT)) <= SERVED
    assert set(load.statuses(INGEST)) <= {200, 503}


def is_running(house: House, cutoff: int) -> bool:
    cycle = house.cycle(cutoff)
    return cycle is not None and cycle.state == "running"


def has_ended(house: House, cutoff: int, reason: str) -> bool:
    with house.engine.connect() as connection:
        cycles = list_cycles(connection, house.schema.task_id)
    return any((cycle.cutoff, cycle.reason) == (cutoff, reason) for cycle in cycles)


def running_cycle(house: House, schema: Schema) -> Cycle | None:
    return next((cycle for cycle in cycles_of(house.engine, schema) if cycle.state == "running"), None)


def newest_release(house: House, schema: Schema) -> int:
    return max((cycle.cutoff for cycle in releases_of(house.engine, schema)), default=0)


def listens(url: str) -> bool:
    try:
        httpx.get(f"{url}/livez", timeout=5)
    except httpx.ConnectError:
        return False
    except httpx.TransportError:
        pass
    return True
