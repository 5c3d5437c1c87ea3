"""A builder of ONNX graphs: nodes, constants, and values that may have a rate.

`trainer.export.input_graph`, `trainer.export.onnx_export` and `trainer.export.output_graph` use it to write the network
in the same form as in torch.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

# Old enough for every ONNX Runtime that we allow, new enough for reductions whose axis is an input.
_OPSETS = (helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3))
_IR_VERSION = 8

FLOAT, DOUBLE, INT64, STRING = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64, TensorProto.STRING

Constant = NDArray[Any] | np.generic


class Dual(NamedTuple):
    """Names of a value and of its rate ∂/∂u, which is None if not requested, as in `trainer.network.layers`."""

    value: str
    rate: str | None


class GraphBuilder:
    """Nodes and constants in the order in which they are added. A value is identified by its name."""

    def __init__(self) -> None:
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []

    def add(self, operator: str, *inputs: str | Constant, **attributes: Any) -> str:
        """Add a node with one output; arrays among its inputs become constants. Returns the output's name."""
        (output,) = self.add_many(operator, 1, *inputs, **attributes)
        return output

    def add_many(self, operator: str, num_outputs: int, *inputs: str | Constant, **attributes: Any) -> list[str]:
        """Add a node with several outputs; returns their names."""
        names = [value if isinstance(value, str) else self.constant(value) for value in inputs]
        outputs = [f"{operator}_{len(self._nodes)}_{k}" for k in range(num_outputs)]
        self._nodes.append(helper.make_node(operator, names, outputs, **attributes))
        return outputs

    def constant(self, value: Constant) -> str:
        """Add a constant, which any number of nodes can read; returns its name."""
        name = f"constant_{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def output(self, value: str, name: str) -> None:
        """Make a value the graph's output of this name."""
        self._nodes.append(helper.make_node("Identity", [value], [name]))

    def build(
        self,
        inputs: Sequence[onnx.ValueInfoProto],
        outputs: Sequence[onnx.ValueInfoProto],
        metadata: Mapping[str, str] = {},
    ) -> onnx.ModelProto:
        """The whole graph as a model with its metadata, checked."""
        body = helper.make_graph(self._nodes, "morrow", inputs, outputs, self._constants)
        model = helper.make_model(body, opset_imports=_OPSETS, ir_version=_IR_VERSION, producer_name="morrow")
        helper.set_model_props(model, dict(metadata))
        onnx.checker.check_model(model, full_check=True)
        return model


def rows_of(name: str, element: int, *columns: int) -> onnx.ValueInfoProto:
    """An input or output of the graph with one entry per row: `(n, *columns)` of an element type."""
    return helper.make_tensor_value_info(name, element, ["n", *columns])
