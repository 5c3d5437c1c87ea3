"""The verdict on a model in one word: from its skill, the windows behind it, and its errors since the release."""

import pytest
from msgspec.structs import replace

from contracts.quality.skill import ComparedError, Skill, compare_errors, find_margin, score
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


def against(error: float, margin: float | None, num_windows: int = 12) -> Skill:
    """A model with an error of 1, far better than naive, and a rival whose skill is known up to a margin."""
    rival = ComparedError(
        method="gbdt", num_windows=num_windows, error=error, ours=1.0, skill=score(1.0, error), margin=margin
    )
    naive = ComparedError(method="naive", num_windows=num_windows, error=3.0, ours=1.0, skill=score(1.0, 3.0))
    return compare_errors("mae", naive, [rival])


@pytest.mark.parametrize(
    ("error", "margin", "verdict"),
    [
        (1 / 1.61, 16.0, "poor"),  # 61 % larger, 45 % at least
        (1 / 1.61, 50.0, "fair"),  # 11 % at least
        (1 / 1.61, 70.0, "good"),  # perhaps none
        (1 / 1.1, 1.0, "fair"),
        (1 / 1.1, 12.0, "good"),
    ],
)
def test_a_better_rival_counts_by_the_near_end_of_its_interval(error: float, margin: float, verdict: str) -> None:
    assert judge_trust(against(error, margin)).verdict == verdict


def test_a_better_rival_is_named_with_the_interval_and_with_what_chance_may_explain() -> None:
    assert judge_trust(against(1 / 1.61, 16.0)).reason == (
        "its error is 61 % larger than gbdt's on the same 12 windows (45 to 77 % with 80 % confidence)"
    )
    by_chance = judge_trust(against(1 / 1.1, 12.0))
    assert by_chance.reason.endswith("(-2 to 22 % with 80 % confidence), which chance may explain")
    assert not against(1 / 1.1, 12.0).is_poor


def test_two_windows_of_a_far_better_rival_are_too_few() -> None:
    assert judge_trust(replace(against(0.5, 1.0, 2), num_windows=20)).verdict == "good"


@pytest.mark.parametrize(("num_windows", "quantile"), [(3, 1.886), (4, 1.638), (6, 1.476), (11, 1.372), (31, 1.310)])
def test_a_margin_follows_students_t(num_windows: int, quantile: float) -> None:
    margin = find_margin(2.0, num_windows, 50.0)
    assert margin == pytest.approx(100 * quantile * 2.0 / num_windows**0.5 / 50, rel=0.025)


@pytest.mark.parametrize(("spread", "num_windows", "reference"), [(None, 9, 1.0), (1.0, 1, 1.0), (1.0, 9, 0.0)])
def test_without_a_spread_there_is_no_margin(spread: float | None, num_windows: int, reference: float) -> None:
    assert find_margin(spread, num_windows, reference) is None


def test_errors_of_withdrawn_events_are_said_to_count_until_the_next_cycle() -> None:
    found = judge_trust(skill(50), withdrawn="24 events of retracted imports")
    assert found.reason.endswith("errors of 24 events of retracted imports still count: the next cycle takes them out")
