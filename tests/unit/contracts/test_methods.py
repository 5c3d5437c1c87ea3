"""Every method that a page or a command names has an explanation, and the glossary has the same."""

from pathlib import Path
from typing import get_args

from contracts.quality.methods import METHODS, explain_methods, explain_weights
from contracts.task import Method, Rival

WORDS = Path(__file__).parents[3] / "docs" / "explanation" / "words.md"


def test_every_method_is_explained() -> None:
    named = {one for part in get_args(Rival) for one in (get_args(part) or [part])} | set(get_args(Method))
    assert named | {"model", "naive"} == set(METHODS)


def test_the_glossary_says_the_same() -> None:
    lines = WORDS.read_text().splitlines()
    for method in ("naive", "baseline", "last_window", "gbdt"):
        assert any(line.startswith(f"| `{method}` | {METHODS[method]}") for line in lines), method


def test_each_method_is_explained_once_and_others_are_left_out() -> None:
    assert [name for name, _ in explain_methods(["naive", "gbdt", "naive", "own"])] == ["naive", "gbdt"]


def test_weights_are_said_in_percent() -> None:
    assert explain_weights({}) is None
    said = explain_weights({"gi": 0.62, "gbdt": 0.38})
    assert said is not None
    assert said.startswith("answers are averages, 62 % from the network and 38 % from LightGBM")


def test_what_naive_does_is_said_for_the_kind_of_the_task() -> None:
    meaning = {kind: dict(explain_methods(["naive"], is_classification=kind))["naive"] for kind in (True, False)}
    assert meaning[True] == "no model: the share of each class in the newest known window"
    assert meaning[False] == "no model: the mean label of the newest known window"
