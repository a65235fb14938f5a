"""The recurrent cores of exported C policies. Their state is a struct of the caller."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from eagerly.export import c_source as source
from eagerly.export.c_code import FloatCode
from eagerly.policies.architecture import DENSE, PROJECTIONS, ActorArchitecture, MemoryCore

# Recurrent parts of `policy_state`, in the order of `MemoryCore.state_shapes`.
_STATES = {
    "gru": ("hidden",),
    "lstm": ("hidden", "cell"),
    "attention": ("keys", "values", "count"),
}
_COPIED = """\
static void copied(const float *from, int count, float *to)
{
    for (int i = 0; i < count; ++i)
        to[i] = from[i];
}
"""

_SIGMOID = """\
static float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}
"""

# `gates` are sums of the inputs' products, for all units of the first gate, then of the second one,
# and so on.
_CORES = {
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
    "attention": """\
/* The window of steps ends with the newest one. Only the last `count` steps have been seen. */
static void attend(const float *query, const float *keys, const float *values,
                   const float *distances, int length, int count, int heads, int size, float scale,
                   float *scores, float *looked)
{
    for (int head = 0; head < heads; ++head) {
        float highest = 0.0f, total = 0.0f;
        for (int step = length - count; step < length; ++step) {
            const float product = dot(query, keys + (step * heads + head) * size, size);
            scores[step] = product * scale + distances[length - 1 - step];
            if (step == length - count || scores[step] > highest)
                highest = scores[step];
        }
        for (int i = 0; i < size; ++i)
            looked[i] = 0.0f;
        for (int step = length - count; step < length; ++step) {
            const float weight = expf(scores[step] - highest);
            total += weight;
            for (int i = 0; i < size; ++i)
                looked[i] += weight * values[(step * heads + head) * size + i];
        }
        for (int i = 0; i < size; ++i)
            looked[i] /= total;
        query += size;
        looked += size;
        distances += length;
    }
}
""",
}


def state_parts(architecture: ActorArchitecture) -> dict[str, int]:
    """Returns the parts of `policy_state` and their sizes; empty if the actor is not recurrent."""
    if not isinstance(core := architecture.encoder, MemoryCore):
        return {}
    sizes = dict(zip(_STATES[core.kind], map(math.prod, core.state_shapes()), strict=True))
    return {"previous_action": architecture.head.size, **sizes}


def remember(code: FloatCode, core: MemoryCore, architecture: ActorArchitecture) -> str:
    """Adds the code of a recurrent core and returns the name of its output array.

    The output consists of the features of the core and the observation.
    """
    visible, actions, units = architecture.visible, architecture.head.size, core.units
    code.functions |= {"copied": _COPIED, core.kind: _CORES[core.kind]}
    code.calls += [
        f"float told[{visible + actions + 1}];",
        f"copied(input, {visible}, told);",
        f"copied(state->previous_action, {actions}, told + {visible});",
        f"told[{visible + actions}] = previous_reward;",
        f"float inputs[{2 * units if core.kind == 'lstm' else units}];",
    ]
    code.dense("encoder_inputs", "told", "inputs", declares=False)
    code.activate(architecture.activation, "inputs", units)
    known = _attend(code, core) if core.kind == "attention" else _gated(code, core)
    code.calls += [
        f"float joined[{units + visible}];",
        f"copied({known}, {units}, joined);",
        f"copied(input, {visible}, joined + {units});",
    ]
    return "joined"


def _gated(code: FloatCode, core: MemoryCore) -> str:
    """Adds one step of a GRU or LSTM and returns the name of its output array."""
    # `sigmoid` must precede its caller.
    code.functions = {"sigmoid": _SIGMOID, **code.functions}
    code.weights |= _gate_weights(core.kind, code.weights)
    if core.kind == "gru":
        code.dense("gates", "inputs", "gates")
        code.dense("recurrent", "state->hidden", "recurrent")
        code.calls.append(f"gru(gates, recurrent, {core.units}, state->hidden);")
    else:
        code.calls.append(f"copied(state->hidden, {core.units}, inputs + {core.units});")
        code.dense("gates", "inputs", "gates")
        code.calls.append(f"lstm(gates, {core.units}, state->hidden, state->cell);")
    return "state->hidden"


def _gate_weights(kind: str, weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
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


def _attend(code: FloatCode, core: MemoryCore) -> str:
    """Adds one step of attention and returns the name of its output array."""
    units, length, size = core.units, core.length, core.units // core.heads
    older, scale = (length - 1) * units, source.real(1.0 / math.sqrt(size))
    query, key, value, out = PROJECTIONS
    code.constant("memory_distances", code.weights["memory/distances"])
    code.calls += [f"float normal[{units}];", f"copied(inputs, {units}, normal);"]
    code.layer_norm("memory_norm", "normal", units)
    code.dense(query, "normal", "query")
    for layer, part in ((key, "state->keys"), (value, "state->values")):
        code.calls.append(f"copied({part} + {units}, {older}, {part});")
        code.dense(layer, "normal", f"{part} + {older}", declares=False)
    code.calls += [
        f"state->count[0] += state->count[0] < {length}.0f ? 1.0f : 0.0f;",
        f"float scores[{length}], looked[{units}];",
        "attend(query, state->keys, state->values, memory_distances, "
        f"{length}, (int)state->count[0],",
        f"       {core.heads}, {size}, {scale}, scores, looked);",
    ]
    code.dense(out, "looked", "known")
    code.calls += [f"for (int i = 0; i < {units}; ++i)", "    known[i] += inputs[i];"]
    return "known"
