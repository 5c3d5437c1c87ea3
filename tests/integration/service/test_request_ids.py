"""Every answer has the id of its request, which its problem and its record in the access log have too."""

import json
import re
import socket
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from sqlalchemy import Engine

from contracts.clock import format_moment
from tests.integration.api_process import Running, define_flights, running
from tests.integration.artefacts import CUTOFF
from tests.integration.sockets import SECONDS

pytestmark = pytest.mark.anyio

QUESTION = f"/predict?distance=1400&carrier=UA&at={format_moment(CUTOFF)}"
MADE = re.compile(r"[0-9a-f]{16}-[0-9]+")
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


async def read_records(api: Running, *request_ids: str) -> list[dict[str, Any]]:
    """The records of the access log with these ids, once there are as many."""
    with anyio.fail_after(SECONDS):
        while True:
            lines = [line for line in api.log.read_text().splitlines() if line.startswith("{") and line.endswith("}")]
            records = [record for line in lines if (record := json.loads(line))["event"] == "request.answered"]
            if len(found := [one for one in records if one.get("request_id") in request_ids]) >= len(request_ids):
                return found
            await anyio.sleep(0.02)


ASKED = [
    ("GET", QUESTION, 200),
    ("HEAD", QUESTION, 200),
    ("GET", f"{QUESTION}&rate=true", 200),
    ("GET", "/predict?at=x", 422),
    ("POST", "/predict", 400),
    ("POST", "/events", 400),
    ("GET", "/events/none?task=flights", 404),
    ("GET", "/tasks", 200),
    ("GET", "/tasks/nothing", 404),
    ("GET", "/nowhere", 404),
    ("GET", "/predict/", 307),
    ("PATCH", "/tasks", 405),
    ("POST", "/v2/models/flights/infer", 400),
    ("GET", "/livez", 200),
    ("GET", "/", 200),
    ("GET", "/static/nothing", 404),
    ("OPTIONS", "*", 204),
]


async def test_every_answer_has_the_id_that_its_request_brings_or_one_of_its_own(api: Running) -> None:
    async with httpx.AsyncClient(base_url=api.url) as client:
        for verb, path, status in ASKED:
            target: dict[str, Any] = {"extensions": {"target": b"*"}} if path == "*" else {}
            for sent in (f"ours:{verb}/17", None):
                headers = {} if sent is None else {"X-Request-Id": sent}
                answer = await client.request(verb, "/" if path == "*" else path, headers=headers, **target)
                found = answer.headers["x-request-id"]
                assert answer.status_code == status, (verb, path, answer.text)
                assert found == sent if sent is not None else MADE.fullmatch(found), (verb, path)
                if answer.headers.get("content-type") == "application/problem+json" and verb != "HEAD":
                    assert answer.json()["request_id"] == found


async def test_ids_that_could_harm_a_log_are_replaced_and_no_two_made_ones_are_equal(api: Running) -> None:
    found = []
    async with httpx.AsyncClient(base_url=api.url) as client:
        for sent in (b"", b"a b", b'"', "ö".encode(), b"x" * 129, b"{}"):
            answer = await client.get(QUESTION, headers=[(b"X-Request-Id", sent)])
            found.append(answer.headers["x-request-id"])
        assert (await client.get(QUESTION, headers={"X-Request-Id": "x" * 128})).headers["x-request-id"] == "x" * 128
    assert all(map(MADE.fullmatch, found))
    assert len({*found}) == len(found)


async def test_the_access_log_names_the_request_and_its_trace(
    engine: Engine, database_url: str, tmp_path: Path
) -> None:
    define_flights(engine)
    with running(database_url, tmp_path, MORROW_ACCESS_LOG="all") as api:
        async with httpx.AsyncClient(base_url=api.url) as client:
            traced = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01", "X-Request-Id": "order-17"}
            await client.get(QUESTION, headers=traced)
            made = (await client.get("/tasks", headers={"traceparent": f"00-{'0' * 32}-00f067aa0ba902b7-01"})).headers
            refused = (await client.get("/predict?at=x")).json()["request_id"]
        broken = send(api, b"NONSENSE\r\n\r\n")
        unread = re.findall(rb"x-request-id: (\S+)", broken)[0].decode()
        assert json.loads(broken.partition(b"\r\n\r\n")[2])["request_id"] == unread
        records = await read_records(api, "order-17", made["x-request-id"], refused, unread)
    assert [(one.get("route"), one["status"], one.get("trace_id")) for one in records] == [
        ("/predict", 200, TRACE),
        ("/tasks", 200, None),
        ("/predict", 422, None),
        (None, 400, None),
    ]


def send(api: Running, content: bytes) -> bytes:
    """What comes back on a connection of its own, up to its end."""
    with socket.create_connection(("127.0.0.1", api.port), timeout=SECONDS) as connection:
        connection.sendall(content)
        with connection.makefile("rb") as stream:
            return stream.read()
