"""What `morrow events history` prints: one line for each import, also within 80 columns."""

import pytest

from cli.reports.imports import cut_middle, print_imports


def test_each_import_is_one_line_within_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    one = {"id": 2, "actor": "admin", "num_corrected": 0, "at": "2026-11-30T07:10:59Z"}
    stays = {**one, "source": "departures.csv", "num_events": 20_805, "num_retracted": 0, "retracted_at": None}
    left = {**stays, "num_events": 0, "num_retracted": 20_805, "retracted_at": "2026-11-30T07:11:29Z"}
    long = {**stays, "source": "export [b]of tickets " * 9 + "2026-11.csv"}
    print_imports("rides", [stays, left, long])
    heading, *lines = capsys.readouterr().out.splitlines()
    assert [len(line.rstrip()) <= 80 for line in (heading, *lines)] == [True] * 4
    assert all("2026-11-30T07:10Z" in line for line in lines)
    assert lines[0].split()[-1] == lines[1].split()[-1] == "departures.csv"
    assert "0 of 20,805" in lines[1]
    assert "2026-11-30T07:11Z" in lines[1]
    assert lines[2].rstrip().endswith(".csv")
    assert "…" in lines[2]


def test_a_name_is_cut_in_its_middle_by_the_columns_that_it_takes() -> None:
    assert cut_middle("tickets.csv", 11) == "tickets.csv"
    assert cut_middle("tickets-of-november.csv", 11) == "ticke…r.csv"
    assert cut_middle("顧客データ一覧表.csv", 11) == "顧客デ…csv"
