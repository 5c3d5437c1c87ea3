"""What benchmarks record: figures with the labels of the committed files, so that a new run takes their place."""

import json
from datetime import date
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import moons, output, result_files
from benchmarks.demo import figures_of as demo_figures
from benchmarks.output import record_run, without_outputs
from benchmarks.paper.boolean import Result, rules, settings
from benchmarks.paper.boolean import figures_of as boolean_figures
from benchmarks.paper.cells import figure_of, filled
from benchmarks.paper.tables import select
from benchmarks.ratios import larger_is_better, ratio_figures, smaller_is_better
from benchmarks.result_files import Figure, load
from benchmarks.training import measure


def test_a_ratio_is_stated_as_people_say_it() -> None:
    cost = smaller_is_better("start / theirs", 2.0, 8.0, commit=4.0, goal=1.0, unit="CPU s")
    rate = larger_is_better("rate / theirs", 90.0, 30.0, ratio=2.9, commit=2, goal=4, unit="rows/s")
    assert [figure.value for figure in ratio_figures([cost, rate])] == [0.25, 2.0, 2.9, 90.0]
    assert (cost["ratio"], cost["commit"], cost["met"]) == (4.0, 2.0, True)


def test_a_recorded_command_does_not_say_where_it_wrote() -> None:
    given = ["moons", "--json", "a.json", "--seeds", "20", "--results=moons", "--results", "moons"]
    assert without_outputs(given) == ["moons", "--seeds", "20"]


def test_a_run_is_recorded_with_its_hardware_and_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_files, "FOLDER", tmp_path)
    monkeypatch.setattr(output, "find_checkout", lambda: result_files.Checkout("abcdef1", is_changed=True))
    ratio = smaller_is_better("start / theirs", 1.0, 3.0, commit=4.0, goal=1.0, unit="CPU s")
    record_run("example", "An example", ["serving", "--results", "example"], ratio_figures([ratio]))
    (run,) = load("example").runs
    assert run.command == "python -m benchmarks serving"
    assert [figure.value for figure in run.figures] == [0.333333, 1.0]
    assert "torch" in run.hardware
    assert run.provenance == "measured with uncommitted changes"
    assert isinstance(run.date, date)


def test_every_committed_cell_of_the_paper_is_one_that_the_command_writes() -> None:
    entries = select([], [], [])
    written = {figure.identity for entry in entries if (figure := figure_of(entry, filled(entry, [1.0, 2.0], 3.0)))}
    assert {figure.identity for figure in load("paper").figures} <= written


def test_a_fit_of_the_boolean_set_is_recorded_under_the_labels_of_the_committed_file() -> None:
    listed = {each.name: each for each in settings(("tanh",), (5, 30)) if each.method == "gi"}
    chosen = listed["tanh, 5 epochs, λ only, δ_max 10, grid"]
    zeros = np.zeros(3)
    result = Result(chosen, chosen_by=0.5, known=zeros, before=zeros, target=zeros, still=zeros)
    found = {figure.identity: figure for figure in boolean_figures(result, result)}
    committed = {figure.identity: figure for figure in load("boolean").figures if figure.of == chosen.labels}
    assert set(committed) <= set(found)
    accuracy = Figure(of=chosen.labels, measure="accuracy", unit="%", value=None).identity
    assert found[accuracy].yardstick == committed[accuracy].yardstick == 70.9
    assert set(rules()) == {figure.of["rule"] for figure in load("boolean").figures if "rule" in figure.of}


def test_moons_and_steps_are_recorded_under_the_labels_of_the_committed_files() -> None:
    errors = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    names = ("gi", moons.WITHOUT_TERM, "baseline", "last_window")
    found = {figure.identity for name in names for figure in moons.figures_of(name, errors, errors)}
    assert found == {figure.identity for figure in load("moons").figures if figure.of["seeds"] == 5}
    (published, _) = moons.figures_of("gi", errors, errors)
    assert (published.value, published.yardstick) == (3.0, 3.5)
    ratios = measure(torch.device("cpu"), 1, batches=(1024,), classes=(2,), seconds=0, report=lambda _line: None)
    steps = {figure.identity for figure in ratio_figures(ratios) if figure.measure == "ratio"}
    committed = {figure.identity for figure in load("training").figures if "machine" not in figure.of}
    assert len(steps & committed) == len(steps) - 1  # nested autograd is stated the other way round on the page


def test_the_demo_is_recorded_under_the_labels_of_the_committed_file(tmp_path: Path) -> None:
    methods = ("gi", "baseline", "last_window", "naive")
    starts = ("2013-07-02", "2013-07-09", "2013-07-16", "2013-07-23", "2013-07-30", "2013-08-06")
    weeks = [
        {
            "start": f"{start}T05:00:00Z",
            "version": "1",
            "requests": 206,
            "log_loss": dict.fromkeys(methods, 0.5),
            "error": dict.fromkeys(methods, 0.25),
        }
        for start in starts
    ]
    seconds = {"install_free_total": 115.0, "ingest": 16.0, "cycle_median": 29.0}
    document = json.loads(json.dumps({"weeks": weeks, "seconds": seconds, "peak_rss_mb": 2145.0}))
    figures = demo_figures(document)
    committed = {figure.identity for figure in load("demo").figures if "cores" not in figure.of}
    assert {figure.identity for figure in figures} == committed
    assert {figure.value for figure in figures if figure.measure == "error"} == {25.0}
