"""The published figures are those of the paper's own source, if that file is in the data folder's parent."""

import re
from collections import Counter

import pytest

from benchmarks.datasets import default_folder
from benchmarks.paper.published import METRICS, PUBLISHED, Published

PAPER = default_folder().parent / "paper.tex"
LABELS = {
    "main": "expt:overall",
    "ablation": "ablation_finetune",
    "delta": "ablation_delta",
    "finetune": "finetune_domains",
    "other": "other_methods",
    "online": "online_learning",
    "seconds": "computation_time",
}


@pytest.mark.parametrize("table", LABELS)
def test_a_table_holds_exactly_the_figures_of_the_paper(table: str) -> None:
    if not PAPER.is_file():
        pytest.skip(f"there is no {PAPER}")
    before, _, _ = PAPER.read_text("utf-8").partition(rf"\label{{tab:{LABELS[table]}}}")
    _, _, tabular = before.rpartition(r"\begin{tabular}")
    body, _, _ = tabular.partition(r"\end{tabular}")
    figures = re.findall(r"(?<!\w)(\d+\.\d+)(?:[\s\\,$]*\\pm[\s\\,$]*(\d+\.\d+))?", body)
    printed = Counter((float(mean), float(std) if std else None) for mean, std in figures)
    ours = Counter(
        (cell.mean, cell.std) for (name, _, _), cell in PUBLISHED.items() if name == table and cell.mean is not None
    )
    assert ours == printed


def test_a_cell_holds_mean_and_deviation() -> None:
    assert PUBLISHED["main", "elec2", "cida"] == Published(14.1, 0.2)
    assert PUBLISHED["finetune", "house", "1"] == Published(9.9, None)
    assert PUBLISHED["goal", "house", "gi"] == Published(8.4, None)


def test_a_method_that_did_not_converge_is_told_from_one_that_was_not_tried() -> None:
    assert PUBLISHED["main", "reuters", "cida"] == Published(None, None)
    assert ("main", "house", "cdot") not in PUBLISHED


def test_every_set_has_a_metric() -> None:
    assert {name for _, name, _ in PUBLISHED} == set(METRICS)
