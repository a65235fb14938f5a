"""What `policy.json` and `MODEL_CARD.md` say of an export."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from eagerly import __version__
from eagerly.export.formats import Format
from eagerly.export.runner import FORMAT
from eagerly.policies.architecture import ActorArchitecture, MemoryCore
from eagerly.policies.network import ActorNetwork
from eagerly.policies.numpy_actor import CLIP
from eagerly.policies.policy import Policy
from eagerly.spaces import Actions, Observations, document_of, text_of
from eagerly.storage.documents import sealed
from eagerly.storage.run import Run


def facts_of(run: Run, policy: Policy) -> dict[str, Any]:
    """Returns what `policy.json` says of the run."""
    return {
        "agent": run.agent,
        "env": run.config.env,
        "env_kwargs": run.config.env_kwargs,
        "seed": run.config.seed,
        "which": policy.which,
        "steps": policy.steps,
    }


def description_of(
    network: ActorNetwork, layout: tuple[Observations, Actions], model: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns what `policy.json` says of the policy: all that acting takes.

    Args:
        network: The network that is exported.
        layout: How observations and actions are laid out.
        model: What the converter says of the model, with its format and precision.
    """
    observations, actions = layout
    architecture, weights = network.architecture, network.weights
    core, normalization = architecture.encoder, None
    if architecture.normalized:
        moments = (weights[f"observation_normalization/{part}"] for part in ("mean", "scale"))
        mean, scale = (part[: architecture.visible].astype(float).tolist() for part in moments)
        normalization = {"mean": mean, "scale": scale, "clip": CLIP}
    count = actions.continuous
    return {
        "format": FORMAT,
        "eagerly": __version__,
        "model": dict(model),
        "network": {
            "hidden_sizes": list(architecture.hidden_sizes),
            "activation": architecture.activation,
            "layer_norm": architecture.layer_norm,
            "encoder_units": getattr(core, "units", None),
            "parameters": architecture.count_parameters(),
        },
        "observation": {
            "space": document_of(observations.space, describe=True),
            "ignored": sorted(observations.ignored),
            "size": observations.size,
            "masked": observations.masked,
            "entries": [
                {
                    "path": entry.path,
                    "kind": entry.kind,
                    "shape": list(entry.shape),
                    "dtype": entry.dtype.name,
                    "sizes": list(entry.sizes),
                    "firsts": list(entry.firsts),
                    "start": entry.start,
                    "stop": entry.stop,
                }
                for entry in observations.entries
            ],
        },
        "normalization": normalization,
        "memory": _memory(architecture),
        "action": {
            "space": document_of(actions.space),
            "size": actions.size,
            "continuous": count,
            "choices": list(actions.choices),
            "firsts": [int(value) for value in actions.low[count:]],
            "low": actions.low.astype(float).tolist(),
            "high": actions.high.astype(float).tolist(),
            "dtype": actions.dtype.name,
        },
        "words": {"observation": text_of(observations.space), "action": text_of(actions.space)},
    }


def _memory(architecture: ActorArchitecture) -> dict[str, Any] | None:
    core = architecture.encoder
    if not isinstance(core, MemoryCore):
        return None
    return {"kind": core.kind, "states": [list(shape) for shape in core.state_shapes()]}


def versions_of(kind: Format) -> dict[str, str]:
    """Returns the versions of what converts and runs a format."""
    packages = ["numpy", *kind.packages.values()]
    found = {name: metadata.version(name) for name in packages}
    return {"python": platform.python_version(), **found}


def write_document(folder: Path, about: Mapping[str, Any]) -> dict[str, Any]:
    """Writes `policy.json`, with size and checksum of every other file.

    Returns:
        What it holds.
    """
    files = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name != "policy.json":
            content = path.read_bytes()
            digest = hashlib.sha256(content).hexdigest()
            files[name] = {"bytes": len(content), "sha256": digest}
    # As it will be read: tuples are lists there.
    written: dict[str, Any] = json.loads(json.dumps({**about, "files": files}, allow_nan=False))
    (folder / "policy.json").write_bytes(sealed(written))
    return written


_CALLS = {
    False: """\
from runner import Policy  # runner.py of this folder

policy = Policy("FOLDER")
action = policy(observation)  # in the environment's units
scores = policy.scores(observation)  # actions in [-1, 1], then log-probabilities of choices""",
    True: """\
from runner import Policy  # runner.py of this folder

policy = Policy("FOLDER")
act = policy.begin_episode()  # for each episode
action = act(observation)  # in the environment's units
action = act(observation, reward)  # after each step: the reward of the action before""",
}


def model_card(about: Mapping[str, Any], kind: Format, name: str) -> str:
    """Writes `MODEL_CARD.md`.

    Args:
        about: What `policy.json` holds, with what was measured.
        kind: The format.
        name: The folder's name.
    """
    run, model, network = about["run"], about["model"], about["network"]
    observation = about["observation"]
    call = _CALLS[about["memory"] is not None].replace("FOLDER", name)
    if observation["masked"]:
        call += '\n# where not every choice is valid: action_mask=info["action_mask"]'
    parts = [
        f"# {run['agent'].upper()} on {run['env']}",
        f"The {run['which']} policy of a run with seed {run['seed']}, after {run['steps']:,} "
        f"environment steps, exported to {kind.title} in {model['precision']} by eagerly "
        f"{about['eagerly']}. It is deterministic.",
        "## What it takes and gives",
        f"- Observations: `{about['words']['observation']}`",
        f"- Actions: `{about['words']['action']}`",
        _network_line(about, network),
        "## How to call it",
        f"In Python, with NumPy and {kind.to_act}:",
        f"```python\n{call}\n```",
    ]
    if model["format"] == "c":
        parts.append(
            "In C, compile `policy.c` with your program and read `policy.h`, which says what each "
            "function takes. `examples.c` replays examples and fails where one differs."
        )
    parts += [
        "`python runner.py` replays the examples and fails if a difference is larger than "
        "`policy.json` allows.",
        "## Measured when it was exported",
        *_measured(about),
        "## Limits",
        "- It acts as the policy did in its environment; nothing is known of others. It has no "
        "notion of what is unsafe: limit what your hardware does apart from it.",
        "- Observations must have the units and the order of the environment. Differences were "
        f"measured on {about['measured']['examples']} observations; others may differ by more.",
    ]
    if about["model"]["precision"] == "int8":
        parts[-1] += " What lies outside the range of those seen in training is cut off."
    elif about["normalization"] is not None:
        clip = about["normalization"]["clip"]
        parts[-1] += f" Beyond {clip:g} deviations from the mean they are cut off."
    return "\n\n".join(_joined(parts)) + "\n"


def _joined(parts: list[str]) -> list[str]:
    """Keeps items of a list together."""
    found: list[str] = []
    for part in parts:
        if part.startswith("- ") and found and found[-1].startswith("- "):
            found[-1] += f"\n{part}"
        else:
            found.append(part)
    return found


def _network_line(about: Mapping[str, Any], network: Mapping[str, Any]) -> str:
    layers = " and ".join(map(str, network["hidden_sizes"]))
    line = f"- Inside: hidden layers of {layers} units, {network['activation']}"
    if network["layer_norm"]:
        line += ", normalised"
    if about["memory"] is not None:
        line += f", behind a memory ({about['memory']['kind']})"
    if about["normalization"] is not None:
        line += "; observations are scaled first, by the numbers in policy.json"
    return f"{line}; {network['parameters']:,} numbers"


def _measured(about: Mapping[str, Any]) -> list[str]:
    measured = about["measured"]

    def listed(values: Mapping[str, float]) -> str:
        return ", ".join(f"{name.replace('_', ' ')} {value:.3g}" for name, value in values.items())

    lines = [
        f"- {measured['examples']} examples, as parts of the span between the bounds of actions "
        f"(choices: share of those that are others), beside the network in NumPy: "
        f"{listed(measured['differences'])}"
    ]
    if measured["differences_to_policy"] is not None:
        lines.append(
            f"- Beside the policy as `load_policy` has it: "
            f"{listed(measured['differences_to_policy'])}"
        )
    if measured["returns"] is not None:
        both = (
            f"{measured['returns'][name]['mean']:.2f} ± {measured['returns'][name]['std']:.2f}"
            for name in ("exported", "policy")
        )
        exported, before = both
        count = len(measured["returns"]["exported"]["returns"])
        lines.append(
            f"- Return over {count} episodes with the run's evaluation seeds: {exported}; of the "
            f"policy before the export, in the same episodes: {before}"
        )
    return lines
