"""The same rows in the form of each server: a query string, a batch for POST /predict, MLflow's two JSON forms."""

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from benchmarks.serving.release import Released
from contracts.clock import parse_moment
from contracts.task import Task

NUM_ROWS = 256
ROWS_PER_BATCH = 1000


def complete_rows(released: Released, count: int) -> list[dict[str, Any]]:
    """Rows spread over the week, none with a missing value, which MLflow's JSON cannot carry."""
    complete = [event for event in released.events if None not in event["features"].values()]
    spread = complete[:: max(1, len(complete) // count)]
    return [spread[place % len(spread)] for place in range(count)]


def get_paths(task: str, rows: Sequence[dict[str, Any]]) -> list[str]:
    """GET /predict, one path a row."""
    return ["/predict?" + urlencode({"task": task, "at": row["at"], **row["features"]}) for row in rows]


def batch_body(rows: Sequence[dict[str, Any]]) -> str:
    """The body of POST /predict for all rows at once."""
    return json.dumps({"rows": [{"at": row["at"], "features": row["features"]} for row in rows]})


def tensor_body(task: Task, rows: Sequence[dict[str, Any]]) -> str:
    """MLflow's `inputs`: one array for each input of the graph."""
    return json.dumps({"inputs": _inputs(task, rows)})


def frame_body(task: Task, rows: Sequence[dict[str, Any]]) -> str:
    """MLflow's `dataframe_split`: one column for each input of the graph."""
    inputs = _inputs(task, rows)
    data = [list(values) for values in zip(*inputs.values(), strict=True)]
    return json.dumps({"dataframe_split": {"columns": list(inputs), "data": data}})


def _inputs(task: Task, rows: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    return {
        "at": [parse_moment(row["at"]) for row in rows],
        "numbers": [[float(row["features"][one.name]) for one in task.numbers] for row in rows],
        "categories": [[row["features"][one.name] for one in task.categories] for row in rows],
    }
