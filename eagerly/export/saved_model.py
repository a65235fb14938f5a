"""SavedModel export, for TensorFlow and TensorFlow Serving."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eagerly.export.interface import described, in_float32, inputs, outputs, precision_refusal
from eagerly.policies.architecture import ActorArchitecture
from eagerly.policies.network import ActorNetwork

PRECISIONS = ("float32",)


def refusal(architecture: ActorArchitecture, precision: str) -> str | None:
    """Returns why an actor cannot be exported to a SavedModel, or None if it can."""
    return precision_refusal("saved-model", PRECISIONS, precision)


def convert(network: ActorNetwork, precision: str, folder: Path, **more: Any) -> dict[str, Any]:
    """Writes `saved_model/`, whose signature `serving_default` takes batches of any size.

    Args:
        network: A network that SavedModel supports (see `refusal`).
        precision: "float32".
        folder: The directory to write to.
        more: Ignored; used by other formats.

    Returns:
        The file names, inputs and outputs.
    """
    import tensorflow as tf

    from eagerly.export.tensorflow_graph import TensorFlowOperations, actor_function

    module, path = tf.Module(), folder / "saved_model"
    act = actor_function(in_float32(network), TensorFlowOperations(), None)
    tf.saved_model.save(module, str(path), signatures={"serving_default": act})
    architecture = network.architecture
    return {
        "files": sorted(
            str(file.relative_to(folder)) for file in path.rglob("*") if file.is_file()
        ),
        "inputs": described(inputs(architecture)),
        "outputs": described(outputs(architecture)),
    }
