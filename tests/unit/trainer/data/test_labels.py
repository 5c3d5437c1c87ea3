"""A regression learns labels or their logarithms, and answers in the label's unit either way."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import CycleError
from contracts.task import Training
from store.events.reading.columns import EventColumns
from tests.unit.trainer.export.exported_network import (
    CUTOFF,
    DAY,
    NUMBERS,
    graph_answers,
    make_network,
    make_rows,
    make_task,
    make_training,
)
from trainer.data.encoder import Encoder, encode, fit_encoder
from trainer.data.labels import LABEL_LIMIT, LOG_LIMIT, clip_labels, fit_label_unit, label_bounds
from trainer.evaluation.scoring import score
from trainer.export.artefact import torch_answers
from trainer.export.onnx_export import build_graph
from trainer.methods.without_network import in_units_of_labels
from trainer.network.losses import log_scale
from trainer.network.network import CohortNetwork
from trainer.network.training_loop import Member, finish, fit, outputs

LOGS = make_task(NUMBERS, "regression", make_training(label_form="log"))
ROWS = make_rows(LOGS, 900)
positive = st.floats(1e-3, 1e6)


def fitted(num_members: int = 2) -> tuple[Encoder, CohortNetwork]:
    encoder = fit_encoder(LOGS, ROWS, CUTOFF)
    return encoder, make_network(encoder, LOGS.training, num_members)


def test_logarithms_are_standardised_as_labels_are() -> None:
    labels = np.exp(np.random.default_rng(0).normal(2, 0.5, 20_000))
    unit = fit_label_unit("price", labels, "log")
    assert unit.mean == pytest.approx(2, abs=0.02)
    assert unit.scale == pytest.approx(0.5, rel=0.02)
    np.testing.assert_allclose(unit.targets(np.exp([1.0, 2.0, 3.0])), [-2, 0, 2], atol=0.1)
    assert fit_label_unit("price", labels, "plain").floor is None


@given(st.lists(positive, min_size=2, max_size=60))
def test_labels_come_back_from_targets_but_for_the_lower_tail(labels: list[float]) -> None:
    given_labels = np.array(labels)
    unit = fit_label_unit("price", given_labels, "log")
    assert unit.floor is not None
    unclipped = np.abs(np.log(given_labels.clip(unit.floor)) - unit.mean) < LABEL_LIMIT * unit.scale
    back = unit.means(unit.targets(given_labels))
    np.testing.assert_allclose(back[unclipped], given_labels.clip(unit.floor)[unclipped], rtol=1e-4)


@pytest.mark.parametrize("poison", [0.0, -7.0, -1e300, 1e300, 1e-300])
def test_one_absurd_label_leaves_the_others_their_unit(poison: float) -> None:
    labels = np.exp(np.random.default_rng(0).normal(2, 0.5, 2000))
    clean = fit_label_unit("price", labels, "log")
    labels[3] = poison
    unit = fit_label_unit("price", labels, "log")
    assert unit.mean == pytest.approx(clean.mean, abs=0.01)
    assert unit.scale == pytest.approx(clean.scale, rel=0.01)
    assert np.isfinite(unit.targets(labels)).all()


def test_labels_without_a_logarithm_are_refused_in_words() -> None:
    with pytest.raises(CycleError, match="No price is positive"):
        fit_label_unit("price", np.array([0.0, -1.0, -2.0]), "log")
    with pytest.raises(CycleError, match="another unit"):
        fit_label_unit("price", np.exp(np.array([90.0, 91.0, 92.0])), "log")


def test_a_fit_on_logarithms_answers_with_the_median_and_a_scale_in_proportion() -> None:
    """Labels are 100·e^(0.3·z) and features are uninformative: the median is 100, the deviation about 30."""
    changes = {
        "method": "baseline",
        "pretrain_epochs": 20,
        "pretrain_rate": 0.01,
        "finetune_epochs": 0,
        "batch_size": 64,
    }
    training = Training.model_validate(LOGS.training.model_dump() | changes)
    rows = replace(ROWS, labels=100 * np.exp(np.random.default_rng(0).normal(0, 0.3, len(ROWS))))
    encoder = fit_encoder(LOGS, rows, CUTOFF)
    encoded = encode(encoder, rows)
    blank = replace(encoded, dense=np.zeros_like(encoded.dense))
    member = Member(blank, encoder.vocabulary_sizes, encoder.num_outputs, seed=0)
    network = finish(fit([member], training, LOGS.clock, torch.device("cpu")))
    raw = torch.from_numpy(outputs(network, blank)[0, :1])
    mean = encoder.label_unit.means(raw[:, 0].numpy())
    assert mean[0] == pytest.approx(100, rel=0.05)
    assert encoder.label_unit.scales(log_scale(raw[:, 1]).exp().numpy(), mean)[0] == pytest.approx(30, rel=0.1)


def test_what_is_scored_does_not_depend_on_the_form() -> None:
    plain = make_task(NUMBERS, "regression")
    assert label_bounds(LOGS, ROWS) == label_bounds(plain, ROWS)


@pytest.mark.parametrize("absurd", [1e60, 1e200, 1e308])
def test_losses_are_finite_where_many_labels_are_absurd(absurd: float) -> None:
    """Their logarithms are not so far from the others', so a fit on them continues."""
    labels = ROWS.labels.copy()
    labels[: len(labels) // 50] = absurd
    rows = replace(ROWS, labels=labels)
    assert fit_label_unit("price", labels, "log").scale < 200
    answers = [np.full(len(rows), value, np.float32) for value in (100, np.finfo(np.float32).tiny)]
    assert np.isfinite(score(LOGS, (), answers, clip_labels(LOGS, rows, rows))).all()


def test_the_graph_answers_in_the_unit_of_labels_as_torch_does() -> None:
    encoder, network = fitted(3)
    assert encoder.label_unit.floor == pytest.approx(ROWS.labels.min(), rel=0.01)
    rows = make_rows(LOGS, 100, seed=1, end=CUTOFF + 90 * DAY)
    found = graph_answers(build_graph(encoder, network, [2, 0]), LOGS, rows)
    np.testing.assert_allclose(found, torch_answers(encoder, network, [2, 0], rows), rtol=1e-6)


def in_half_logarithms(encoder: Encoder) -> Encoder:
    """A learned 0 is 50, and each 2 more add one to the logarithm."""
    return replace(encoder, label_unit=replace(encoder.label_unit, mean=np.log(50.0), scale=0.5))


def test_members_answer_with_the_logarithm_that_they_have_on_average() -> None:
    encoder, network = fitted()
    encoder = in_half_logarithms(encoder)
    with torch.no_grad():
        network.head.weight.zero_()
        network.head.bias.copy_(torch.tensor([[1.0, 0.0], [3.0, 0.0]]))
    found = graph_answers(build_graph(encoder, network, [0, 1]), LOGS, make_rows(LOGS, 1))
    np.testing.assert_allclose(found[0], [50 * np.e, 50 * np.e * 0.5 * 2**0.5], rtol=1e-5)


@pytest.mark.parametrize("far", [-1e30, 1e30])
def test_an_answer_is_finite_however_far_the_network_goes(far: float) -> None:
    encoder, network = fitted()
    with torch.no_grad():
        network.head.weight.zero_()
        network.head.bias.fill_(far)
    found = graph_answers(build_graph(encoder, network, [0, 1]), LOGS, make_rows(LOGS, 3))
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found[:, 0], np.exp(np.copysign(LOG_LIMIT, far)), rtol=1e-6)


def test_rivals_answer_in_the_unit_of_labels() -> None:
    encoder = in_half_logarithms(fit_encoder(LOGS, ROWS, CUTOFF))
    mean, scale = in_units_of_labels(encoder, np.array([0.0, 2.0]), 0.2)
    np.testing.assert_allclose(mean, [50, 50 * np.e], rtol=1e-6)
    np.testing.assert_allclose(scale, [5, 5 * np.e], rtol=1e-6)


def test_targets_of_rows_are_those_of_the_label_unit() -> None:
    encoder = fit_encoder(LOGS, ROWS, CUTOFF)
    expected = encoder.label_unit.targets(ROWS.labels)
    np.testing.assert_array_equal(encode(encoder, ROWS).targets, expected)
    assert abs(np.median(expected)) < 0.2


def with_labels(labels: np.ndarray[tuple[int], np.dtype[np.float64]], kind: str = "regression") -> EventColumns:
    task = make_task(NUMBERS, kind, make_training())
    return replace(make_rows(task, len(labels)), labels=labels)


def test_a_repeated_label_far_from_the_others_counts_as_the_nearest_usual_one() -> None:
    labels = np.random.default_rng(1).normal(100, 10, 900)
    plain = make_task(NUMBERS, "regression", make_training())
    clean = fit_encoder(plain, with_labels(labels), CUTOFF).label_unit
    spoilt = labels.copy()
    spoilt[::50] = -9999.0
    rows = with_labels(spoilt)
    unit = fit_encoder(plain, rows, CUTOFF).label_unit
    usual = spoilt[spoilt > 0]
    assert unit.usual == (usual.min(), usual.max())
    assert unit.mean == pytest.approx(clean.mean, abs=2)
    assert unit.scale == pytest.approx(clean.scale, rel=0.3)
    assert unit.targets(np.array([-9999.0])) == unit.targets(np.array([usual.min()]))
    assert label_bounds(plain, rows) == (usual.min(), usual.max())
    assert clip_labels(plain, rows, rows).labels.min() == usual.min()


def test_a_far_label_that_a_feature_foretells_is_learned() -> None:
    labels = np.random.default_rng(1).normal(100, 10, 900)
    plain = make_task(NUMBERS, "regression", make_training())
    rows = with_labels(labels)
    is_yearly = rows.numbers[:, 0] > np.quantile(rows.numbers[:, 0], 0.95)
    rows = replace(rows, labels=np.where(is_yearly, 5000.0, labels))
    assert fit_encoder(plain, rows, CUTOFF).label_unit.usual is None
