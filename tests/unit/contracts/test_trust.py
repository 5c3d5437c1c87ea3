"""The verdict on a model in one word: from its skill, the windows behind it, and its errors since the release."""

import pytest
from msgspec.structs import replace

from contracts.quality.skill import ComparedError, Skill, compare_errors, score
from contracts.quality.trust import judge_trust


def skill(percent: float | None, num_windows: int = 20, *rivals: tuple[float, int]) -> Skill:
    """A model with an error of 1 that saves this share of naive's; rivals have an error and a number of windows."""
    naive = 0.0 if percent is None else 1 / (1 - percent / 100)
    against = ComparedError(method="naive", num_windows=num_windows, error=naive, ours=1.0, skill=percent)
    others = [
        ComparedError(method="gbdt", num_windows=windows, error=error, ours=1.0, skill=score(1.0, error))
        for error, windows in rivals
    ]
    return compare_errors("log_loss", against, others)


@pytest.mark.parametrize(
    ("percent", "verdict"), [(60, "good"), (20, "good"), (19.9, "fair"), (10, "fair"), (9.9, "poor"), (-5, "poor")]
)
def test_the_error_saved_against_naive_decides_first(percent: float, verdict: str) -> None:
    assert judge_trust(skill(percent)).verdict == verdict


def test_naive_without_an_error_leaves_no_use_for_a_model() -> None:
    assert judge_trust(skill(None)).verdict == "poor"


@pytest.mark.parametrize(
    ("num_windows", "verdict", "said"),
    [
        (1, "too early to say", "only 1 of the 8 windows needed is scored"),
        (7, "too early to say", "only 7 of the 8 windows needed are scored"),
        (8, "good", "its error is 50 % smaller than naive's on 8 windows"),
    ],
)
def test_a_few_windows_say_nothing_yet(num_windows: int, verdict: str, said: str) -> None:
    found = judge_trust(skill(50, num_windows))
    assert found.verdict == verdict
    assert found.reason == said


def test_without_a_scored_window_it_is_too_early() -> None:
    assert judge_trust(None).reason == "no window is scored yet"


@pytest.mark.parametrize(
    ("error", "windows", "verdict"), [(0.9, 3, "fair"), (0.9, 2, "good"), (1.0, 9, "good"), (1.2, 9, "good")]
)
def test_a_rival_that_is_better_on_three_windows_leaves_room(error: float, windows: int, verdict: str) -> None:
    assert judge_trust(skill(50, 20, (error, windows))).verdict == verdict


@pytest.mark.parametrize(
    ("error", "larger"),
    [(0.625, "60 % larger"), (0.98, "2 % larger"), (0.0, "larger")],
)
def test_a_better_rival_is_named_with_how_much_better_it_is(error: float, larger: str) -> None:
    reason = judge_trust(skill(50, 20, (error, 4))).reason
    assert reason == f"its error is {larger} than gbdt's on the same 4 windows"


@pytest.mark.parametrize(
    ("num_above", "num_followed", "verdict"),
    [(0, 3, "good"), (1, 1, "good"), (1, 2, "good"), (2, 2, "fair"), (2, 3, "poor"), (2, 10, "good"), (3, 10, "fair")],
)
def test_errors_above_the_promised_band_count_against_it(num_above: int, num_followed: int, verdict: str) -> None:
    found = judge_trust(skill(50), [place < num_above for place in range(num_followed)])
    assert (found.verdict, found.num_followed, found.num_above) == (verdict, num_followed, num_above)


def test_a_good_verdict_is_provisional_while_rivals_are_still_being_fitted() -> None:
    found = judge_trust(replace(skill(50), pending=("baseline", "gbdt")))
    assert (found.verdict, found.is_provisional, found.words) == ("good", True, "good, provisional")
    assert found.reason.endswith("; rivals still being fitted: baseline, gbdt")
    assert not judge_trust(skill(50)).is_provisional
    assert not judge_trust(replace(skill(5), pending=("gbdt",))).is_provisional


def test_a_closed_horizon_is_poor_whatever_the_skill() -> None:
    found = judge_trust(skill(50), is_closed=True)
    assert (found.verdict, found.reason) == ("poor", "an error above its limit has closed its horizon")


def test_a_good_verdict_mentions_errors_far_above_the_promised_one() -> None:
    found = judge_trust(skill(50), live=(2.751, 1.055))
    assert found.verdict == "good"
    assert found.reason.endswith("but the error since the release is 2.751, and 1.055 was promised")
    assert "since the release" not in judge_trust(skill(50), live=(1.2, 1.055)).reason
