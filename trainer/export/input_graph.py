"""The encoder in an exported graph: from raw values to the inputs of the network's first layer.

It repeats `trainer.data.encoder` operator by operator. Features and moments are the same for all members of a cohort,
so they are encoded once, as columns `(n, D)` that every member weighs in its own way; only embeddings differ between
members. A node costs about the same however little it computes, so a few columns of weight 0 are cheaper than a node
that drops them.

Columns, D = a + p + K + 1:

    a    amounts: numbers and their differences from levels; these columns are absent if they are read by pieces
    p    1.0 if a number is missing; these columns are absent if no number is optional
    K    waves, `sin(rate·lead + phase)`: a constant 1, the calendar's, and those of each member's Time2Vec
    1    the lead `at − cutoff` in microseconds; a time-oblivious network has neither lead nor waves

Pieces are apart from the columns: they are many, and only the first layer reads them.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainer.data.encoder import PERIODS, UNSEEN, Encoder
from trainer.data.numbers import DENSE_LIMIT, FARTHEST, num_pieces
from trainer.export.onnx_builder import DOUBLE, FLOAT, Constant, Dual, GraphBuilder


@dataclass(frozen=True)
class Waves:
    """Sines of the lead: `rates (K,)` in radians per microsecond, `phases (K,)`; the first `num_held` have no ∂/∂u."""

    rates: NDArray[np.float64]
    phases: NDArray[np.float64]
    num_held: int


def join_waves(encoder: Encoder, frequency: NDArray[np.float64], phase: NDArray[np.float64]) -> Waves:
    """A constant 1, the calendar's waves (cosines as sines a quarter ahead), and other waves `(k,)`, per span."""
    periods = np.repeat(np.array([PERIODS[name] for name in encoder.calendar], np.int64), 2)
    quarter = math.pi / 2
    begun = encoder.cutoff % periods * (2 * math.pi / periods) + np.tile([0.0, quarter], len(encoder.calendar))
    return Waves(
        rates=np.concatenate([[0.0], 2 * math.pi / periods, frequency / encoder.clock.span]),
        phases=np.concatenate([[quarter], begun, phase]),
        num_held=1 + len(periods),
    )


def read_columns(graph: GraphBuilder, encoder: Encoder, waves: Waves | None, with_rate: bool) -> tuple[Dual, str]:
    """The columns `(n, D)`, with the rate `(n, K + 1)` of waves and lead, and the pieces of numbers `(n, a·P)`.

    A value is "" if there is no column. Without waves there are no columns of time. All is computed in double.
    """
    columns, pieces = _numbers(graph, encoder) if encoder.numbers else ([], "")
    rate = None
    if waves is not None:
        since = graph.add("Cast", graph.add("Sub", "at", np.int64(encoder.cutoff)), to=DOUBLE)
        lead = graph.add("Unsqueeze", since, np.array([1]))
        angles = graph.add("Gemm", lead, waves.rates[None], waves.phases)
        columns += [graph.add("Sin", angles), lead]
        rate = _rate(graph, encoder, waves, lead, angles) if with_rate else None
    if not columns:
        return Dual("", None), pieces
    together = graph.add("Concat", *columns, axis=1) if len(columns) > 1 else columns[0]
    return Dual(graph.add("Cast", together, to=FLOAT), rate), pieces


def _rate(graph: GraphBuilder, encoder: Encoder, waves: Waves, lead: str, angles: str) -> str:
    """∂/∂u of waves and lead; u is the lead divided by the span."""
    span = encoder.clock.span
    of_angles = np.where(np.arange(len(waves.rates)) < waves.num_held, 0, waves.rates * span)
    of_waves = graph.add("Mul", graph.add("Cos", angles), of_angles)
    of_lead = graph.add("Add", graph.add("Mul", lead, np.float64(0)), np.float64(span))
    return graph.add("Cast", graph.add("Concat", of_waves, of_lead, axis=1), to=FLOAT)


def _numbers(graph: GraphBuilder, encoder: Encoder) -> tuple[list[str], str]:
    """Columns of amounts `(n, a)` and, if any are optional, of which are missing `(n, p)`; and pieces `(n, a·P)`."""
    medians, means, scales = np.array([(number.median, number.mean, number.scale) for number in encoder.amounts]).T
    amounts = _amounts(graph, encoder)
    is_missing = graph.add("IsNaN", amounts)
    filled = graph.add("Where", is_missing, medians, amounts)
    missing = []
    if any(number.is_optional for number in encoder.numbers):
        missing = [graph.add("Cast", graph.add("IsNaN", "numbers") if encoder.levels else is_missing, to=DOUBLE)]
    if encoder.has_pieces:
        return missing, _pieces(graph, encoder, filled)
    if any(number.knots for number in encoder.amounts):
        values = _scores(graph, encoder, filled)
    else:
        scaled = graph.add("Div", graph.add("Sub", filled, means), scales)
        values = graph.add("Clip", scaled, np.float64(-DENSE_LIMIT), np.float64(DENSE_LIMIT))
    return [values, *missing], ""


def _amounts(graph: GraphBuilder, encoder: Encoder) -> str:
    """Numbers `(n, p)`, followed by their differences from the levels of the windows that hold `at`, level by level."""
    columns = ["numbers"]
    for levels in encoder.levels.values():
        number = graph.add("Div", graph.add("Sub", "at", np.int64(levels.first)), np.int64(levels.window))
        place = graph.add("Clip", number, np.int64(0), np.int64(len(levels.values) - 1))
        columns.append(graph.add("Sub", "numbers", graph.add("Gather", levels.values, place)))
    return graph.add("Concat", *columns, axis=1) if encoder.levels else "numbers"


def _pieces(graph: GraphBuilder, encoder: Encoder, filled: str) -> str:
    """How far amounts `(n, a)` have passed each of their pieces, from 0 to 1, number by number: `(n, a·P)`.

    It is `trainer.network.layers.split_pieces` of their positions. A number with fewer pieces has passed none of the
    others.
    """
    shape = len(encoder.amounts), num_pieces(len(encoder.amounts))
    starts, widths = np.full(shape, 2 * FARTHEST), np.ones(shape)
    for j, number in enumerate(encoder.amounts):
        starts[j, : len(number.knots) - 1], widths[j, : len(number.knots) - 1] = (
            number.knots[:-1],
            np.diff(number.knots),
        )
    within = graph.add("Clip", filled, np.float64(-FARTHEST), np.float64(FARTHEST))
    beyond = graph.add("Sub", graph.add("Unsqueeze", within, np.array([2])), starts)
    passed = graph.add("Clip", graph.add("Mul", beyond, 1 / widths), np.float64(0), np.float64(1))
    return graph.add("Reshape", graph.add("Cast", passed, to=FLOAT), np.array([-1, starts.size]))


def _scores(graph: GraphBuilder, encoder: Encoder, filled: str) -> str:
    """The scores `(n, a)` of numbers that have knots: the score at an interval's start plus a share of the gain in it.

    The interval is found by bisection, so no tensor is larger than the numbers themselves. Tables hold the entries of
    all numbers, one number after the other.
    """
    longest = max(len(number.knots) for number in encoder.amounts) - 1
    count = 1 << max(0, longest - 1).bit_length()
    knots, scores = (
        np.array([np.pad(values, (0, count + 1 - len(values)), "edge") for values in lists])
        for lists in zip(*((number.knots, number.scores) for number in encoder.amounts), strict=True)
    )
    widths = np.diff(knots)  # 0 beyond the last knot, where the score is constant
    begins, of_begins = graph.constant(knots[:, :-1].ravel()), graph.constant(scores[:, :-1].ravel())
    interval: str | Constant = count * np.arange(len(encoder.amounts))[None]
    for half in (count >> k for k in range(1, count.bit_length())):
        later = graph.add("Add", interval, np.int64(half))
        is_there = graph.add("GreaterOrEqual", filled, graph.add("Gather", begins, later))
        interval = graph.add("Where", is_there, later, interval)
    beyond = graph.add("Sub", filled, graph.add("Gather", begins, interval))
    width = graph.add("Gather", np.where(widths > 0, widths, 1).ravel(), interval)
    passed = graph.add("Clip", graph.add("Div", beyond, width), np.float64(0), np.float64(1))
    gained = graph.add("Mul", passed, graph.add("Gather", np.diff(scores).ravel(), interval))
    return graph.add("Add", gained, graph.add("Gather", of_begins, interval))


def look_up_embeddings(graph: GraphBuilder, encoder: Encoder, table: NDArray[np.float32], starts: list[int]) -> str:
    """Embeddings of all categories side by side, `(E, n, q·a)`, from `table (E, V, a)`, where j begins at `starts[j]`.

    The code of a value selects its row in the table, column by column.
    """
    numbers, codes = number_categories(graph, encoder)
    found = graph.add("Gather", table, graph.add("GatherElements", codes + np.array(starts), numbers), axis=1)
    return graph.add("Reshape", found, np.array([table.shape[0], -1, codes.shape[1] * table.shape[2]]))


def number_categories(graph: GraphBuilder, encoder: Encoder) -> tuple[str, NDArray[np.int64]]:
    """The number `(n, q)` of each value in the union of all vocabularies, and the code that each number has, `(V, q)`.

    A value that is in none has the number 0. One look-up serves every column.
    """
    union = sorted({""}.union(*encoder.vocabularies))
    codes = np.zeros((1 + len(union), len(encoder.vocabularies)), np.int64)
    for j, vocabulary in enumerate(encoder.vocabularies):
        code_of = {value: code for code, value in enumerate(vocabulary, start=1)}
        codes[1:, j] = [code_of.get(value, UNSEEN) for value in union]
    numbers = graph.add(
        "LabelEncoder",
        "categories",
        domain="ai.onnx.ml",
        keys_strings=union,
        values_int64s=list(range(1, 1 + len(union))),
        default_int64=0,
    )
    return numbers, codes
