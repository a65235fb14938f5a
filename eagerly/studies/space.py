"""Search spaces of hyperparameter studies, read from TOML files."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from eagerly.errors import UsageError
from eagerly.settings import Setting, flag_name
from eagerly.storage.documents import read_toml
from eagerly.storage.presets import OF_THE_TASK
from eagerly.storage.run_settings import COMPARABLE, check_names, declared_settings, format_setting
from eagerly.storage.trust import FACTORIES

# Settings that define the task, the budget or the score, so that scores with different values are
# not comparable.
_FIXED = OF_THE_TASK | {"num_envs", "rollout_steps", "evaluation_steps_limit", *FACTORIES}
_KEYS = {"low", "high", "log", "step"}


@dataclass(frozen=True)
class Dimension:
    """The values of one setting that a study may try: a range or a list of choices.

    Attributes:
        name: The setting.
        low, high: The ends of the range, both included; None for choices.
        log: Whether values are drawn from a logarithmic scale.
        step: Distance between two values of the range; None for all numbers.
        choices: The choices; empty for a range.
        is_integer: Whether the values of the range are integers.
    """

    name: str
    low: Any = None
    high: Any = None
    log: bool = False
    step: Any = None
    choices: tuple[Any, ...] = ()
    is_integer: bool = False

    def distribution(self) -> Any:
        """Returns the Optuna distribution. Choices are represented by their text."""
        from optuna import distributions

        if self.choices:
            return distributions.CategoricalDistribution(self._texts)
        if self.is_integer:
            step = self.step or 1
            return distributions.IntDistribution(self.low, self.high, log=self.log, step=step)
        return distributions.FloatDistribution(self.low, self.high, log=self.log, step=self.step)

    def value(self, drawn: Any) -> Any:
        """Returns the value of the setting for a value drawn from `distribution()`."""
        return self.choices[self._texts.index(drawn)] if self.choices else drawn

    @property
    def _texts(self) -> tuple[str, ...]:
        return tuple(map(format_setting, self.choices))

    def document(self) -> dict[str, Any]:
        """Returns a description that JSON can represent."""
        if self.choices:
            return {"choices": list(self.choices)}
        found = dataclasses.asdict(self)
        return {name: found[name] for name in ("low", "high", "log", "step", "is_integer")}


Space = Mapping[str, Dimension]


def saved_space(document: Mapping[str, Any]) -> Space:
    """Returns the search space whose settings have these descriptions, from `document`."""
    found = {}
    for name, each in document.items():
        arguments = dict(each)
        if "choices" in arguments:
            arguments["choices"] = tuple(
                tuple(choice) if isinstance(choice, list) else choice for choice in each["choices"]
            )
        found[name] = Dimension(name, **arguments)
    return found


def read_space(path: Path, agent: str) -> Space:
    """Reads a search space: a TOML file with one line per setting.

    A line is either a range or a list of at least two choices:

        actor_learning_rate = {low = 1e-4, high = 1e-2, log = true}
        policy_delay = {low = 1, high = 4}
        batch_size = [64, 128, 256]
        hidden_sizes = [[64, 64], [256, 256]]

    Args:
        path: The file.
        agent: Name of the agent, whose settings validate the values.

    Raises:
        RunError: If the file cannot be read, or a line is invalid.
    """
    lines = read_toml(path, f"--space {path}")
    declared = declared_settings(agent)
    check_names(lines, declared, f"--space {path}")
    if not lines:
        raise UsageError(f"--space {path} must have at least one line, such as tau = [0.005, 0.01]")
    try:
        dimensions = {name: _dimension(declared[name], line) for name, line in lines.items()}
    except ValueError as error:
        raise UsageError(f"--space {path}: {error}") from error
    return MappingProxyType(dimensions)


def _dimension(setting: Setting, line: Any) -> Dimension:
    name = setting.name
    if name in COMPARABLE | _FIXED:
        raise ValueError(
            f"{name} cannot be searched: only settings of the algorithm that affect how well it "
            f"learns can be. Pass --{'seeds' if name == 'seed' else flag_name(name)[2:]}"
        )
    if isinstance(line, list):
        if setting.kinds[0] is tuple and not all(isinstance(each, list) for each in line):
            raise ValueError(f"{name} must be a list of lists, one per choice; got {line}")
        found = [setting.from_file(each) for each in line]
        if len(set(map(format_setting, found))) < max(2, len(found)):
            raise ValueError(f"{name} must have at least two different choices; got {line}")
        return Dimension(name, choices=tuple(found))
    is_range = isinstance(line, dict) and {"low", "high"} <= line.keys() <= _KEYS
    if not is_range or setting.kinds[0] not in (int, float):
        ranges = " or a range: {low = 0.001, high = 0.1, log = true}"
        ranges = ranges if setting.kinds[0] in (int, float) else ""
        raise ValueError(f"{name} must be a list of choices{ranges}; got {line}")
    low, high = (setting.from_file(line[end]) for end in ("low", "high"))
    step, log = line.get("step"), line.get("log", False)
    if not low < high:
        raise ValueError(f"{name} must have low < high; got {low} and {high}")
    if log not in (True, False) or (log and (step is not None or low <= 0)):
        raise ValueError(f"{name}: log must be true or false, and requires low > 0 and no step")
    kind = setting.kinds[0]
    if step is not None and not (isinstance(step, kind | int) and 0 < step <= high - low):
        raise ValueError(f"{name}: step must be above 0 and at most {high - low}; got {step}")
    return Dimension(name, low, high, log, step, is_integer=kind is int)
