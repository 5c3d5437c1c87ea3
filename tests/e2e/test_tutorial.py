"""The tutorial works as it is printed: its shell blocks run in order, against the stack that its first step starts.

Only where the stack is differs: on a free port, in a folder of the test.
"""

import json
import signal
from datetime import UTC, datetime
from pathlib import Path

import httpx

from cli.local.stack import free_port
from tests.e2e.printed import run_blocks
from tests.e2e.test_up import running
from trainer.scheduling.liveness import is_alive
from trainer.settings import TrainerSettings

HOUSE = Path(__file__).parents[2]
PAGE = HOUSE / "docs" / "tutorial.md"
SECONDS = 280


def test_every_command_of_the_tutorial_works_as_printed(tmp_path: Path) -> None:
    assert "\tmorrow up" in (HOUSE / "Makefile").read_text("utf-8").replace("@$(BIN)/", "")
    port, home, folder = free_port(), tmp_path / "home", tmp_path / "folder"
    folder.mkdir()
    with running(home, port) as (process, _):
        _, made, applied, imported, cycle, answer, refused, shown = run_blocks(PAGE, port, home, folder, SECONDS)
        status = httpx.get(f"http://127.0.0.1:{port}/tasks/rentals").json()
        assert is_alive(TrainerSettings(home=home), datetime.now(UTC))
        process.send_signal(signal.SIGINT)
        process.wait(60)
        assert not is_alive(TrainerSettings(home=home), datetime.now(UTC))
    assert made.startswith("event_id,at,label,temperature,day\nr-0-0,")
    assert "stored as revision 1" in applied
    assert "2100 created" in imported.replace(",", "", 1) or "2,100 created" in imported
    assert "released" in cycle
    said = json.loads(answer)
    assert said["version"] == "1"
    assert set(said["probabilities"]) == {"busy", "quiet"}
    assert said["valid_until"] > said["at"]
    # On these rows a logistic regression with time as a feature has 0.32, and knowing how they are made gives 0.20.
    assert status["champion"]["errors"][0]["mean"] < 0.30
    assert [warning for warning in status["warnings"] if "steps" in warning] == []
    assert 0.85 < said["probabilities"]["busy"] < 0.99
    assert json.loads(refused)["type"] == "/problems/outside-horizon"
    assert "Champion" in shown
