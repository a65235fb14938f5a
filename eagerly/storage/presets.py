"""Tuned settings for specific environments, each with its evidence.

A new run uses the preset of its environment, if one exists. Explicit settings take precedence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

from eagerly.agents import agent_names, config_class
from eagerly.errors import RunError, UsageError
from eagerly.settings import NONE, Setting, flag_name
from eagerly.storage.documents import read_toml
from eagerly.storage.files import RunFiles
from eagerly.storage.run_settings import (
    COMPARABLE,
    check_names,
    declared_settings,
    new_run_defaults,
)
from eagerly.storage.trust import OUTSIDE

OF_THE_ENVIRONMENT, DEFAULTS = "environment", "defaults"
SUFFIX = ".toml"  # of preset files
# Settings that define what is learned from, and how that is judged.
OF_THE_TASK = frozenset(
    [
        "env",
        "env_kwargs",
        "hardware",
        "wrapper",
        "evaluations",
        "evaluation_env_kwargs",
        "init_from",
        "init_critics",
        "data",
        "offline",
    ]
)


@dataclass(frozen=True)
class Preset:
    """Tuned settings of run and agent, with their evidence.

    Attributes:
        settings: Values that differ from the defaults.
        evidence: Source of the settings, and measured results.
    """

    settings: Mapping[str, Any]
    evidence: str


_LARGE_STEPS = {"actor_learning_rate": 1e-3, "critic_learning_rate": 1e-3}
# Low-dimensional tasks, where 1,000 random steps cover most of the state space.
_SMALL = _LARGE_STEPS | {"warmup_steps": 1000}
_CART = _SMALL | {"tau": 0.05}
# Hard tasks: the warm-up in the current code of the TD3 authors and in Tianshou.
_PATIENT = {"warmup_steps": 25_000}

ENVIRONMENTS: Mapping[str, Preset] = MappingProxyType(
    {
        "HalfCheetah-v5": Preset(
            {}, "the defaults: settings of the TD3 authors' code, which were chosen on HalfCheetah"
        ),
        "Hopper-v5": Preset(
            _LARGE_STEPS,
            "return at 200,000 steps: Spinning Up (1e-3) 1469 to 1751, Tianshou (3e-4) 887",
        ),
        "Walker2d-v5": Preset(
            {},
            "the defaults: learning rates of 1e-3 were published only with other networks and for "
            "versions before 5, whose friction differs (2421 to 2577 at 200,000 steps, compared "
            "with 900 to 1212 for 3e-4)",
        ),
        "Ant-v5": Preset(
            _PATIENT,
            "return at 200,000 steps: Tianshou (3e-4, 25,000 random steps) 1987, the code of 2018 "
            "(1e-3, 10,000 random steps) 931",
        ),
        "Humanoid-v5": Preset(
            _PATIENT,
            "Tianshou and CleanRL, both with 25,000 random steps, reach 5035 to 5043 at 1 M steps; "
            "with 100 random steps and no exploration noise, returns stay at 85 (Gymnasium's "
            "validation of v5)",
        ),
        "Swimmer-v5": Preset(
            {"discount": 0.9999},
            "with 0.99, every source ends below 100; RL Baselines3 Zoo reaches 359 with 0.9999",
        ),
        "Reacher-v5": Preset(_SMALL, "warm-up and learning rate of the TD3 paper's code"),
        "InvertedPendulum-v5": Preset(_SMALL, "warm-up and learning rate of the TD3 paper's code"),
        "InvertedDoublePendulum-v5": Preset(
            _SMALL, "warm-up and learning rate of the TD3 paper's code"
        ),
        "PendulumPositions-v1": Preset(_SMALL, "settings of Pendulum-v1"),
        "CartPole-v1": Preset(
            _CART,
            "settings of Pendulum-v1 with faster target networks "
            "(documentation: Images, discrete actions and action masks)",
        ),
        "CartPolePositions-v1": Preset(_CART, "settings of CartPole-v1"),
        "PendulumPixels-v1": Preset(
            {
                "critic_learning_rate": 1e-3,
                "warmup_steps": 1000,
                "replay_ratio": 0.5,
                "batch_size": 64,
                "hidden_sizes": (64, 64),
                "tau": 0.015,
                "exploration_noise": 0.2,
                "mode": "graph",
            },
            "three runs end between -213 and -170; the learning rates of Pendulum-v1 were worse",
        ),
        "PendulumFlickering-v1": Preset(_SMALL, "settings of Pendulum-v1"),
        "HopperPositions-v5": Preset(
            {},
            "the defaults: with the learning rates of Hopper-v5, the actor of one of two GRU runs "
            "saturated at 15,000 steps and did not recover",
        ),
        "Pendulum-v1": Preset(
            _SMALL,
            "learning rate of RL Baselines3 Zoo; DDPG then swings up "
            "(documentation: Learning results)",
        ),
    }
)


def presets(agent: str) -> dict[str, Mapping[str, Any]]:
    """Returns the settings of each preset available to an agent, by preset name."""
    config, found = config_class(agent), {env: each.settings for env, each in ENVIRONMENTS.items()}
    if (taken := config.FROM_ENVIRONMENTS) is not None:
        found = {env: {n: v for n, v in found[env].items() if n in taken} for env in found}
    return {DEFAULTS: {}, **config.PRESETS, **found}


def read_settings_file(path: Path, option: str, declared: Mapping[str, Setting]) -> dict[str, Any]:
    """Reads settings by name from a TOML file.

    Args:
        path: The file.
        option: The option that named the file, for errors.
        declared: The declarations of the settings, by name. "none" stands for `Setting.none`.

    Raises:
        RunError: If the file cannot be read or is not valid TOML, or a value is invalid.
    """
    found = read_toml(path, f"{option} {path}")
    try:
        return {n: declared[n].from_file(v) if n in declared else v for n, v in found.items()}
    except ValueError as error:
        raise UsageError(f"{option} {path}: {error}") from error


def write_preset(path: Path, run: Any) -> None:
    """Writes the settings of a run that differ from the defaults to a preset file.

    The environment, the length of the run and all settings that do not affect what is learned are
    left out.

    Raises:
        RunError: If the file cannot be written.
    """
    import tomlkit

    left_out = COMPARABLE | OF_THE_TASK
    defaults, document = new_run_defaults(run.agent), {}
    for name, value in run.settings().items():
        if name not in left_out and value != defaults[name]:
            value = list(value) if isinstance(value, tuple) else value
            document[name] = NONE if value is None else value
    try:
        RunFiles(path.parent).write(path.name, [tomlkit.dumps(document).encode()])
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error}") from error


def with_preset(
    agent: str,
    given: Mapping[str, Any],
    env: str,
    preset: str | None,
    saved: Mapping[str, Any] | None = None,
) -> tuple[dict[str, Any], str]:
    """Adds the effective settings of a preset to the given settings, which take precedence.

    Args:
        agent: Name of the agent.
        given: Settings by name. The entry `preset`, if present, names the preset, or a TOML file.
        env: Name of the environment.
        preset: Preset to use if `given` names none; None for no preset.
        saved: The settings of the run to continue; None for a new run.

    Returns:
        The settings and a description of the preset, "" without one.

    Raises:
        RunError: If the preset does not exist, or is a file that sets an entry of `trust.OUTSIDE`
            without an explicit value in `given`.
    """
    settings = dict(given)
    name = settings.pop("preset", None)
    name = preset if name is None else name
    if name is None:
        return settings, ""
    if not isinstance(name, str | Path):
        raise UsageError(f"preset must be a name or the path of a .toml file; got {name!r}")
    name = str(name)
    declared, known, title = declared_settings(agent), presets(agent), name
    if name.endswith(SUFFIX):
        known[name] = read_settings_file(Path(name), "--preset", declared)
        check_names(known[name], declared, f"--preset {name}")
        # The file may come from anyone, like a run directory. The same settings need consent.
        if outside := sorted(known[name].keys() & OUTSIDE.keys() - settings.keys()):
            raise UsageError(
                f"--preset {name} sets {', '.join(outside)}, which can name code, files or "
                f"addresses: remove the lines or add {' and '.join(map(flag_name, outside))}"
            )
    if name == OF_THE_ENVIRONMENT:
        name, title = (env, env) if env in known else (DEFAULTS, f"none for {env}")
    if name not in known:
        names = ", ".join([OF_THE_ENVIRONMENT, *known, "or a .toml file"])
        owners = [other for other in agent_names() if name in presets(other)]
        hint = f", a preset of {', '.join(owners)}" if owners else ""
        raise UsageError(f"preset must be one of {names}; got {name!r}{hint}")
    under = known[name]
    # Removed settings keep their defaults, and others may require them.
    removed = {field.name: field.default for field in fields(config_class(agent))}
    explicit = {**under, **settings}
    others = new_run_defaults(agent, explicit) if saved is None else saved
    both = SimpleNamespace(**{**removed, **others, **explicit})
    rest = {n: value for n, value in under.items() if n not in settings}
    acting = {n: value for n, value in rest.items() if not declared[n].idle_because(both)}
    line = f"{title}: {', '.join(f'{n} {value}' for n, value in acting.items()) or 'the defaults'}"
    other = ", ".join(f"{n} {settings[n]}" for n in under if n in settings)
    return acting | settings, line + (f"; overridden: {other}" if other else "")
