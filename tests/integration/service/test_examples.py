"""The examples of `/docs`: each request is answered as recorded. RECORD_EXAMPLES=1 records the answers again."""

import os
import re
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from sqlalchemy import Engine

from service.openapi.document import OPERATIONS
from service.openapi.examples import FILE, Example, read_examples, write_command
from tests.integration.played_examples import play
from tests.integration.service_app import service_settings, serving

pytestmark = pytest.mark.anyio

# Members that differ from run to run.
VOLATILE = {"pid", "seen_at", "seconds_since_release", "requested_at", "run_id", "checksums", "secret"}
NOW_LIKE = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z$")
ID_LIKE = re.compile(r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
NUM_METRICS_LINES = 9


def masked(answer: Any) -> Any:
    """An answer without what differs from run to run: times of this run, ids of processes, last digits."""
    if isinstance(answer, dict):
        return {name: None if name in VOLATILE else masked(value) for name, value in answer.items()}
    if isinstance(answer, list):
        return [masked(each) for each in answer]
    if isinstance(answer, float):
        return f"{answer:.3g}"
    return None if isinstance(answer, str) and (NOW_LIKE.match(answer) or ID_LIKE.match(answer)) else answer


async def ask(client: httpx.AsyncClient, _name: str, example: Example) -> Example:
    """The example with the answer of now."""
    body = {} if example.body is None else {"content": example.body}
    headers = {} if example.body is None else {"content-type": "application/json"}
    answer = await client.request(example.verb, example.path, headers=headers, **body)  # type: ignore[arg-type]  # a body of any kind
    is_json = "json" in answer.headers["content-type"]
    text = "\n".join(answer.text.splitlines()[:NUM_METRICS_LINES]) + "\n…"
    return msgspec.structs.replace(example, status=answer.status_code, answer=answer.json() if is_json else text)


async def test_each_operation_has_an_example_that_is_answered_as_shown(
    database_url: str, engine: Engine, mlflow_url: str, tmp_path: Path
) -> None:
    examples = read_examples()
    assert {operation.id for operation in OPERATIONS.values()} == set(examples)
    async with serving(service_settings(database_url, tmp_path, mlflow_url=mlflow_url)) as client:
        answered = await play(partial(ask, client), client, engine, mlflow_url, tmp_path / "published")
    if os.environ.get("RECORD_EXAMPLES"):
        answered["addHook"].answer["secret"] = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105 the standard's own example
        FILE.write_bytes(msgspec.json.format(msgspec.json.encode(answered), indent=2) + b"\n")
    for name, example in examples.items():
        found, remedy = answered[name], f"{name}: record it again by RECORD_EXAMPLES=1 and this test"
        assert found.status == example.status, remedy
        assert isinstance(found.answer, str) or masked(found.answer) == masked(example.answer), remedy


def test_a_request_is_shown_as_a_command_for_the_shell() -> None:
    plain = Example("GET", "/tasks", 200, {})
    assert write_command(plain, "http://morrow:1") == "curl 'http://morrow:1/tasks'"
    sent = Example("PUT", "/tasks/a", 201, {}, '{"window": "P1D"}')
    assert write_command(sent).splitlines() == [
        "curl -X PUT 'http://127.0.0.1:8000/tasks/a' \\",
        "  -H 'Content-Type: application/json' \\",
        """  -d '{"window": "P1D"}'""",
    ]
