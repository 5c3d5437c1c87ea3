"""More batches at once than threads may answer: a bounded number waits, others are refused, and room is made again."""

import threading
from collections.abc import Iterable
from pathlib import Path

import anyio
import httpx
import pytest

from contracts.clock import format_moment
from service.models.answer import join_answers
from service.settings import MAX_WAITING_PER_THREAD
from tests.integration.artefacts import CUTOFF, place_version
from tests.integration.service_app import DEAD_DATABASE, service_settings, serving

pytestmark = pytest.mark.anyio

ROW = {"distance": 1400, "carrier": "UA", "wind": 3.5}


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """No batch is answered until it is set, or ten seconds have passed."""
    event = threading.Event()

    def answer_late(encoded: Iterable[bytes]) -> bytes:
        event.wait(timeout=10)
        return join_answers(encoded)

    monkeypatch.setattr("service.predict.endpoint.join_answers", answer_late)
    return event


async def test_batches_beyond_those_that_may_wait_are_503_and_the_others_are_answered(
    tmp_path: Path, held: threading.Event
) -> None:
    """All come at once, and none is answered before the others are refused."""
    place_version(tmp_path)
    body = {"features": ROW, "at": [format_moment(CUTOFF)] * 1_000}
    num_taken = 1 + MAX_WAITING_PER_THREAD
    answers: list[httpx.Response] = []
    async with serving(service_settings(DEAD_DATABASE, tmp_path, batch_threads=1)) as client:

        async def send() -> None:
            answers.append(await client.post("/predict", json=body))
            if len(answers) == 2 * num_taken:
                held.set()

        async with anyio.create_task_group() as group:
            for _ in range(3 * num_taken):
                group.start_soon(send)
        assert (await client.post("/predict", json=body)).status_code == 200
    assert [answer.status_code for answer in answers] == [503] * 2 * num_taken + [200] * num_taken
    refused = answers[: 2 * num_taken]
    assert {answer.json()["type"] for answer in refused} == {"/problems/overloaded"}
    assert {answer.headers["retry-after"] for answer in refused} == {"1"}


async def test_batches_whose_clients_leave_make_room_for_others(tmp_path: Path, held: threading.Event) -> None:
    place_version(tmp_path)
    body = {"features": ROW, "at": [format_moment(CUTOFF)]}
    is_refused = anyio.Event()
    async with serving(service_settings(DEAD_DATABASE, tmp_path, batch_threads=1)) as client:

        async def send() -> None:
            if (await client.post("/predict", json=body)).status_code == 503:
                is_refused.set()

        async with anyio.create_task_group() as group:
            for _ in range(2 + MAX_WAITING_PER_THREAD):
                group.start_soon(send)
            with anyio.fail_after(10):
                await is_refused.wait()
            group.cancel_scope.cancel()
            held.set()
        assert (await client.post("/predict", json=body)).status_code == 200
