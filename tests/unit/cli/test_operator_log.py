"""What operators read: few lines, moments as people write them, and the last words of a part that ended."""

import json
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from cli.local.processes import last_line
from contracts.runtime.settings import SharedSettings
from trainer.scheduling.workers.worker import report_to


def test_a_cycle_tells_of_moments_in_words_and_of_epochs_only_at_debug() -> None:
    with capture_logs() as told:
        report = report_to("trainer.cycle")
        report("fit.began", cutoff=1_767_225_600_000_000)
        report("rival.scored", origin=1_767_225_600_000_000, num_cells=3)
        report("epoch.ended", epoch=1, loss=0.5)
    assert [(one["event"], one["log_level"]) for one in told] == [
        ("fit.began", "info"),
        ("rival.scored", "info"),
        ("epoch.ended", "debug"),
    ]
    assert (told[0]["cutoff"], told[1]["origin"]) == ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z")
    assert told[1]["num_cells"] == 3


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], ""),
        (['{"event": "trainer.started"}', '{"event": "store.gone", "reason": "no route"}'], "store.gone: no route"),
        (
            [json.dumps({"event": "request.failed", "exception": "Traceback\n  File\nKeyError: 'x'"})],
            "request.failed: KeyError: 'x'",
        ),
        (['{"event": "service.stopped"}', ""], "service.stopped"),
        (["Traceback (most recent call last):", "OSError: disk full"], "OSError: disk full"),
        (["[1, 2]"], "[1, 2]"),
    ],
)
def test_a_part_that_ended_is_told_of_by_its_last_words(lines: list[str], words: str, tmp_path: Path) -> None:
    log = tmp_path / "part.log"
    log.write_text("\n".join(lines))
    assert last_line(log) == words


def test_a_setting_of_nothing_is_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MORROW_MLFLOW_URL", "MORROW_DATABASE_URL", "MORROW_LOG_LEVEL"):
        monkeypatch.setenv(name, "")
    settings = SharedSettings()
    assert (settings.mlflow_url, settings.database_url, settings.log_level) == (None, None, "INFO")
