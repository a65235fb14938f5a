"""ONNX export: the NumPy inference code builds the graph node by node, without TensorFlow.

It uses the operators of opset 17.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eagerly.export.interface import (
    Tensors,
    computed,
    described,
    in_float32,
    inputs,
    outputs,
    precision_refusal,
)
from eagerly.policies.architecture import ActorArchitecture
from eagerly.policies.integer_grids import LEAST, MOST, grid
from eagerly.policies.network import ActorNetwork
from eagerly.policies.operations import AVERAGE_L1_EPSILON, LAYER_NORM_EPSILON, Convolution

PRECISIONS = ("float32",)
FILE = "model.onnx"
# The newest opset whose operators used here are supported by every converter of ONNX files, and the
# version of the file format that was introduced with this opset.
OPSET, IR_VERSION = 17, 8
_ACTIVATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "relu": ("Relu", {}),
    "tanh": ("Tanh", {}),
    "elu": ("Elu", {"alpha": 1.0}),
    "leaky_relu": ("LeakyRelu", {"alpha": 0.01}),
}


def refusal(architecture: ActorArchitecture, precision: str) -> str | None:
    """Returns why an actor cannot be exported to ONNX, or None if it can."""
    return precision_refusal("onnx", PRECISIONS, precision)


class _Value:
    """The result of a node. The operators +, -, * and / add further nodes."""

    __array_ufunc__ = None  # NumPy then defers `array - value` to this class

    def __init__(self, nodes: OnnxOperations, name: str) -> None:
        self.nodes, self.name = nodes, name

    def __add__(self, other: Any) -> _Value:
        return self.nodes.add("Add", self, other)

    def __sub__(self, other: Any) -> _Value:
        return self.nodes.add("Sub", self, other)

    def __rsub__(self, other: Any) -> _Value:
        return self.nodes.add("Sub", other, self)

    def __mul__(self, other: Any) -> _Value:
        return self.nodes.add("Mul", self, other)

    def __truediv__(self, other: Any) -> _Value:
        return self.nodes.add("Div", self, other)


class OnnxOperations:
    """Implementation of `policies.operations.Operations` that adds nodes to a graph.

    Attributes:
        nodes: The nodes so far.
        constants: Weights and other arrays that the nodes use.
    """

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self._arrays: list[np.ndarray] = []  # kept alive, because they are identified by `id`
        self._names: dict[int, str] = {}

    def value(self, name: str) -> _Value:
        """Returns a value with an existing name, such as an input."""
        return _Value(self, name)

    def add(self, kind: str, *given: Any, name: str = "", **attributes: Any) -> _Value:
        """Adds a node and returns its output.

        Args:
            kind: The operator.
            *given: Inputs of the node: values or arrays.
            name: Name of the output; numbered by default.
            **attributes: Attributes of the node.
        """
        from onnx import helper

        name = name or f"value_{len(self.nodes)}"
        names = [x.name if isinstance(x, _Value) else self._constant(x) for x in given]
        self.nodes.append(helper.make_node(kind, names, [name], **attributes))
        return self.value(name)

    def _constant(self, array: Any) -> str:
        from onnx import numpy_helper

        if id(array) not in self._names:
            values = np.asarray(array)
            if values.dtype != np.int64:
                values = np.ascontiguousarray(values, np.float32)
            name = f"constant_{len(self.constants)}"
            self.constants.append(numpy_helper.from_array(values, name))
            self._arrays.append(array)
            self._names[id(array)] = name
        return self._names[id(array)]

    def linear(self, x: Any, kernel: np.ndarray, bias: np.ndarray) -> Any:
        """Maps `[N, I]` to `[N, units]`."""
        return self.add("Gemm", x, kernel, bias)

    def matmul(self, a: Any, b: Any) -> Any:
        """Multiplies `[..., I, K]` by `[..., K, J]`."""
        return self.add("MatMul", a, b)

    def activation(self, name: str, x: Any) -> Any:
        """Applies one of `policies.operations.ACTIVATIONS`."""
        if name == "silu":
            return x * self.sigmoid(x)
        kind, attributes = _ACTIVATIONS[name]
        return self.add(kind, x, **attributes)

    def layer_norm(
        self, x: Any, gamma: np.ndarray, beta: np.ndarray, *, epsilon: float = LAYER_NORM_EPSILON
    ) -> Any:
        """Normalizes `[N, units]` over the last axis."""
        return self.add("LayerNormalization", x, gamma, beta, epsilon=epsilon)

    def centered(self, images: Any) -> Any:
        """Subtracts its mean from each image."""
        return images - self.add("ReduceMean", images, axes=[1, 2, 3], keepdims=1)

    def convolved(self, images: Any, layers: Sequence[Convolution]) -> Any:
        """Applies convolutions, each followed by a relu, to images."""
        images = self.transpose(images, (0, 3, 1, 2))  # ONNX has the channels first
        for kernel, bias, strides in layers:
            kernel = kernel.transpose(3, 2, 0, 1)
            images = self.add("Relu", self.add("Conv", images, kernel, bias, strides=strides))
        return self.transpose(images, (0, 2, 3, 1))

    def average_l1_norm(self, x: Any) -> Any:
        """Divides by the mean absolute value over the last axis."""
        mean = self.add("ReduceMean", self.add("Abs", x), axes=[-1], keepdims=1)
        return self.add("Div", x, self.add("Max", mean, AVERAGE_L1_EPSILON))

    def tanh(self, x: Any) -> Any:
        """Returns the hyperbolic tangent."""
        return self.add("Tanh", x)

    def sigmoid(self, x: Any) -> Any:
        """Returns 1 / (1 + exp(-x))."""
        return self.add("Sigmoid", x)

    def masked_softmax(self, scores: Any, seen: Any) -> Any:
        """Returns softmax weights over the last axis, exactly 0 where `seen` is False."""
        least = np.finfo(np.float32).min
        return self.add("Softmax", self.add("Where", seen, scores, least), axis=-1)

    def minimum(self, x: Any, most: float) -> Any:
        """Returns the elementwise minimum of x and a number."""
        return self.add("Min", x, most)

    def less(self, a: np.ndarray, b: Any) -> Any:
        """Returns where the constants `a` are less than `b`."""
        return self.add("Less", a, b)

    def concat(self, parts: Sequence[Any], axis: int = -1) -> Any:
        """Concatenates parts along an axis."""
        return self.add("Concat", *parts, axis=axis)

    def part(self, x: Any, start: int, stop: int, axis: int = -1) -> Any:
        """Returns a slice along an axis."""
        return self.add("Slice", x, *(np.array([number]) for number in (start, stop, axis)))

    def reshape(self, x: Any, shape: tuple[int, ...]) -> Any:
        """Changes the shape; -1 is the batch size N."""
        return self.add("Reshape", x, np.array(shape))

    def transpose(self, x: Any, axes: tuple[int, ...]) -> Any:
        """Permutes the axes."""
        return self.add("Transpose", x, perm=axes)

    def quantized(self, x: Any, low: float, high: float) -> Any:
        """Rounds to the grid of `policies.integer_grids.grid(low, high)`."""
        scale, zero_point = grid(low, high)
        q = self.add("Round", self.add("Div", x, scale)) + float(zero_point)
        return (self.add("Clip", q, float(LEAST), float(MOST)) - float(zero_point)) * scale


def convert(network: ActorNetwork, precision: str, folder: Path, **more: Any) -> dict[str, Any]:
    """Writes `model.onnx`, which takes batches of any size.

    Args:
        network: A network that ONNX supports (see `refusal`).
        precision: "float32".
        folder: The directory to write to.
        more: Ignored; used by other formats.

    Returns:
        The file name, inputs and outputs.
    """
    import onnx

    given, found = inputs(network.architecture), outputs(network.architecture)
    ops = OnnxOperations()
    results = computed(in_float32(network), ops, [ops.value(name) for name in given])
    for name, result in zip(found, results, strict=True):
        ops.add("Identity", result, name=name)
    graph = onnx.helper.make_graph(
        ops.nodes, "policy", _declared(given), _declared(found), ops.constants
    )
    model = onnx.helper.make_model(
        graph,
        producer_name="eagerly",
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )
    onnx.checker.check_model(model, full_check=True)
    onnx.save_model(model, str(folder / FILE))
    return {"files": [FILE], "inputs": described(given), "outputs": described(found)}


def _declared(tensors: Tensors) -> list[Any]:
    from onnx import TensorProto, helper

    return [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", *shape])
        for name, shape in tensors.items()
    ]
