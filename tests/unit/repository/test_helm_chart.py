"""The Helm chart: what it renders is valid Kubernetes, locked down, and without secrets; hostile values are refused."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

helm = pytest.importorskip("helm_python", reason="Helm's library is not installed: it comes with morrow[dev]")
kubernetes = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate comes with morrow[dev]")

ROOT = Path(__file__).parents[3]
CHART = ROOT / "deploy/helm/morrow"
# The oldest release that the chart names, and a newer one.
VERSIONS = ("1.30", "1.34")
# The only kind that Kubernetes itself does not know.
OF_OPERATORS = {"ServiceMonitor"}

EXTERNAL: dict[str, Any] = {
    "database": {"url": "postgresql://morrow@db.example.com:5432/morrow", "passwordSecret": {"name": "morrow-db"}},
    "tracking": {"url": "http://trainer@mlflow.example.com:5000", "passwordSecret": {"name": "morrow-mlflow"}},
}
TRIAL: dict[str, Any] = {
    "database": {"passwordSecret": {"name": "morrow-db"}},
    "postgresql": {"enabled": True},
    "mlflow": {"enabled": True},
}
LARGE: dict[str, Any] = EXTERNAL | {
    "image": {"registry": "registry.example.com:5000/team", "tag": "1.2.3", "pullSecrets": ["pull"]},
    "fits": {"url": "s3://bucket/fits?endpoint=https://minio.example.com:9000", "loginSecret": "morrow-s3"},
    "settings": {"MORROW_POLL_SECONDS": "5", "MORROW_PUBLIC": '["docs", "metrics"]'},
    "api": {"workers": 4, "service": {"type": "LoadBalancer"}, "nodeSelector": {"disk": "ssd"}},
    "trainer": {
        "replicas": 3,
        "gpus": 1,
        "persistence": {"enabled": False},
        "serviceAccount": "morrow-trainer",
        "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
    },
    "networkPolicy": {"apiFrom": [{"namespaceSelector": {"matchLabels": {"team": "shop"}}}]},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}, "keySecret": {"name": "metrics-key"}},
}
CASES = {"external": EXTERNAL, "trial": TRIAL, "large": LARGE}


def render(values: dict[str, Any], name: str = "demo") -> list[dict[str, Any]]:
    """The objects of a release; NOTES.txt are words."""
    with helm.Chart.load(str(CHART)) as chart:
        chart.validate_schema(values)
        files = chart.render(values, name=name, namespace="shop")
    return [
        found
        for path, text in files.items()
        if path.endswith(".yaml")
        for found in yaml.safe_load_all(text)
        if found is not None
    ]


def pods(objects: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    for one in objects:
        if one["kind"] in ("Deployment", "StatefulSet", "Job"):
            yield one["metadata"]["name"], one["spec"]["template"]["spec"]


def of_kind(objects: list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    return {one["metadata"]["name"]: one for one in objects if one["kind"] == kind}


@pytest.mark.parametrize("values", CASES.values(), ids=CASES)
def test_every_object_is_valid_kubernetes(values: dict[str, Any]) -> None:
    objects = render(values)
    for version in VERSIONS:
        for one in objects:
            if one["kind"] not in OF_OPERATORS:
                kubernetes.validate(one, version, strict=True)
    names = [(one["kind"], one["metadata"]["name"]) for one in objects]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("values", CASES.values(), ids=CASES)
def test_no_pod_runs_as_root_or_writes_to_its_image_or_gets_a_token(values: dict[str, Any]) -> None:
    found = dict(pods(render(values)))
    assert {"demo-api", "demo-trainer"} < found.keys()
    for name, pod in found.items():
        assert pod["securityContext"]["runAsNonRoot"], name
        assert pod["securityContext"]["runAsUser"] > 0, name
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert (pod["automountServiceAccountToken"], pod["enableServiceLinks"]) == (False, False), name
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, name
            assert container["resources"]["limits"]["memory"], name
            mounted = {mount["name"] for mount in container["volumeMounts"]}
            claimed = {claim["metadata"]["name"] for claim in claims_of(values, name)}
            assert mounted == {volume["name"] for volume in pod["volumes"]} | claimed, name


def claims_of(values: dict[str, Any], name: str) -> list[dict[str, Any]]:
    found = of_kind(render(values), "StatefulSet").get(name)
    return [] if found is None else found["spec"].get("volumeClaimTemplates", [])


@pytest.mark.parametrize("values", CASES.values(), ids=CASES)
def test_secrets_are_named_and_mounted_and_never_values(values: dict[str, Any]) -> None:
    objects = render(values)
    assert not of_kind(objects, "Secret")
    for name, pod in pods(objects):
        for container in pod["containers"]:
            given = {one["name"]: one.get("value", "") for one in container["env"]}
            assert not [one for one in given if "PASSWORD" in one and not one.endswith("_FILE")], name
            assert not [value for value in given.values() if ":" in value.partition("://")[2].rpartition("@")[0]], name


def test_a_selector_chooses_the_pods_of_its_own_component_only() -> None:
    objects = render(TRIAL)
    labels = {
        one["metadata"]["name"]: one["spec"]["template"]["metadata"]["labels"]
        for one in objects
        if one["kind"] in ("Deployment", "StatefulSet", "Job")
    }
    for kind in ("Service", "NetworkPolicy", "PodDisruptionBudget"):
        for name, one in of_kind(objects, kind).items():
            spec = one["spec"]
            wanted = spec.get("podSelector", spec.get("selector", {}))
            wanted = wanted.get("matchLabels", wanted)
            assert [pod for pod, own in labels.items() if wanted.items() <= own.items()] == [name], (kind, name)


def test_the_api_scales_and_survives_drains_and_upgrades() -> None:
    objects = render(EXTERNAL)
    api = of_kind(objects, "Deployment")["demo-api"]["spec"]
    scaler = of_kind(objects, "HorizontalPodAutoscaler")["demo-api"]["spec"]
    assert "replicas" not in api
    assert scaler["scaleTargetRef"]["name"] == "demo-api"
    assert of_kind(objects, "PodDisruptionBudget")["demo-api"]["spec"]["maxUnavailable"] == 1
    (container,) = api["template"]["spec"]["containers"]
    paths = {name: container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "readiness", "liveness")}
    assert paths == {"startup": "/livez", "readiness": "/readyz", "liveness": "/livez"}
    fixed = render(EXTERNAL | {"api": {"replicas": 3, "autoscaling": {"enabled": False}}})
    assert of_kind(fixed, "Deployment")["demo-api"]["spec"]["replicas"] == 3
    assert not of_kind(fixed, "HorizontalPodAutoscaler")


def test_the_migration_runs_before_the_pods_unless_the_release_brings_the_database() -> None:
    for values in (EXTERNAL, LARGE):
        job = of_kind(render(values), "Job")["demo-migrate"]
        assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    (name, job), *others = of_kind(render(TRIAL), "Job").items()
    # As a hook it would wait for a database that comes after it, or `helm install --wait` for pods that wait for it.
    assert (name, job["metadata"].get("annotations"), others) == ("demo-migrate-1", None, [])


def test_only_the_trainer_gets_the_store_and_its_login() -> None:
    found = {name: pod["containers"][0] for name, pod in pods(render(LARGE))}
    with_store = [
        name
        for name, container in found.items()
        if any(one["name"] == "MORROW_FITS_URL" for one in container["env"]) or "envFrom" in container
    ]
    assert with_store == ["demo-trainer"]
    assert found["demo-trainer"]["envFrom"] == [{"secretRef": {"name": "morrow-s3"}}]
    assert found["demo-trainer"]["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert found["demo-trainer"]["image"] == "registry.example.com:5000/team/morrow-trainer:1.2.3"


def test_metrics_are_scraped_with_a_key_from_a_secret() -> None:
    monitor = of_kind(render(LARGE), "ServiceMonitor")["demo-api"]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["authorization"] == {"credentials": {"name": "metrics-key", "key": "key"}}
    service = of_kind(render(LARGE), "Service")["demo-api"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()


@pytest.mark.parametrize(
    ("changes", "remedy"),
    [
        ({"database": {"url": ""}}, "postgresql.enabled=true"),
        ({"tracking": {"url": ""}}, "mlflow.enabled=true"),
        ({"database": {"passwordSecret": {"name": ""}}}, "name the secret with the password"),
        ({"trainer": {"replicas": 2}}, "fits.url=s3://BUCKET/PREFIX"),
        ({"trainer": {"persistence": {"enabled": False}}}, "kept fits would be lost"),
        ({"mlflow": {"enabled": True}}, "needs postgresql.enabled=true"),
        ({"api": {"autoscaling": {"minReplicas": 9}}}, "minReplicas is 9, above maxReplicas 6"),
    ],
)
def test_values_that_cannot_work_are_refused_with_a_remedy(changes: dict[str, Any], remedy: str) -> None:
    values = {name: {**EXTERNAL.get(name, {}), **changes.get(name, {})} for name in {*EXTERNAL, *changes}}
    with pytest.raises(helm.HelmError) as refused:
        render(values)
    assert remedy in str(refused.value)


@pytest.mark.parametrize(
    "hostile",
    [
        {"database": {"url": "postgresql://morrow:secret@db:5432/morrow"}},
        {"database": {"url": "postgresql://morrow@db:5432/morrow\nkind: Secret"}},
        {"database": {"passwordSecret": {"name": 'x"\n  evil: true'}}},
        {"database": {"passwordSecret": {"name": "x", "key": "../../etc/passwd"}}},
        {"tracking": {"url": "http://trainer:secret@mlflow:5000"}},
        {"tracking": {"url": "file:///etc/passwd"}},
        {"fits": {"url": "s3://key:secret@bucket/fits"}},
        {"image": {"registry": "evil.example.com/x\n      hostNetwork: true"}},
        {"image": {"tag": "1.0; rm -rf /"}},
        {"image": {"pullPolicy": "Sometimes"}},
        {"settings": {"LD_PRELOAD": "/evil.so"}},
        {"settings": {"MORROW_DATABASE_URL": "postgresql://elsewhere@db/x"}},
        {"settings": {"MORROW_KEY": "a secret"}},
        {"settings": {"MORROW_POLL_SECONDS": "5\nvalueFrom: x"}},
        {"settings": {"MORROW_POLL_SECONDS": 5}},
        {"api": {"replicas": -1}},
        {"api": {"workers": 0}},
        {"api": {"securityContext": {"privileged": True}}},
        {"api": {"resources": {"requests": {}, "limits": {"memory": "lots"}}}},
        {"api": {"service": {"type": "ExternalName"}}},
        {"api": {"podDisruptionBudget": {"maxUnavailable": 0}}},
        {"trainer": {"repository": "../../evil"}},
        {"trainer": {"persistence": {"size": "0"}}},
        {"postgresql": {"image": "postgres:18 --privileged"}},
        {"networkPolicy": {"egressPorts": [70000]}},
        {"serviceMonitor": {"labels": {"a b": "c"}}},
        {"hostNetwork": True},
        {"apii": {}},
    ],
    ids=str,
)
def test_hostile_and_mistyped_values_are_refused(hostile: dict[str, Any]) -> None:
    values = {name: {**EXTERNAL.get(name, {}), **hostile.get(name, {})} for name in EXTERNAL} | {
        name: value for name, value in hostile.items() if name not in EXTERNAL
    }
    with helm.Chart.load(str(CHART)) as chart, pytest.raises(helm.HelmError):
        chart.validate_schema(values)


def test_the_chart_has_the_version_of_the_package_and_no_lint() -> None:
    described = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert f'version = "{described["appVersion"]}"' in (ROOT / "pyproject.toml").read_text()
    report = helm.lint(str(CHART), EXTERNAL, strict=True)
    assert [one for one in report["messages"] if one["severity"] > 1] == []
    assert report["errors"] == []


def test_long_release_names_give_names_that_kubernetes_takes() -> None:
    for one in render(EXTERNAL, name="a" * 53):
        assert len(one["metadata"]["name"]) <= 52
