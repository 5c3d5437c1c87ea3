"""The alerts that come with the deployment speak of what the app really exports."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from service.ingest.endpoint import STATUSES
from tests.integration.service_app import DEAD_DATABASE, an_event, service_settings, serving

RULES = Path(__file__).parents[3] / "docker" / "prometheus-rules.yml"
REFUSED_WHILE_THE_DATABASE_IS_DOWN = 503


def alerts() -> list[dict[str, Any]]:
    document = yaml.safe_load(RULES.read_text())
    return [rule for group in document["groups"] for rule in group["rules"]]


def test_every_alert_says_how_urgent_it_is_what_is_wrong_and_what_to_do() -> None:
    names = [alert["alert"] for alert in alerts()]
    assert len(names) == len(set(names))
    for alert in alerts():
        assert set(alert) <= {"alert", "expr", "for", "labels", "annotations"}
        assert alert["labels"]["severity"] in ("page", "ticket")
        assert set(alert["annotations"]) == {"summary", "description"}
        assert alert["expr"].count("(") == alert["expr"].count(")")


def test_the_printed_configuration_loads_the_rules_that_there_are_and_sends_a_key() -> None:
    page = (RULES.parents[1] / "docs" / "how-to" / "alerts.md").read_text("utf-8")
    printed = yaml.safe_load(page.split("```yaml")[1].split("```")[0])
    assert printed["rule_files"] == [RULES.name]
    (scrape,) = printed["scrape_configs"]  # of /metrics, which is what Prometheus takes where nothing is said
    assert set(scrape) == {"job_name", "authorization", "static_configs"}
    assert f"> {scrape['authorization']['credentials_file']} " in page


def test_no_alert_knows_how_long_a_window_is() -> None:
    exprs = {alert["alert"]: alert["expr"] for alert in alerts()}
    assert [name for name, expr in exprs.items() if re.search(r"\b\d{3,}\b", re.sub(r'"[^"]*"', "", expr))] == []
    relative = {name for name, expr in exprs.items() if "morrow_window_seconds" in expr}
    assert relative == {"MorrowExpiresSoon", "MorrowStale"}


@pytest.mark.anyio
async def test_every_metric_and_label_of_an_alert_is_exported(tmp_path: Path) -> None:
    async with serving(service_settings(DEAD_DATABASE, tmp_path, database_seconds=1, allow_anonymous=True)) as client:
        answer = await client.post("/events", params={"task": "demand"}, json=an_event())
        assert answer.status_code == REFUSED_WHILE_THE_DATABASE_IS_DOWN
        exported = (await client.get("/metrics")).raise_for_status().text
    known = set(re.findall(r"^# TYPE (\w+) ", exported, re.MULTILINE))
    for alert in alerts():
        named = set(re.findall(r"\bmorrow_\w+", alert["expr"]))
        assert named, alert["alert"]
        assert named <= known, alert["alert"]

    labels = [sample.labels for family in text_string_to_metric_families(exported) for sample in family.samples]
    assert {"method": "POST", "route": "/events", "status": "503"} in labels
    assert "rejected" in STATUSES
