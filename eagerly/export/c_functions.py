"""C functions of a policy: the float32 or int8 network, and scaling of its inputs and outputs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np

from eagerly.export import c_source as source
from eagerly.export.c_memory import state_parts
from eagerly.export.c_network import SIZES, arguments, network_signature
from eagerly.export.integers import IntegerLayer, IntegerPlan
from eagerly.policies.architecture import ActorArchitecture, MemoryCore
from eagerly.policies.heads import ActionHead
from eagerly.policies.integer_grids import TANH_SCALE
from eagerly.policies.network import ActorNetwork
from eagerly.policies.numpy_actor import CLIP
from eagerly.spaces import Entry

_RESET = "void policy_reset(policy_state *state)"


def _indices(entries: Sequence[Entry]) -> Iterator[str]:
    """Yields a macro for each entry, with its values in a comment."""
    taken = set[str]()
    for entry in entries:
        name = re.sub(r"\W", "_", entry.path, flags=re.ASCII).upper()
        while name in taken:
            name += "_"
        taken.add(name)
        values = f"{entry.stop - entry.start} numbers"
        if entry.sizes:
            ranges = zip(entry.firsts, entry.sizes, strict=True)
            values = ", ".join(f"{first} to {first + size - 1}" for first, size in ranges)
            values = f"one-hot, {values}"
        about = source.plain(f"{entry.path}: {values}")
        yield f"#define POLICY_ENTRY_{name} {entry.start} /* {about} */"


def _act_signature(architecture: ActorArchitecture) -> str:
    given, action = f"const float observation[{SIZES[0]}_SIZE]", f"float action[{SIZES[1]}_SIZE]"
    if architecture.head.masked:
        action = f"const unsigned char *valid,\n    {action}"
    remembers = isinstance(architecture.encoder, MemoryCore)
    return f"void policy_act({arguments(given, action, remembers=remembers)})"


def header(
    architecture: ActorArchitecture, integers: IntegerPlan | None, entries: Sequence[Entry] = ()
) -> str:
    """Returns the text of `policy.h`.

    Args:
        architecture: The architecture of the actor.
        integers: The int8 network; None for float32.
        entries: The entries of an observation.
    """
    kind, head = "float" if integers is None else "int8_t", architecture.head
    lines = [
        f"#define {SIZES[0]}_SIZE {architecture.visible}",
        f"#define {SIZES[1]}_SIZE {head.continuous + len(head.choices)}",
    ]
    if head.choices:
        lines.append(f"#define POLICY_OUTPUT_SIZE {head.size}")
    if head.masked:
        lines.append(f"#define POLICY_MASK_SIZE {head.masked}")
    if any(entry.path for entry in entries):
        lines += ["", "/* The first index of each entry in an observation. */", *_indices(entries)]
    units, chosen = "/* Maps a scaled observation to an action in [-1, 1]. */", ""
    if head.choices:
        units = "/* Maps a scaled observation to actions in [-1, 1], then the logits of choices. */"
        chosen = source.CHOSEN + (source.MASKED if head.masked else "")
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
    if state := state_parts(architecture):
        lines += ["", source.state(state)]
    return source.HEADER.format(
        include="" if integers is None else "#include <stdint.h>\n\n",
        sizes="\n".join(lines),
        units=units,
        reset=f"/* Starts an episode. */\n{_RESET};\n\n" if state else "",
        network=network_signature(kind, remembers=bool(state), chooses=bool(head.choices)),
        chosen=chosen,
        act=_act_signature(architecture),
    )


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
    network = source.function(network_signature("int8_t"), calls)
    return [*constants, source.INTEGER_DENSE, network]


def act(
    network: ActorNetwork, integers: IntegerPlan | None, low: np.ndarray, high: np.ndarray
) -> list[str]:
    """Returns the constants and functions of `policy_act`.

    `policy_act` scales the observation, runs the network and rescales the action.

    Args:
        network: The network.
        integers: The int8 network; None for float32.
        low: `[C + k]`, float64, lower bounds of the actions and the first value of each choice.
        high: `[C + k]`, float64, upper bounds.
    """
    head, state = network.architecture.head, state_parts(network.architecture)
    parts, before, given = list[str](), list[str](), "observation"
    x, action = "observation[i]", "action[i]" if not head.choices else "output[i]"
    if network.architecture.normalized or head.continuous:
        parts.append(source.CLIPPED)
    if moments := network.moments:
        for part, values in zip(("mean", "scale"), map(head.visible, moments), strict=True):
            parts.append(source.array("float", f"observation_{part}", values))
        x = "(observation[i] - observation_mean[i]) * observation_scale[i]"
        before = [f"    const float x = {x};"]
        x = f"clipped(x, -{source.real(CLIP)}, {source.real(CLIP)})"
    lines, output = list[str](), "action"
    if integers is not None:
        parts.append(source.QUANTIZED)
        x, action = f"quantized({x})", "(float)output[i] * POLICY_OUTPUT_SCALE"
    if integers is not None or head.choices:
        output = "output"
        kind, size = ("float", "POLICY_OUTPUT") if integers is None else ("int8_t", SIZES[1])
        lines.append(f"{kind} output[{size}_SIZE];")
    if before or integers is not None:
        each = f"for (int i = 0; i < {SIZES[0]}_SIZE; ++i) {{"
        lines.append(f"{'float' if integers is None else 'int8_t'} input[{SIZES[0]}_SIZE];")
        lines, given = [*lines, each, *before, f"    input[i] = {x};", "}"], "input"
    if state:
        given = f"state, {given}, previous_reward"
        cleared = (
            f"for (int i = 0; i < {size}; ++i)\n        state->{name}[i] = 0.0f;"
            for name, size in state.items()
        )
        parts.append(source.function(_RESET, cleared))
    lines.append(f"policy_network({given}, {output});")
    if head.continuous:
        parts += _bounds(low[: head.continuous], high[: head.continuous])
        lines += [
            f"for (int i = 0; i < {head.continuous}; ++i) {{",
            f"    const float scaled = {action};",
            "    action[i] = action_center[i] + action_half[i] * scaled;",
            "    action[i] = clipped(action[i], action_low[i], action_high[i]);",
            "}",
        ]
    if head.choices:
        parts += [
            source.BEST,
            source.array("int", "choice_size", np.array(head.choices)),
            source.array("int", "choice_first", low[head.continuous :].astype(np.int64)),
        ]
        lines += _choose(head, remembers=bool(state))
    return [*parts, source.function(_act_signature(network.architecture), lines)]


def _choose(head: ActionHead, *, remembers: bool) -> list[str]:
    """Returns the lines that select the best valid value of each choice."""
    count, valid = len(head.choices), "valid ? valid + first : 0" if head.masked else "0"
    first = f"first + {head.continuous}" if head.continuous else "first"
    lines = [
        f"for (int choice = 0, first = 0; choice < {count}; ++choice) {{",
        f"    const int best = best_of(output + {first}, {valid}, choice_size[choice]);",
        f"    action[choice + {head.continuous}] = (float)(choice_first[choice] + best);",
    ]
    if remembers:
        lines += [
            "    for (int i = 0; i < choice_size[choice]; ++i)",
            f"        state->previous_action[{first} + i] = i == best ? 1.0f : 0.0f;",
        ]
    return [*lines, "    first += choice_size[choice];", "}"]


def _bounds(low: np.ndarray, high: np.ndarray) -> list[str]:
    """Returns the constants that rescale actions from [-1, 1] to their bounds."""
    bounds = {
        "center": (high + low) / 2,
        "half": (high - low) / 2,
        "low": _within(low, high),
        "high": _within(high, low),
    }
    return [source.array("float", f"action_{part}", of) for part, of in bounds.items()]


def _within(bound: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Rounds bounds to float32 without widening the range."""
    with np.errstate(over="ignore"):  # `source.array` rejects infinity
        nearest, towards = bound.astype(np.float32), other.astype(np.float32)
    outside = np.where(other > bound, nearest < bound, nearest > bound)
    return np.where(outside, np.nextafter(nearest, towards), nearest)
