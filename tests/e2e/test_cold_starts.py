"""Processes that start together on an empty database: one migrates, the others wait for it, and nobody crashes."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import httpx
import pytest
from sqlalchemy import create_engine, text

from cli.local.postgres import embedded_postgres
from cli.local.stack import free_port
from tests.e2e.processes import tell, wait_for
from tests.integration.drifting_task import now
from tests.servers import stop, wait_until_healthy
from trainer.scheduling.liveness import is_alive
from trainer.settings import TrainerSettings

NUM_APIS = 3
NUM_STARTS = int(os.environ.get("MORROW_COLD_STARTS", "2"))
READY_SECONDS = 240
# What `CREATE TABLE events` leaves behind each time that somebody runs it.
COUNT_TABLES = """
CREATE TABLE made (name text);
CREATE FUNCTION note() RETURNS event_trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO made SELECT object_identity FROM pg_event_trigger_ddl_commands() WHERE command_tag = 'CREATE TABLE';
END $$;
CREATE EVENT TRIGGER noted ON ddl_command_end EXECUTE FUNCTION note();
"""


@contextmanager
def command(*words: str, environment: dict[str, str], log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """`morrow WORDS` in a process group of its own."""
    with log.open("ab") as stream:
        started = subprocess.Popen(
            [sys.executable, "-m", "cli.main", *words],
            env=os.environ | environment,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )
    try:
        yield started
    finally:
        stop(started)


@pytest.mark.parametrize("start", range(NUM_STARTS))
def test_three_apis_and_a_trainer_on_an_empty_database_migrate_once(start: int, tmp_path: Path) -> None:
    """PostgreSQL is started cold too. There is no MLflow, which needs longest: nobody may need it to be alive."""
    with embedded_postgres(tmp_path / "cluster", durable=False) as url, ExitStack() as cleanup:
        engine = create_engine(url)
        cleanup.callback(engine.dispose)
        with engine.begin() as connection:
            connection.execute(text(COUNT_TABLES))
        shared = {"MORROW_DATABASE_URL": url, "MORROW_MLFLOW_URL": f"http://127.0.0.1:{free_port()}"}
        ports = [free_port() for _ in range(NUM_APIS)]
        homes = [shared | {"MORROW_HOME": str(tmp_path / f"api{port}"), "MORROW_PORT": str(port)} for port in ports]
        trainer_home = shared | {"MORROW_HOME": str(tmp_path / "trainer"), "MORROW_THREADS": "1"}

        apis = [
            cleanup.enter_context(command("serve", environment=home, log=tmp_path / f"api{place}.log"))
            for place, home in enumerate(homes)
        ]
        trainer = cleanup.enter_context(command("trainer", environment=trainer_home, log=tmp_path / "trainer.log"))
        migrations = [
            cleanup.enter_context(command("migrate", environment=shared, log=tmp_path / f"migrate{place}.log"))
            for place in range(NUM_APIS)
        ]

        assert [one.wait(READY_SECONDS) for one in migrations] == [0] * NUM_APIS
        for port, api in zip(ports, apis, strict=True):
            wait_until_healthy(f"http://127.0.0.1:{port}/livez", api, READY_SECONDS)
        settings = TrainerSettings(home=tmp_path / "trainer")
        wait_for("a trainer's heartbeat", lambda: is_alive(settings, now()), tmp_path / "trainer.log", READY_SECONDS)
        assert [process.poll() for process in (*apis, trainer)] == [None] * (NUM_APIS + 1)
        for place, port in enumerate(ports):
            ready = partial(_has_database, port)
            wait_for("a look at the database", ready, tmp_path / f"api{place}.log", READY_SECONDS)

        with engine.connect() as connection:
            made = connection.execute(text("SELECT name, count(*) FROM made GROUP BY name")).all()
        assert ("public.events", 1) in [tuple(row) for row in made]
        assert all(count == 1 for _, count in made), made
        said = [(tmp_path / f"migrate{place}.log").read_text() for place in range(NUM_APIS)]
        assert sum("brought from revision 0" in words for words in said) == 1
        assert sum("already" in words for words in said) == NUM_APIS - 1
        tell(f"cold start {start + 1}: one migration, {NUM_APIS} apis and a trainer alive")


def _has_database(port: int) -> bool:
    answered: bool = httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=10).json()["database"] == "ok"
    return answered
