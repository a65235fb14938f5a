"""The float32 network of an exported C policy, with encoders or a recurrent core."""

from __future__ import annotations

from eagerly.export import c_source as source
from eagerly.export.c_code import FloatCode
from eagerly.export.c_memory import remember
from eagerly.policies.architecture import EntryEncoders, MemoryCore, StateEmbedding
from eagerly.policies.network import ActorNetwork

SIZES = ("POLICY_OBSERVATION", "POLICY_ACTION")


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
    architecture, code, given = network.architecture, FloatCode(network.weights), "input"
    head = architecture.head
    core = architecture.encoder if isinstance(architecture.encoder, MemoryCore) else None
    if core is not None:
        given = remember(code, core, architecture)
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


def _embed(code: FloatCode, encoder: StateEmbedding) -> str:
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


def _encode(code: FloatCode, encoder: EntryEncoders, activation: str) -> str:
    """Adds the code of the layers of the entries and returns the name of their output array."""
    units = encoder.units
    size = units * len(encoder.entries)
    code.calls.append(f"float encoded[{size}];")
    for index, entry in enumerate(encoder.entries):
        given, target = f"input + {entry.start}", f"encoded + {index * units}"
        code.dense(f"entry_{index}_linear", given, target, declares=False)
    code.activate(activation, "encoded", size)
    return "encoded"
