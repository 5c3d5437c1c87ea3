"""The client against answers that no server of ours gives: faults of the network, proxies, odd values and retries."""

import math
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import httpx
import msgspec
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from morrow import (
    AsyncClient,
    Client,
    Event,
    InvalidInput,
    ModelExpired,
    NaiveMoment,
    NotFound,
    OutsideHorizon,
    Throttled,
    Unavailable,
    Unreachable,
    UploadInterrupted,
    to_events,
)
from morrow.testing import FakeMorrow

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)


@pytest.fixture
def fake() -> FakeMorrow:
    """A task whose prediction is the number of features that came, within January 2026."""
    fake = FakeMorrow()
    end = datetime(2026, 2, 1, tzinfo=UTC)
    fake.add_task(
        "sales", lambda features, _: len(features), valid_from=datetime(2026, 1, 1, tzinfo=UTC), valid_until=end
    )
    return fake


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that a client waits, which pass at once."""
    found: list[float] = []
    monkeypatch.setattr("morrow.client.time.sleep", found.append)
    return found


def answering(*replies: httpx.Response | httpx.TransportError, requests: list[httpx.Request] | None = None) -> Client:
    """A client whose requests get these replies in turn."""
    left: Iterator[httpx.Response | httpx.TransportError] = iter(replies)

    def answer(request: httpx.Request) -> httpx.Response:
        if requests is not None:
            requests.append(request)
        reply = next(left)
        if isinstance(reply, httpx.TransportError):
            raise reply
        return reply

    return Client("http://morrow.test", transport=httpx.MockTransport(answer))


def problem(kind: str, status: int, **more: Any) -> httpx.Response:
    """A refusal."""
    headers = {"content-type": "application/problem+json", **more.pop("headers", {})}
    body = {"type": f"/problems/{kind}", "title": kind, "status": status, "detail": "no", **more}
    return httpx.Response(status, json=body, headers=headers)


STORED = {"created": 1, "duplicates": 0, "conflicts": 0, "rejected": 0, "results": []}
EVENT = Event(event_id="a", at=NOON, features={"price": 1}, label=2.0)


@pytest.mark.parametrize("kind", ["unavailable", "overloaded", "not-loaded", "throttled", "not-ready"])
def test_what_can_succeed_later_is_asked_again_as_retry_after_says(kind: str, pauses: list[float]) -> None:
    status = 429 if kind == "throttled" else 503
    with answering(problem(kind, status, headers={"retry-after": "2"}), httpx.Response(200, json=STORED)) as client:
        assert client.upload("sales", [EVENT]).created == 1
    assert len(pauses) == 1
    assert 2 <= pauses[0] <= 2.5


@pytest.mark.parametrize(
    ("kind", "status", "error"),
    [
        ("invalid-input", 422, InvalidInput),
        ("outside-horizon", 422, OutsideHorizon),
        ("not-found", 404, NotFound),
        ("model-expired", 503, ModelExpired),
    ],
)
def test_what_cannot_succeed_is_asked_once(kind: str, status: int, error: type[Exception], pauses: list[float]) -> None:
    requests: list[httpx.Request] = []
    with (
        answering(problem(kind, status, headers={"retry-after": "1"}), requests=requests) as client,
        pytest.raises(error),
    ):
        client.predict("sales", {"price": 1}, NOON)
    assert (len(requests), pauses) == (1, [])


def test_patience_bounds_all_pauses_together(pauses: list[float]) -> None:
    busy = [problem("unavailable", 503, headers={"retry-after": "8"}) for _ in range(9)]
    with answering(*busy) as client, pytest.raises(Unavailable) as refused:
        client.tasks()
    assert refused.value.retry_after == 8
    assert 16 <= sum(pauses) <= 30


def test_a_wait_beyond_the_patience_is_not_begun(pauses: list[float]) -> None:
    with answering(problem("throttled", 429, headers={"retry-after": "3600"})) as client, pytest.raises(Throttled):
        client.tasks()
    assert pauses == []


@pytest.mark.parametrize(
    "error", [httpx.ConnectError("refused"), httpx.ReadError("reset"), httpx.RemoteProtocolError("closed")]
)
def test_a_lost_connection_is_opened_again(error: httpx.TransportError, pauses: list[float]) -> None:
    with answering(error, error, httpx.Response(200, json=STORED)) as client:
        assert client.upload("sales", [EVENT]).created == 1
    assert len(pauses) == 2


def test_a_correction_of_a_revision_is_not_sent_twice_if_its_answer_is_lost(pauses: list[float]) -> None:
    requests: list[httpx.Request] = []
    with answering(httpx.ReadError("reset"), requests=requests) as client, pytest.raises(Unreachable):
        client.correct("sales", EVENT, revision=3)
    assert requests[0].headers["if-match"] == '"3"'
    lost = answering(httpx.ConnectError("refused"), httpx.Response(200, json={"event_id": "a", "status": "corrected"}))
    with lost as client:
        assert client.correct("sales", EVENT, revision=3)
    assert len(pauses) == 1


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_proxy_without_an_api_behind_it_is_asked_again(status: int, pauses: list[float]) -> None:
    page = httpx.Response(status, html="<h1>Bad gateway</h1>")
    with answering(page, httpx.Response(200, json=STORED)) as client:
        assert client.upload("sales", [EVENT]).created == 1
    assert len(pauses) == 1


def test_a_page_that_is_no_answer_of_morrow_is_named() -> None:
    with (
        answering(httpx.Response(200, html="<h1>Welcome</h1>")) as client,
        pytest.raises(Unreachable, match=r"morrow\.test"),
    ):
        client.tasks()
    with answering(httpx.Response(404, html="<h1>No</h1>")) as client, pytest.raises(Unreachable, match="404"):
        client.tasks()


def test_a_refusal_by_the_horizon_has_its_bounds(fake: FakeMorrow) -> None:
    with fake.client() as client, pytest.raises(OutsideHorizon) as refused:
        client.predict("sales", {}, datetime(2026, 3, 1, tzinfo=UTC))
    assert refused.value.side == "beyond"
    assert refused.value.valid_until == datetime(2026, 2, 1, tzinfo=UTC)
    assert refused.value.valid_from == datetime(2026, 1, 1, tzinfo=UTC)


MOMENTS: dict[str, Any] = {
    "UTC": NOON,
    "another zone": datetime(2026, 1, 5, 14, tzinfo=timezone(timedelta(hours=2))),
    "a text": "2026-01-05T12:00:00Z",
    "pandas": pd.Timestamp("2026-01-05T13:00", tz="Europe/Berlin"),
    "NumPy": np.datetime64("2026-01-05T13:00:00.000000000"),
    "without a zone": datetime(2026, 1, 5, 13),  # noqa: DTZ001
}


@pytest.mark.parametrize("moment", MOMENTS.values(), ids=MOMENTS)
def test_moments_of_every_library_are_the_same_moment(fake: FakeMorrow, moment: Any) -> None:
    with fake.client(timezone=ZoneInfo("Europe/Berlin")) as client:
        assert client.predict("sales", {}, moment).at == NOON


def test_a_moment_without_a_zone_is_refused_before_it_is_sent(fake: FakeMorrow) -> None:
    with fake.client() as client, pytest.raises(NaiveMoment, match="timezone="):
        client.predict("sales", {}, datetime(2026, 1, 5, 13))  # noqa: DTZ001


VALUES: dict[str, tuple[Any, Any]] = {
    "int64": (np.int64(3), 3),
    "float32": (np.float32(0.5), 0.5),
    "bool_": (np.bool_(True), True),
    "str_": (np.str_("a"), "a"),
    "array of none": (np.array(2.5), 2.5),
    "Decimal": (Decimal("1.25"), 1.25),
    "NaN": (math.nan, None),
    "NumPy's NaN": (np.float32("nan"), None),
    "NA": (pd.NA, None),
    "NaT": (pd.NaT, None),
    "None": (None, None),
}


@pytest.mark.parametrize(("value", "sent"), VALUES.values(), ids=VALUES)
def test_values_of_every_library_are_sent_as_json(fake: FakeMorrow, value: Any, sent: Any) -> None:
    with fake.client() as client:
        client.upload("sales", [Event(event_id="a", at=NOON, features={"x": value}, label=1)])
    features = fake.tasks["sales"].events["a"]["features"]
    assert features == ({} if sent is None else {"x": sent})
    assert [type(one) for one in features.values()] == [type(sent)] * len(features)


@pytest.mark.parametrize("value", [math.inf, [1, 2], object(), np.array([1.0, 2.0])])
def test_a_value_that_is_no_feature_is_named_before_it_is_sent(fake: FakeMorrow, value: Any) -> None:
    with fake.client() as client, pytest.raises(TypeError, match=r"event a: x: "):
        client.upload("sales", [Event(event_id="a", at=NOON, features={"x": value}, label=1)])


FRAMES: dict[str, Callable[[dict[str, list[Any]]], Any]] = {
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
    "Arrow": pa.table,
    "mappings": lambda columns: [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)],
}
COLUMNS = {"event_id": ["a", "b"], "at": [NOON, NOON], "price": [1.5, None], "label": [1.0, 2.0]}


@pytest.mark.parametrize("make", FRAMES.values(), ids=FRAMES)
def test_frames_become_events_and_questions(fake: FakeMorrow, make: Callable[..., Any]) -> None:
    frame = make(COLUMNS)
    with fake.client() as client:
        assert client.upload("sales", to_events(frame)).created == 2
        stored = fake.tasks["sales"].events
        assert [one["features"] for one in stored.values()] == [{"price": 1.5}, {}]
        assert [
            one.prediction for one in client.predict_many("sales", make({"at": [NOON, NOON], "price": [1.5, None]}))
        ] == [1, 0]


@pytest.mark.parametrize("name", ["pandas", "polars"])
def test_predictions_are_added_to_a_frame(fake: FakeMorrow, name: str) -> None:
    frame = FRAMES[name]({"at": [NOON, NOON], "price": [1.5, None]})
    if name == "pandas":
        frame.index = ["x", "y"]
    with fake.client() as client:
        found = client.predict_frame("sales", frame)
    assert type(found) is type(frame)
    assert list(found["prediction"]) == [1, 0]
    assert list(found.columns) == ["at", "price", "prediction", "expected_error", "valid_until", "version"]
    assert name == "polars" or list(found.index) == ["x", "y"]


def test_an_upload_is_sent_in_chunks_and_reported(fake: FakeMorrow) -> None:
    events = [Event(event_id=f"e{k}", at=NOON, features={"price": k}, label=k) for k in range(2500)]
    reports: list[int] = []
    with fake.client() as client:
        report = client.upload("sales", events, on_progress=lambda report: reports.append(report.sent))
        assert (report.sent, report.created, report.refused, reports) == (2500, 2500, [], [1000, 2000, 2500])
        again = client.upload("sales", [*events[:10], Event(event_id="e10", at=NOON, features={}, label=0)])
    assert (again.duplicates, [one.event_id for one in again.refused]) == (10, ["e10"])


def test_an_upload_that_ends_early_says_what_is_stored_and_can_be_repeated(
    fake: FakeMorrow, pauses: list[float]
) -> None:
    def rows() -> Iterator[Event]:
        for k in range(2000):
            if k == 1500:
                fake.disconnect(times=100)
            yield Event(event_id=f"e{k}", at=NOON, features={}, label=k)

    with fake.client(patience=1) as client:
        with pytest.raises(UploadInterrupted) as ended:
            client.upload("sales", rows())
        assert (ended.value.report.sent, ended.value.report.created) == (1000, 1000)
        assert isinstance(ended.value.__cause__, Unreachable)
        assert sum(pauses) <= 1
        events = [Event(event_id=f"e{k}", at=NOON, features={}, label=k) for k in range(2000)]
        fake._failures.clear()
        report = client.upload("sales", events)
    assert (report.created, report.duplicates) == (1000, 1000)


def test_a_large_event_is_a_chunk_of_its_own() -> None:
    requests: list[httpx.Request] = []
    replies = [httpx.Response(200, json=STORED) for _ in range(3)]
    events = [Event(event_id=str(k), at=NOON, features={"text": "x" * 3_000_000}, label=1) for k in range(3)]
    with answering(*replies, requests=requests) as client:
        client.upload("sales", events)
    assert [len(msgspec.json.decode(one.content)) for one in requests] == [1, 1, 1]


def test_a_key_is_sent_and_a_broken_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(200, json={"tasks": [], "next": None})

    monkeypatch.setenv("MORROW_KEY", "of-the-environment")
    for key in ("given", None, ""):
        with Client("http://morrow.test/", key=key, transport=httpx.MockTransport(answer)) as client:
            client.tasks()
    sent = [one.headers.get("authorization") for one in requests]
    assert sent == ["Bearer given", "Bearer of-the-environment", None]
    with pytest.raises(ValueError, match="copy it again"):
        Client("http://morrow.test", key="zwölf")


@pytest.mark.anyio
async def test_the_client_for_asyncio_has_the_same_methods(fake: FakeMorrow) -> None:
    def public(kind: type) -> set[str]:
        return {name for name in vars(kind) if not name.startswith("_")}

    assert public(Client) == public(AsyncClient)
    async with fake.async_client() as client:
        assert (await client.predict("sales", {"price": 1}, NOON)).prediction == 1
        assert await client.is_ready()
        fake.fail("unavailable", 503, retry_after=0)
        assert await client.tasks() == ["sales"]


def test_a_client_shows_its_methods_to_editors() -> None:
    assert Client.predict.__doc__ is not None
    assert "coverage" in Client.predict.__doc__
    assert Client.predict.__name__ == "predict"
