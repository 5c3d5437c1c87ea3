"""How most would take events: `python -m benchmarks.ingest.yardsticks PORT DATABASE_URL` serves two plain routes.

Both are synchronous FastAPI routes with a pydantic body that write through SQLAlchemy and commit: one row, or all rows
of an array in one executemany. They check no key, keep no history and answer with a count. `pgbench` inserts such rows
without any server in front.
"""

import re
import shutil
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from sqlalchemy import Column, DateTime, Double, MetaData, Table, Text, create_engine, make_url

from benchmarks.errors import PgbenchFailed
from benchmarks.ingest.events import FEATURES, LABEL

ONE, MANY = "/event", "/events"
HOST = "127.0.0.1"

plain_events = Table(
    "plain_events",
    MetaData(),
    Column("event_id", Text, primary_key=True),
    Column("at", DateTime(timezone=True), nullable=False),
    *(Column(name, Double, nullable=False) for name in FEATURES),
    Column(LABEL, Text, nullable=False),
)

_PGBENCH_ROW = """
    INSERT INTO plain_events VALUES (
        gen_random_uuid()::text, now(),
        random(), random(), random(), random(), random(), random(), random(), random(), 'a');
""".replace("\n", " ")


class Features(BaseModel):
    """The features of `benchmarks.ingest.events`."""

    x0: float
    x1: float
    x2: float
    x3: float
    x4: float
    x5: float
    x6: float
    x7: float


class PlainEvent(BaseModel):
    """One event as the routes take it."""

    event_id: str
    at: datetime
    features: Features
    label: str

    def row(self) -> dict[str, object]:
        return {"event_id": self.event_id, "at": self.at, LABEL: self.label, **self.features.model_dump()}


def make_app(database_url: str) -> FastAPI:
    """The two routes."""
    app = FastAPI()
    engine = create_engine(database_url)

    @app.post(ONE)
    def post_one(event: PlainEvent) -> dict[str, int]:
        with engine.begin() as connection:
            connection.execute(plain_events.insert(), event.row())
        return {"created": 1}

    @app.post(MANY)
    def post_many(events: list[PlainEvent]) -> dict[str, int]:
        with engine.begin() as connection:
            connection.execute(plain_events.insert(), [event.row() for event in events])
        return {"created": len(events)}

    return app


def find_pgbench() -> str | None:
    """The program, if it is installed."""
    return shutil.which("pgbench")


def run_pgbench(program: str, database_url: str, *, connections: int, seconds: float, folder: Path) -> float:
    """Single-row inserts a second, each with its commit. Raises PgbenchFailed."""
    url = make_url(database_url)
    script = folder / "row.sql"
    script.write_text(_PGBENCH_ROW)
    command = [program, "-n", f"-c{connections}", "-j2", f"-T{max(1, round(seconds))}", "-f", str(script)]
    command += ["-h", str(url.query["host"]), "-p", str(url.query["port"]), "-U", str(url.username), str(url.database)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60, check=False)
    found = re.search(r"tps = ([0-9.]+)", ended.stdout)
    if ended.returncode != 0 or found is None:
        raise PgbenchFailed(f"pgbench ended with {ended.returncode}: {ended.stderr}")
    return float(found[1])


def main(port: int, database_url: str) -> None:
    """Serve until stopped."""
    uvicorn.run(make_app(database_url), host=HOST, port=port, access_log=False, log_level="error")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
