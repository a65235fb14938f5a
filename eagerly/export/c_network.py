"""The float32 network of an exported C policy, with encoders or a recurrent core."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from eagerly.export import c_source as source
from eagerly.policies.architecture import (
    DENSE,
    NORM,
    ActorArchitecture,
    EntryEncoders,
    MemoryCore,
    StateEmbedding,
)
from eagerly.policies.network import ActorNetwork
from eagerly.policies.operations import AVERAGE_L1_EPSILON, LAYER_NORM_EPSILON

SIZES = ("POLICY_OBSERVATION", "POLICY_ACTION")
# Recurrent parts of `policy_state`, in the order of `MemoryCore.state_shapes`.
STATES = {"gru": ("hidden",), "lstm": ("hidden", "cell")}


COPIED = """\
static void copied(const float *from, int count, float *to)
{
    for (int i = 0; i < count; ++i)
        to[i] = from[i];
}
"""

SIGMOID = """\
static float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}
"""

# One step of a recurrent core. `gates` are sums of the inputs' products, for all units of the first
# gate, then of the second one, and so on.
CORES = {
    "gru": """\
static void gru(const float *gates, const float *recurrent, int units, float *hidden)
{
    for (int i = 0; i < units; ++i) {
        const float keep = sigmoid(gates[i] + recurrent[i]);
        const float reset = sigmoid(gates[units + i] + recurrent[units + i]);
        const float update = tanhf(gates[2 * units + i] + reset * recurrent[2 * units + i]);
        hidden[i] = keep * hidden[i] + (1.0f - keep) * update;
    }
}
""",
    "lstm": """\
static void lstm(const float *gates, int units, float *hidden, float *cell)
{
    for (int i = 0; i < units; ++i) {
        const float enter = sigmoid(gates[i]), keep = sigmoid(gates[units + i]);
        cell[i] = keep * cell[i] + enter * tanhf(gates[2 * units + i]);
        hidden[i] = sigmoid(gates[3 * units + i]) * tanhf(cell[i]);
    }
}
""",
}


def network_signature(kind: str, *, remembers: bool = False, chooses: bool = False) -> str:
    """Returns the signature of `policy_network` for numbers of a C type."""
    size = "POLICY_OUTPUT_SIZE" if chooses else f"{SIZES[1]}_SIZE"
    given, output = f"const {kind} input[{SIZES[0]}_SIZE]", f"{kind} output[{size}]"
    return f"void policy_network({arguments(given, output, remembers=remembers)})"


def arguments(given: str, result: str, *, remembers: bool) -> str:
    """Returns the arguments of a C function; a recurrent policy has a state and a reward, too."""
    if not remembers:
        return f"{given}, {result}"
    return f"policy_state *state, {given},\n    float previous_reward, {result}"


def float_network(network: ActorNetwork) -> list[str]:
    """Returns the constants and functions of `policy_network` in float32."""
    architecture, code, given = network.architecture, _FloatCode(network.weights), "input"
    head = architecture.head
    core = architecture.encoder if isinstance(architecture.encoder, MemoryCore) else None
    if core is not None:
        given = _remember(code, core, architecture)
    elif isinstance(architecture.encoder, StateEmbedding):
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
    if head.continuous:
        code.calls += [
            f"for (int i = 0; i < {head.continuous}; ++i)",
            f"    {'state->previous_action[i] = ' if core else ''}output[i] = tanhf(output[i]);",
        ]
    signature = network_signature("float", remembers=bool(core), chooses=bool(head.choices))
    main = source.function(signature, code.calls)
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


def _remember(code: _FloatCode, core: MemoryCore, architecture: ActorArchitecture) -> str:
    """Adds the code of a GRU or LSTM and returns the name of its output array."""
    visible, actions, units = architecture.visible, architecture.head.size, core.units
    code.functions |= {"copied": COPIED, "sigmoid": SIGMOID}
    code.functions[core.kind] = CORES[core.kind]
    code.weights |= _memory_weights(core.kind, code.weights)
    code.calls += [
        f"float told[{visible + actions + 1}];",
        f"copied(input, {visible}, told);",
        f"copied(state->previous_action, {actions}, told + {visible});",
        f"told[{visible + actions}] = previous_reward;",
        f"float inputs[{len(code.weights['gates/kernel'])}];",
    ]
    code.dense("encoder_inputs", "told", "inputs", declares=False)
    code.activate(architecture.activation, "inputs", units)
    if core.kind == "gru":
        code.dense("gates", "inputs", "gates")
        code.dense("recurrent", "state->hidden", "recurrent")
        code.calls.append(f"gru(gates, recurrent, {units}, state->hidden);")
    else:
        code.calls.append(f"copied(state->hidden, {units}, inputs + {units});")
        code.dense("gates", "inputs", "gates")
        code.calls.append(f"lstm(gates, {units}, state->hidden, state->cell);")
    code.calls += [
        f"float joined[{units + visible}];",
        f"copied(state->hidden, {units}, joined);",
        f"copied(input, {visible}, joined + {units});",
    ]
    return "joined"


def _memory_weights(kind: str, weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the weights of a recurrent core as those of dense layers.

    The gates of an LSTM add two matrix products, which are one product of the joined inputs. A GRU
    needs both separately.
    """
    parts = {name: weights[f"memory/{name}"] for name in (*DENSE, "recurrent_kernel")}
    kernel, recurrent = parts["kernel"], parts["recurrent_kernel"]
    if kind == "lstm":
        return {"gates/kernel": np.concatenate([kernel, recurrent]), "gates/bias": parts["bias"]}
    layers = {"gates/kernel": kernel, "gates/bias": parts["bias"], "recurrent/kernel": recurrent}
    return layers | {"recurrent/bias": weights["memory/recurrent_bias"]}


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
        weights: Weights by `layer/weight`.
        constants: Weight arrays.
        functions: Code of the functions that `policy_network` calls, by name.
        calls: Lines in the body of `policy_network`.
    """

    def __init__(self, weights: Mapping[str, np.ndarray]) -> None:
        self.weights, self.constants = dict(weights), list[str]()
        self.functions, self.calls = {"dense": source.FLOAT_DENSE}, list[str]()

    def dense(self, layer: str, given: str, target: str, *, declares: bool = True) -> int:
        """Adds a dense layer and returns its number of units.

        The target array is declared unless `declares` is False.
        """
        kernel, bias = (self.weights[f"{layer}/{part}"] for part in DENSE)
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
            self._constant(f"{layer}_{part}", self.weights[f"{layer}/{part}"])
        self.calls.append(f"layer_norm({target}, {units}, {layer}_gamma, {layer}_beta);")

    def average_l1_norm(self, target: str, units: int) -> None:
        """Adds an in-place division by the mean absolute value."""
        epsilon = source.real(AVERAGE_L1_EPSILON)
        self.functions["average_l1_norm"] = source.AVERAGE_L1_NORM.replace("EPSILON", epsilon)
        self.calls.append(f"average_l1_norm({target}, {units});")

    def _constant(self, name: str, values: np.ndarray) -> None:
        self.constants.append(source.array("float", name, values))
