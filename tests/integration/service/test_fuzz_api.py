"""The OpenAPI document against the real process: thousands of requests that fit it, and as many that break it.

Schemathesis makes them from the document and holds every answer to it: no 5xx, statuses, content types, bodies and
headers as documented, keys asked for where it says so, what breaks the document refused, what fits it taken. Some
rules no schema can say, such as that a moment lies inside the horizon: `UNSAYABLE` lists them by the words in which
the service refuses, and a refusal of a fitting request for any other reason fails. `MORROW_FUZZ_EXAMPLES` makes it
longer.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from schemathesis.engine import Status, events, from_schema
from schemathesis.engine.recorder import ScenarioRecorder
from sqlalchemy import Engine

from cli.local.stack import free_port
from contracts.clock import format_moment
from service.openapi.json_schema import closed, nullable, text
from store.api_keys import add_key
from store.tasks.catalog import Schema
from tests.integration.artefacts import CUTOFF, WEEK
from tests.integration.published_versions import NOW, define, note, publish_and_release, run_cycle
from tests.servers import stop, wait_until_healthy

NUM_EXAMPLES = int(os.environ.get("MORROW_FUZZ_EXAMPLES", "32"))
NUM_CASES = 2000
DEFINE = ("/tasks/{task}", "PUT")
DELETE = ("/tasks/{task}", "DELETE")
LIFECYCLE = "/(pause|resume|archive|unarchive|rename)$"
MOMENTS = [format_moment(CUTOFF + hours * 3_600_000_000) for hours in (-500, -1, 0, 1, 200, 335)]

UNSAYABLE = (
    "begins with http://, and events",
    "is no URL (",
    "is no address of a receiver",
    "holds a user or a password",
    "ends with a fragment",
    "has the port 0",
    "leads to ",
    "is before the first row of training",
    "is beyond the validated horizon",
    "is not supported",
    "is not available for moments of the fit's rows",
    "is given for at most 100 rows",
    "differs from the id in the path",
    "differs from the name in the path",
    "is before at",
    "is required, because the event has one",
    "was logged without its features",
    "lies in the future",
    "lies in a window that begins before the year 1",
    "plus the task's label_delay is beyond the year 9999",
    "is an integer beyond",
    "is at least one second and at most a hundred years",
    "Input should be less than or equal to 36525 days",
    "Input should be greater than or equal to 0 seconds",
    "feature names",
    "the target is not one of the features",
    "classes ",
    "minimum ",
    "time_linear is at most time_width",
    "num_trelu is at most num_layers",
    "a recipe trains for at least one epoch",
    "is more than half the time limit of a cycle",
    "must be '",
    f"is before {format_moment(CUTOFF)}, the version's cutoff",
    f"is beyond {format_moment(CUTOFF + 4 * WEEK)}, the longest horizon",
)
# A document may promise 503; that it is deserved is told by its type.
UNAVAILABLE = {"/problems/model-expired", "/problems/no-model", "/problems/not-loaded"}


@dataclass
class Found:
    """What a run has seen: cases by operation, statuses by operation, and each kind of failure once."""

    cases: Counter[str] = field(default_factory=Counter)
    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    unavailable: Counter[str] = field(default_factory=Counter)
    failures: dict[tuple[str, str, str], str] = field(default_factory=dict)

    def take(self, recorder: ScenarioRecorder) -> None:
        """Count one scenario's cases, and judge its checks."""
        for case_id, node in recorder.cases.items():
            label, interaction = node.value.operation.label, recorder.interactions.get(case_id)
            self.cases[label] += 1
            response = None if interaction is None else interaction.response
            if response is not None:
                self.statuses[label, response.status_code] += 1
            body = b"" if response is None else response.content or b""
            if response is not None and response.status_code == 503:
                self.unavailable[json.loads(body)["type"]] += 1
            for check in recorder.checks.get(case_id, []):
                if check.status != Status.FAILURE:
                    continue
                assert check.failure_info is not None
                failure = check.failure_info.failure
                faults = _faults(body)
                reasons = [fault["reason"] for fault in faults]
                if check.name == "positive_data_acceptance" and faults and all(map(_is_unsayable, faults)):
                    self.refusals.update(reasons)
                    continue
                words = f"{failure.message}\n{check.failure_info.code_sample}\n{body[:2000].decode(errors='replace')}"
                self.failures.setdefault((label, check.name, (reasons or [failure.title])[0]), words)

    def report(self) -> str:
        """Counts, and each kind of failure with a request that shows it."""
        counts = [*sorted(self.cases.items()), *sorted(self.statuses.items()), *self.refusals.items()]
        failures = ["\n".join((*name, words)) for name, words in sorted(self.failures.items())]
        return "\n".join([*map(str, counts), f"{self.cases.total()} cases", *failures, ""])


def _faults(body: bytes) -> list[dict[str, str]]:
    try:
        faults: list[dict[str, str]] = json.loads(body)["errors"]
    except (ValueError, KeyError, TypeError):
        return []
    return faults


def _is_unsayable(fault: dict[str, str]) -> bool:
    """Also any fault of one of many rows: with `atomic=true` it refuses them all, without it itself alone."""
    return fault["reason"].startswith(UNSAYABLE) or fault["field"].startswith("events[")


@dataclass(frozen=True)
class Api:
    """A process that answers, an admin's headers for it, and what it knows: a task, its versions and a held cycle."""

    url: str
    headers: dict[str, str]
    task: Schema
    versions: list[str]
    held: int


@pytest.fixture
def api(database_url: str, engine: Engine, mlflow_url: str, tmp_path: Path) -> Iterator[Api]:
    """A process with keys whose task has been released twice and held once."""
    task = define(engine)
    versions = [publish_and_release(mlflow_url, engine, task, tmp_path, bias=bias) for bias in (0.0, 1.0)]
    note(engine, task, versions[1], "close", valid_until=CUTOFF + WEEK)
    decision = {"rule": "newest_window", "passed": False, "value": None, "threshold": None, "reason": "suspect"}
    held = run_cycle(engine, task, CUTOFF + WEEK, "held", "suspect", verdict={"passed": False, "decisions": [decision]})
    with engine.begin() as connection:
        key = add_key(connection, "fuzz", ("admin",), None, NOW)
    port = free_port()
    given = {
        "MORROW_HOME": str(tmp_path / "home"),
        "MORROW_DATABASE_URL": database_url,
        "MORROW_MLFLOW_URL": mlflow_url,
        "MORROW_PORT": str(port),
        "MORROW_LOG_FORMAT": "json",
    }
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "service"], env={**os.environ, **given}, start_new_session=True, stderr=log
        )
        try:
            url = f"http://127.0.0.1:{port}"
            wait_until_healthy(f"{url}/readyz", process, seconds=120)
            yield Api(url, {"Authorization": f"Bearer {key}"}, task, versions, held.cycle_id)
        finally:
            stop(process)


def of_task(document: dict[str, Any], held: int) -> dict[str, Any]:
    """The document as a client of this one task reads it: which features, classes and held cycle there are."""
    shapes = document["components"]["schemas"]
    number = {"type": "number"}
    shapes["Features"] = closed({"distance": number, "carrier": text()}, {"wind": nullable(number)})
    shapes["FeaturesInQuery"] = closed({"distance": number, "carrier": text()}, {"wind": number})
    for parameter in document["paths"]["/predict"]["get"]["parameters"]:
        parameter["required"] = parameter["name"] == "features"
    for name in ("Event", "Correction", "LabelOfEvent", "LabelOfAnswer"):
        shapes[name]["properties"]["label"] = {"enum": ["late", "on_time"]}
    # Of two alternatives, schemathesis takes a value from a dictionary for wrong if it is wrong for one of them.
    shapes["CycleOverride"]["properties"]["cycle"]["enum"] = [held]
    return document


def configured(api: Api, chained: bool) -> schemathesis.Config:
    """All checks; what exists is drawn often, so that requests come further than to a 404.

    Where `chained`, requests also follow each other, with what one has answered in the next.
    """
    drawn = {
        "tasks": [api.task.task.name],
        "versions": api.versions,
        "moments": MOMENTS,
    }
    places = {
        "tasks": ("path.task", "query.task", "body.name"),
        "versions": ("path.version", "body.version"),
        "moments": ("query.at", "body.at", "body.rows[*].at", "body.at[*]", "body.valid_until", "body.as_of"),
    }
    return schemathesis.Config.from_dict(
        {
            "seed": 1,
            "base-url": api.url,
            "headers": api.headers,
            "continue-on-failure": True,
            "dictionaries": {name: {"values": values} for name, values in drawn.items()},
            "parameters": {
                place: {"dictionary": name, "probability": 0.8} for name, found in places.items() for place in found
            },
            "checks": {"not_a_server_error": {"expected-statuses": ["2xx", "3xx", "4xx", "503"]}},
            "phases": {"stateful": {"enabled": chained}},
            "generation": {"max-examples": NUM_EXAMPLES, "no-shrink": True, "deterministic": True},
        }
    )


def test_every_operation_keeps_its_document_whatever_it_is_sent(api: Api) -> None:
    document = of_task(httpx.get(f"{api.url}/openapi.json", headers=api.headers).json(), api.held)
    found = Found()
    # A revised task would no longer be the one that `of_task` describes, and one that is archived answers nothing
    # else. So these come last and by themselves.
    steer, revise, leave = (
        schemathesis.openapi.from_dict(document, config=configured(api, chained)) for chained in (True, False, False)
    )
    for part in (
        steer.exclude(path=DEFINE[0], method=DEFINE[1])
        .exclude(path=DELETE[0], method=DELETE[1])
        .exclude(path_regex=LIFECYCLE),
        revise.include(path=DEFINE[0], method=DEFINE[1]),
        leave.include(path_regex=LIFECYCLE).include(path=DELETE[0], method=DELETE[1]),
    ):
        for event in from_schema(part).execute():
            if isinstance(event, events.NonFatalError | events.FatalError):
                found.failures["", "error", type(event).__name__] = repr(event)
            if isinstance(event, events.ScenarioFinished):
                found.take(event.recorder)
    sys.stdout.write(found.report())
    assert not found.failures
    assert found.unavailable.keys() <= UNAVAILABLE
    assert found.cases.total() >= NUM_CASES
