"""Builds the `MODEL_CARD.md` of an export from its `policy.json`."""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Mapping
from typing import Any

from eagerly.export.formats import Format

CARD = "MODEL_CARD.md"
_CALLS = {
    False: """\
action = policy(observation)  # in the environment's units
scores = policy.scores(observation)  # actions in [-1, 1], then log-probabilities of choices""",
    True: """\
act = policy.start_episode()  # for each episode
action = act(observation)  # in the environment's units
action = act(observation, reward)  # after each step, with its reward""",
}
_PREPROCESSING_CALL = """\
act = policy.start_episode()  # for each episode
action = act(observation)  # a raw observation; the action is in the environment's units"""


def after(steps: int) -> str:
    """Returns the training duration of a policy as text, or "" if unknown."""
    return f" after {steps:,} environment steps" if steps else ""


def model_card(about: Mapping[str, Any], kind: Format, name: str) -> str:
    """Returns the text of `MODEL_CARD.md`.

    Args:
        about: The contents of `policy.json`, with the measurements.
        kind: The format.
        name: Name of the export folder.
    """
    run, model, observation = about["run"], about["model"], about["observation"]
    call = f"{_import_of(name)}\n{_CALLS[about['memory'] is not None]}"
    if about["preprocessing"] is not None and about["memory"] is None:
        call = f"{_import_of(name)}\n{_PREPROCESSING_CALL}"
    if observation["masked"]:
        call += '\n# to mask invalid actions, also pass action_mask=info["action_mask"]'
    agent = run["agent"].rpartition(":")[2]
    parts = [
        f"# {_plain(agent.upper() if agent.islower() else agent)} on {_code(run['env'])}",
        f"The {run['which']} policy with seed {run['seed']}{after(run['steps'])}, "
        f"exported to {kind.title} in {model['precision']} by eagerly "
        f"{about['eagerly']}. It is deterministic.",
        "## Observations and actions",
        f"- Observations: {_code(about['words']['observation'])}",
        f"- Actions: {_code(about['words']['action'])}",
        *_wrapper_lines(about),
        _network_line(about),
        "## Usage",
        f"In Python, with NumPy and {kind.to_act}:",
        f"```python\n{call}\n```",
    ]
    if model["format"] == "c":
        parts.append(
            "In C, compile `policy.c` with your program and read `policy.h`, which documents each "
            "function. `examples.c` replays examples and fails if one differs."
        )
        if about["preprocessing"] is not None:
            parts[-1] += " The functions receive preprocessed observations."
    parts += [
        "`python -m runner` replays the examples and fails if a difference exceeds the tolerances "
        "in `policy.json`.",
        "## Measurements at export",
        *_measured(about),
        "## Limits",
        "- The policy was trained only in this environment and may fail in any other. It has no "
        "notion of safety: enforce the limits of your hardware independently.",
        "- Observations must have the environment's units and order. Differences were measured on "
        f"{about['measured']['examples']} observations and may be larger on others.",
    ]
    if model["precision"] == "int8":
        parts[-1] += " Values outside the range seen in training are clipped."
    elif about["normalization"] is not None:
        clip = about["normalization"]["clip"]
        parts[-1] += f" Values are clipped at {clip:g} standard deviations from the mean."
    return "\n\n".join(_joined(parts)) + "\n"


def _import_of(name: str) -> str:
    """Returns Python code that loads the policy from a folder with this name."""
    taken = {*sys.stdlib_module_names, "test"}  # a package that the list omits
    if name.isidentifier() and not keyword.iskeyword(name) and name not in taken:
        lines = [f"from {name}.runner import Policy", "", "policy = Policy()"]
    else:  # not importable under this name
        lines = ["import sys", "", f"sys.path.insert(0, {name!a})", "from runner import Policy"]
        lines += ["", f"policy = Policy({name!a})"]
    return "\n".join(lines)


def _code(text: str) -> str:
    """Returns a Markdown code span, with a longer fence if the text contains backticks."""
    text = _plain(text)
    longest = max(map(len, re.findall("`+", text)), default=0)
    if not longest:
        return f"`{text}`"
    fence = "`" * (longest + 1)
    return f"{fence} {text} {fence}"


def _plain(text: str) -> str:
    """Returns text as one line, escaping characters that UTF-8 cannot encode."""
    return " ".join(text.encode("utf-8", "backslashreplace").decode().split())


def _joined(parts: list[str]) -> list[str]:
    """Joins consecutive Markdown list items, so that no blank lines separate them."""
    found: list[str] = []
    for part in parts:
        if part.startswith("- ") and found and found[-1].startswith("- "):
            found[-1] += f"\n{part}"
        else:
            found.append(part)
    return found


def _wrapper_lines(about: Mapping[str, Any]) -> list[str]:
    """Returns the lines about the wrappers of the run and the preprocessing of the runner."""
    lines, raw = [], about["preprocessing"]
    if raw is not None:
        steps = ", then ".join(
            f"{step['kind']} ({', '.join(f'{n} {step[n]}' for n in step if n != 'kind')})"
            for step in raw["steps"]
        )
        lines.append(
            f"- Raw observations, which the runner receives: shape {tuple(raw['shape'])}, "
            f"{raw['dtype']}. The runner preprocesses them: {steps}. The network itself receives "
            "the result."
        )
    if wrappers := about["run"]["wrappers"]:
        shown = ", ".join(map(_code, wrappers))
        lines.append(
            f"- Wrappers of the environment, the innermost first: {shown}. "
            "The export contains no other effects of them: if one limits, delays or converts "
            "actions, or changes observations in another way, your robot must do the same."
        )
    return lines


def _network_line(about: Mapping[str, Any]) -> str:
    network = about["network"]
    line = "- Network: no hidden layers"
    if sizes := " and ".join(map(str, network["hidden_sizes"])):
        line = f"- Network: hidden layers of {sizes} units, {network['activation']}"
    if network["layer_norm"]:
        line += ", layer normalization"
    if about["memory"] is not None:
        line += f", after a recurrent core ({about['memory']['kind']})"
    if (embedding := network["embedding"]) is not None:
        line += (
            f", after a state embedding ({embedding['units']} units) and linear state features "
            f"({embedding['features']})"
        )
    if about["normalization"] is not None:
        line += "; observations are first normalized with the mean and scale in policy.json"
    return f"{line}; {network['parameters']:,} parameters"


def _measured(about: Mapping[str, Any]) -> list[str]:
    measured = about["measured"]

    def listed(values: Mapping[str, float]) -> str:
        return ", ".join(f"{name.replace('_', ' ')} {value:.3g}" for name, value in values.items())

    lines = [
        f"- Differences from the network in NumPy on {measured['examples']} examples, as fractions "
        "of the span between action bounds (for choices, the fraction that differs): "
        f"{listed(measured['differences'])}"
    ]
    if measured["differences_to_policy"] is not None:
        lines.append(
            "- Differences from the policy returned by `load_policy`: "
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
            f"- Return over {count} episodes with the run's evaluation seeds: {exported}; original "
            f"policy in the same episodes: {before}"
        )
    return lines
