"""`morrow demo` as a user runs it, shortened to one week: the JSON document, and a clean end."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

METHODS = {"gi", "baseline", "last_window", "naive"}
LIMIT_SECONDS = 900


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def printed(folder: Path) -> str:
    """The output of one week. Its whole environment is a folder for temporary files."""
    done = subprocess.run(
        [sys.executable, "-m", "cli.main", "demo", "--weeks", "1", "--json", str(folder / "demo.json")],
        env={name: value for name, value in os.environ.items() if not name.startswith("MORROW_")}
        | {"TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def document(printed: str, folder: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((folder / "demo.json").read_text())
    return loaded


def test_the_document_has_the_promised_names(document: dict[str, Any]) -> None:
    assert set(document) == {"weeks", "refused", "seconds", "peak_rss_mb"}
    assert set(document["seconds"]) == {"install_free_total", "ingest", "cycle_median"}
    (week,) = document["weeks"]
    assert week["start"] == "2013-07-02T05:00:00Z"
    assert {"version", "valid_until", "requests"} <= set(week)
    for figures in (week["log_loss"], week["error"]):
        assert set(figures) == METHODS
        assert all(math.isfinite(figure) for figure in figures.values())


def test_a_moment_past_the_horizon_is_refused_with_its_bound(document: dict[str, Any]) -> None:
    (week,) = document["weeks"]
    assert document["refused"] == {
        "status": 422,
        "type": "/problems/outside-horizon",
        "valid_until": week["valid_until"],
    }


def test_winners_and_losers_are_said_plainly(printed: str, document: dict[str, Any]) -> None:
    losses = document["weeks"][0]["log_loss"]
    for rival in METHODS - {"gi"}:
        verb = "beats" if losses["gi"] < losses[rival] else "does NOT beat"
        assert f"gi {verb} {rival}:" in printed


def test_nothing_is_left_running_or_lying_about(printed: str, folder: Path) -> None:
    assert "in all" in printed
    assert [path.name for path in folder.iterdir()] == ["demo.json"]
    assert [process.name() for process in psutil.process_iter() if _writes_to(process, folder)] == []


def _writes_to(process: psutil.Process, folder: Path) -> bool:
    """Whether the demo started this process: its folder for temporary files lies in the demo's."""
    try:
        return process.environ().get("TMPDIR", "").startswith(str(folder))
    except psutil.Error:
        return False
