"""The dual pass is exact, and a member of a cohort computes what it would alone."""

from collections.abc import Callable
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor

from contracts.task import Training
from trainer.network.layers import Dual, Embedding, Linear, ReLU, Time2Vec, TReLU
from trainer.network.network import Architecture, CohortNetwork, architecture

# torch.func.jvp itself calls deprecated functions of torch.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")

Layer = TypeVar("Layer", Linear, Time2Vec, TReLU)

SMALL = Training(width=7, num_layers=3, num_trelu=2, embedding=3, time_width=5, time_linear=2, trelu_width=4)


def shape(num_outputs: int = 3, is_timed: bool = True, training: Training = SMALL) -> Architecture:
    return architecture(training, 4 + 2 * len(training.calendar), 2, num_outputs, is_timed)


def cohort(seeds: tuple[int, ...] = (1, 2), num_outputs: int = 3, is_timed: bool = True) -> CohortNetwork:
    return CohortNetwork(shape(num_outputs, is_timed), [(4, 6)] * len(seeds), seeds, torch.float64)


def inputs(num_members: int, num_rows: int = 11) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    dense = torch.randn(num_members, num_rows, 10, generator=generator, dtype=torch.float64)
    codes = torch.randint(0, 4, (num_members, num_rows, 2), generator=generator)
    u = torch.rand(num_members, num_rows, generator=generator, dtype=torch.float64) * 1.1 - 1
    return dense, codes, u


def drawn(layer: Layer) -> Layer:
    layer.double()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(generator=generator)
    return layer


def numbers(*sizes: int, seed: int) -> Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def jvp(function: Callable[..., Tensor], at: tuple[Tensor, ...], rates: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    result: Any = torch.func.jvp(function, at, rates)
    value, rate = result
    return value, rate


def assert_rate_is_exact(found: Tensor | None, exact: Tensor) -> None:
    assert found is not None
    torch.testing.assert_close(found, exact, rtol=0, atol=1e-9)


def test_linear_rate_equals_jvp() -> None:
    layer, x, rate = drawn(Linear(2, 6, 3)), numbers(2, 9, 6, seed=1), numbers(2, 9, 6, seed=2)
    value, exact = jvp(lambda x: layer(Dual(x, None)).value, (x,), (rate,))
    found = layer(Dual(x, rate))
    torch.testing.assert_close(found.value, value)
    assert_rate_is_exact(found.rate, exact)


def test_slopes_in_the_inputs_of_few_columns_lie_as_the_inputs_do() -> None:
    layer, x = drawn(Linear(2, 6, 3)), numbers(2, 9, 6, seed=1).requires_grad_()
    given = numbers(2, 9, 3, seed=2)
    (slope,) = torch.autograd.grad(layer(Dual(x, None)).value, x, given)
    assert slope.stride() == x.stride()  # else operations on both take several times longer
    torch.testing.assert_close(slope, given @ layer.weight.mT)


def test_nobody_asks_for_slopes_of_data_but_for_those_of_embedded_codes() -> None:
    layer, data, embedded = drawn(Linear(2, 6, 20)), numbers(2, 9, 4, seed=1), numbers(2, 9, 2, seed=2)
    sums = layer.held(data, embedded.requires_grad_())
    torch.testing.assert_close(sums, layer(Dual(torch.cat([data, embedded], dim=-1), None)).value)
    (slope,) = torch.autograd.grad(sums.sum(), embedded)
    torch.testing.assert_close(slope, layer.weight[:, 4:].sum(2)[:, None].expand_as(slope))


def test_narrow_rate_belongs_to_the_last_columns() -> None:
    layer, x, rate = drawn(Linear(2, 6, 3)), numbers(2, 9, 6, seed=1), numbers(2, 9, 2, seed=2)
    whole = torch.cat([torch.zeros(2, 9, 4, dtype=torch.float64), rate], dim=-1)
    assert_rate_is_exact(layer(Dual(x, rate)).rate, layer(Dual(x, whole)).rate)


@pytest.mark.parametrize("num_linear", [0, 2, 5])
def test_time2vec_rate_equals_jvp(num_linear: int) -> None:
    layer, u = drawn(Time2Vec(2, 5, num_linear)), numbers(2, 9, seed=1)
    value, exact = jvp(lambda u: layer(u, False).value, (u,), (torch.ones_like(u),))
    found = layer(u, True)
    torch.testing.assert_close(found.value, value)
    assert_rate_is_exact(found.rate, exact)


def test_time2vec_is_linear_then_periodic() -> None:
    layer = Time2Vec(1, 2, 1)
    with torch.no_grad():
        layer.frequency.copy_(torch.tensor([[2.0, 3.0]]))
        layer.phase.copy_(torch.tensor([[0.5, 0.25]]))
    expected = torch.tensor([[[2 * 0.7 + 0.5, float(torch.tensor(3 * 0.7 + 0.25).sin())]]])
    torch.testing.assert_close(layer(torch.tensor([[0.7]]), False).value, expected)


def test_relu_rate_equals_jvp() -> None:
    layer, x, rate = ReLU(), numbers(2, 9, 6, seed=1), numbers(2, 9, 6, seed=2)
    _, exact = jvp(lambda x: layer(Dual(x, None), None).value, (x,), (rate,))
    assert_rate_is_exact(layer(Dual(x, rate), None).rate, exact)


def test_trelu_rate_equals_jvp() -> None:
    layer = drawn(TReLU(2, 5, 4, 6))
    x, x_rate, tau, tau_rate = (numbers(2, 9, c, seed=seed) for seed, c in enumerate((6, 6, 5, 5)))
    value, exact = jvp(lambda x, tau: layer(Dual(x, None), Dual(tau, None)).value, (x, tau), (x_rate, tau_rate))
    found = layer(Dual(x, x_rate), Dual(tau, tau_rate))
    torch.testing.assert_close(found.value, value)
    assert_rate_is_exact(found.rate, exact)


def test_trelu_is_its_formula() -> None:
    layer = drawn(TReLU(2, 5, 4, 6))
    x, tau = numbers(2, 9, 6, seed=1), numbers(2, 9, 5, seed=2)
    hidden = torch.tanh(tau @ layer.hidden.weight + layer.hidden.bias[:, None])
    h = hidden[..., :4] @ layer.slope.weight + layer.slope.bias[:, None]
    g = hidden[..., 4:] @ layer.threshold.weight + layer.threshold.bias[:, None]
    torch.testing.assert_close(layer(Dual(x, None), Dual(tau, None)).value, torch.where(x >= g, x, h * (x - g) + g))


def test_trelu_is_continuous_at_its_threshold() -> None:
    layer, tau = drawn(TReLU(2, 5, 4, 6)), Dual(numbers(2, 9, 5, seed=2), None)
    hidden = torch.tanh(tau.value @ layer.hidden.weight + layer.hidden.bias[:, None])
    g = hidden[..., 4:] @ layer.threshold.weight + layer.threshold.bias[:, None]
    above, below = (layer(Dual(g + step, None), tau).value for step in (1e-9, -1e-9))
    torch.testing.assert_close(above, below, rtol=0, atol=1e-7)
    torch.testing.assert_close(above, g, rtol=0, atol=1e-7)


def test_trelu_without_slope_and_threshold_is_the_relu() -> None:
    layer = TReLU(2, 5, 4, 6).double()
    x, tau = (
        Dual(numbers(2, 9, 6, seed=1), numbers(2, 9, 6, seed=2)),
        Dual(numbers(2, 9, 5, seed=3), numbers(2, 9, 5, seed=4)),
    )
    found, relu = layer(x, tau), ReLU()(x, None)
    assert torch.equal(found.value, relu.value)
    assert relu.rate is not None
    assert_rate_is_exact(found.rate, relu.rate)


@pytest.mark.parametrize("num_outputs", [1, 2, 3, 10])
@pytest.mark.parametrize("num_trelu", [0, 1, 3])
def test_dual_pass_equals_jvp_in_model_time(num_outputs: int, num_trelu: int) -> None:
    training = SMALL.model_copy(update={"num_trelu": num_trelu})
    network = CohortNetwork(shape(num_outputs, training=training), [(4, 6)] * 2, (1, 2), torch.float64)
    dense, codes, u = inputs(2)
    value, exact = jvp(lambda u: network(dense, codes, u), (u,), (torch.ones_like(u),))
    found, rate = network.dual(dense, codes, u)
    assert torch.equal(found, value)
    assert_rate_is_exact(rate, exact)
    assert rate.abs().max() > 0


@pytest.mark.parametrize("num_positions", [1, 3])
def test_dual_pass_of_a_network_that_reads_pieces_equals_jvp_in_model_time(num_positions: int) -> None:
    shape_of = architecture(SMALL, 10, 2, 3, is_timed=True, num_positions=num_positions)
    network = CohortNetwork(shape_of, [(4, 6)] * 2, (1, 2), torch.float64)
    dense, codes, u = inputs(2)
    dense[..., :num_positions] = dense[..., :num_positions].abs() * 8
    value, rate = network.dual(dense, codes, u)
    exact_value, exact_rate = jvp(lambda at: network(dense, codes, at), (u,), (torch.ones_like(u),))
    torch.testing.assert_close(value, exact_value)
    assert_rate_is_exact(rate, exact_rate)
    alone = network.select([1])(dense[1:], codes[1:], u[1:])
    torch.testing.assert_close(alone, value[1:])


# Columns of dense that each of two members leaves out.
UNREAD = ((), (3, 4, 5))


def test_dual_pass_of_members_that_read_different_columns_equals_jvp_in_model_time() -> None:
    shape_of = architecture(SMALL, 10, 2, 3, is_timed=True, num_positions=2, unread=UNREAD)
    network = CohortNetwork(shape_of, [(4, 6)] * 2, (1, 2), torch.float64)
    dense, codes, u = inputs(2)
    value, rate = network.dual(dense, codes, u)
    exact_value, exact_rate = jvp(lambda at: network(dense, codes, at), (u,), (torch.ones_like(u),))
    torch.testing.assert_close(value, exact_value)
    assert_rate_is_exact(rate, exact_rate)
    course = network.along_time(dense, codes)(u)
    torch.testing.assert_close(course.value, value, rtol=0, atol=1e-12)
    assert_rate_is_exact(course.rate, rate)
    other = dense.clone()
    other[..., list(UNREAD[1])] += 1
    changed = network(other, codes, u)
    assert torch.equal(changed[1], value[1])
    assert not torch.equal(changed[0], value[0])


def test_a_member_that_leaves_columns_out_is_drawn_as_if_there_were_none() -> None:
    both = architecture(SMALL, 10, 2, 3, is_timed=True, num_positions=2, unread=UNREAD)
    few = architecture(SMALL, 7, 2, 3, is_timed=True, num_positions=2)
    mixed = CohortNetwork(both, [(4, 6)] * 2, (1, 2), torch.float64)
    alone = CohortNetwork(few, [(4, 6)], (2,), torch.float64)
    dense, codes, u = inputs(2)
    read = dense[1:, :, [0, 1, 2, 6, 7, 8, 9]]
    for network in (mixed, mixed.select([1])):
        rows = [column[-network.num_members :] for column in (dense, codes, u)]
        torch.testing.assert_close(network(*rows)[-1:], alone(read, codes[1:], u[1:]), rtol=0, atol=1e-12)


@pytest.mark.parametrize("num_trelu", [0, 1, 3])
def test_course_equals_jvp_of_the_dual_pass(num_trelu: int) -> None:
    training = SMALL.model_copy(update={"num_trelu": num_trelu})
    network = CohortNetwork(shape(training=training), [(4, 6)] * 2, (1, 2), torch.float64)
    dense, codes, u = inputs(2)
    rate, exact = jvp(lambda u: network.dual(dense, codes, u)[1], (u,), (torch.ones_like(u),))
    found = network.along_time(dense, codes)(u)
    torch.testing.assert_close(found.value, network(dense, codes, u), rtol=0, atol=1e-12)
    assert_rate_is_exact(found.rate, rate)
    assert_rate_is_exact(found.curvature, exact)
    assert exact.abs().max() > 0


def test_time_oblivious_network_reads_neither_time_nor_calendar() -> None:
    network = cohort(is_timed=False)
    dense, codes, u = inputs(2)
    other = dense.clone()
    other[..., 4:] += 1
    assert torch.equal(network(dense, codes, u), network(other, codes, u + 1))
    assert not torch.equal(network(dense, codes, u), network(dense + 1, codes, u))
    assert torch.equal(network.dual(dense, codes, u)[1], torch.zeros(2, 11, 3, dtype=torch.float64))


def test_num_trelu_counts_from_the_last_layer() -> None:
    assert [type(activation) for activation in cohort().activations] == [ReLU, TReLU, TReLU]


def test_members_compute_what_they_would_alone() -> None:
    dense, codes, u = inputs(3)
    together = cohort((5, 6, 7))(dense, codes, u)
    for member, seed in enumerate((5, 6, 7)):
        alone = cohort((seed,))(*(column[[member]] for column in (dense, codes, u)))
        torch.testing.assert_close(together[[member]], alone, rtol=0, atol=1e-12)


def test_parameters_depend_on_neither_other_members_nor_their_vocabularies() -> None:
    alone = CohortNetwork(shape(), [(4, 6)], [9])
    beside = CohortNetwork(shape(), [(12, 3), (4, 6)], [8, 9])
    dense, codes, u = inputs(2)
    codes = codes.clamp(max=2)
    for (name, parameter), (_, other) in zip(alone.named_parameters(), beside.named_parameters(), strict=True):
        if name != "embedding.table":
            assert torch.equal(parameter[0], other[1]), name
    rows = dense.float(), codes, u.float()
    torch.testing.assert_close(alone(*(column[[1]] for column in rows))[0], beside(*rows)[1], rtol=0, atol=1e-6)


def test_unseen_category_stands_in_the_middle_and_padding_is_never_reached() -> None:
    embedding = Embedding([(3, 2), (5, 4)], 2)
    with torch.no_grad():
        for member in (0, 1):
            embedding.draw(member, torch.Generator().manual_seed(member))
    found = embedding(torch.zeros(2, 1, 2, dtype=torch.int64))
    assert torch.equal(found, torch.zeros(2, 1, 4))
    assert embedding.starts.tolist() == [0, 5]
    assert embedding.table[0, [3, 4, 7, 8]].abs().sum() == 0
    assert embedding.table[1, [3, 4, 7, 8]].abs().min() > 0
    assert torch.equal(embedding(torch.tensor([[[2, 1]], [[4, 3]]]))[1, 0], embedding.table[1, [4, 8]].flatten())


def test_selected_members_answer_as_in_their_cohort() -> None:
    network = cohort((5, 6, 7))
    dense, codes, u = inputs(3)
    chosen = network.select([2, 0])
    assert chosen.num_members == 2
    rows = [column[[2, 0]] for column in (dense, codes, u)]
    torch.testing.assert_close(chosen(*rows), network(dense, codes, u)[[2, 0]], rtol=0, atol=1e-12)


def test_int32_codes_and_one_row_are_accepted() -> None:
    network = cohort()
    dense, codes, u = inputs(2, num_rows=1)
    assert torch.equal(network(dense, codes.int(), u), network(dense, codes, u))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")
def test_dual_pass_agrees_between_cpu_and_cuda() -> None:
    network, rows = cohort(), inputs(2)
    here = network.dual(*rows)
    there = network.cuda().dual(*(column.cuda() for column in rows))
    for mine, other in zip(here, there, strict=True):
        torch.testing.assert_close(other.cpu(), mine, rtol=0, atol=1e-9)
