"""The client against the real API: the code of its page as printed, and every operation through a real process."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from morrow import (
    Client,
    CoverageUnsupported,
    Event,
    Forbidden,
    InvalidInput,
    NotFound,
    OutsideHorizon,
    PreconditionFailed,
    Unauthenticated,
    Unreachable,
)
from sqlalchemy import Engine

from store.api_keys import add_key
from tests.integration.api_process import Running, define_flights, running
from tests.integration.published_versions import NOW

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "client.md"
AT = datetime(2026, 1, 30, 12, tzinfo=UTC)
ROW = {"distance": 1400, "carrier": "UA"}


@pytest.fixture
def api(database_url: str, engine: Engine, tmp_path: Path) -> Iterator[Running]:
    define_flights(engine)
    with running(database_url, tmp_path) as api:
        yield api


@pytest.fixture
def client(api: Running) -> Iterator[Client]:
    with Client(api.url, patience=5) as client:
        yield client


def blocks() -> list[str]:
    """The Python code of the page, in order."""
    return re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def test_the_code_of_the_page_runs_as_printed(api: Running) -> None:
    program = "\n".join(blocks()).replace("http://127.0.0.1:8000", api.url)
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    lines = said.stdout.splitlines()
    assert "2 sent" in lines, said.stdout
    assert "f-2 rejected ['features.distance is a string, not a number']" in lines, said.stdout
    by_httpx, by_client = lines[-4:-2], lines[-2:]
    assert by_httpx == by_client
    assert by_client[1] == "0 stored 1 refused"  # the other is a duplicate of what was corrected


def test_answers_are_those_of_the_api(api: Running, client: Client) -> None:
    answer = client.predict("flights", ROW, AT, rate=True)
    assert answer.prediction in ("late", "on_time")
    assert answer.probabilities is not None
    assert answer.rate is not None
    assert sum(answer.probabilities.values()) == pytest.approx(1)
    assert (answer.at, answer.task, answer.valid_until.tzinfo is not None) == (AT, "flights", True)
    many = client.predict_many("flights", [{**ROW, "at": AT + timedelta(minutes=k)} for k in range(2300)])
    assert [one.at for one in many] == [AT + timedelta(minutes=k) for k in range(2300)]
    assert many[0].probabilities == answer.probabilities


def test_refusals_are_exceptions_with_their_facts(client: Client) -> None:
    with pytest.raises(OutsideHorizon) as outside:
        client.predict("flights", ROW, datetime(2030, 1, 1, tzinfo=UTC))
    assert outside.value.side == "beyond"
    assert outside.value.valid_until == client.predict("flights", ROW, AT).valid_until
    with pytest.raises(InvalidInput) as invalid:
        client.predict("flights", {"distance": "far", "carrier": "UA"}, AT)
    assert [fault.field.split(".")[-1] for fault in invalid.value.faults] == ["distance"]
    with pytest.raises(CoverageUnsupported):
        client.predict("flights", ROW, AT, coverage=0.9)
    with pytest.raises(NotFound):
        client.predict("nothing", ROW, AT)
    with pytest.raises(NotFound):
        client.event("flights", "nothing")


def test_an_event_is_corrected_unless_somebody_else_has(client: Client) -> None:
    event = Event(event_id="a/ü 1", at=datetime(2026, 1, 29, tzinfo=UTC), features=ROW, label="late")
    assert client.upload("flights", [event]).created == 1
    stored = client.event("flights", "a/ü 1")
    assert (stored.event.label, stored.event.at, stored.revision) == ("late", event.at, 1)
    changed = Event(event_id="a/ü 1", at=event.at, features=ROW, label="on_time")
    assert client.correct("flights", changed, revision=1)
    assert not client.correct("flights", changed)
    with pytest.raises(PreconditionFailed):
        client.correct("flights", event, revision=1)
    other = Event(event_id="a/ü 1", at=event.at, features={**ROW, "distance": 3}, label="late")
    (refused,) = client.upload("flights", [other]).refused
    assert (refused.event_id, refused.status) == ("a/ü 1", "conflict")


@pytest.mark.parametrize("event_id", [".", "..", "a/../b", "?x#y", "%2e", " a "])
def test_an_event_of_any_id_is_read_and_corrected(client: Client, event_id: str) -> None:
    event = Event(event_id=event_id, at=datetime(2026, 1, 29, tzinfo=UTC), features=ROW, label="late")
    assert client.upload("flights", [event]).created == 1
    assert client.event("flights", event_id).event.event_id == event_id
    assert client.correct("flights", msgspec.structs.replace(event, label="on_time"))


def test_a_refused_row_is_numbered_within_all_rows(client: Client) -> None:
    rows = [{**ROW, "at": AT}] * 1500 + [{**ROW, "at": AT, "distance": "far"}]
    with pytest.raises(InvalidInput) as refused:
        client.predict_many("flights", rows)
    assert [fault.field for fault in refused.value.faults] == ["rows[1500].features.distance"]


def test_a_forked_process_does_not_read_answers_of_its_parent(client: Client) -> None:
    client.is_ready()
    moments = [AT + timedelta(minutes=k) for k in range(100)]
    child = os.fork()
    if child == 0:
        later = [at + timedelta(days=1) for at in moments]
        os._exit(0 if [client.predict("flights", ROW, at).at for at in later] == later else 1)
    assert [client.predict("flights", ROW, at).at for at in moments] == moments
    assert os.waitpid(child, 0)[1] == 0


def test_tasks_are_listed_and_described(client: Client) -> None:
    assert client.tasks() == ["flights"]
    status = client.task("flights")
    assert status.champion is not None
    assert (status.task, status.lifecycle, status.champion.horizon) == ("flights", "active", 2)
    assert client.is_ready()


def test_keys_are_asked_for(database_url: str, engine: Engine, tmp_path: Path) -> None:
    define_flights(engine)
    with engine.begin() as connection:
        key = add_key(connection, "app", ("predict",), None, NOW)
    with running(database_url, tmp_path) as api:
        with Client(api.url, key="wrong" * 9) as client, pytest.raises(Unauthenticated):
            client.predict("flights", ROW, AT)
        with Client(api.url, key=key) as client:
            assert client.predict("flights", ROW, AT).version
            with pytest.raises(Forbidden):
                client.event("flights", "a")


def test_an_api_that_is_gone_is_unreachable(api: Running) -> None:
    with Client(api.url, patience=0.3) as client:
        assert client.is_ready()
        api.process.terminate()
        api.process.wait(20)
        assert not client.is_ready()
        with pytest.raises(Unreachable):
            client.predict("flights", ROW, AT)
