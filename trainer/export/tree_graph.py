"""The expert `gbdt` in an exported graph: LightGBM's trees on raw values, decision by decision as LightGBM predicts.

The trees are a `TreeEnsembleRegressor` of ONNX, which knows comparisons of numbers alone. LightGBM also asks whether a
category is among some categories. Such a question becomes a column of its own: 1 if it is, looked up in a table, and
compared with one half. Thresholds, values and sums are in double, as in LightGBM; only sums are rounded to float.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from onnx import numpy_helper

from trainer.data.encoder import PERIODS, Encoder
from trainer.export.input_graph import number_categories
from trainer.export.onnx_builder import DOUBLE, FLOAT, GraphBuilder
from trainer.methods.gbdt import WAVE_STEPS, Gbdt

# What a decision or a leaf takes in a graph, about.
_BYTES_PER_NODE = 70
# Tables of memberships with more entries hold bytes, which take another node but an eighth of the space.
_MOST_ENTRIES = 1 << 15

# A decision or a leaf, as LightGBM dumps it.
Node = Mapping[str, Any]

_ROWS = np.array([1])
# LightGBM reads values up to this distance from 0 as 0, so one exactly this far below is not below the threshold there.
_NEARLY_ZERO = float(np.float32(1e-35))


@dataclass(frozen=True)
class Blend:
    """The trees of LightGBM next to a network whose answers have this weight; those of the trees have the rest."""

    trees: Gbdt
    weight: float


@dataclass
class _Columns:
    """The columns that trees compare: numbers, model time and calendar as the booster has them, then memberships.

    `members` has, for each category feature, the sets of codes that some split asks for, in the order of their columns.
    """

    encoder: Encoder
    members: dict[int, list[frozenset[int]]] = field(default_factory=dict)

    @property
    def num_plain(self) -> int:
        return len(self.encoder.numbers) + 1 + self.encoder.num_calendar

    def collect(self, node: Node) -> None:
        """Give the split a column if it asks for categories."""
        if node.get("decision_type") == "==":
            known = self.members.setdefault(node["split_feature"], [])
            if (codes := _codes(node)) not in known:
                known.append(codes)

    @property
    def num_entries(self) -> int:
        """The entries of all tables of memberships."""
        union = 1 + len({""}.union(*self.encoder.vocabularies))
        return union * sum(map(len, self.members.values()))

    def place(self, node: Node) -> int:
        """The column of a split."""
        feature, num_categories = int(node["split_feature"]), len(self.encoder.vocabularies)
        first_wave = num_categories + len(self.encoder.numbers) + 1
        if feature >= first_wave:  # here all sines come first
            number, is_cosine = divmod(feature - first_wave, 2)
            return first_wave - num_categories + is_cosine * len(self.encoder.calendar) + number
        if feature >= num_categories:
            return feature - num_categories
        before = sum(len(sets) for j, sets in self.members.items() if j < feature)
        return self.num_plain + before + self.members[feature].index(_codes(node))

    def add(self, graph: GraphBuilder) -> str:
        """The columns `(n, D)` in double."""
        columns = ["numbers"] if self.encoder.numbers else []
        columns += [self._model_time(graph), *self._calendar(graph), *self._memberships(graph)]
        return graph.add("Concat", *columns, axis=1) if len(columns) > 1 else columns[0]

    def _model_time(self, graph: GraphBuilder) -> str:
        """`Clock.model_time`, whose values are float."""
        since = graph.add("Cast", graph.add("Sub", "at", np.int64(self.encoder.cutoff)), to=DOUBLE)
        spans = graph.add("Div", since, np.float64(self.encoder.clock.span))
        rounded = graph.add("Cast", graph.add("Cast", spans, to=FLOAT), to=DOUBLE)
        return graph.add("Unsqueeze", rounded, _ROWS)

    def _calendar(self, graph: GraphBuilder) -> list[str]:
        """Sines of all phases, then their cosines, as `trainer.data.encoder.phase`, in whole steps."""
        if not self.encoder.calendar:
            return []
        periods = np.array([PERIODS[name] for name in self.encoder.calendar], np.int64)
        elapsed = graph.add("Mod", graph.add("Unsqueeze", "at", _ROWS), periods)
        angles = graph.add("Mul", graph.add("Cast", elapsed, to=DOUBLE), 2 * np.pi / periods)
        pairs = graph.add("Concat", *(graph.add(wave, angles) for wave in ("Sin", "Cos")), axis=1)
        return [graph.add("Round", graph.add("Mul", pairs, np.float64(WAVE_STEPS)))]

    def _memberships(self, graph: GraphBuilder) -> Iterator[str]:
        """1 where a category is among the codes of a set, else 0."""
        if not self.members:
            return
        numbers, codes = number_categories(graph, self.encoder)
        is_large = self.num_entries > _MOST_ENTRIES
        for feature, sets in sorted(self.members.items()):
            table = np.array([np.isin(codes[:, feature], list(one)) for one in sets]).T
            table = table.astype(np.uint8 if is_large else np.float64)
            found = graph.add("Gather", table, graph.add("Gather", numbers, np.int64(feature), axis=1), axis=0)
            yield graph.add("Cast", found, to=DOUBLE) if is_large else found


@dataclass
class _Flat:
    """Trees as the attributes of a `TreeEnsembleRegressor`: a row per node, and a row per leaf."""

    nodes: list[tuple[int, int, int, str, float, int, int, int]] = field(default_factory=list)
    leaves: list[tuple[int, int, int, float]] = field(default_factory=list)

    def add_tree(self, number: int, root: Node, target: int, columns: _Columns) -> None:
        """Add a tree whose leaves count for one target; nodes are numbered as they are found."""
        waiting, found = [root], 1
        for here, node in enumerate(waiting):
            if "leaf_value" in node:
                self.nodes.append((number, here, 0, "LEAF", 0.0, 0, 0, 0))
                self.leaves.append((number, here, target, node["leaf_value"]))
                continue
            if node["decision_type"] == "==":  # those in the set go left, which is where the comparison is false
                value, goes_true, first, second = 0.5, False, "right_child", "left_child"
            else:
                value = float(node["threshold"])
                value = np.nextafter(value, -np.inf) if value == -_NEARLY_ZERO else value
                # Without missing values in the fit, LightGBM reads a missing one as 0.
                goes_true = node["default_left"] if node["missing_type"] == "NaN" else value >= 0
                first, second = "left_child", "right_child"
            place = columns.place(node)
            self.nodes.append((number, here, place, "BRANCH_LEQ", value, found, found + 1, int(goes_true)))
            waiting += [node[first], node[second]]
            found += 2


def cut_to(fit: Gbdt, most_bytes: int) -> Gbdt:
    """The fit with as many of its first rounds as a graph of this size holds, about, and at least one."""
    from lightgbm import Booster

    dumped, columns, num_bytes = fit.booster.dump_model(), _Columns(fit.encoder), 0
    for number, tree in enumerate(dumped["tree_info"]):
        for node in _walk(tree["tree_structure"]):
            columns.collect(node)
            num_bytes += _BYTES_PER_NODE
        if num_bytes + columns.num_entries > most_bytes:
            num_rounds = max(1, number // dumped["num_tree_per_iteration"])
            return replace(fit, booster=Booster(model_str=fit.booster.model_to_string(num_iteration=num_rounds)))
    return fit


def add_trees(graph: GraphBuilder, fit: Gbdt) -> str:
    """What a booster answers: probabilities `(n, C)` in float, or standardised means `(1, n, 1)` in double."""
    dumped = fit.booster.dump_model()
    roots = [tree["tree_structure"] for tree in dumped["tree_info"]]
    columns = _Columns(fit.encoder)
    for root in roots:
        for node in _walk(root):
            columns.collect(node)
    num_targets, flat = dumped["num_tree_per_iteration"], _Flat()
    for number, root in enumerate(roots):
        flat.add_tree(number, root, number % num_targets, columns)
    sums = _add_ensemble(graph, columns.add(graph), flat, num_targets)
    if not fit.encoder.is_classification:
        return graph.add("Unsqueeze", graph.add("Cast", sums, to=DOUBLE), np.array([0]))
    if num_targets > 1:
        return graph.add("Softmax", sums, axis=-1)
    likely = graph.add("Sigmoid", sums)
    return graph.add("Concat", graph.add("Sub", np.float32(1), likely), likely, axis=1)


def _walk(root: Node) -> Iterator[Node]:
    """Every node of a tree; without recursion, because a tree may be as deep as it has leaves."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += [node[child] for child in ("left_child", "right_child") if child in node]


def _codes(node: Node) -> frozenset[int]:
    """The codes of categories that a split sends to the left."""
    return frozenset(int(code) for code in str(node["threshold"]).split("||"))


def _add_ensemble(graph: GraphBuilder, columns: str, flat: _Flat, num_targets: int) -> str:
    """The sums of leaves by target, `(n, K)`."""
    trees, nodes, features, modes, values, trues, falses, missing = zip(*flat.nodes, strict=True)
    leaf_trees, leaf_nodes, targets, weights = zip(*flat.leaves, strict=True)
    return graph.add(
        "TreeEnsembleRegressor",
        columns,
        domain="ai.onnx.ml",
        n_targets=num_targets,
        aggregate_function="SUM",
        post_transform="NONE",
        nodes_treeids=trees,
        nodes_nodeids=nodes,
        nodes_featureids=features,
        nodes_modes=modes,
        nodes_values_as_tensor=numpy_helper.from_array(np.array(values), "thresholds"),
        nodes_truenodeids=trues,
        nodes_falsenodeids=falses,
        nodes_missing_value_tracks_true=missing,
        target_treeids=leaf_trees,
        target_nodeids=leaf_nodes,
        target_ids=targets,
        target_weights_as_tensor=numpy_helper.from_array(np.array(weights), "leaves"),
    )
