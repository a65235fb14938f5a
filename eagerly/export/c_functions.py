"""C functions of a policy: the float32 or int8 network, and scaling of its inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from eagerly.export import c_source as source
from eagerly.export.integers import IntegerLayer, IntegerPlan
from eagerly.policies.architecture import (
    DENSE,
    NORM,
    ActorArchitecture,
    EntryEncoders,
    StateEmbedding,
)
from eagerly.policies.integer_grids import TANH_SCALE
from eagerly.policies.network import ActorNetwork
from eagerly.policies.numpy_actor import CLIP
from eagerly.policies.operations import AVERAGE_L1_EPSILON, LAYER_NORM_EPSILON

SIZES = ("POLICY_OBSERVATION", "POLICY_ACTION")
NETWORK = "void policy_network(const {0} input[{1}_SIZE], {0} output[{2}_SIZE])"
ACT = "void policy_act(const float observation[{0}_SIZE], float action[{1}_SIZE])"


def header(architecture: ActorArchitecture, integers: IntegerPlan | None) -> str:
    """Returns the text of `policy.h`."""
    kind = "float" if integers is None else "int8_t"
    lines = [
        f"#define {SIZES[0]}_SIZE {architecture.visible}",
        f"#define {SIZES[1]}_SIZE {architecture.head.continuous}",
    ]
    units = "/* Maps a scaled observation to an action in [-1, 1]. */"
    if integers is not None:
        lines += [
            "",
            "/* A real value is scale * (integer - zero point). */",
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
        network=NETWORK.format(kind, *SIZES),
        act=ACT.format(*SIZES),
    )


def float_network(network: ActorNetwork) -> list[str]:
    """Returns the constants and functions of `policy_network` in float32."""
    architecture, code, given = network.architecture, _FloatCode(network.weights), "input"
    if isinstance(architecture.encoder, StateEmbedding):
        given = _embed(code, architecture.encoder)
    elif isinstance(architecture.encoder, EntryEncoders):
        given = _encode(code, architecture.encoder, architecture.activation)
    for index in range(len(architecture.hidden_sizes)):
        units = code.dense(f"hidden_{index}", given, f"units_{index}")
        if architecture.layer_norm:
            code.layer_norm(f"norm_{index}", f"units_{index}", units)
        code.activate(architecture.activation, f"units_{index}", units)
        given = f"units_{index}"
    code.dense("action", given, "output", declares=False)
    code.calls += [
        f"for (int i = 0; i < {SIZES[1]}_SIZE; ++i)",
        "    output[i] = tanhf(output[i]);",
    ]
    main = source.function(NETWORK.format("float", *SIZES), code.calls)
    return [*code.constants, *code.functions.values(), main]


def _embed(code: _FloatCode, encoder: StateEmbedding) -> str:
    """Adds the code of a state embedding and returns the name of its output array."""
    last, given = len(encoder.hidden_sizes), "input"
    parts = {"joined": encoder.features, f"joined + {encoder.features}": encoder.units}
    features, embedding = parts
    code.calls.append(f"float joined[{sum(parts.values())}];")
    code.dense("features", given, features, declares=False)
    for index in range(last):
        units = code.dense(f"embedding_{index}", given, f"embedding_{index}")
        code.activate(encoder.activation, f"embedding_{index}", units)
        given = f"embedding_{index}"
    code.dense(f"embedding_{last}", given, embedding, declares=False)
    for part, units in parts.items():
        code.average_l1_norm(part, units)
    return features


def _encode(code: _FloatCode, encoder: EntryEncoders, activation: str) -> str:
    """Adds the code of the layers of the entries and returns the name of their output array."""
    units = encoder.units
    size = units * len(encoder.entries)
    code.calls.append(f"float encoded[{size}];")
    for index, entry in enumerate(encoder.entries):
        given, target = f"input + {entry.start}", f"encoded + {index * units}"
        code.dense(f"entry_{index}_linear", given, target, declares=False)
    code.activate(activation, "encoded", size)
    return "encoded"


class _FloatCode:
    """Collects the C code of a float32 network, one layer after the other.

    Attributes:
        constants: Weight arrays.
        functions: Code of the functions that `policy_network` calls, by name.
        calls: Lines in the body of `policy_network`.
    """

    def __init__(self, weights: Mapping[str, np.ndarray]) -> None:
        self._weights, self.constants = weights, list[str]()
        self.functions, self.calls = {"dense": source.FLOAT_DENSE}, list[str]()

    def dense(self, layer: str, given: str, target: str, *, declares: bool = True) -> int:
        """Adds a dense layer and returns its number of units.

        The target array is declared unless `declares` is False.
        """
        kernel, bias = (self._weights[f"{layer}/{part}"] for part in DENSE)
        inputs, units = kernel.shape
        self._constant(f"{layer}_kernel", kernel.T)
        self._constant(f"{layer}_bias", bias)
        if declares:
            self.calls.append(f"float {target}[{units}];")
        arrays = f"{layer}_kernel, {layer}_bias"
        self.calls.append(f"dense({given}, {inputs}, {arrays}, {target}, {units});")
        return int(units)

    def activate(self, name: str, target: str, units: int) -> None:
        """Adds an in-place activation."""
        self.functions[name] = source.activation(name)
        self.calls.append(f"apply_{name}({target}, {units});")

    def layer_norm(self, layer: str, target: str, units: int) -> None:
        """Adds an in-place layer normalization."""
        epsilon = source.real(LAYER_NORM_EPSILON)
        self.functions["layer_norm"] = source.LAYER_NORM.replace("EPSILON", epsilon)
        for part in NORM:
            self._constant(f"{layer}_{part}", self._weights[f"{layer}/{part}"])
        self.calls.append(f"layer_norm({target}, {units}, {layer}_gamma, {layer}_beta);")

    def average_l1_norm(self, target: str, units: int) -> None:
        """Adds an in-place division by the mean absolute value."""
        epsilon = source.real(AVERAGE_L1_EPSILON)
        self.functions["average_l1_norm"] = source.AVERAGE_L1_NORM.replace("EPSILON", epsilon)
        self.calls.append(f"average_l1_norm({target}, {units});")

    def _constant(self, name: str, values: np.ndarray) -> None:
        self.constants.append(source.array("float", name, values))


def integer_network(integers: IntegerPlan) -> list[str]:
    """Returns the constants and functions of `policy_network` in int8."""
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
        f"for (int i = 0; i < {SIZES[1]}_SIZE; ++i)",
        "    output[i] = tanh_table[output[i] + 128];",
    ]
    constants.append(source.array("int8_t", "tanh_table", integers.table))
    network = source.function(NETWORK.format("int8_t", *SIZES), calls)
    return [*constants, source.INTEGER_DENSE, network]


def act(
    network: ActorNetwork, integers: IntegerPlan | None, low: np.ndarray, high: np.ndarray
) -> list[str]:
    """Returns the constants and functions of `policy_act`.

    `policy_act` scales the observation, runs the network and rescales the action.

    Args:
        network: The network.
        integers: The int8 network; None for float32.
        low: `[C]`, float64, lower bounds of the actions.
        high: `[C]`, float64, upper bounds.
    """
    parts, before, given = [source.CLIPPED], list[str](), "observation"
    x, action = "observation[i]", "action[i]"
    if network.architecture.normalized:
        for part in ("mean", "scale"):
            values = network.weights[f"observation_normalization/{part}"]
            parts.append(source.array("float", f"observation_{part}", values))
        x = "(observation[i] - observation_mean[i]) * observation_scale[i]"
        before = [f"    const float x = {x};"]
        x = f"clipped(x, -{source.real(CLIP)}, {source.real(CLIP)})"
    lines = [f"{'float' if integers is None else 'int8_t'} input[{SIZES[0]}_SIZE];"]
    if integers is not None:
        parts.append(source.QUANTIZED)
        lines.append(f"int8_t output[{SIZES[1]}_SIZE];")
        x, action = f"quantized({x})", "(float)output[i] * POLICY_OUTPUT_SCALE"
    if before or integers is not None:
        each = f"for (int i = 0; i < {SIZES[0]}_SIZE; ++i) {{"
        lines, given = [*lines, each, *before, f"    input[i] = {x};", "}"], "input"
    else:
        lines = []
    bounds = {
        "center": (high + low) / 2,
        "half": (high - low) / 2,
        "low": _within(low, high),
        "high": _within(high, low),
    }
    parts += [source.array("float", f"action_{part}", of) for part, of in bounds.items()]
    lines += [
        f"policy_network({given}, {'action' if integers is None else 'output'});",
        f"for (int i = 0; i < {SIZES[1]}_SIZE; ++i) {{",
        f"    const float scaled = {action};",
        "    action[i] = action_center[i] + action_half[i] * scaled;",
        "    action[i] = clipped(action[i], action_low[i], action_high[i]);",
        "}",
    ]
    return [*parts, source.function(ACT.format(*SIZES), lines)]


def _within(bound: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Rounds bounds to float32 without widening the range."""
    with np.errstate(over="ignore"):  # `source.array` rejects infinity
        nearest, towards = bound.astype(np.float32), other.astype(np.float32)
    outside = np.where(other > bound, nearest < bound, nearest > bound)
    return np.where(outside, np.nextafter(nearest, towards), nearest)
