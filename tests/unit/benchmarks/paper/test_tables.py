"""The command for the paper's tables, on sets small enough for a test."""

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from benchmarks import result_files
from benchmarks.__main__ import main
from benchmarks.datasets import default_folder
from benchmarks.paper.cells import Kept, filled, moved
from benchmarks.paper.methods import METHODS
from benchmarks.paper.recipes import PAPER
from benchmarks.paper.report import draw, figure, grid
from benchmarks.paper.rules import constant, naive, previous_label
from benchmarks.paper.runs import averaged, cut, losses, recent, score
from benchmarks.paper.sets import SETS
from benchmarks.paper.splits import Split, errors
from benchmarks.paper.tables import TABLES, Entry, select
from benchmarks.result_files import load
from contracts.clock import Clock
from trainer.data.encoder import Encoded
from trainer.data.labels import LabelUnit

FIELDS = [
    "table", "set", "method", "config", "metric", "mean", "std", "seeds", "published", "published_std", "seconds",
    "chosen_by",
]  # fmt: skip


def run(file: Path, *arguments: str) -> list[dict[str, Any]]:
    main(["paper", "--no-mlflow", "--json", str(file), *arguments])
    cells: list[dict[str, Any]] = json.loads(file.read_text())
    return cells


def test_every_method_of_the_tables_can_run() -> None:
    trained = {entry.method for table in TABLES.values() for entry in table.entries if entry.config != "rule"}
    assert trained <= set(METHODS)


def test_no_fit_begins_once_the_time_is_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cells = run(tmp_path / "cells.json", "--sets", "onp", "--tables", "main", "--minutes", "0")
    assert all(cell["mean"] is None for cell in cells)
    if default_folder().is_dir():
        assert run(tmp_path / "none.json", "--sets", "moons", "--tables", "delta", "--minutes", "0") == []
        assert "fits were not begun" in capsys.readouterr().out


def small_split(labels: list[float], answers: list[float], *, is_classification: bool) -> Split:
    """Two known domains of two rows, and answers; regression labels have mean 10 and scale 2."""
    targets = np.array(labels, np.int64) if is_classification else np.array(labels, np.float32)
    known = Encoded(
        dense=np.zeros((4, 1), np.float32),
        codes=np.zeros((4, 0), np.int64),
        u=np.linspace(-1, 0, 4, dtype=np.float32),
        targets=targets,
        windows=np.array([0, 0, 10, 10]),
    )
    count = len(answers)
    unseen = Encoded(known.dense[:count], known.codes[:count], known.u[:count], targets[:count], known.windows[:count])
    return Split(
        origin=2,
        clock=Clock(10, 0, 20),
        known=known,
        unseen=unseen,
        answers=np.array(answers),
        vocabulary_sizes=(),
        num_outputs=3 if is_classification else 2,
        metric="error_percent" if is_classification else "mae",
        label_unit=LabelUnit() if is_classification else LabelUnit(10.0, 2.0),
    )


def test_a_run_prints_ours_beside_the_published_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if "moons" not in present_sets():
        pytest.skip("the paper's 2-Moons are not there")
    options = ["--tables", "main,seconds", "--sets", "moons", "--methods", "baseline,naive", "--seeds", "2"]
    cells = run(tmp_path / "cells.json", *options, "--markdown", str(tmp_path / "results.md"))
    assert [list(cell) for cell in cells] == [FIELDS] * 3
    rule, ours, seconds = cells
    assert (rule["method"], rule["config"], rule["mean"], rule["std"], rule["seeds"]) == ("naive", "rule", 50, None, 1)
    assert (ours["method"], ours["config"], ours["metric"], ours["seeds"]) == ("baseline", "paper", "error_percent", 2)
    assert (ours["published"], ours["published_std"]) == (22.4, 4.6)
    assert 15 < ours["mean"] < 30 < 100 * ours["seconds"]
    assert ours["std"] >= 0
    assert (seconds["metric"], seconds["published"]) == ("seconds", 6.2)
    assert seconds["mean"] == ours["seconds"] / 2
    printed = capsys.readouterr().out
    assert f"{figure(ours['mean'], ours['std'])} %, published 22.4 ± 4.6, 2 models in" in printed
    assert "chosen by the paper's appendix" in printed
    assert "64,000 row visits a model" in printed
    row = f"| baseline | paper | {figure(ours['mean'], ours['std'])}<br>(22.4 ± 4.6) |"
    assert row in (tmp_path / "results.md").read_text()


def test_a_second_run_trains_only_what_is_not_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, options = tmp_path / "cells.json", ["--tables", "main", "--sets", "moons_fresh", "--seeds", "1"]
    (first,) = run(file, *options, "--methods", "last_window")
    monkeypatch.setattr(result_files, "FOLDER", tmp_path)
    capsys.readouterr()
    cells = run(file, *options, "--methods", "last_window,naive", "--results", "paper")
    assert [figure.of["method"] for figure in load("paper").figures] == ["naive"]  # the other is of an earlier run
    assert cells[0] == first  # the seconds too: it was not fitted again
    assert [cell["method"] for cell in cells] == ["last_window", "naive"]
    assert "last_window (paper)" not in capsys.readouterr().out
    (again, _) = run(file, "--tables", "main", "--sets", "moons_fresh", "--seeds", "2", "--methods", "last_window")
    assert (again["seeds"], again["mean"] == first["mean"]) == (2, False)


def test_a_cell_without_data_names_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--data", str(tmp_path), "--tables", "main", "--sets", "house", "--methods", "gi"]
    (cell,) = run(tmp_path / "cells.json", *options)
    assert list(cell) == [*FIELDS, "missing"]
    assert (cell["mean"], cell["seconds"], cell["published"]) == (None, None, 9.6)
    assert cell["missing"] == "house/raw_sales.csv.gz"
    assert "house/raw_sales.csv.gz is missing, from Kaggle" in capsys.readouterr().out


def test_a_strange_name_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        run(tmp_path / "cells.json", "--sets", "moon")
    assert "no moon; there are" in capsys.readouterr().err


def test_every_published_figure_of_the_paper_has_a_cell() -> None:
    from benchmarks.paper.published import PUBLISHED

    asked = {(entry.table, entry.set, entry.published_as or entry.method) for entry in select([], [], [])}
    lacking = {key for key in PUBLISHED if key[0] in TABLES and key[0] != "boolean"} - asked
    assert lacking == set()


def test_no_two_cells_of_a_table_share_a_name() -> None:
    places = [(entry.table, entry.set, entry.label, entry.config) for entry in select([], [], [])]
    assert len(set(places)) == len(places)


def test_a_change_that_the_recipe_has_already_is_the_same_fit() -> None:
    plain = Entry("main", "moons", "gi", "paper")
    warm = Entry("delta", "moons", "gi", "paper", (("delta_mode", "warm"),), published_as="warm")
    random = Entry("delta", "moons", "gi", "paper", (("delta_mode", "random"),), published_as="random")
    assert plain.work == warm.work != random.work
    assert warm.label == "gi[delta_mode=warm]"
    assert (warm.published, random.published) == ((3.5, 1.4), (3.8, 1.2))
    cell = moved(filled(plain, [1.0, 2.0], 6.0), warm)
    assert (cell["method"], cell["mean"], cell["std"], cell["seconds"]) == ("gi[delta_mode=warm]", 1.5, 0.5, 6.0)


def test_a_later_error_is_the_mean_over_every_domain_from_the_tests_on() -> None:
    paper_set = replace(SETS["moons_fresh"](Path()), test_origin=7)
    first = Entry("main", "moons_fresh", "last_window", "paper", (("pretrain_epochs", 3),))
    later = replace(first, table="later", measure="later_error")
    found = score(later, paper_set, 2)
    each = [score(first, replace(paper_set, test_origin=origin), 2) for origin in (7, 8, 9, 10)]
    assert paper_set.num_domains == 11
    assert found.errors == tuple(np.mean([one.errors for one in each], 0))
    assert len(set(found.errors) | {error for one in each for error in one.errors}) > 2
    assert first.work != later.work
    assert later.published is None


def test_a_figure_of_other_settings_is_not_kept_for_these() -> None:
    entry, kept = Entry("main", "moons", "gi", "paper"), Kept(None)
    kept.keep({entry: filled(entry, [1.0, 2.0], 3.0)})
    assert kept.answers(entry, 2)
    assert not kept.answers(entry, 5)
    kept.keep({entry: {**filled(entry, [1.0, 2.0], 3.0), "chosen_by": "somebody"}})
    assert not kept.answers(entry, 2)


def test_published_rows_stand_under_ours() -> None:
    entry, kept = Entry("main", "house", "gi", "paper"), Kept(None)
    kept.keep({entry: filled(entry, [9.0, 9.2], 3.0)})
    drawn = grid("main", [entry], kept)
    assert drawn.header == ("method", "config", "house")
    assert drawn.rows == (
        ("gi", "paper", "9.10 ± 0.10\n(9.60 ± 0.02)"),
        ("DRAIN 2023", "published", "9.30"),
        ("Koodos 2024", "published", "8.80"),
        ("our goal", "published", "8.40"),
    )


def test_a_row_is_printed_with_the_setting_that_it_changes() -> None:
    entries, paper = select(["delta"], ["moons"], []), io.StringIO()
    draw(Console(file=paper, width=40), grid("delta", entries, Kept(None)))
    assert all(entry.label in paper.getvalue() for entry in entries)


def test_rules_of_classes_by_hand() -> None:
    split = small_split([0, 0, 1, 0], [1, 1, 0, 2], is_classification=True)
    assert constant(split) == 75  # always 0
    assert naive(split) == 75  # a draw of 0 and 1 in the newest domain, which argmax gives to 0
    assert previous_label(split) == 75  # it gets 0, 1, 1, 0: right on the second alone


def test_rules_of_values_by_hand() -> None:
    split = small_split([0, 0, 1, 3], [10.0, 12.0, 18.0], is_classification=False)
    # Median target 0.5 is 11, mean of the newest domain 2 is 14, the labels before are 16, 10, 12.
    assert constant(split) == pytest.approx((1 + 1 + 7) / 3)
    assert naive(split) == pytest.approx((4 + 2 + 4) / 3)
    assert previous_label(split) == pytest.approx((6 + 2 + 6) / 3)


def test_a_released_model_averages_probabilities_not_logits() -> None:
    split = small_split([0, 0, 1, 0], [1], is_classification=True)
    outputs = np.log(np.array([[[0.9, 0.05, 0.05]], [[0.1, 0.6, 0.3]], [[0.1, 0.6, 0.3]]], np.float32))
    shares = np.exp(averaged(split, outputs))
    np.testing.assert_allclose(shares, [[[0.3667, 0.4167, 0.2167]]], atol=1e-4)
    assert errors(split, averaged(split, outputs)).tolist() == [0]


def test_a_loss_by_hand() -> None:
    split = small_split([0, 0, 1, 0], [0, 2], is_classification=True)
    outputs = np.log(np.array([[[0.5, 0.3, 0.2], [0.2, 0.4, 0.4]]], np.float32))
    assert losses(split, outputs).tolist() == [pytest.approx(-np.log(0.5 * 0.4) / 2)]
    values = small_split([0, 0, 1, 3], [12.0, 9.0], is_classification=False)
    assert losses(values, np.array([[[0.0, 0.0], [0.0, 0.0]]], np.float32)).tolist() == [1.5]


def test_a_released_value_is_the_mean_of_its_members() -> None:
    split = small_split([0, 0, 1, 3], [12.0], is_classification=False)
    outputs = np.array([[[0.0, 5.0]], [[2.0, -5.0]]], np.float32)
    assert errors(split, averaged(split, outputs)).tolist() == [0]


def test_history_leaves_the_newest_domains() -> None:
    split = small_split([0, 0, 1, 0], [1], is_classification=True)
    assert recent(split, 1).known.targets.tolist() == [1, 0]
    assert recent(split, 5).known.targets.tolist() == recent(split, None).known.targets.tolist() == [0, 0, 1, 0]


def test_a_recipe_reads_only_the_phases_that_its_set_has() -> None:
    training = PAPER["moons"].model_copy(update={"calendar": ("day", "week"), "history": 3})
    split, allowed = cut(SETS["moons_fresh"](Path()), 9, training)
    assert allowed.calendar == ()
    assert split.known.dense.shape == (600, 2)


def present_sets() -> set[str]:
    from benchmarks.paper.runs import missing_file

    return {name for name in SETS if missing_file(default_folder(), name) is None}
