"""Keys for tests, how they are sent, and the problem that a refusal names."""

from datetime import UTC, datetime

import httpx
from sqlalchemy import Engine

from store.api_keys import Scope, add_key

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def make_key(engine: Engine, *scopes: Scope, name: str = "one", rate: float | None = None) -> str:
    with engine.begin() as connection:
        return add_key(connection, name, scopes, rate, NOW)


def sent(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def problem(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["type"].removeprefix("/problems/")
