"""The client against answers that no server of ours gives: faults of the network, proxies and retries."""

import asyncio
import pickle
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx
import msgspec
import pytest
from morrow import (
    ApiError,
    AsyncClient,
    Client,
    Event,
    InvalidInput,
    ModelExpired,
    NaiveMoment,
    NotFound,
    OutsideHorizon,
    Problem,
    Throttled,
    Unavailable,
    Unreachable,
    Upload,
    UploadInterrupted,
)
from morrow.testing import FakeMorrow

from tests.unit.client.replies import EVENT, NOON, STORED, answering, problem


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


@pytest.mark.parametrize("key", ["two words", "zwölf", "a\x00b"])
def test_a_key_that_no_header_holds_is_refused_without_a_request(key: str) -> None:
    with pytest.raises(ValueError, match="copy it again") as refused:
        Client("http://morrow.test", key=key)
    assert key not in str(refused.value)


def test_blanks_around_a_key_are_left_out() -> None:
    with Client("http://morrow.test", key=" mk_1\n") as client:
        assert client._http.headers["authorization"] == "Bearer mk_1"


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "localhost", "ftp://morrow.test", "http://", "http://[::1", ""])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="is no address"):
        Client(url)


ERRORS: list[Exception] = [
    OutsideHorizon(Problem(type=OutsideHorizon.type, detail="no", status=422, side="beyond", valid_until=NOON), 2.0),
    ApiError(Problem(type="/problems/new", title="New", status=409)),
    Unreachable("no answer"),
    NaiveMoment(datetime(2026, 1, 5)),  # noqa: DTZ001
    UploadInterrupted(Upload(sent=3), Unreachable("no answer")),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_errors_cross_processes(error: Exception) -> None:
    found = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert (type(found), str(found), repr(found)) == (type(error), str(error), repr(error))
    if isinstance(error, ApiError):
        assert (found.problem, found.retry_after) == (error.problem, error.retry_after)
    if isinstance(error, UploadInterrupted):
        assert found.report == error.report
        assert str(found.__cause__) == str(error.__cause__)


@pytest.mark.parametrize("kind", ["overloaded", "not-loaded", "not-ready", "task-leaving", "unavailable"])
def test_whatever_outlasts_the_patience_is_unavailable(kind: str) -> None:
    with answering(problem(kind, 503, headers={"retry-after": "99"})) as client, pytest.raises(Unavailable) as refused:
        client.tasks()
    assert refused.value.problem.type == f"/problems/{kind}"


def test_a_date_in_retry_after_is_waited_for(pauses: list[float]) -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=4), usegmt=True)
    with answering(problem("unavailable", 503, headers={"retry-after": date}), httpx.Response(200, json=STORED)) as one:
        assert one.upload("sales", [EVENT]).created == 1
    assert 2 <= pauses[0] <= 5


@pytest.mark.parametrize("text", ["soon", "nan", "inf", "-3", "", "Mon, 99 Foo 2026 00:00:00 GMT"])
def test_a_retry_after_that_says_nothing_is_as_none(text: str, pauses: list[float]) -> None:
    replies = problem("unavailable", 503, headers={"retry-after": text}), httpx.Response(200, json=STORED)
    with answering(*replies) as client:
        client.upload("sales", [EVENT])
    assert 0.2 <= pauses[0] <= 0.25


def test_the_time_of_failed_requests_counts_as_patience(monkeypatch: pytest.MonkeyPatch, pauses: list[float]) -> None:
    clock = iter(range(0, 10_000, 20))
    monkeypatch.setattr("morrow.exchanges.time.monotonic", lambda: float(next(clock)))
    requests: list[httpx.Request] = []
    with answering(*[httpx.ReadTimeout("slow")] * 9, requests=requests) as client, pytest.raises(Unreachable):
        client.tasks()
    assert len(requests) == 2  # each took 20 of 30 seconds
    assert len(pauses) == 1


BROKEN: dict[str, httpx.Response] = {
    "a problem that is no JSON": httpx.Response(
        500, content=b"{", headers={"content-type": "application/problem+json"}
    ),
    "a problem in Latin-1": httpx.Response(
        404, content=b'{"type": "\xff"}', headers={"content-type": "application/problem+json"}
    ),
    "an answer in Latin-1": httpx.Response(200, content=b'{"tasks": [{"task": "\xff"}]}'),
}


@pytest.mark.parametrize("reply", BROKEN.values(), ids=BROKEN)
def test_what_cannot_be_read_is_not_morrow(reply: httpx.Response, pauses: list[float]) -> None:
    with answering(reply) as client, pytest.raises(Unreachable):
        client.tasks()
    assert pauses == []


def test_a_body_that_cannot_be_decompressed_is_not_asked_for_again(pauses: list[float]) -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"content-encoding": "gzip"}, stream=httpx.ByteStream(b"no gzip"))

    client = Client("http://morrow.test", transport=httpx.MockTransport(answer))
    with client, pytest.raises(Unreachable):
        client.tasks()
    assert pauses == []


def test_a_redirect_is_named_with_its_target() -> None:
    moved = httpx.Response(308, headers={"location": "https://morrow.test/tasks"})
    with answering(moved) as client, pytest.raises(Unreachable, match=r"redirects to https://morrow\.test/tasks"):
        client.tasks()


def test_a_client_may_be_closed_twice(fake: FakeMorrow) -> None:
    client = fake.client()
    client.close()
    client.close()
    with pytest.raises(RuntimeError, match="closed"):
        client.tasks()


@pytest.mark.anyio
async def test_cancelled_calls_leave_the_client_usable(fake: FakeMorrow) -> None:
    async with fake.async_client() as client:
        fake.fail("unavailable", 503, times=3, retry_after=5)
        calls = [asyncio.create_task(client.predict("sales", {}, NOON)) for _ in range(3)]
        await asyncio.sleep(0.01)
        for call in calls:
            call.cancel()
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(one) for one in found] == [asyncio.CancelledError] * 3
        assert (await client.predict("sales", {"price": 1}, NOON)).prediction == 1


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
