"""Determines which settings of a run directory need the user's consent.

A run directory may come from anyone. Without consent, only its settings in `INSIDE` take
effect, which merely influence computations inside the process. Any other setting can reach outside
the process: it names a module, an address or a file, or sets a number of processes. It takes effect
only if the user also gives it, trusts the directory, or trained the run there. Training adds the
directory's path, these settings and the locations of the modules to a per-user list.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import platformdirs

from eagerly import wrappers
from eagerly.importing import FACTORY, location_of
from eagerly.storage.files import RunFiles
from eagerly.workers.group_specs import HERE, PROCESSES, RAY

FACTORIES = ("actor", "critic", "models")
IMPORTED = ("agent", "env", *FACTORIES)  # settings that name one module each
WRAPPER = "wrapper "  # prefix of the keys of wrappers in `modules_of`
MISSING = "no folder of the module search path"  # the place of a module that was not found
_SHOWN = 200  # characters shown of an untrusted value

# Numbers, booleans, choices and entry names: bounded, and without effect outside the process.
_INSIDE = """
init_critics data_share offline hardware
check_env steps stop_at_return seed num_envs group_size rollout_steps policy_lag
allow_different_collectors discount warmup_steps replay_ratio updates_per_call replay_capacity
evaluations evaluate_every_steps evaluation_episodes evaluation_steps_limit evaluation_seed
summarize_every_steps histograms
video_every_steps checkpoint_every_steps checkpoint_every_minutes restore_episodes
environment_timeout_seconds keep_checkpoints device intra_op_threads inter_op_threads

hidden_sizes activation layer_norm normalize_observations initializer ignore_entries
critic_entries encoder_units random_shift batch_size memory memory_units attention_heads
sequence_length burn_in sequences_per_update mode replicas precision quantize quantize_freeze_steps

actor_learning_rate critic_learning_rate adam_epsilon clip_gradients weight_decay schedule
schedule_steps schedule_end normalization_floor normalize_rewards reward_scale shared_gradient
tau n_step sampling
prioritized_exponent prioritized_correction prioritized_correction_updates lap_exponent
hindsight hindsight_goals exploration exploration_noise ou_theta exploration_epsilon
gumbel_temperature logit_penalty action_masks

n_critics policy_delay target_noise target_noise_clip action_layer critic_l2 last_layer_limit
critic_activation embedding_size encoder_hidden_sizes encoder_activation encoder_learning_rate
copy_every bc_alpha policy_checkpoints checkpoint_untrained checkpoint_episodes
checkpoint_episodes_after checkpoint_reset
"""
INSIDE = frozenset(_INSIDE.split())


def outside_settings(document: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings of a run that reach outside the process and need consent.

    Settings neither in `INSIDE` nor in `OUTSIDE` belong to a custom agent. Their effect is unknown,
    so they are included.

    Args:
        document: Validated content of `config.json`.
    """
    settings = {"agent": document["agent"], **document["settings"]}
    return {
        name: value
        for name, value in settings.items()
        if name not in INSIDE and OUTSIDE.get(name, _is_unknown)(value)
    }


def modules_of(named: Mapping[str, Any]) -> dict[str, str]:
    """Maps settings to the modules that they name. A wrapper's key is `WRAPPER` plus its name."""
    modules = {
        role: value.rpartition(":")[0] if role == "env" else value.partition(":")[0]
        for role, value in named.items()
        if role in IMPORTED
    }
    foreign = filter(_is_foreign, named.get("wrapper", ()))
    return modules | {WRAPPER + name: name.partition(":")[0] for name in foreign}


def _is_package(env: str) -> bool:
    package = env.rpartition(":")[0]
    return bool(package) and not env.startswith(FACTORY) and package not in _plugins()


def _is_foreign(wrapper: str) -> bool:
    module, _, rest = wrapper.partition(":")
    is_own = module == wrappers.__name__ and rest.partition("(")[0] in wrappers.__all__
    return not is_own and not wrapper.startswith(FACTORY)


def _is_factory(name: str) -> bool:
    return ":" in name and not name.startswith(FACTORY)


# Settings that can reach outside the process, with functions that return whether a value does.
OUTSIDE: Mapping[str, Callable[[Any], bool]] = MappingProxyType(
    {
        "agent": lambda name: ":" in name,
        "env": _is_package,
        "env_kwargs": bool,  # only the environment knows their effect
        "wrapper": lambda names: any(map(_is_foreign, names)),
        "evaluation_env_kwargs": bool,
        "init_from": bool,
        "data": bool,
        "collectors": lambda kind: kind != HERE,
        "num_collectors": bool,
        "track": bool,
        **dict.fromkeys(FACTORIES, _is_factory),
    }
)


def _is_unknown(value: Any) -> bool:
    return True


def _plugins() -> set[str]:
    """Returns the modules of plugins, which Gymnasium imports automatically."""
    found = importlib.metadata.entry_points(group="gymnasium.envs")
    return {plugin.module.removesuffix(".__init__") for plugin in found}


def changed_kwargs(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what is recorded about changed environment arguments: all but numbers and booleans.

    A run changes numbers often, and the user's list must not grow with each change.
    """
    return {"changed env_kwargs": _without_numbers(kwargs)}


def _without_numbers(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_numbers(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_without_numbers(each) for each in value]
    return 0 if isinstance(value, int | float) else value


def is_trusted(path: Path, named: Mapping[str, Any]) -> bool:
    """Returns whether this user trained the run at this path with the same settings and modules."""
    return RunFiles(_list()).is_file(_entry(path, named))


def trust(path: Path, named: Mapping[str, Any]) -> None:
    """Adds a run directory and its settings to the user's list of trusted runs.

    Raises:
        OSError: If the list cannot be written.
    """
    entry = {"path": str(path.resolve()), "names": named, "places": places_of(named)}
    folder = _list()
    _make_private(folder)
    content = json.dumps(entry, indent=1).encode() + b"\n"
    RunFiles(folder, mode=0o600).write(_entry(path, named), [content])


def _make_private(folder: Path) -> None:
    """Creates a directory and its missing parents with mode 0700, regardless of the umask."""
    if not folder.is_dir():
        _make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def _list() -> Path:
    return platformdirs.user_state_path("eagerly", appauthor=False) / "trusted"


def _entry(path: Path, named: Mapping[str, Any]) -> str:
    digest = hashlib.sha256(os.fsencode(path.resolve()) + b"\0")
    digest.update(json.dumps([named, places_of(named)], sort_keys=True).encode())
    return f"{digest.hexdigest()}.json"


def places_of(named: Mapping[str, Any]) -> dict[str, str]:
    """Returns the location of each module, because modules with equal names can differ."""
    places = {}
    for role, module in modules_of(named).items():
        try:
            places[role] = location_of(module)
        except (ImportError, ValueError):
            places[role] = MISSING
    return places


def described(named: Mapping[str, Any]) -> str:
    """Returns a description of what these run directory settings would do."""
    found = _collection(named)
    if places := places_of(named):
        imports = (
            _cut(f"{named.get(role, name)} ({kind}{f', in {place}' if place else ''})")
            for role, place in places.items()
            for kind, _, name in [role.partition(" ")]
        )
        found.append("import " + ", ".join(imports))
    if "env_kwargs" in named:
        found.append(f"pass {_cut(json.dumps(named['env_kwargs']))} to its environment")
    if "evaluation_env_kwargs" in named:
        kwargs = _cut(json.dumps(named["evaluation_env_kwargs"]))
        found.append(f"pass {kwargs} to its evaluation environment")
    if "init_from" in named:
        found.append(f"start from the policy of {_cut(json.dumps(named['init_from']))}")
    if "data" in named:
        found.append(f"read logged data from {_cut(json.dumps(named['data']))}")
    if "track" in named:
        found.append(f"send its curves to {_cut(json.dumps(named['track']))}")
    for name in sorted(named.keys() - OUTSIDE.keys()):
        found.append(f"set {_cut(name)} of its agent to {_cut(json.dumps(named[name]))}")
    return " and ".join(found)


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def _collection(named: Mapping[str, Any]) -> list[str]:
    kind, count = named.get("collectors", PROCESSES), named.get("num_collectors")
    found = [f"start {count} processes"] if count else []
    if kind == RAY:
        return ["start a Ray cluster on this machine", *found]
    if kind != PROCESSES:
        address = kind.partition(":")[2]
        return [f"join the Ray cluster at {address} and execute what its actors return", *found]
    return found or ["start processes"] * ("collectors" in named)
