"""An ONNX graph under construction: graph and constants, and values that may have a rate beside them.

`trainer.export.input_graph`, `trainer.export.onnx_export` and `trainer.export.output_graph` write the network with
it as it is written in torch.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

# Old enough for every ONNX Runtime that we allow, new enough for reductions over an axis that is an input.
_OPSETS = (helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3))
_IR_VERSION = 8

FLOAT, DOUBLE, INT64, STRING = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64, TensorProto.STRING

Constant = NDArray[Any] | np.generic


class Dual(NamedTuple):
    """Names of a value and of its rate ∂/∂u, which is None where no rate is asked for: as in
    `trainer.network.layers`."""

    value: str
    rate: str | None


class GraphBuilder:
    """GraphBuilder and constants in the order in which they are asked for. A value is known by its name."""

    def __init__(self) -> None:
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []

    def add(self, operator: str, *inputs: str | Constant, **attributes: Any) -> str:
        """One node with one output; arrays among its inputs become constants."""
        (output,) = self.add_many(operator, 1, *inputs, **attributes)
        return output

    def add_many(self, operator: str, num_outputs: int, *inputs: str | Constant, **attributes: Any) -> list[str]:
        """One node with several outputs."""
        names = [value if isinstance(value, str) else self.hold(value) for value in inputs]
        outputs = [f"{operator}_{len(self._nodes)}_{k}" for k in range(num_outputs)]
        self._nodes.append(helper.make_node(operator, names, outputs, **attributes))
        return outputs

    def hold(self, value: Constant) -> str:
        """A constant that several graph read."""
        name = f"constant_{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def answer(self, value: str, output: str) -> None:
        """Call a value by the name of an output of the graph."""
        self._nodes.append(helper.make_node("Identity", [value], [output]))

    def model(self, inputs: Sequence[onnx.ValueInfoProto], outputs: Sequence[onnx.ValueInfoProto]) -> onnx.ModelProto:
        """The whole, checked."""
        body = helper.make_graph(self._nodes, "morrow", inputs, outputs, self._constants)
        model = helper.make_model(body, opset_imports=_OPSETS, ir_version=_IR_VERSION, producer_name="morrow")
        onnx.checker.check_model(model, full_check=True)
        return model


def rows_of(name: str, element: int, *columns: int) -> onnx.ValueInfoProto:
    """An input or output of the graph with one entry per row: `(n, *columns)` of an element type."""
    return helper.make_tensor_value_info(name, element, ["n", *columns])
