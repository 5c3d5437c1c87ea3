"""The service keeps its word, and the trainer its fits, while PostgreSQL or MLflow is away."""

from pathlib import Path

import httpx

from cli.local.postgres import EmbeddedPostgres
from cli.local.stack import free_port
from contracts.clock import format_moment, parse_moment
from contracts.failure import REGISTRY_UNREACHABLE
from migrations import migrate
from store.cycles.ledger import list_cycles
from store.engine import make_engine
from tests.e2e.processes import impatient_environment, process, released, request, wait_for
from tests.integration.drifting_task import cutoff_after, define, drifting_task
from tests.integration.one_version import unnamed
from tests.servers import start_mlflow, stop, wait_until_healthy


def test_a_fit_outlives_an_absent_registry_and_bounds_outlive_absent_stores(tmp_path: Path) -> None:
    postgres = EmbeddedPostgres(tmp_path / "postgres", durable=False)
    log, mlflow_url = tmp_path / "log", f"http://127.0.0.1:{free_port()}"
    mlflow = None
    try:
        database_url = postgres.start()
        migrate(database_url)
        environment = impatient_environment(database_url, mlflow_url, tmp_path / "home")
        url = f"http://127.0.0.1:{environment['MORROW_PORT']}"
        engine = make_engine(database_url)
        task = drifting_task()
        schema = define(engine, task, 8)

        def reasons() -> list[str | None]:
            with engine.connect() as connection:
                return [cycle.reason for cycle in list_cycles(connection, schema.task_id)]

        def ask(at: str) -> httpx.Response:
            return httpx.get(f"{url}/predict", params={"task": task.name, "at": at, "x": "0.5", "kind": "a"})

        def answers(at: str) -> dict[str, object]:
            inside = ask(at)
            assert inside.status_code == 200
            last = str(inside.json()["valid_until"])
            assert ask(last).status_code == 200
            beyond = ask(format_moment(parse_moment(last) + 1))
            assert beyond.status_code == 422
            assert beyond.json()["valid_until"] == last
            assert "valid_from" in beyond.json()
            return unnamed(inside.json())

        moment = format_moment(cutoff_after(8))
        with process("service", environment, log) as api:
            wait_until_healthy(f"{url}/livez", api, seconds=60)
            with process("trainer", environment, log):
                request(engine, schema, cutoff_after(8))
                wait_for("a fit without a registry", lambda: REGISTRY_UNREACHABLE.reason in reasons(), log)
                assert released(engine, schema, cutoff_after(8)) is None
                with log.open("ab") as stream:
                    mlflow = start_mlflow(tmp_path, mlflow_url, stream.fileno())
                wait_for("the release", lambda: released(engine, schema, cutoff_after(8)), log, seconds=240)
            said = log.read_text()
            assert said.count('"fit.began"') == 1
            assert '"fit.reused"' in said
            wait_for("the first answer", lambda: ask(moment).status_code == 200, log)
            before = answers(moment)
            engine.dispose()
            postgres.stop()
            stop(mlflow)
            assert answers(moment) == before
        with process("service", environment, log) as api:
            wait_until_healthy(f"{url}/livez", api, seconds=60)
            assert answers(moment) == before
            refused = httpx.post(f"{url}/events", params={"task": task.name}, json=[], timeout=30)
            assert refused.status_code == 503
            assert "Retry-After" in refused.headers
    finally:
        if mlflow is not None:
            stop(mlflow)
        postgres.stop()
