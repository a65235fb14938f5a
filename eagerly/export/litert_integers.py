"""Ensures that the integers in an int8 LiteRT file match `policies.integer_grids`.

The converter derives the same activation grids as `policies.integer_grids`, and this module checks
them. Kernels and biases may differ: the converter chooses another scale for a column of zeros, and
receives biases as float32, so that a bias of millions of steps becomes another integer. This module
therefore writes our kernels and biases into the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from eagerly.export.interface import TANH_RANGE
from eagerly.policies.integer_grids import grid, layer_integers
from eagerly.policies.network import ActorNetwork

_IDENTIFIER = b"TFL3"
# The converter treats ranges up to this width as empty.
NARROWEST = 1e-6


def read_model(data: bytes) -> Any:
    """Parses a LiteRT file."""
    from ai_edge_litert.schema_py_generated import ModelT

    return ModelT.InitFromPackedBuf(data, 0)


def convertible(network: ActorNetwork) -> ActorNetwork:
    """Returns the substitute for a quantized network that is passed to the converter.

    The converter omits a bias whose integers are all 0. Each 0 is therefore replaced by a 1 here,
    and `with_integers` later restores the zeros.

    Raises:
        ValueError: If a range is so narrow that the converter would treat it as empty.
    """
    names = [f"hidden_{index}" for index in range(len(network.architecture.hidden_sizes))]
    for name, (low, high) in zip(
        ["observation", *names, "action", "logits"], network.ranges, strict=True
    ):
        if max(high, 0.0) - min(low, 0.0) <= NARROWEST:
            raise ValueError(
                f"LiteRT cannot represent the range of {name}, {low:g} to {high:g}: it must be "
                f"wider than {NARROWEST:g}; choose another format, or train again"
            )
    weights = dict(network.weights)
    for name, limits in zip([*names, "action"], network.ranges, strict=False):
        kernel, bias = (weights[f"{name}/{part}"] for part in ("kernel", "bias"))
        scale = grid(*limits)[0]
        _, steps, scales = layer_integers(kernel, bias, scale)
        weights[f"{name}/bias"] = np.where(steps == 0, scale * scales, bias)
    return ActorNetwork(network.architecture, weights)


def with_integers(network: ActorNetwork, data: bytes) -> bytes:
    """Returns an int8 file with our kernels and biases.

    Args:
        network: The quantized network.
        data: The file that the converter produced from `convertible(network)`.

    Raises:
        ValueError: If the file has an unexpected graph or different activation grids.
    """
    import flatbuffers

    model = read_model(data)
    _Graph(network, model).write()
    builder = flatbuffers.Builder(len(data))
    builder.Finish(model.Pack(builder), _IDENTIFIER)
    data = bytes(builder.Output())
    check_integers(network, data)
    return data


def check_integers(network: ActorNetwork, data: bytes) -> None:
    """Validates every integer and scale in an int8 file.

    Args:
        network: The quantized network.
        data: The file.

    Raises:
        ValueError: If one differs from the network's. The message names it.
    """
    _Graph(network, read_model(data)).check()


@dataclass(frozen=True)
class _Layer:
    """The expected values of a layer, and the indices of its tensors in the file."""

    name: str
    kernel: int
    bias: int
    kernel_integers: np.ndarray  # [units, I], as in LiteRT
    kernel_scales: np.ndarray
    bias_integers: np.ndarray
    input_scale: np.float32


class _Graph:
    """The operators of a file, traced from its outputs to its input.

    Raises:
        ValueError: If they do not match the network.
    """

    def __init__(self, network: ActorNetwork, model: Any) -> None:
        self.network, self.model, self.graph = network, model, model.subgraphs[0]
        self.produced = {i: each for each in self.graph.operators for i in each.outputs}
        self.layers = list(self._layers())

    def check(self) -> None:
        """Validates kernels and biases; activations are validated on construction.

        Raises:
            ValueError: If one differs from the network's. The message names it.
        """
        for layer in self.layers:
            tensors = {"kernel": layer.kernel, "bias": layer.bias}
            integers = {"kernel": layer.kernel_integers, "bias": layer.bias_integers}
            scales = layer.kernel_scales, layer.input_scale * layer.kernel_scales
            for (part, index), expected in zip(tensors.items(), scales, strict=True):
                tensor, values = self.graph.tensors[index], integers[part]
                data = np.asarray(self.model.buffers[tensor.buffer].data, np.uint8).tobytes()
                found = np.frombuffer(data, values.dtype).reshape(tensor.shape)
                _same(f"integers of {layer.name}/{part}", found, values)
                found = np.asarray(tensor.quantization.scale, np.float32)
                _same(f"scales of {layer.name}/{part}", found, expected)

    def write(self) -> None:
        """Writes our kernels and biases into the model."""
        for layer in self.layers:
            for index, values, scales in (
                (layer.kernel, layer.kernel_integers, layer.kernel_scales),
                (layer.bias, layer.bias_integers, layer.input_scale * layer.kernel_scales),
            ):
                tensor = self.graph.tensors[index]
                _same(f"shape of {layer.name}", tuple(tensor.shape), values.shape)
                data = np.frombuffer(np.ascontiguousarray(values).tobytes(), np.uint8)
                self.model.buffers[tensor.buffer].data = data
                tensor.quantization.scale = np.asarray(scales, np.float32)

    def _layers(self) -> Iterator[_Layer]:
        signature, tensors = self.model.signatureDefs[0], self.graph.tensors
        given, found = (
            {each.name.decode(): each.tensorIndex for each in maps}
            for maps in (signature.inputs, signature.outputs)
        )
        network, count = self.network, 0
        head, last = network.architecture.head, len(network.architecture.hidden_sizes)
        *ranges, of_actions, of_logits = network.ranges
        ends = []
        if head.continuous:
            self._same_grid("action", found["action"], TANH_RANGE)
            (squashed,) = self._operator("TANH", found["action"]).inputs
            ends.append((squashed, slice(0, head.continuous), of_actions))
            count += 1
        if head.choices:
            ends.append((found["logits"], slice(head.continuous, head.size), of_logits))
        sources = set()
        for output, columns, limits in ends:
            source, layer = self._layer("action", output, columns, ranges[last], limits)
            sources.add(source)
            count += 1
            yield layer
        for index in reversed(range(last)):
            (output,) = sources
            limits = ranges[index + 1]
            source, layer = self._layer(
                f"hidden_{index}", output, slice(None), ranges[index], limits
            )
            sources = {source}
            count += 1
            yield layer
        self._same_grid("observation", given["observation"], ranges[0])
        types = {tensors[given["observation"]].type, *(tensors[i].type for i in found.values())}
        _same("connections", (sources, len(types)), ({given["observation"]}, 1))
        _same("number of operators", len(self.graph.operators), count)

    def _layer(
        self, name: str, output: int, columns: slice, before: Any, after: Any
    ) -> tuple[int, _Layer]:
        """Returns the input index of the layer that computes a tensor, and the layer."""
        self._same_grid(name, output, after)
        source, kernel, bias = self._operator("FULLY_CONNECTED", output).inputs
        weights, scale = self.network.weights, grid(*before)[0]
        parts = weights[f"{name}/kernel"][:, columns], weights[f"{name}/bias"][columns]
        q, steps, scales = layer_integers(*parts, scale)
        return int(source), _Layer(name, kernel, bias, q.T, scales, steps, scale)

    def _operator(self, kind: str, output: int) -> Any:
        """Returns the operator that computes a tensor, after checking its kind."""
        from ai_edge_litert.schema_py_generated import BuiltinOperator

        operator = self.produced.get(output)
        code = None if operator is None else self.model.operatorCodes[operator.opcodeIndex]
        expected = getattr(BuiltinOperator, kind)
        if code is None or max(code.builtinCode, code.deprecatedBuiltinCode) != expected:
            raise ValueError(f"the LiteRT converter did not produce the operator {kind}")
        return operator

    def _same_grid(self, name: str, index: int, limits: tuple[float, float]) -> None:
        found = self.graph.tensors[index].quantization
        scale = () if found is None or found.scale is None else tuple(map(float, found.scale))
        zero_points = () if not scale else tuple(map(int, found.zeroPoint))
        expected, zero_point = grid(*limits)
        what = f"scale and zero point of {name}"
        _same(what, (scale, zero_points), ((float(expected),), (zero_point,)))


def _same(what: str, found: Any, expected: Any) -> None:
    same = np.array_equal(found, expected) if isinstance(found, np.ndarray) else found == expected
    if not same:
        raise ValueError(f"the LiteRT converter changed the {what}")
