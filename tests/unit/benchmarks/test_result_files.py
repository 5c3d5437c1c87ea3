"""Every committed result follows the schema, and a new run takes the place of what it repeats."""

import datetime
import subprocess
from pathlib import Path

import msgspec
import pytest

from benchmarks import result_files
from benchmarks.result_files import Figure, Result, Run, add_run, decode, encode, find_checkout, load, measured, names

HOUSE = Path(__file__).parents[3]
METHODS = {
    "gi", "baseline", "last_window", "naive", "gbdt", "base_time", "inc_finetune", "inc_finetune_time", "grad_reg",
    "time_perturb", "cdot", "cida", "adagraph", "ordinal", "generative", "deep_ode", "ftpl", "ftrl",
    "extrapolated_linear", "constant", "previous_label", "mixture", "auto",
}  # fmt: skip


def figure(method: str, value: float) -> Figure:
    return Figure(of={"method": method}, measure="error", unit="%", value=value, std=0.5)


def run(*figures: Figure, commit: str = "abcdef1") -> Run:
    return Run(
        command="python -m benchmarks example",
        commit=commit,
        date=datetime.date(2026, 11, 29),
        hardware="a processor",
        seeds=5,
        provenance="measured",
        figures=figures,
    )


@pytest.mark.parametrize("name", names())
def test_a_committed_file_follows_the_schema_and_is_written_as_the_code_writes(name: str) -> None:
    text = (result_files.FOLDER / f"{name}.json").read_text("utf-8")
    result = decode(text.encode())
    assert encode(result) == text
    assert all(run.figures for run in result.runs)
    assert all(figure.note for figure in result.figures if figure.value is None)


@pytest.mark.parametrize("name", names())
def test_no_two_figures_of_a_file_are_of_the_same(name: str) -> None:
    identities = [figure.identity for figure in load(name).figures]
    assert len(set(identities)) == len(identities)


@pytest.mark.parametrize("name", names())
def test_a_method_has_its_one_name(name: str) -> None:
    assert {figure.of["method"] for figure in load(name).figures if "method" in figure.of} <= METHODS


def git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=HOUSE, capture_output=True, text=True, check=True).stdout.strip()


def test_every_commit_of_a_file_is_in_the_history() -> None:
    if not (HOUSE / ".git").exists() or git("rev-parse", "--is-shallow-repository") == "true":
        pytest.skip("needs the whole git history, which this copy of the repository lacks")
    for commit in {run.commit for name in names() for run in load(name).runs}:
        git("merge-base", "--is-ancestor", commit, "HEAD")


def test_a_result_is_read_back_as_it_was_written() -> None:
    result = Result(title="An example", runs=(run(figure("gi", 1.5), figure("naive", 2.0)), run(commit="abcdef2")))
    assert decode(encode(result).encode()) == result


def test_a_figure_that_is_measured_again_leaves_the_older_run() -> None:
    result = Result(title="An example", runs=(run(figure("gi", 1.5), figure("naive", 2.0)),))
    again = result.with_run(run(figure("gi", 1.0), commit="abcdef2"))
    assert [[each.value for each in one.figures] for one in again.runs] == [[2.0], [1.0]]
    assert len(again.with_run(run(figure("naive", 3.0), commit="abcdef3")).runs) == 2


@pytest.mark.parametrize("broken", [{"commit": "not a commit"}, {"command": ""}, {"date": "yesterday"}, {"seed": 1}])
def test_a_file_with_a_strange_member_is_refused(broken: dict[str, object]) -> None:
    good = msgspec.to_builtins(run(figure("gi", 1.5)))
    with pytest.raises(msgspec.ValidationError):
        decode(msgspec.json.encode({"title": "An example", "runs": [good | broken]}))


def test_a_run_is_added_to_the_file_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_files, "FOLDER", tmp_path)
    for value in (1.5, 1.0):
        add_run("example", "An example", run(figure("gi", value)))
    assert [each.value for each in load("example").figures] == [1.0]
    assert [file.name for file in tmp_path.iterdir()] == ["example.json"]


def test_a_run_names_its_command_and_the_commit_of_the_checkout() -> None:
    if not (HOUSE / ".git").exists():
        pytest.skip("needs a git checkout, and this copy of the repository is none")
    checkout, today = find_checkout(), datetime.date(2026, 11, 29)
    command, figures = "python -m benchmarks moons --seeds 20", [figure("gi", 1.5)]
    found = measured(command, figures, checkout=checkout, today=today, hardware="a processor", seeds=20)
    assert found.command == command
    assert found.date == today
    assert git("rev-parse", "HEAD").startswith(found.commit)
