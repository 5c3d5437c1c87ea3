"""The 2-Moons benchmark cuts its domains without looking ahead."""

import math
import os
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.moons import CLOCK, FILE, PAPER, RECIPE, cut, load, result

DATA = Path(os.environ.get("MORROW_PAPER_DATA", "../shared/data"))


def domains() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    generator = np.random.default_rng(0)
    return generator.normal(size=(11, 20, 2)), generator.integers(0, 2, (11, 20))


def test_cut_ends_before_its_target_and_starts_model_time_there() -> None:
    x, y = domains()
    known, unseen = cut(x, y, 9)
    assert known.dense.shape == (180, 2)
    assert unseen.dense.shape == (20, 2)
    np.testing.assert_allclose(known.u[[0, -1]], [-9 / 11, -1 / 11], rtol=1e-6)
    assert set(unseen.u.tolist()) == {0.0}
    assert [CLOCK.age(9 * CLOCK.window, int(start)) for start in np.unique(unseen.windows)] == [0]
    np.testing.assert_allclose(known.dense.mean(0), 0, atol=1e-6)
    np.testing.assert_array_equal(unseen.targets, y[9])


@pytest.mark.parametrize("target", [8, 9])
def test_a_cut_sees_no_row_of_later_domains(target: int) -> None:
    x, y = domains()
    changed_x, changed_y = x.copy(), y.copy()
    changed_x[target + 1 :] = np.nan
    changed_y[target + 1 :] = -1
    for mine, other in zip(cut(x, y, target), cut(changed_x, changed_y, target), strict=True):
        for column, other_column in zip(vars(mine).values(), vars(other).values(), strict=True):
            np.testing.assert_array_equal(column, other_column)


def test_the_recipe_keeps_the_papers_architecture_and_batch() -> None:
    for recipe in (PAPER, RECIPE):
        assert (recipe.width, recipe.num_layers, recipe.num_trelu, recipe.batch_size) == (50, 2, None, 64)
        assert (recipe.time_width, recipe.time_linear) == (8, 2)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"moons_paper_processed\.npz .*--data or MORROW_PAPER_DATA"):
        load(tmp_path)


@pytest.mark.parametrize(("error", "met"), [(1.0, True), (5.0, True), (5.1, False), (0.0, True)])
def test_result_is_met_up_to_the_committed_error(error: float, met: bool) -> None:
    assert result(error)["met"] is met


@pytest.mark.skipif(not (DATA / FILE).is_file(), reason="the paper's data sets are not here (MORROW_PAPER_DATA)")
def test_domains_are_the_same_points_turned_by_18_degrees() -> None:
    x, y = load(DATA)
    assert x.shape == (11, 200, 2)
    for domain in range(11):
        cosine, sine = math.cos(math.radians(18 * domain)), math.sin(math.radians(18 * domain))
        np.testing.assert_allclose(x[domain], x[0] @ np.array([[cosine, sine], [-sine, cosine]]), atol=1e-9)
        np.testing.assert_array_equal(y[domain], y[0])
