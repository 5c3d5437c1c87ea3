"""The first flip on a grid, to the second, and what a run of many that differs from single ones cannot spoil."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from service.models.class_change import NUM_MOMENTS, find_class_change

SECOND = 1_000_000
Classes = NDArray[np.intp]


def switching(*boundaries: int) -> Callable[[NDArray[np.int64]], Classes]:
    """Class 0 before the first boundary, then class 1, then 0 again, and so on."""
    return lambda moments: np.searchsorted(np.array(boundaries), moments, side="right") % 2


@given(
    at=st.integers(-(10**15), 10**15),
    left=st.integers(SECOND, 4 * 7 * 86_400 * SECOND),
    share=st.floats(1e-9, 1, exclude_max=True),
)
def test_a_single_flip_is_found_to_the_second(at: int, left: int, share: float) -> None:
    boundary = at + 1 + int(share * (left - 1))
    flip = find_class_change(switching(boundary), 0, at, at + left)
    assert flip is not None
    assert boundary <= flip < boundary + SECOND
    assert (flip - at) % SECOND == 0 or flip == at + left
    assert at < flip <= at + left


@given(at=st.integers(-(10**15), 10**15), left=st.integers(0, 10**13))
def test_what_never_changes_never_flips(at: int, left: int) -> None:
    assert find_class_change(switching(at + left + 1), 0, at, at + left) is None


def test_the_first_of_many_flips_counts_and_one_between_two_moments_is_overlooked() -> None:
    left = NUM_MOMENTS * 1000 * SECOND
    assert find_class_change(switching(5_000 * SECOND, 90_000 * SECOND), 0, 0, left) == 5_000 * SECOND
    assert find_class_change(switching(5_100 * SECOND, 5_200 * SECOND, 90_000 * SECOND), 0, 0, left) == 90_000 * SECOND


@pytest.mark.parametrize("place", [0, 1, 100, 255])
def test_single_moments_decide_where_a_run_of_many_says_otherwise(place: int) -> None:
    left = NUM_MOMENTS * 1000 * SECOND
    single = switching(150_500 * SECOND)

    def noisy(moments: NDArray[np.int64]) -> Classes:
        """Near a tie, a run of many gives another class than a run of one."""
        classes = single(moments)
        if len(moments) > 1:
            classes[place] = 1 - classes[place]
        return classes

    assert find_class_change(noisy, 0, 0, left) == 150_500 * SECOND


def test_a_run_of_many_that_sees_a_flip_too_late_does_not_hide_the_second() -> None:
    left = NUM_MOMENTS * 1000 * SECOND
    single = switching(149_500 * SECOND)

    def late(moments: NDArray[np.int64]) -> Classes:
        return single(moments) if len(moments) == 1 else switching(150_500 * SECOND)(moments)

    assert find_class_change(late, 0, 0, left) == 149_500 * SECOND
