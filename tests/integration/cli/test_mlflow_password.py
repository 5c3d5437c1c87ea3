"""MLflow that asks who comes: the trainer writes and the service reads with the user and password of their settings."""

import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex

import httpx
import pytest

from cli.local.mlflow_server import server_command, server_environment
from cli.local.stack import free_port
from contracts.errors import CycleError, Unavailable
from contracts.manifest import read_manifest
from contracts.runtime.settings import SharedSettings
from service.models.registry.client import download_version, find_champion_version, make_client
from tests.integration.trainer.test_registry import artefact
from tests.servers import stop, wait_until_healthy
from trainer.tracking.registry import Registry

ROOT = Path(__file__).parents[3]
TASK = "guarded"


@pytest.fixture(scope="module")
def guarded_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a server that is set up as `docker-compose.auth.yml` sets it up; user and password stand in it."""
    folder, port, password = tmp_path_factory.mktemp("guarded"), free_port(), "it's 100% @/: ok"
    (folder / "password").write_text(f"{password}\n")
    (folder / "key").write_text(token_hex(32))
    access = (ROOT / "docker" / "mlflow-auth.ini").read_text()
    (folder / "auth.ini").write_text(access.replace("/var/lib/mlflow", str(folder)))
    command = [
        *("/bin/sh", str(ROOT / "docker" / "with-secrets.sh")),
        *server_command(folder, "127.0.0.1", port),
        "--app-name=basic-auth",
    ]
    environment = server_environment() | {
        "MLFLOW_AUTH_CONFIG_PATH": str(folder / "auth.ini"),
        "MLFLOW_AUTH_ADMIN_USERNAME": "morrow",
        "MLFLOW_AUTH_ADMIN_PASSWORD_FILE": str(folder / "password"),
        "MLFLOW_FLASK_SERVER_SECRET_KEY_FILE": str(folder / "key"),
    }
    log = (folder / "server.log").open("wb")
    process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        wait_until_healthy(f"http://127.0.0.1:{port}/health", process, seconds=240)
        settings = SharedSettings(
            mlflow_url=f"http://morrow@127.0.0.1:{port}", mlflow_password_file=folder / "password"
        )
        assert settings.mlflow_url is not None
        yield settings.mlflow_url
    finally:
        stop(process)
        log.close()


@pytest.fixture(autouse=True)
def _forget_who_we_are(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"):
        monkeypatch.setenv(name, "")


def test_the_trainer_writes_and_the_service_reads(guarded_url: str, tmp_path: Path) -> None:
    registry = Registry(guarded_url)
    assert "morrow" not in registry.url
    run_id = registry.start_run(TASK, "a cycle", {})
    version = registry.register(tmp_path, artefact(tmp_path, TASK), run_id, {})
    registry.move_alias(TASK, version)
    with make_client(guarded_url) as client:
        client.timeout = httpx.Timeout(60)  # the service asks again instead
        assert find_champion_version(client, TASK) == version
        (tmp_path / "copy").mkdir()
        download_version(client, TASK, version, tmp_path / "copy", stopping=threading.Event())
    assert read_manifest(tmp_path / "copy").task["name"] == TASK
    registry.delete_run(run_id)


def test_without_the_password_nothing_is_told_or_taken(guarded_url: str) -> None:
    bare = Registry(guarded_url).url
    os.environ["MLFLOW_TRACKING_USERNAME"] = os.environ["MLFLOW_TRACKING_PASSWORD"] = ""
    assert httpx.get(f"{bare}/health").status_code == httpx.codes.OK
    with make_client(bare) as client, pytest.raises(Unavailable):
        find_champion_version(client, TASK)
    with pytest.raises((CycleError, Unavailable)):
        Registry(bare).start_run(TASK, "a run", {})
