"""Suggests the intended name for an unknown setting or environment.

The table of settings covers Stable-Baselines3, RL Baselines3 Zoo, CleanRL, Spinning Up, Tianshou,
RLlib and the code of the TD3 authors.
"""

from __future__ import annotations

import difflib
import importlib.util
import re
import sys
from collections.abc import Callable, Collection, Iterable

_LEARNING_RATES = ("actor_learning_rate", "critic_learning_rate")
# Other names of agent settings, each with our names.
AGENT_NAMES: dict[str, tuple[str, ...]] = {
    "act_noise": ("exploration_noise",),
    "action_noise": ("exploration", "exploration_noise"),
    "activation_fn": ("activation",),
    "actor_lr": ("actor_learning_rate",),
    "alpha": ("prioritized_exponent", "lap_exponent"),
    "beta": ("prioritized_correction",),
    "clip_grad": ("clip_gradients",),
    "critic_lr": ("critic_learning_rate",),
    "expl_noise": ("exploration_noise",),
    "gamma": ("discount",),
    "goal_selection_strategy": ("hindsight",),
    "grad_clip": ("clip_gradients",),
    "hidden_size": ("hidden_sizes",),
    "hidden_units": ("hidden_sizes",),
    "learning_rate": _LEARNING_RATES,
    "lr": _LEARNING_RATES,
    "lr_schedule": ("schedule", "schedule_steps", "schedule_end"),
    "max_grad_norm": ("clip_gradients",),
    "n_sampled_goal": ("hindsight_goals",),
    "n_steps": ("n_step",),
    "net_arch": ("hidden_sizes",),
    "noise_clip": ("target_noise_clip",),
    "noise_std": ("exploration_noise",),
    "noise_type": ("exploration",),
    "norm_obs": ("normalize_observations",),
    "norm_reward": ("normalize_rewards",),
    "normalize": ("normalize_observations", "normalize_rewards"),
    "pi_lr": ("actor_learning_rate",),
    "policy_freq": ("policy_delay",),
    "policy_frequency": ("policy_delay",),
    "policy_kwargs": ("hidden_sizes", "activation"),
    "policy_noise": ("target_noise",),
    "polyak": ("tau",),
    "prioritized_replay": ("sampling",),
    "prioritized_replay_alpha": ("prioritized_exponent",),
    "prioritized_replay_beta": ("prioritized_correction",),
    "q_lr": ("critic_learning_rate",),
    "replay_buffer_class": ("sampling", "hindsight"),
    "sigma": ("exploration_noise",),
    "target_policy_noise": ("target_noise",),
    "target_update_interval": ("copy_every",),
    "train_batch_size": ("batch_size",),
    "twin_q": ("n_critics",),
}
# Other names of run settings and of the arguments agent and run_dir.
RUN_NAMES: dict[str, tuple[str, ...]] = {
    "algo": ("agent",),
    "algorithm": ("agent",),
    "buffer_capacity": ("replay_capacity",),
    "buffer_size": ("replay_capacity",),
    "capture_video": ("video_every_steps",),
    "checkpoint_freq": ("checkpoint_every_steps",),
    "checkpoint_frequency": ("checkpoint_every_steps",),
    "cuda": ("device",),
    "env_config": ("env_kwargs",),
    "env_id": ("env",),
    "env_name": ("env",),
    "env_wrapper": ("wrapper",),
    "environment": ("env",),
    "eval_episodes": ("evaluation_episodes",),
    "eval_every": ("evaluate_every_steps",),
    "eval_freq": ("evaluate_every_steps",),
    "eval_frequency": ("evaluate_every_steps",),
    "evaluation_interval": ("evaluate_every_steps",),
    "exp_name": ("run_dir",),
    "frame_stack": ("wrapper",),
    "gpu": ("device",),
    "gradient_steps": ("replay_ratio",),
    "learning_starts": ("warmup_steps",),
    "log_freq": ("summarize_every_steps",),
    "log_interval": ("summarize_every_steps",),
    "load_model": ("init_from",),
    "log_dir": ("run_dir",),
    "logdir": ("run_dir",),
    "max_ep_len": ("evaluation_steps_limit",),
    "max_steps": ("steps",),
    "max_timesteps": ("steps",),
    "memory_size": ("replay_capacity",),
    "n_envs": ("num_envs",),
    "n_eval_episodes": ("evaluation_episodes",),
    "n_timesteps": ("steps",),
    "num_env_runners": ("num_envs", "num_collectors"),
    "num_test_episodes": ("evaluation_episodes",),
    "num_steps": ("steps",),
    "num_timesteps": ("steps",),
    "num_workers": ("num_envs", "num_collectors"),
    "output_dir": ("run_dir",),
    "random_steps": ("warmup_steps",),
    "replay_size": ("replay_capacity",),
    "reward_threshold": ("stop_at_return",),
    "save_every": ("checkpoint_every_steps",),
    "save_freq": ("checkpoint_every_steps",),
    "start_steps": ("warmup_steps",),
    "start_timesteps": ("warmup_steps",),
    "tb_log_name": ("run_dir",),
    "tensorboard_log": ("run_dir",),
    "timesteps": ("steps",),
    "total_steps": ("steps",),
    "total_timesteps": ("steps",),
    "train_freq": ("replay_ratio",),
    "update_after": ("warmup_steps",),
    "update_every": ("updates_per_call",),
    "update_per_step": ("replay_ratio",),
    "utd": ("replay_ratio",),
    "utd_ratio": ("replay_ratio",),
    "vec_env": ("collectors",),
    "wrapper_class": ("wrapper",),
    "wrappers": ("wrapper",),
}
_OF_RUNS = {name: (name,) for names in RUN_NAMES.values() for name in names} | RUN_NAMES
# Names that are no setting here.
_ELSEWHERE = {
    "callback": "Use callbacks in eagerly.train.",
    "gym_packages": "Use --env package:id.",
    "hyperparams": "Each setting is an option or an argument, such as --discount or discount=0.98.",
    "n_trials": "Use eagerly tune.",
    "optimize": "Use eagerly tune.",
    "policy": "Omit it: hidden_sizes and activation define the networks.",
    "render": "Use eagerly evaluate --render, or video_every_steps.",
    "resume": "Use eagerly resume, or repeat the command with the same run_dir.",
    "tensorboard": "Omit it: the curves are always written, into run_dir.",
    "trained_agent": "Use eagerly resume, or init_from for a new run.",
}
# Additions to the suggestion.
_ADDITIONS = {
    "gradient_steps": ", which is gradient_steps / train_freq",
    "polyak": ", which is 1 - polyak",
    "train_freq": ", which is gradient_steps / train_freq",
}

# Ids of environments in other packages: (pattern, module, name of the package for pip).
_PACKAGES = (
    (
        "Fetch|Hand|Adroit|AntMaze|PointMaze|FrankaKitchen",
        "gymnasium_robotics",
        "gymnasium-robotics",
    ),
    ("ALE/", "ale_py", "ale-py"),
    ("Panda(Reach|Push|Slide|Pick|Stack|Flip)", "panda_gym", "panda-gym"),
    ("(highway|merge|roundabout|parking|intersection|racetrack)-", "highway_env", "highway-env"),
    ("Meta-World/", "metaworld", "metaworld"),
    ("dm_control/", "shimmy", "'shimmy[dm-control]'"),
    ("myo", "myosuite", "myosuite"),
)


def suggestion(unknown: str, known: Collection[str], spell: Callable[[str], str] = str) -> str:
    """Returns a sentence that names the intended setting, or "".

    Examples: "Use discount." for "gamma", and "Did you mean discount?" for "discout".

    Args:
        unknown: The unknown name.
        known: Names that exist.
        spell: Converts a name to the form to print, such as a command-line option.
    """
    name = unknown.lower().replace("-", "_")
    if name in _ELSEWHERE and name not in known:
        return _ELSEWHERE[name]
    meanings = {each: [each] for each in known}
    for other, names in (AGENT_NAMES | RUN_NAMES).items():
        if meant := [each for each in names if each in known]:
            meanings[other] = meant
    if spell is str and name in _OF_RUNS and name not in meanings:
        return f"Use {' and '.join(_OF_RUNS[name])} in eagerly.train."
    for near in [name] if name in meanings else difflib.get_close_matches(name, meanings, 1):
        text = f"{' and '.join(map(spell, meanings[near]))}{_ADDITIONS.get(near, '')}"
        return f"Use {text}." if near == name else f"Did you mean {text}?"
    return ""


def spelling_suggestion(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Returns a question with the most similar name, such as "Did you mean Resize?", or "".

    Args:
        name: The unknown name.
        known: The names that exist.
        cutoff: Smallest similarity, in [0, 1].
    """
    names = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), names, n=1, cutoff=cutoff)
    return f"Did you mean {names[near[0]]}?" if near else ""


def environment_suggestion(package: str, name: str, known: Iterable[str]) -> str:
    """Returns sentences that help with an unknown id of an environment.

    Args:
        package: The imported package that was named as `package:id`, or "".
        name: The id.
        known: The registered ids.
    """
    for pattern, module, project in _PACKAGES:
        if not package and re.match(pattern, name):
            missing = importlib.util.find_spec(module) is None
            return f"Use {module}:{name}{f', after pip install {project}' if missing else ''}."
    if package and isinstance(getattr(sys.modules[package], name, None), type):
        return (
            f"{name} is a class: register an id for it with gymnasium.register('{name}-v0', "
            f"{name}), or pass the class itself in Python"
        )
    newest = {each.rpartition("-v")[0] or each: each for each in sorted(known, key=_version)}
    ids = {each.lower(): each for each in newest.values()}
    before, cutoff = (f"{package}:", 0.8) if package else ("", 0.6)
    near = [before + ids[i] for i in difflib.get_close_matches(name.lower(), ids, 3, cutoff)]
    hint = f"Did you mean {' or '.join(near)}? " if near else ""
    if package:
        return hint or f"{package} was imported, but registered no such id with gymnasium.register"
    return hint + "Use package:id if a package registers it."


def _version(name: str) -> int:
    """Returns the version at the end of an id, or -1 without one."""
    version = name.rpartition("-v")[2]
    return int(version) if version.isdecimal() else -1
