"""C for microcontrollers: a policy as constants and two functions, in C99 without allocation.

`policy.h` and `policy.c` need a compiler and, in float32, libm. In int8 they need no library:
`export.integers` has left only integers, and inputs are rounded by hand. `examples.c` is a program
that replays observations and fails where an action differs.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from eagerly.export import c_source as source
from eagerly.export.c_functions import act, float_network, header, integer_network
from eagerly.export.integers import plan
from eagerly.policies.architecture import ActorArchitecture, EntryEncoders
from eagerly.policies.network import ActorNetwork
from eagerly.policies.quantization import TANH_SCALE

PRECISIONS = ("float32", "int8")
FLAGS = ("-std=c99", "-O2", "-Wall", "-Wextra", "-Werror")


def refusal(architecture: ActorArchitecture, precision: str) -> str | None:
    """Says in a sentence why an actor cannot become C, or returns None."""
    if precision not in PRECISIONS:
        return f"c cannot be exported in {precision}: it can in float32 or int8"
    if isinstance(architecture.encoder, EntryEncoders):
        return (
            "C takes a flat vector of observations; this actor encodes images, or the entries of "
            "a Dict or Tuple: export entries without images as litert or onnx"
        )
    if architecture.encoder is not None:
        return (
            f"C has no memory; this actor has one ({architecture.encoder.kind}): "
            "export it as litert or onnx"
        )
    if architecture.head.choices:
        return (
            "C has continuous actions alone; this actor also makes choices "
            f"({architecture.head.choices}): export it as litert or onnx"
        )
    if precision == "float32" and architecture.quantized:
        return "this actor is quantised, and float32 would act differently: export C in int8"
    if precision == "int8" and (architecture.layer_norm or architecture.activation != "relu"):
        given = "layer norm" if architecture.layer_norm else architecture.activation
        return f"int8 takes an MLP of relu without layer norm; this actor has {given}: use float32"
    return None


def convert(
    network: ActorNetwork,
    precision: str,
    folder: Path,
    *,
    low: np.ndarray,
    high: np.ndarray,
    banner: str = "",
    **more: Any,
) -> dict[str, Any]:
    """Writes `policy.h` and `policy.c`.

    Args:
        network: The network; quantised for int8.
        precision: "float32" or "int8".
        folder: Where they are written.
        low: `[C]`, float64, the least actions in the environment's units.
        high: `[C]`, float64, the greatest ones.
        banner: What the first lines of both say, such as run and version.
        more: What other formats need.

    Returns:
        Files, inputs and outputs, the last two of `policy_network`.

    Raises:
        ValueError: If it is refused, the bounds have another shape, or a number is not finite.
    """
    architecture = network.architecture
    if reason := refusal(architecture, precision):
        raise ValueError(reason)
    low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
    size = (architecture.head.continuous,)
    if low.shape != size or high.shape != size:
        raise ValueError(f"low and high must have shape {size}; got {low.shape} and {high.shape}")
    integers = plan(network) if precision == "int8" else None
    parts = float_network(network) if integers is None else integer_network(integers)
    top = source.comment(banner) if banner else ""
    includes = ["#include <math.h>\n"] if integers is None else []
    text = "\n".join([*includes, *parts, *act(network, integers, low, high)])
    (folder / "policy.h").write_text(top + header(architecture, integers), "utf-8")
    (folder / "policy.c").write_text(f'{top}#include "policy.h"\n\n{text}', "utf-8")
    tensors: dict[str, dict[str, Any]] = {
        "observation": {"shape": [1, architecture.visible], "dtype": precision},
        "action": {"shape": [1, *size], "dtype": precision},
    }
    if integers is not None:
        scale, zero_point = float(integers.input_scale), integers.input_zero_point
        tensors["observation"] |= {"scale": scale, "zero_point": zero_point}
        tensors["action"] |= {"scale": TANH_SCALE, "zero_point": 0}
    given, made = ([{"name": name, **of}] for name, of in tensors.items())
    return {"files": ["policy.h", "policy.c"], "inputs": given, "outputs": made}


def compiler() -> list[str]:
    """Returns the words that begin a call of the C compiler: `CC` of the environment, or cc."""
    return shlex.split(os.environ.get("CC", "")) or ["cc"]


def compiled(folder: Path, into: Path, *sources: str, flags: tuple[str, ...] = FLAGS) -> Path:
    """Compiles a policy: to a library that `ctypes` loads, or with `examples.c` to a program.

    Args:
        folder: Where `policy.c` is.
        into: The file that is made.
        sources: What is compiled beside it; with none, a library is made.
        flags: Given to the compiler.

    Returns:
        `into`.

    Raises:
        RuntimeError: If there is no compiler, or with what it writes if it fails.
    """
    kind = () if sources else ("-shared", "-fPIC")
    files = [str(folder / name) for name in ("policy.c", *sources)]
    command = [*compiler(), *flags, *kind, *files, "-o", str(into), "-lm"]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        raise RuntimeError(
            f"there is no C compiler {command[0]!r}: install gcc or clang, or name one in CC"
        ) from None
    if done.returncode:
        raise RuntimeError(f"{shlex.join(command)} failed:\n{done.stderr.strip()}")
    return into
