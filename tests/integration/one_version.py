"""A service that has one version and nothing else, and one row to ask it about."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from contracts.calibration import LEVELS, AgeQuantiles
from contracts.clock import format_moment
from service.models.local_copies import Current, write_current
from store.releases import Overlay
from tests.integration.artefacts import CUTOFF, WEEK, write_version
from tests.integration.service_app import DEAD_DATABASE, service_settings, serving

SECOND, VALID_UNTIL = 1_000_000, CUTOFF + 2 * WEEK
REGRESSION = {"target": {"name": "delay", "kind": "regression"}}
OPEN = Overlay(VALID_UNTIL, None)
Row = dict[str, Any]
ROW: Row = {"distance": -600, "carrier": "UA"}  # its score passes 0 a week after the cutoff


@asynccontextmanager
async def placed(home: Path, overlay: Overlay = OPEN, **changes: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a service that has one version and nothing else."""
    folder = write_version(home / "models" / "flights" / "3", **changes)
    write_current(folder.parent, Current("3", overlay.valid_until, None, overlay.calibration))
    async with serving(service_settings(DEAD_DATABASE, home)) as client:
        yield client


async def ask(client: httpx.AsyncClient, at: int, **given: Any) -> httpx.Response:
    return await client.get("/predict", params={"at": format_moment(at), **ROW, **given})


async def ask_many(client: httpx.AsyncClient, moments: list[int], row: Row = ROW, /, **given: Any) -> httpx.Response:
    body = {"features": row, "at": [format_moment(at) for at in moments]}
    return await client.post("/predict", params=given, json=body)


def unnamed(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer without its id, by which two equal answers differ."""
    return {name: value for name, value in answer.items() if name != "id"}


def without_ids(content: bytes) -> bytes:
    """Answers whose ids are blank, and problems without the id of their request."""
    unnamed = re.sub(rb',"request_id":"[^"]*"', b"", content)
    return re.sub(rb'"id":"[0-9a-f]{8}-[0-9a-f-]{27}"', b'"id":""', unnamed)


def quantiles(age: int, *values: float, num_rows: int = 1000) -> AgeQuantiles:
    """Quantiles at 0.50, 0.51 …; the last value stands for all higher levels unless there are few."""
    return AgeQuantiles(age, num_rows, list(values))


def everywhere(*values: float) -> list[float]:
    """The same quantile for all levels up to 0.89, then the second for all others."""
    return [values[0] if level < 0.895 else values[1] for level in LEVELS]
