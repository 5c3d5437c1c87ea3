"""When a version that could not be taken is worth another try."""

from itertools import pairwise

import pytest

from service.models.backoff import FIRST_PAUSE, LONGEST_PAUSE, LONGEST_WAIT, Backoff


@pytest.mark.parametrize("longest", [LONGEST_WAIT, LONGEST_PAUSE])
def test_pauses_double_up_to_a_bound_while_the_same_version_is_refused(longest: float) -> None:
    refusals, now = Backoff(), 0.0
    tried: list[float] = []
    while len(tried) < 12:
        if refusals.may_try("flights", "2", now):
            tried.append(now)
            refusals.add("flights", "2", "No room.", now, longest=longest)
        now += 1.0
    pauses = [later - earlier for earlier, later in pairwise(tried)]
    assert pauses == [min(FIRST_PAUSE * 2**k, longest) for k in range(len(pauses))]
    assert pauses[-1] == longest


def test_another_version_is_tried_at_once_and_one_that_was_taken_begins_anew() -> None:
    refusals = Backoff()
    refusals.add("flights", "2", "No room.", 0.0)
    refusals.add("flights", "2", "No room.", 10.0)
    assert not refusals.may_try("flights", "2", 29.0)
    assert refusals.may_try("flights", "3", 29.0)
    assert refusals.may_try("other", "2", 29.0)
    refusals.forget("flights")
    refusals.add("flights", "2", "No room.", 100.0)
    assert refusals.may_try("flights", "2", 100.0 + FIRST_PAUSE)
