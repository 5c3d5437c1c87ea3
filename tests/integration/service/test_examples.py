"""The examples of `/docs`: each request is answered as recorded. RECORD_EXAMPLES=1 records the answers again."""

import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import msgspec
import pytest
from sqlalchemy import Engine

from contracts.clock import parse_moment
from service.openapi.document import OPERATIONS
from service.openapi.examples import FILE, Example, read_examples, write_command
from store.error_cells import Cell, record_cells
from store.predictions.rows import write_row, write_source
from store.predictions.writes import Stored, store_rows
from store.tasks.catalog import Schema, find_task
from tests.integration.artefacts import CUTOFF, WEEK
from tests.integration.published_versions import NOW, publish_and_release, run_cycle, wait_for
from tests.integration.service_app import service_settings, serving

pytestmark = pytest.mark.anyio

TASK = "punctuality"
# A version that was trained then has read what an example stores now.
FOREVER = datetime(2100, 1, 1, tzinfo=UTC)
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


def score(engine: Engine, schema: Schema) -> None:
    """Errors of our method, of naive and of a rival on four windows."""
    cells = [
        Cell(origin, origin, method, 200, loss, loss / 2)
        for place in range(4)
        for origin in [CUTOFF - place * WEEK]
        for method, loss in (("gi", 0.41 + place / 100), ("naive", 0.69), ("gbdt", 0.44))
    ]
    with engine.begin() as connection:
        record_cells(connection, schema.task_id, schema.task.recipe, cells, NOW)


def log_answer(engine: Engine, schema: Schema, prediction_id: UUID, answer: dict[str, Any]) -> None:
    """The answer of an example in the log, by an id that does not change from run to run."""
    row = write_row(
        prediction_id.bytes,
        write_source(schema.task_id, answer["version"]),
        parse_moment(answer["at"]),
        key_name=None,
        features=b'{"distance":1400.0,"wind":3.5,"carrier":"UA"}',
        answer=msgspec.json.encode({name: value for name, value in answer.items() if name != "id"}),
    )
    assert store_rows(engine, row, 1, {schema.task_id}) == Stored(1)


async def ask(client: httpx.AsyncClient, example: Example) -> Example:
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
    answered = {}
    async with serving(service_settings(database_url, tmp_path, mlflow_url=mlflow_url)) as client:
        answered["defineTask"] = await ask(client, examples["defineTask"])
        with engine.connect() as connection:
            schema = find_task(connection, TASK)
        score(engine, schema)
        for _ in range(2):
            version = publish_and_release(mlflow_url, engine, schema, tmp_path / "published")
        run_cycle(
            engine, schema, CUTOFF, "released", version=version, num_rows=1, rows_digest="e3b0" * 16, read_at=FOREVER
        )
        await wait_for(client, f"/tasks/{TASK}", lambda found: (found["champion"] or {}).get("version") == version)
        for name, example in list(examples.items())[1:]:
            if name == "getPrediction":
                log_answer(engine, schema, UUID(example.path.rpartition("/")[2]), answered["predict"].answer)
            answered[name] = await ask(client, example)
    if os.environ.get("RECORD_EXAMPLES"):
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
