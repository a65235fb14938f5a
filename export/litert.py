"""LiteRT: the file that runs on phones, boards and microcontrollers, in float32, float16 or int8.

An int8 file computes with integers alone. The converter derives their scales from TensorFlow's
fake quantisation; what it made of them is read back and compared with `policies.quantization`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from eagerly.export import calibration
from eagerly.export.interface import (
    TANH_RANGE,
    Tensors,
    in_float32,
    inputs,
    outputs,
    refusal_of_images,
    refusal_of_precision,
)
from eagerly.policies.architecture import ActorArchitecture
from eagerly.policies.network import ActorNetwork
from eagerly.policies.quantization import bias_integers, grid, kernel_integers

PRECISIONS = ("float32", "float16", "int8")
FILE = "model.tflite"
_TYPES = {0: "float32", 9: "int8"}  # tensor types of the file


def refusal(architecture: ActorArchitecture, precision: str) -> str | None:
    """Says in a sentence why an actor cannot become a LiteRT file, or returns None."""
    reason = refusal_of_precision("litert", precision, PRECISIONS)
    reason = reason or refusal_of_images(architecture)
    if reason is None and precision == "int8":
        return calibration.refusal(architecture)
    return reason


def convert(network: ActorNetwork, precision: str, folder: Path) -> dict[str, Any]:
    """Writes `model.tflite`, which takes one observation at a time.

    Args:
        network: The network; for int8 it is quantised.
        precision: "float32", "float16", of which the weights are stored, or "int8".
        folder: Where it is written.

    Returns:
        Its files, inputs and outputs. Each of these has the `index` that the interpreter's
        `set_tensor` and `get_tensor` take: LiteRT keeps neither order nor names of tensors.

    Raises:
        ValueError: If it is refused, or the converter made other integers than ours.
    """
    if reason := refusal(network.architecture, precision):
        raise ValueError(reason)
    if precision == "int8" and not network.architecture.quantized:
        raise ValueError("an int8 file is made of a quantised actor: calibrate it first")
    network = in_float32(network)
    data = _converted(network, precision)
    model = _read(data)
    if precision == "int8":
        check_integers(network, model)
    (folder / FILE).write_bytes(data)
    given, found = inputs(network.architecture), outputs(network.architecture)
    signature, tensors = model.signatureDefs[0], model.subgraphs[0].tensors
    return {
        "files": [FILE],
        "inputs": _described(given, signature.inputs, tensors),
        "outputs": _described(found, signature.outputs, tensors),
    }


def _converted(network: ActorNetwork, precision: str) -> bytes:
    import tensorflow as tf

    from eagerly.export.tensorflow_graph import (
        FakeQuantOperations,
        TensorFlowOperations,
        actor_function,
    )

    ops = FakeQuantOperations() if precision == "int8" else TensorFlowOperations()
    act = actor_function(network, ops, 1)
    converter = tf.lite.TFLiteConverter.from_concrete_functions([act], tf.Module())
    if precision != "float32":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if precision == "float16":
        converter.target_spec.supported_types = [tf.float16]
    if precision == "int8":
        converter.inference_input_type = converter.inference_output_type = tf.int8
    return bytes(converter.convert())


def _read(data: bytes) -> Any:
    from ai_edge_litert import schema_py_generated as schema

    return schema.ModelT.InitFromPackedBuf(data, 0)


def _described(expected: Tensors, maps: Iterable[Any], tensors: Any) -> list[dict[str, Any]]:
    indices = {each.name.decode(): int(each.tensorIndex) for each in maps}
    described = []
    for name, shape in expected.items():
        tensor = tensors[indices[name]]
        entry: dict[str, Any] = {
            "name": name,
            "shape": [1, *shape],
            "dtype": _TYPES[tensor.type],
            "index": indices[name],
        }
        if entry["dtype"] == "int8":
            entry["scale"] = float(tensor.quantization.scale[0])
            entry["zero_point"] = int(tensor.quantization.zeroPoint[0])
        described.append(entry)
    return described


def check_integers(network: ActorNetwork, model: Any) -> None:
    """Compares the integers and scales in an int8 file with those of `policies.quantization`.

    Args:
        network: The quantised network.
        model: The file, as its schema reads it.

    Raises:
        ValueError: Naming what differs.
    """
    from ai_edge_litert import schema_py_generated as schema

    graph, codes = model.subgraphs[0], model.operatorCodes
    names = {value: name for name, value in vars(schema.BuiltinOperator).items()}

    def kind(operator: Any) -> str:
        code = codes[operator.opcodeIndex]
        return names[max(code.builtinCode, code.deprecatedBuiltinCode)]

    def values(index: int, dtype: type) -> np.ndarray:
        tensor = graph.tensors[index]
        data = np.asarray(model.buffers[tensor.buffer].data, np.uint8).tobytes()
        return np.frombuffer(data, dtype).reshape(tensor.shape)

    def grid_of(index: int) -> tuple[np.float32, int]:
        found = graph.tensors[index].quantization
        return np.float32(found.scale[0]), int(found.zeroPoint[0])

    produced = {index: operator for operator in graph.operators for index in operator.outputs}
    signature = model.signatureDefs[0]
    given, found = (
        {each.name.decode(): each.tensorIndex for each in maps}
        for maps in (signature.inputs, signature.outputs)
    )
    head, ranges = network.architecture.head, network.ranges
    before, expected_kinds, seen_kinds = given["observation"], list[str](), list[str]()
    seen_kinds += [kind(operator) for operator in graph.operators]
    _same("scale and zero point of observation", grid_of(before), grid(*ranges[0]))

    def check_layer(name: str, output: int, columns: slice, index: int, limits: Any) -> int:
        """Checks the layer whose output a tensor is; returns its input."""
        expected_kinds.append("FULLY_CONNECTED")
        if output not in produced or kind(produced[output]) != "FULLY_CONNECTED":
            raise ValueError(f"the LiteRT converter made no integer layer of {name}")
        source, kernel, bias = produced[output].inputs
        q, scales = kernel_integers(network.weights[f"{name}/kernel"])
        q, scales, scale = q[:, columns], scales[columns], grid(*ranges[index])[0]
        steps = bias_integers(network.weights[f"{name}/bias"][columns], scale, scales)
        _same(f"scale and zero point of {name}", grid_of(output), grid(*limits))
        _same(f"integers of {name}/kernel", values(kernel, np.int8), q.T)
        stored = np.asarray(graph.tensors[kernel].quantization.scale, np.float32)
        _same(f"scales of {name}/kernel", stored, scales)
        _same(f"integers of {name}/bias", values(bias, np.int32), steps)
        return int(source)

    last, sources = len(network.architecture.hidden_sizes), list[int]()
    if head.continuous:
        expected_kinds.append("TANH")
        _same("scale and zero point of action", grid_of(found["action"]), grid(*TANH_RANGE))
        (squashed,) = produced[found["action"]].inputs
        columns = slice(0, head.continuous)
        sources.append(check_layer("action", squashed, columns, last, ranges[-2]))
    if head.choices:
        columns = slice(head.continuous, head.size)
        sources.append(check_layer("action", found["logits"], columns, last, ranges[-1]))
    if len(set(sources)) != 1:
        raise ValueError("the LiteRT converter computes actions and logits of different layers")
    source = sources[0]
    for index in reversed(range(last)):
        source = check_layer(f"hidden_{index}", source, slice(None), index, ranges[index + 1])
    if source != before or sorted(seen_kinds) != sorted(expected_kinds):
        raise ValueError(
            f"the LiteRT converter must make {sorted(expected_kinds)}; it made {sorted(seen_kinds)}"
        )


def _same(what: str, found: Any, expected: Any) -> None:
    if not np.array_equal(found, expected):
        raise ValueError(f"the LiteRT converter changed the {what}: the file is not used")
