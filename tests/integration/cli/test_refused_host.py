"""An MLflow that refuses the name by which it is asked is found by every health check, and named in the same words."""

import runpy
from pathlib import Path

import pytest

from cli.doctor.registry import examine_registry
from contracts.errors import Unavailable
from service.models.registry.client import find_champion_version, make_client
from trainer.retraining.failures import name_failure
from trainer.scheduling.registry_health import find_trouble
from trainer.tracking.errors import RegistryUnreachable
from trainer.tracking.registry import Registry

HEALTH = Path(__file__).parents[3] / "docker" / "mlflow_health.py"
WORDS = "MLflow refuses the host name in MORROW_MLFLOW_URL (403): start `mlflow server` with --allowed-hosts"


@pytest.fixture
def refused_url(mlflow_url: str) -> str:
    """The same server by a name of this machine that it does not list."""
    return mlflow_url.replace("127.0.0.1", "127.1")


def test_trainer_api_and_doctor_say_the_same(refused_url: str) -> None:
    said = [find_trouble(refused_url) or ""]
    with make_client(refused_url) as client, pytest.raises(Unavailable) as asked:
        find_champion_version(client, "flights")
    said.append(str(asked.value))
    with pytest.raises(RegistryUnreachable) as written:
        Registry(refused_url).start_run("flights", "a run", {})
    said += [str(written.value), name_failure(written.value).reason]
    (finding,) = examine_registry(refused_url, [])
    said.append(f"{finding.words.partition(': ')[2]}: {finding.remedy}.")
    assert finding.level == "fail"
    assert len(set(said)) == 1
    assert said[0].startswith(WORDS)


def test_a_container_is_healthy_only_under_the_name_that_clients_use(mlflow_url: str) -> None:
    examine = runpy.run_path(str(HEALTH))["examine"]
    assert examine(mlflow_url, mlflow_url.removeprefix("http://")) is None
    assert "mlflow:5000 with 403" in examine(mlflow_url, "mlflow:5000")
    assert "does not answer" in examine("http://127.0.0.1:1", "mlflow:5000")


def test_no_proxy_stands_before_the_server_in_a_container(mlflow_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    assert runpy.run_path(str(HEALTH))["examine"](mlflow_url, mlflow_url.removeprefix("http://")) is None
    assert find_trouble(mlflow_url) is None
