"""A service whose every entrance is asked the same, over HTTP, and what each makes of it.

Every answer is held to more: it is never a 500, and no 200 holds a number that is not finite.
"""

import json
import math
import re
from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import settings
from sqlalchemy import Engine, select

from contracts.task import Task
from store.database import events
from store.tasks.catalog import define_task
from tests.integration.artefacts import place_version
from tests.integration.service_app import TASK, service_settings, serving

NOW = datetime(2026, 2, 1, tzinfo=UTC)
AT = '"2026-02-01T00:00:00Z"'
JSON = {"content-type": "application/json"}
NDJSON = {"content-type": "application/x-ndjson"}
unhurried = settings(deadline=None, max_examples=60)


@dataclass
class House:
    """A client of a running app, called from outside of its event loop."""

    portal: BlockingPortal
    client: httpx.AsyncClient
    engine: Engine
    ids: Iterator[int] = field(default_factory=count)

    def ask(self, method: str, url: str, body: bytes | None = None, headers: dict[str, str] = JSON) -> httpx.Response:
        """The answer, which is no 500 and holds finite numbers only."""

        async def send() -> httpx.Response:
            return await self.client.request(method, url, content=body, headers=headers)

        answer = self.portal.call(send)
        assert answer.status_code < 500, (method, url, body, answer.text)
        if answer.status_code == 200:
            json.loads(answer.content, parse_constant=_refuse, parse_float=_finite)
        return answer

    def stored(self, event_id: str) -> Any:
        """The one event of an id, or None."""
        with self.engine.connect() as connection:
            return connection.execute(select(events).where(events.c.event_id == event_id)).one_or_none()


def _refuse(constant: str) -> float:
    raise AssertionError(f"{constant} in an answer")


def _finite(literal: str) -> float:
    assert math.isfinite(float(literal)), literal
    return float(literal)


Verdict = tuple[bool, frozenset[str]]


def fields_of(answer: httpx.Response) -> frozenset[str]:
    """The fields that a refusal names, without their row's place; none where the text itself cannot be read."""
    faults = answer.json().get("errors", [])
    return frozenset(re.sub(r"^(rows|events)\[0\]\.", "", fault["field"]) for fault in faults)


def asked(answer: httpx.Response) -> Verdict:
    """What /predict says of a question; a moment beyond the horizon was understood."""
    understood = answer.status_code == 200 or answer.json()["type"] == "/problems/outside-horizon"
    assert understood or answer.status_code in (400, 422), answer.text
    return understood, frozenset() if understood else fields_of(answer)


def taken(answer: httpx.Response) -> Verdict:
    """What /events says of one event, however it was sent."""
    assert answer.status_code in (200, 400, 422), answer.text
    if answer.status_code != 200:
        return False, fields_of(answer)
    body = answer.json()
    if "results" not in body or not body["results"] or body["results"][0]["status"] != "rejected":
        return True, frozenset()
    return False, frozenset(fault["field"] for fault in body["results"][0]["errors"])


def verdicts(house: House, **literals: str) -> tuple[list[Verdict], list[Any], httpx.Response]:
    """Verdicts of GET, POST /predict and of events sent alone, in an array and as a line, on these JSON literals.

    A string is sent in a query without its quotation marks. Also what was stored, and what GET answered.
    """
    given = {"at": AT, "distance": "1400", "carrier": '"UA"'} | literals
    plain = {name: json.loads(text) if text.startswith('"') else text for name, text in given.items()}
    query = "&".join(f"{name}={quote(text, safe='', errors='surrogatepass')}" for name, text in plain.items())
    features = ", ".join(f'"{name}": {text}' for name, text in given.items() if name != "at")
    row = f'"at": {given["at"]}, "features": {{{features}}}'
    answered = house.ask("GET", f"/predict?task=flights&{query}")
    question = f'{{"rows": [{{{row}}}]}}'.encode("utf-8", "surrogatepass")
    found = [asked(answered), asked(house.ask("POST", "/predict?task=flights", question))]
    stored = []
    for shape, headers in (("{}", JSON), ("[{}]", JSON), ("{}\n", NDJSON)):
        event_id = f"e{next(house.ids)}"
        event = f'{{"event_id": "{event_id}", "label": "late", {row}}}'
        body = shape.replace("{}", event).encode("utf-8", "surrogatepass")
        found.append(taken(house.ask("POST", "/events?task=flights", body, headers)))
        stored.append(house.stored(event_id))
    return found, stored, answered


def hold(found: list[Verdict], stored: list[Any], expected: bool, name: str) -> None:
    """All entrances agree with the oracle, a refusal names the field or calls the text unreadable, and only what was
    taken is stored."""
    assert {verdict for verdict, _ in found} == {expected}, found
    assert all(fields <= {name, "event"} for _, fields in found), found
    assert all((row is not None) == expected for row in stored)


@contextmanager
def open_house(database_url: str, engine: Engine, home: Path) -> Iterator[House]:
    """An app with a task, a version that answers, and a second task of numbers."""
    with engine.begin() as connection:
        define_task(connection, Task.model_validate({**TASK, "name": "flights"}), NOW)
        numbers = {"target": {"name": "delay", "kind": "regression"}, "name": "delays"}
        define_task(connection, Task.model_validate(TASK | numbers), NOW)
    place_version(home)

    @asynccontextmanager
    async def serve() -> Any:
        async with serving(service_settings(database_url, home)) as client:
            yield client

    with start_blocking_portal() as portal, portal.wrap_async_context_manager(serve()) as client:
        yield House(portal, client, engine)
