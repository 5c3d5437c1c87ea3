"""Figures of answers: sums of parts add up to those of the whole."""

import msgspec
import numpy as np
import pytest

from contracts.quality.given_answers import NUM_BINS, NUM_DELAYS, AnswerSums, Bin, measure, reduce_delays


def bins(**places: Bin) -> list[Bin]:
    return [places.get(f"at{place}", Bin()) for place in range(NUM_BINS)]


def classes(**changes: object) -> AnswerSums:
    """Four answers, of which three have a label."""
    given = AnswerSums(
        "log_loss",
        num_answers=4,
        num_labelled=3,
        error=1.5,
        num_wrong=1,
        num_expected=3,
        expected=1.2,
        bins=bins(at6=Bin(2, 1, 1.3), at9=Bin(1, 1, 0.95)),
        delays=[1.0, 2.0, 3.0],
    )
    return msgspec.structs.replace(given, **changes)


def test_figures_of_one_part() -> None:
    found = measure([classes()])
    assert (found.num_answers, found.num_labelled, found.waiting) == (4, 3, 0.25)
    assert (found.error, found.error_rate) == (0.5, 1 / 3)
    assert found.expected_error == pytest.approx(0.4)
    # |1 − 1.3| and |1 − 0.95|, of three answers.
    assert found.calibration_error == pytest.approx((0.3 + 0.05) / 3)
    assert (found.num_given, found.coverage, found.promised_coverage) == (0, None, None)
    assert (found.label_delay_median, found.label_delay_p90) == (2.0, 3.0)


def test_bins_of_parts_are_compared_together() -> None:
    """One part is too sure of itself by as much as the other is too modest."""
    sure, modest = bins(at8=Bin(10, 6, 8.5)), bins(at8=Bin(10, 10, 8.0))
    found = measure([classes(num_labelled=10, bins=sure), classes(num_labelled=10, bins=modest)])
    assert found.calibration_error == pytest.approx(0.5 / 20)


def test_without_a_label_there_is_no_figure() -> None:
    found = measure([AnswerSums("log_loss", num_answers=2)])
    assert found.waiting == 1
    assert {found.error, found.expected_error, found.error_rate, found.coverage, found.calibration_error} == {None}
    assert {found.label_delay_median, found.label_delay_p90} == {None}


def test_a_part_without_labels_changes_no_mean() -> None:
    alone, both = measure([classes()]), measure([classes(), AnswerSums("log_loss", num_answers=4)])
    assert both == msgspec.structs.replace(alone, num_answers=8)


def test_a_regression_has_coverage_in_place_of_a_calibration_error() -> None:
    part = AnswerSums(
        "mean_absolute_error", 2, 2, error=3.0, num_given=2, num_covered=1, promised=1.8, delays=[0.0, 0.0]
    )
    found = measure([part])
    assert (found.coverage, found.promised_coverage) == (0.5, 0.9)
    assert (found.error_rate, found.calibration_error) == (None, None)


def test_quantiles_of_many_delays_are_near_those_of_all() -> None:
    rng = np.random.default_rng(3)
    parts = [rng.exponential(size=count) for count in (5, 400, 3000)]
    sums = [classes(num_labelled=len(part), delays=reduce_delays(part.tolist())) for part in parts]
    assert [len(one.delays) for one in sums] == [5, NUM_DELAYS, NUM_DELAYS]
    found, every = measure(sums), np.concatenate(parts)
    assert found.label_delay_median == pytest.approx(np.quantile(every, 0.5), rel=0.1)
    assert found.label_delay_p90 == pytest.approx(np.quantile(every, 0.9), rel=0.1)


def test_sums_survive_their_storage_to_the_digit() -> None:
    given = classes(error=0.1 + 0.2, expected=1 / 3)
    assert msgspec.json.decode(msgspec.json.encode(given), type=AnswerSums) == given
