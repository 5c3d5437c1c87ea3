"""The Grafana dashboard and the alerts speak of what /metrics shows after a real cycle; promtool takes the rules."""

import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import Engine

from contracts.clock import format_moment
from tests.integration.drifting_task import (
    Story,
    claim,
    cutoff_after,
    define,
    drifting_events,
    drifting_task,
    now,
    settings,
)
from tests.integration.hook_receiver import make_hook
from tests.integration.live_job import append, live, moment
from tests.integration.service_app import service_settings, serving
from trainer.monitoring.answer_scoring import AnswerScoring
from trainer.retraining.cycle import run_cycle
from trainer.tracking.registry import Registry

DOCKER = Path(__file__).parents[3] / "docker"
DASHBOARD: dict[str, Any] = json.loads((DOCKER / "grafana" / "dashboards" / "morrow.json").read_bytes())
PROVISIONING = DOCKER / "grafana" / "provisioning"
RULES = DOCKER / "prometheus-rules.yml"
# A name, and the conditions on its labels if there are any.
SELECTOR = re.compile(r"\b(morrow_\w+)(?:\{([^}]*)\})?")
CONDITION = re.compile(r'(\w+)(=~|=)"([^"]*)"')
# Series that begin with what they tell, which a healthy task does not have.
RARE = {"morrow_answers_not_finite_total", "morrow_closing_error_ratio"}

Samples = list[tuple[str, Mapping[str, str]]]


def expressions() -> Iterator[tuple[str, str]]:
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


def selects(samples: Samples, selector: re.Match[str]) -> bool:
    """Whether a selector finds any sample, as Prometheus matches labels."""
    name, conditions = selector[1], CONDITION.findall((selector[2] or "").replace("$task", ".*"))
    return any(
        sample == name
        and all(
            re.fullmatch(wanted, labels.get(label, "")) if how == "=~" else labels.get(label, "") == wanted
            for label, how, wanted in conditions
        )
        for sample, labels in samples
    )


async def scrape(client: httpx.AsyncClient) -> Samples:
    text = (await client.get("/metrics")).raise_for_status().text
    return [
        (sample.name, sample.labels) for family in text_string_to_metric_families(text) for sample in family.samples
    ]


@pytest.mark.anyio
async def test_every_panel_and_every_alert_finds_its_series_after_a_cycle(
    engine: Engine, database_url: str, mlflow_url: str, tmp_path: Path
) -> None:
    schema = define(engine, drifting_task(), 8)
    make_hook(engine, "https://example.com/")
    cycle = claim(engine, schema, cutoff_after(8))
    state = run_cycle(engine, Registry(mlflow_url), cycle, settings=settings(tmp_path), now=now, report=Story())
    assert state == "released"
    append(engine, schema, drifting_events(8, 9))
    live(engine, tmp_path).score_new_labels(moment(10))
    name, at = schema.task.name, format_moment(cutoff_after(8))
    question = {"task": name, "at": at, "x": "0.5", "kind": "a", "coverage": "0.8"}
    async with serving(service_settings(database_url, tmp_path / "api", mlflow_url=mlflow_url)) as client:
        with anyio.fail_after(120):
            while (answer := await client.get("/predict", params=question)).status_code != 200:
                await anyio.sleep(0.05)
            while (await client.get(f"/predictions/{answer.json()['id']}")).status_code != 200:
                await anyio.sleep(0.05)
            label = {"prediction_id": answer.json()["id"], "label": "yes"}
            (await client.post(f"/tasks/{name}/labels", json=label)).raise_for_status()
            AnswerScoring(engine, threading.Event()).score_touched(moment(10))
            samples: Samples = []
            while not {"morrow_realised_error", "morrow_answers_coverage"} <= {series for series, _ in samples}:
                samples = await scrape(client)
                await anyio.sleep(0.05)
    missing = [
        (title, selector[0])
        for title, expression in expressions()
        for selector in SELECTOR.finditer(expression)
        if not selects(samples, selector)
    ]
    assert missing == []
    for alert in alerts():
        for selector in SELECTOR.finditer(alert["expr"]):
            known = {frozenset(labels) for name, labels in samples if name == selector[1]}
            assert known or selector[1] in RARE, alert["alert"]
            wanted = {label for label, _, _ in CONDITION.findall(selector[2] or "")}
            assert selector[1] in RARE or any(wanted <= labels for labels in known), alert["alert"]


def alerts() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def test_every_panel_has_a_title_an_explanation_and_a_query_of_the_provisioned_source() -> None:
    (source,) = yaml.safe_load((PROVISIONING / "datasources" / "prometheus.yml").read_text())["datasources"]
    compose = yaml.safe_load((DOCKER.parent / "docker-compose.monitoring.yml").read_text())["services"]
    assert source["url"] == "http://prometheus:9090"
    assert "prometheus" in compose
    (provider,) = yaml.safe_load((PROVISIONING / "dashboards" / "morrow.yml").read_text())["providers"]
    assert any(volume.split(":")[1] == provider["options"]["path"] for volume in compose["grafana"]["volumes"])
    identities = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(identities)) == len(identities)
    for panel in DASHBOARD["panels"]:
        assert panel["title"]
        assert panel["description"]
        assert panel["targets"]
        for target in panel["targets"]:
            assert target["datasource"]["uid"] == panel["datasource"]["uid"] == source["uid"]
            assert SELECTOR.search(target["expr"])


def test_prometheus_loads_the_rules_that_there_are() -> None:
    compose = yaml.safe_load((DOCKER.parent / "docker-compose.monitoring.yml").read_text())["services"]["prometheus"]
    config = yaml.safe_load((DOCKER / "prometheus" / "prometheus.yml").read_text())
    mounted = dict(volume.split(":")[:2] for volume in compose["volumes"] if volume.startswith("./"))
    assert mounted[f"./docker/{RULES.name}"] == f"/etc/prometheus/{config['rule_files'][0]}"
    assert mounted["./docker/prometheus/prometheus.yml"] == "/etc/prometheus/prometheus.yml"


def promtool(*arguments: str) -> str:
    """What promtool says; the test is skipped if there is none, and fails if it finds a fault."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("needs promtool on the PATH: apt-get install prometheus")
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_takes_the_rules_and_the_configuration(tmp_path: Path) -> None:
    assert f"SUCCESS: {len(alerts())} rules found" in promtool("check", "rules", str(RULES))
    (tmp_path / RULES.name).write_text(RULES.read_text())
    (tmp_path / "prometheus.yml").write_text((DOCKER / "prometheus" / "prometheus.yml").read_text())
    assert "SUCCESS" in promtool("check", "config", str(tmp_path / "prometheus.yml"))


def test_promtool_takes_every_query_of_the_dashboard(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{place}", "expr": expression.replace("$task", ".*")}
        for place, (_, expression) in enumerate(expressions())
    ]
    file = tmp_path / "panels.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    assert f"SUCCESS: {len(rules)} rules found" in promtool("check", "rules", str(file))
