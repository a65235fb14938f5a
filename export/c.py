"""C for microcontrollers: a policy as constants and two functions, in C99 without allocation.

`policy.h` and `policy.c` need a compiler and, in float32, libm; in int8 nothing else at all, because
`export.integers` has left only integers, and rounding is done by hand. `examples.c` is a program
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
from eagerly.export.integers import IntegerLayer, IntegerPlan, plan
from eagerly.policies.architecture import ActorArchitecture, EntryEncoders
from eagerly.policies.network import ActorNetwork
from eagerly.policies.numpy_actor import CLIP
from eagerly.policies.operations import LAYER_NORM_EPSILON
from eagerly.policies.quantization import TANH_SCALE

PRECISIONS = ("float32", "int8")
FLAGS = ("-std=c99", "-O2", "-Wall", "-Wextra", "-Werror")
_NETWORK = "void policy_network(const {0} input[{1}_SIZE], {0} output[{2}_SIZE])"
_ACT = "void policy_act(const float observation[{1}_SIZE], float action[{2}_SIZE])"
_SIZES = ("POLICY_OBSERVATION", "POLICY_ACTION")


def refusal(architecture: ActorArchitecture, precision: str) -> str | None:
    """Says in a sentence why an actor cannot become C, or returns None."""
    if precision not in PRECISIONS:
        return f"c cannot be exported in {precision}: it can in float32 or int8"
    if isinstance(architecture.encoder, EntryEncoders):
        return (
            "C takes a flat vector of observations; this actor encodes the entries of a Dict, "
            "Tuple or image: export it as litert or onnx"
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
    body = _float_network(network) if integers is None else _integer_network(integers)
    text = "\n".join([*body, *_act(network, integers, low, high)])
    top = source.comment(banner) if banner else ""
    include = "" if integers is not None else "#include <math.h>\n\n"
    header = _header(architecture, integers)
    (folder / "policy.h").write_text(top + header, encoding="utf-8")
    (folder / "policy.c").write_text(f'{top}#include "policy.h"\n\n{include}{text}', "utf-8")
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


def write_examples(
    folder: Path, observations: np.ndarray, actions: np.ndarray, tolerance: float | np.ndarray
) -> str:
    """Writes `examples.c`, a program that ends with 1 if an action of `policy_act` differs.

    Args:
        folder: Where `policy.h` is.
        observations: `[N, O]`, as the environment gives them.
        actions: `[N, C]`, what is expected, in the environment's units.
        tolerance: How much an action may differ, or `[C]` numbers for its dimensions.

    Returns:
        The name of the file.

    Raises:
        ValueError: If there are no rows, not as many of both, or a number is not finite.
    """
    count = len(observations)
    if not count or observations.ndim != 2 or actions.shape[:1] != (count,) or actions.ndim != 2:
        raise ValueError(
            "examples take observations [N, O] and actions [N, C], N > 0; got "
            f"{observations.shape} and {actions.shape}"
        )
    constants = [
        source.array("float", "observations", observations),
        source.array("float", "actions", actions),
        source.array("float", "tolerance", np.broadcast_to(tolerance, actions.shape[1:])),
    ]
    text = source.EXAMPLES.replace("CONSTANTS", "\n".join(constants)).replace("ROWS", str(count))
    text = text.replace("!= OBSERVATIONS", f"!= {observations.shape[1]}")
    text = text.replace("!= ACTIONS", f"!= {actions.shape[1]}")
    (folder / "examples.c").write_text(text, encoding="utf-8")
    return "examples.c"


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


def _header(architecture: ActorArchitecture, integers: IntegerPlan | None) -> str:
    kind = "float" if integers is None else "int8_t"
    lines = [
        f"#define {_SIZES[0]}_SIZE {architecture.visible}",
        f"#define {_SIZES[1]}_SIZE {architecture.head.continuous}",
    ]
    units = "/* Maps a scaled observation to an action in [-1, 1]. */"
    if integers is not None:
        lines += [
            "",
            "/* A number is scale * (integer - zero point). */",
            f"#define POLICY_INPUT_SCALE {source.real(integers.input_scale)}",
            f"#define POLICY_INPUT_ZERO_POINT ({integers.input_zero_point})",
            f"#define POLICY_OUTPUT_SCALE {source.real(TANH_SCALE)}",
            "#define POLICY_OUTPUT_ZERO_POINT 0",
        ]
        units = "/* Maps a scaled observation to an action in [-1, 1], both as integers. */"
    return source.HEADER.format(
        include="" if integers is None else "#include <stdint.h>\n\n",
        sizes="\n".join(lines),
        units=units,
        network=_NETWORK.format(kind, *_SIZES),
        act=_ACT.format(kind, *_SIZES),
    )


def _float_network(network: ActorNetwork) -> list[str]:
    architecture, weights = network.architecture, network.weights
    constants, calls, functions = list[str](), list[str](), [source.FLOAT_DENSE]
    given, size = "input", architecture.visible

    def layer(name: str, target: str, units: int) -> None:
        kernel, bias = (weights[f"{name}/{part}"] for part in ("kernel", "bias"))
        constants.append(source.array("float", f"{name}_kernel", kernel.T))
        constants.append(source.array("float", f"{name}_bias", bias))
        calls.append(f"dense({given}, {size}, {name}_kernel, {name}_bias, {target}, {units});")

    for index, units in enumerate(architecture.hidden_sizes):
        calls.append(f"float units_{index}[{units}];")
        layer(f"hidden_{index}", target := f"units_{index}", units)
        if architecture.layer_norm:
            for part in ("gamma", "beta"):
                name, values = f"norm_{index}_{part}", weights[f"norm_{index}/{part}"]
                constants.append(source.array("float", name, values))
            calls.append(f"layer_norm({target}, {units}, norm_{index}_gamma, norm_{index}_beta);")
        calls.append(f"{architecture.activation}({target}, {units});")
        given, size = target, units
    layer("action", "output", architecture.head.continuous)
    calls += [
        f"for (int i = 0; i < {_SIZES[1]}_SIZE; ++i)",
        "    output[i] = tanhf(output[i]);",
    ]
    if architecture.hidden_sizes:
        functions.append(source.activation(architecture.activation))
        if architecture.layer_norm:
            epsilon = source.real(LAYER_NORM_EPSILON)
            functions.append(source.LAYER_NORM.replace("EPSILON", epsilon))
    return [*constants, *functions, source.function(_NETWORK.format("float", *_SIZES), calls)]


def _integer_network(integers: IntegerPlan) -> list[str]:
    assert integers.actions is not None
    assert integers.table is not None
    constants, calls, given = list[str](), list[str](), "input"

    def call(name: str, layer: IntegerLayer, target: str) -> None:
        inputs, units = layer.kernel.shape
        bias = layer.bias - layer.input_zero_point * layer.kernel.astype(np.int64).sum(axis=0)
        constants.extend(
            source.array(kind, f"{name}_{part}", values)
            for kind, part, values in (
                ("int8_t", "kernel", layer.kernel.T),
                ("int32_t", "bias", bias),
                ("int32_t", "multiplier", layer.multipliers),
                ("uint8_t", "shift", layer.shifts),
            )
        )
        calls.append(f"dense({given}, {inputs}, {name}_kernel, {name}_bias, {name}_multiplier,")
        calls.append(
            f"      {name}_shift, {layer.output_zero_point}, {layer.least}, {target}, {units});"
        )

    for index, layer in enumerate(integers.hidden):
        calls.append(f"int8_t units_{index}[{layer.kernel.shape[1]}];")
        call(f"hidden_{index}", layer, target := f"units_{index}")
        given = target
    call("action", integers.actions, "output")
    calls += [
        f"for (int i = 0; i < {_SIZES[1]}_SIZE; ++i)",
        "    output[i] = tanh_table[output[i] + 128];",
    ]
    constants.append(source.array("int8_t", "tanh_table", integers.table))
    network = source.function(_NETWORK.format("int8_t", *_SIZES), calls)
    return [*constants, source.INTEGER_DENSE, network]


def _act(
    network: ActorNetwork, integers: IntegerPlan | None, low: np.ndarray, high: np.ndarray
) -> list[str]:
    kind, scaled = "float" if integers is None else "int8_t", "observation[i]"
    parts, lines = [source.CLIPPED], [f"{kind} input[{_SIZES[0]}_SIZE];"]
    if network.architecture.normalized:
        for part in ("mean", "scale"):
            values = network.weights[f"observation_normalization/{part}"]
            parts.append(source.array("float", f"observation_{part}", values))
        edge = source.real(CLIP)
        scaled = "(observation[i] - observation_mean[i]) * observation_scale[i]"
        scaled = f"clipped({scaled}, -{edge}, {edge})"
    action = "action[i]"
    if integers is not None:
        parts.append(source.QUANTIZED)
        lines.append(f"int8_t output[{_SIZES[1]}_SIZE];")
        scaled, action = f"quantized({scaled})", "((float)output[i] * POLICY_OUTPUT_SCALE)"
    # Bounds in float32 are within those in float64.
    bounds = {
        "center": (high + low) / 2,
        "half": (high - low) / 2,
        "low": _within(low, high),
        "high": _within(high, low),
    }
    parts += [source.array("float", f"action_{part}", of) for part, of in bounds.items()]
    lines += [
        f"for (int i = 0; i < {_SIZES[0]}_SIZE; ++i)",
        f"    input[i] = {scaled};",
        f"policy_network(input, {'action' if integers is None else 'output'});",
        f"for (int i = 0; i < {_SIZES[1]}_SIZE; ++i)",
        f"    action[i] = clipped(action_center[i] + action_half[i] * {action}, action_low[i],",
        "                        action_high[i]);",
    ]
    return [*parts, source.function(_ACT.format(kind, *_SIZES), lines)]


def _within(bound: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Rounds bounds to float32, towards the other bounds."""
    nearest = bound.astype(np.float32)
    outside = np.where(other > bound, nearest < bound, nearest > bound)
    return np.where(outside, np.nextafter(nearest, other.astype(np.float32)), nearest)
