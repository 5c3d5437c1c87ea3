"""The requests of the examples, asked one after the other, and what must be there before each.

Tests ask them by httpx and by clients that a generator wrote from the OpenAPI document.
"""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import msgspec
from sqlalchemy import Engine

from contracts.clock import parse_moment
from service.openapi.examples import Example, read_examples
from store.error_cells import Cell, record_cells
from store.predictions.rows import write_row, write_source
from store.predictions.writes import Stored, store_rows
from store.tasks.catalog import Schema, find_task
from tests.integration.artefacts import CUTOFF, WEEK
from tests.integration.published_versions import NOW, publish_and_release, run_cycle, wait_for

TASK, NEW_NAME = "punctuality", "timeliness"
# A version that was trained then has read what an example stores now.
FOREVER = datetime(2100, 1, 1, tzinfo=UTC)

# Asks the operation of this id by an example, and returns the example with the answer of now.
Ask = Callable[[str, Example], Awaitable[Example]]


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


def of_suffix(text: str, suffix: str) -> str:
    """A text that names the task of the examples, about one whose names have a suffix: all tests share one MLflow."""
    return text.replace(TASK, f"{TASK}{suffix}").replace(NEW_NAME, f"{NEW_NAME}{suffix}")


async def play(
    ask: Ask, client: httpx.AsyncClient, engine: Engine, mlflow_url: str, folder: Path, *, suffix: str = ""
) -> dict[str, Example]:
    """Every example with the answer of now, in the order of the file; `client` looks at the same API as `ask`."""
    text = of_suffix(msgspec.json.encode(read_examples()).decode(), suffix)
    examples = msgspec.json.decode(text, type=dict[str, Example])
    task = f"{TASK}{suffix}"
    answered = {"defineTask": await ask("defineTask", examples["defineTask"])}
    with engine.connect() as connection:
        schema = find_task(connection, task)
    score(engine, schema)
    for _ in range(2):
        version = publish_and_release(mlflow_url, engine, schema, folder)
    run_cycle(engine, schema, CUTOFF, "released", version=version, num_rows=1, rows_digest="e3b0" * 16, read_at=FOREVER)
    await wait_for(client, f"/tasks/{task}", lambda found: (found["champion"] or {}).get("version") == version)
    for name, example in list(examples.items())[1:]:
        if name == "getPrediction":
            log_answer(engine, schema, UUID(example.path.rpartition("/")[2]), answered["predict"].answer)
        answered[name] = await ask(name, example)
    return answered
