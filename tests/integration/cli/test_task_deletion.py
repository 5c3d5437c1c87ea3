"""`morrow task delete` through the real API: with --yes, by its question, and as JSON."""

import json
from pathlib import Path

import pytest
from sqlalchemy import Engine
from typer.testing import CliRunner, Result

from cli.main import app
from tests.integration.api_process import running
from tests.integration.published_versions import define

DELETED = ", with 0 events, 0 refused rows, 0 cycles and 0 versions. The task is gone for every request."


@pytest.fixture(scope="module")
def runner() -> CliRunner:
    return CliRunner()


def test_a_task_is_deleted_by_each_form_of_the_command(
    database_url: str, engine: Engine, tmp_path: Path, runner: CliRunner
) -> None:
    for name in ("by_yes", "by_question", "as_json", "kept"):
        define(engine, name=name)
    with running(database_url, tmp_path / "home") as api:

        def delete(name: str, *options: str, typed: str | None = None) -> Result:
            return runner.invoke(app, ["task", "delete", name, *options, "--url", api.url], input=typed)

        by_yes = delete("by_yes", "--yes")
        by_question = delete("by_question", typed="y\n")
        as_json = delete("as_json", "--yes", "--json", "--reason", "a trial")
        kept = delete("kept", typed="n\n")
        listed = json.loads(runner.invoke(app, ["task", "list", "--json", "--url", api.url]).stdout)
    assert by_yes.exit_code == 0, by_yes.output
    assert f"by_yes is deleted{DELETED}" in " ".join(by_yes.stdout.split())
    assert by_question.exit_code == 0, by_question.output
    assert "Delete by_question for ever, with 0 events, 0 refused rows" in by_question.stderr
    assert f"by_question is deleted{DELETED}" in " ".join(by_question.stdout.split())
    assert as_json.exit_code == 0, as_json.output
    facts = json.loads(as_json.stdout)
    assert facts["contents"]["num_events"] == 0
    assert facts["reason"] == "a trial"
    assert kept.exit_code != 0
    assert [task["task"] for task in listed["tasks"]] == ["kept"]
