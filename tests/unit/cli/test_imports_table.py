"""What `morrow events history` prints: moments stay whole within 80 columns, and long names are folded."""

import pytest

from cli.reports.imports import print_imports


def test_moments_and_names_stay_whole_within_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    one = {"id": 2, "actor": "admin", "num_corrected": 0, "at": "2026-11-30T07:10:59Z"}
    stays = {**one, "source": "departures.csv", "num_events": 20_805, "num_retracted": 0, "retracted_at": None}
    left = {**stays, "num_events": 0, "num_retracted": 20_805, "retracted_at": "2026-11-30T07:11:29Z"}
    print_imports("rides", [stays, left, {**stays, "source": "a-very-long-name-of-an-export" * 3 + ".csv"}])
    printed = capsys.readouterr().out
    assert "…" not in printed
    assert printed.count("2026-11-30T07:10Z") == 3
    assert max(map(len, printed.splitlines())) <= 80
