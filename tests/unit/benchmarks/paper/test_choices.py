"""A recipe for the paper's sets is never chosen by the test domain."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.__main__ import main
from benchmarks.paper.choices import Choice, Tried, read_choices, write_choices
from benchmarks.paper.choose import choose
from benchmarks.paper.choose_released import Chosen, choose_released, choosing_origins, difference, space
from benchmarks.paper.recipes import PAPER, WEIGHTED, WEIGHTS, find_recipe
from benchmarks.paper.sets import SETS, PaperSet
from benchmarks.paper.sets.tabular import Tabular
from contracts.spec.boosting import Boosting
from contracts.task import read_training
from trainer.tuning.search import Budget

TEST = 2


def small(paper_set: PaperSet) -> PaperSet:
    """The same set as if its third domain were the test's."""
    return replace(paper_set, test_origin=TEST)


def poisoned(paper_set: PaperSet) -> PaperSet:
    """The test domain and all after it turned to nonsense."""
    contents = paper_set.contents
    assert isinstance(contents, Tabular)
    is_test = contents.at >= paper_set.edges[paper_set.test_origin]
    numbers = np.where(is_test[:, None], 1e6, contents.rows.numbers)
    labels = np.where(is_test, 1 - contents.rows.labels, contents.rows.labels)
    return replace(paper_set, contents=replace(contents, rows=replace(contents.rows, numbers=numbers, labels=labels)))


def test_choosing_what_the_paper_leaves_open_reads_no_row_of_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = PAPER["moons_fresh"].model_copy(update={"pretrain_epochs": 2, "finetune_epochs": 1})
    monkeypatch.setitem(PAPER, "moons_fresh", quick)
    paper_set = small(SETS["moons_fresh"](Path()))
    lines: list[str] = []
    found = choose(paper_set, WEIGHTED, 1, lines.append)
    assert list(found) == ["base_time", "gi", "grad_reg", "time_perturb"]
    assert set(found["base_time"].changes) == {"batch_size"}
    assert found["gi"].changes in WEIGHTS
    assert lines[1].startswith("moons_fresh, gi: gi_weight ")
    assert "error, then loss, on domain 1 over 1 models" in lines[1]
    assert choose(poisoned(paper_set), WEIGHTED, 1, lines.append) == found


@pytest.mark.parametrize("method", ["gi", "gbdt"])
def test_choosing_what_is_released_reads_no_row_of_the_test(method: Chosen) -> None:
    paper_set, lines = small(SETS["moons_fresh"](Path())), list[str]()
    choice = choose_released(paper_set, method, Budget(trials=2, seconds=60), lines.append)
    again = choose_released(poisoned(paper_set), method, Budget(trials=2, seconds=60), lines.append)
    assert choosing_origins(paper_set) == [1]
    assert choice.changes == again.changes
    errors = [line.split("(")[0] for line in lines]
    half = len(errors) // 2
    assert half == (4 if method == "gi" else 2)  # two recipes, of a network by a member and by a cohort
    assert errors[:half] == errors[half:]
    assert "2 trials in" in choice.chosen_by
    assert "seed 0" in choice.chosen_by


def test_origins_of_a_choice_lie_inside_the_training_range() -> None:
    paper_set = SETS["moons_fresh"](Path())
    assert choosing_origins(paper_set) == [3, 4, 5, 6, 7, 8]
    assert choosing_origins(replace(paper_set, test_origin=1)) == []


def test_a_space_has_only_what_the_set_has() -> None:
    found = space(SETS["moons_fresh"](Path()))
    assert found["calendar"] == ((),)
    assert not {"embedding", "regression_loss", "label_form"} & set(found)
    deep = space(replace(SETS["moons_fresh"](Path()), space={"num_layers": (3, 4, 5)}))
    assert deep == {**found, "num_layers": (3, 4, 5)}


def test_a_difference_makes_the_recipe_again() -> None:
    training = read_training({"width": 32, "calendar": ("day",), "history": 3, "num_trelu": 1})
    assert difference(training) == {"width": 32, "calendar": ("day",), "history": 3, "num_trelu": 1}
    assert read_training(difference(training)) == training
    boosted = read_training({"boosting": Boosting(num_leaves=7, half_life=1000)})
    assert difference(boosted) == {"boosting": {"num_leaves": 7, "half_life": 1000}}
    assert read_training(difference(boosted)) == boosted


def test_choices_are_written_added_to_and_read_back(tmp_path: Path) -> None:
    file = tmp_path / "chosen.toml"
    first, other = (
        Choice(
            changes=dict(weight),
            domains=(8,),
            models=3,
            tried=(Tried(changes=dict(weight), error=2.5, loss=7e-06),),
        )
        for weight in WEIGHTS[:2]
    )
    found = Choice(
        changes={"calendar": []}, domains=(2, 3), error=0.5, trials=4, seconds=9, seed=0, started_from='a "reason" → 3'
    )
    write_choices(file, {"moons": {"gi": first}})
    write_choices(file, {"moons": {"grad_reg": other}, "house": {"gi": found}})
    assert read_choices(file) == {"moons": {"gi": first, "grad_reg": other}, "house": {"gi": found}}
    assert first.chosen_by == "error, then loss, on domain 8 over 3 models (gi_weight 0.01 → 2.5 and 7e-06)"
    assert found.chosen_by.endswith("seed 0: 0.5000 on domains 2, 3, a task's default none")


def test_the_command_writes_what_it_chose(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "released.toml"
    options = ["--choose", "released", "--sets", "moons_fresh", "--trials", "1", "--choices", str(file)]
    main(["paper", *options])
    printed = capsys.readouterr().out
    for choice in read_choices(file)["moons_fresh"].values():
        assert choice.changes == {"calendar": []}
        assert choice.chosen_by in printed
    assert list(read_choices(file)["moons_fresh"]) == ["gi", "gbdt"]


def test_lightgbm_is_chosen_for_with_the_same_budget_on_the_same_origins(tmp_path: Path) -> None:
    paper_set = SETS["moons_fresh"](Path())
    choice = choose_released(paper_set, "gbdt", Budget(trials=3, seconds=1e9), lambda _line: None)
    assert "3 trials in" in choice.chosen_by
    assert "on domains 3, 4, 5, 6, 7, 8" in choice.chosen_by
    file = tmp_path / "released.toml"
    boosted = {"boosting": {"half_life": 2.0, "reads_time": False}}
    write_choices(file, {"moons_fresh": {"gbdt": Choice(changes=boosted, domains=(8,))}})
    assert read_choices(file)["moons_fresh"]["gbdt"].changes == boosted


def test_recipes_are_the_appendix_after_the_errata() -> None:
    moons, elec2 = (find_recipe(name, "baseline", "paper").training for name in ("moons", "elec2"))
    assert (moons.delta_max, elec2.delta_max) == (5.5, 8.0)
    assert (moons.width, moons.time_width, moons.time_linear, moons.early_stopping) == (50, 8, 2, True)
    assert (elec2.pretrain_epochs, elec2.finetune_epochs, elec2.delta_steps, elec2.early_stopping) == (
        30,
        20,
        10,
        False,
    )
    assert all((recipe.weight_decay, recipe.averaged, recipe.calendar) == (0, 0, ()) for recipe in PAPER.values())
