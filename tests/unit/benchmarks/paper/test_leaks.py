"""Test domains choose nothing: whatever they hold, what is learned from the known rows is the same to the bit."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.datasets import default_folder
from benchmarks.paper.sets import SETS, PaperSet
from benchmarks.paper.sets.cut import DAY, clock_of, even_edges
from benchmarks.paper.sets.files import FILES
from benchmarks.paper.sets.tabular import Tabular, event_rows
from benchmarks.paper.splits import Split
from contracts.task import Task, Training
from tests.unit.benchmarks.paper.poison import POISONED, poison_files, poison_rows

DATA = default_folder()


def load(name: str) -> PaperSet:
    if missing := [file for file in FILES[name] if not (DATA / file).is_file()]:
        pytest.skip(f"{missing[0]} is not here (MORROW_PAPER_DATA)")
    return SETS[name](DATA)


def written_by_hand() -> PaperSet:
    """A regression with a number, a category and three domains of 200 rows."""
    spec = {
        "name": "hand",
        "window": "P1D",
        "span": "P3D",
        "features": [{"name": "x", "kind": "number"}, {"name": "place", "kind": "category"}],
        "target": {"name": "y", "kind": "regression"},
    }
    task = Task.model_validate(spec)
    generator = np.random.default_rng(5)
    rows = event_rows(
        task,
        np.arange(600) * DAY // 200,
        generator.normal(size=(600, 1)),
        generator.normal(3, 2, 600),
        [generator.choice(["here", "there", "elsewhere"], 600)],
    )
    contents = Tabular(task, rows)
    return PaperSet("hand", "Hand", contents, even_edges(0, DAY, 3), clock_of(DAY, 3), test_origin=2)


def assert_learned_the_same(clean: Split, poisoned: Split) -> None:
    for field in ("dense", "codes", "u", "targets", "windows"):
        ours, theirs = getattr(clean.known, field), getattr(poisoned.known, field)
        assert ours.dtype == theirs.dtype
        assert ours.tobytes() == theirs.tobytes(), field
    assert clean.vocabulary_sizes == poisoned.vocabulary_sizes
    assert clean.num_outputs == poisoned.num_outputs
    assert clean.label_unit == poisoned.label_unit


def assert_was_poisoned(clean: Split, poisoned: Split) -> None:
    """The scored rows did change, features and answers, while their places and what methods see of targets did not."""
    ours, theirs = clean.unseen, poisoned.unseen
    features = np.concatenate([ours.dense, ours.codes], axis=1), np.concatenate([theirs.dense, theirs.codes], axis=1)
    assert (features[0] != features[1]).any(1).mean() > 0.9
    assert (clean.answers != poisoned.answers).mean() > 0.9
    assert ours.u.tobytes() == theirs.u.tobytes()
    assert ours.targets.tobytes() == theirs.targets.tobytes()


@pytest.mark.parametrize("name", POISONED)
def test_no_file_can_reach_the_known_rows_from_its_test_domain(name: str, tmp_path: Path) -> None:
    clean = load(name)
    poison_files(name, DATA, tmp_path)
    poisoned = SETS[name](tmp_path)
    training = Training(calendar=clean.calendars, number_form="quantile", label_form="log")
    assert clean.domain_sizes[: clean.test_origin + 1] == poisoned.domain_sizes[: clean.test_origin + 1]
    clean_split = clean.split(clean.test_origin, training)
    poisoned_split = poisoned.split(clean.test_origin, training)
    assert_learned_the_same(clean_split, poisoned_split)
    assert_was_poisoned(clean_split, poisoned_split)


@pytest.mark.parametrize("name", ["hand", *POISONED, "moons_fresh"])
def test_no_row_reaches_the_known_ones_from_any_later_domain(name: str) -> None:
    clean = written_by_hand() if name == "hand" else load(name)
    for origin in {1, clean.test_origin - 1, clean.test_origin}:
        for training in (Training(calendar=()), Training(calendar=(), number_form="quantile", label_form="log")):
            clean_split = clean.split(origin, training)
            poisoned_split = poison_rows(clean, origin).split(origin, training)
            assert_learned_the_same(clean_split, poisoned_split)
            assert_was_poisoned(clean_split, poisoned_split)


@pytest.mark.parametrize("name", ["hand", *POISONED, "moons_fresh"])
def test_targets_of_unseen_rows_tell_nothing(name: str) -> None:
    paper_set = written_by_hand() if name == "hand" else load(name)
    split = paper_set.split(paper_set.test_origin)
    blank = -1 if split.is_classification else np.nan
    np.testing.assert_array_equal(split.unseen.targets, blank)
    assert len(split.unseen.targets) == len(split.answers)
    assert split.known.targets.min() > -1 if split.is_classification else np.isfinite(split.known.targets).all()
    assert split.unseen.targets.base is None  # no view of an array that holds the answers
