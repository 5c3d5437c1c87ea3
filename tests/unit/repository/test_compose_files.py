"""What the compose files promise deployers: what is published, who runs, what may be written; where secrets are."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
STORE, ONE_SHOT = "postgres", {"migrate", "key"}


def read(name: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((ROOT / name).read_text())
    return document


COMPOSE = read("docker-compose.yml")
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
AUTH = read("docker-compose.auth.yml")
MONITORING = read("docker-compose.monitoring.yml")
WATCHERS: dict[str, dict[str, Any]] = {
    name: service for name, service in MONITORING["services"].items() if name not in SERVICES
}
DOCKERFILES = sorted((ROOT / "docker").glob("*.Dockerfile"))


def test_dependencies_exist_and_conditions_fit() -> None:
    for service in SERVICES.values():
        for needed, how in service.get("depends_on", {}).items():
            assert needed in SERVICES
            expected = "service_completed_successfully" if needed in ONE_SHOT else "service_healthy"
            assert how["condition"] == expected


def test_only_api_and_mlflow_are_published_and_on_loopback_only() -> None:
    ports = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert ports == {
        "api": ["127.0.0.1:${MORROW_PUBLISHED_PORT:-8000}:8000"],
        "mlflow": ["127.0.0.1:${MLFLOW_PUBLISHED_PORT:-5000}:5000"],
    }


def test_what_is_not_published_has_no_way_out() -> None:
    assert {name for name, network in COMPOSE["networks"].items() if not network.get("internal")} == {"published"}
    assert {name for name, service in SERVICES.items() if "published" in service["networks"]} == {"api", "mlflow"}


def test_every_service_has_a_user_and_a_health_check() -> None:
    for name, service in SERVICES.items():
        assert str(service["user"]) not in ("root", "0")
        assert name in ONE_SHOT or service["healthcheck"]["test"][0] == "CMD"


def test_every_service_may_change_only_its_volumes() -> None:
    for service in [*SERVICES.values(), *WATCHERS.values()]:
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]


def test_named_volumes_networks_and_files_exist() -> None:
    for service in SERVICES.values():
        assert set(service["networks"]) <= set(COMPOSE["networks"])
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert (ROOT / source).exists() if source.startswith("./") else source in COMPOSE["volumes"]
        if "build" in service:
            assert (ROOT / service["build"]["dockerfile"]).exists()


def test_every_service_has_the_secrets_that_its_environment_names() -> None:
    for document in (COMPOSE, AUTH, MONITORING):
        for service in document["services"].values():
            given = service.get("environment", {}).values()
            files = {value for value in given if value.startswith("/run/secrets/")}
            assert files == {f"/run/secrets/{name}" for name in service.get("secrets", [])}
            assert set(service.get("secrets", [])) <= set(document["secrets"])


def test_no_secret_stands_in_a_file_of_ours() -> None:
    for document in (COMPOSE, AUTH, MONITORING):
        for service in document["services"].values():
            for name, value in service.get("environment", {}).items():
                assert name.endswith("_FILE") or not re.search("PASSWORD|SECRET|KEY", name), name
                assert not re.search(r"://[^/@]*:[^/@]*@", value), value
    assert not re.search("PASSWORD|SECRET", (ROOT / ".env.example").read_text())


def test_make_makes_every_secret_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text((ROOT / "Makefile").read_text())
    subprocess.run(["make", "secrets"], cwd=tmp_path, check=True, capture_output=True)
    made = {file.name: file.read_text() for file in (tmp_path / "secrets").iterdir()}
    assert set(made) == set(COMPOSE["secrets"]) | set(AUTH["secrets"]) | set(MONITORING["secrets"])
    assert len(set(made.values())) == len(made)
    assert all(re.fullmatch(r"[0-9a-f]{64}\n", secret) for secret in made.values())
    assert (tmp_path / "secrets").stat().st_mode & 0o777 == 0o700
    subprocess.run(["make", "secrets"], cwd=tmp_path, check=True, capture_output=True)
    assert {file.name: file.read_text() for file in (tmp_path / "secrets").iterdir()} == made


def test_no_log_and_no_process_fills_the_machine() -> None:
    for service in SERVICES.values():
        assert set(service["logging"]["options"]) == {"max-size", "max-file"}
        assert re.fullmatch(r"512m|\$\{\w+_MEMORY:-\d+g\}", service["mem_limit"])
    limits = {service["mem_limit"][2:].split(":")[0] for service in SERVICES.values() if "$" in service["mem_limit"]}
    assert limits <= set(re.findall(r"^(\w+)=", (ROOT / ".env.example").read_text(), re.MULTILINE))


def test_the_database_is_asked_over_tcp() -> None:
    """While the image makes its cluster, a server answers on the socket and goes away again."""
    assert "--host=127.0.0.1" in SERVICES[STORE]["healthcheck"]["test"]


def test_the_overlay_reserves_a_gpu_for_the_trainer_alone() -> None:
    overlay = read("docker-compose.gpu.yml")["services"]
    assert list(overlay) == ["trainer"]
    (device,) = overlay["trainer"]["deploy"]["resources"]["reservations"]["devices"]
    assert device["capabilities"] == ["gpu"]


def test_the_overlay_of_hooks_gives_the_trainer_alone_a_way_out() -> None:
    overlay = read("docker-compose.hooks.yml")
    networks = {name: one["networks"] for name, one in overlay["services"].items() if "networks" in one}
    assert networks == {"trainer": [*SERVICES["trainer"]["networks"], "hooks"]}
    assert overlay["networks"] == {"hooks": {}}


def test_the_overlay_changes_nothing_of_mlflow_but_that_it_asks_who() -> None:
    command = AUTH["services"]["mlflow"]["command"]
    assert [word for word in command if word != "--app-name=basic-auth"] == SERVICES["mlflow"]["command"]


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda file: file.stem)
def test_images_stand_on_exact_versions_and_need_no_root(dockerfile: Path) -> None:
    content = dockerfile.read_text()
    assert re.search(r"^ARG PYTHON_IMAGE=python:\d+\.\d+\.\d+-slim-\w+$", content, re.MULTILINE)
    assert set(re.findall(r"^FROM (\S+)", content, re.MULTILINE)) == {"${PYTHON_IMAGE}"}
    assert re.search(r"^USER \d+:\d+$", content, re.MULTILINE)


@pytest.mark.parametrize("name", ["mlflow", "api", "trainer"])
def test_an_image_and_its_service_are_waited_for_alike(name: str) -> None:
    given = re.findall(r"--start-period=(\w+)", (ROOT / "docker" / f"{name}.Dockerfile").read_text())
    assert given == [SERVICES[name]["healthcheck"]["start_period"]]


def test_the_database_is_an_exact_version() -> None:
    assert re.fullmatch(r"postgres:\d+\.\d+-alpine\d+\.\d+", SERVICES[STORE]["image"])


def test_no_container_fills_the_disk_with_its_log_or_takes_the_whole_memory() -> None:
    given = (ROOT / ".env.example").read_text()
    for name, service in {**SERVICES, **WATCHERS}.items():
        assert service["logging"] == {"driver": "json-file", "options": {"max-size": "10m", "max-file": "5"}}, name
        size = str(service["mem_limit"])
        setting = re.fullmatch(r"\$\{(\w+):-(\d+[mg])\}", size)
        assert f"{setting[1]}={setting[2]}" in given if setting else re.fullmatch(r"\d+[mg]", size), name


def test_the_watchers_reach_the_api_alone_and_grafana_is_published_on_loopback_only() -> None:
    assert MONITORING["networks"] == {"monitoring": {"internal": True}}
    assert WATCHERS["prometheus"]["networks"] == ["monitoring"]
    assert "ports" not in WATCHERS["prometheus"]
    assert WATCHERS["grafana"]["networks"] == ["monitoring", "published"]
    assert WATCHERS["grafana"]["ports"] == ["127.0.0.1:${GRAFANA_PUBLISHED_PORT:-3000}:3000"]
    api = MONITORING["services"]["api"]
    assert api["networks"] == [*SERVICES["api"]["networks"], "monitoring"]
    for name, service in WATCHERS.items():
        assert re.fullmatch(r"[a-z]+/[a-z]+:v?\d+\.\d+\.\d+", service["image"]), name
        assert str(service["user"]).split(":")[0] not in ("root", "0")
        assert service["healthcheck"]["test"][0] == "CMD"
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            assert (ROOT / source).exists() if source.startswith("./") else source in MONITORING["volumes"]
