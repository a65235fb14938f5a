"""LiteRT export for phones, boards and microcontrollers, in float32, float16 or int8.

An int8 file uses only integers. The converter derives them from TensorFlow's fake quantization;
`export.litert_integers` ensures that they match `policies.integer_grids`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from eagerly.export import calibration
from eagerly.export.interface import Tensors, in_float32, inputs, outputs, precision_refusal
from eagerly.export.litert_integers import convertible, read_model, with_integers
from eagerly.policies.architecture import ActorArchitecture
from eagerly.policies.network import ActorNetwork

PRECISIONS = ("float32", "float16", "int8")
FILE = "model.tflite"
_TYPES = {0: "float32", 9: "int8"}  # names of the type codes in the file


def refusal(architecture: ActorArchitecture, precision: str) -> str | None:
    """Returns why an actor cannot be exported to LiteRT, or None if it can."""
    if reason := precision_refusal("litert", PRECISIONS, precision):
        return reason
    if precision == "int8":
        return calibration.refusal(architecture)
    if architecture.quantized:
        return f"this actor is quantized, and LiteRT rounds differently in {precision}"
    return None


def convert(network: ActorNetwork, precision: str, folder: Path, **more: Any) -> dict[str, Any]:
    """Writes `model.tflite`, which takes one observation at a time.

    Args:
        network: A network that LiteRT supports (see `refusal`), quantized for int8.
        precision: "float32", "int8", or "float16", which stores weights in 16 bits and computes in
            float32.
        folder: The directory to write to.
        more: Ignored; used by other formats.

    Returns:
        The file name, inputs and outputs. Each input and output has the `index` that the
        interpreter's `set_tensor` and `get_tensor` take: LiteRT keeps neither the order nor the
        names of tensors.

    Raises:
        ValueError: If LiteRT cannot represent a range, or the converted file does not match the
            network.
    """
    network = in_float32(network)
    if precision == "int8":
        data = with_integers(network, _converted(convertible(network), precision))
    else:
        data = _converted(network, precision)
    model = read_model(data)
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
