"""Settings of a run, as opposed to those of its agent."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from eagerly.agents.agent_settings import BY_PRIORITY
from eagerly.settings import Group, Settings, setting, when
from eagerly.storage.tracking import check_track
from eagerly.workers.group_specs import HERE, check_collectors

DEVICES = ("auto", "cpu", "gpu")
MOST_STEPS = 10**12 - 1  # checkpoint names have twelve digits
MOST_EPISODES = 10**5  # per evaluation
_WITH_CHECKPOINTS = when("policy_checkpoints")
# Values of the setting `evaluations`.
SEPARATE, SHARED, NO_EVALUATIONS = "separate", "shared", "none"
_WITH_DATA = when("data")
_COLLECTING = when("offline", False)
# Settings that must have their defaults in offline training.
_OF_COLLECTION = (
    "hardware",
    "num_envs",
    "rollout_steps",
    "policy_lag",
    "collectors",
    "policy_checkpoints",
)
# Defaults with `hardware`. The updates of a round and a checkpoint must take less than a round.
_HARDWARE_ROUND, _HARDWARE_UPDATES = 100, 50


def hardware_defaults(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the defaults of a new run with the setting `hardware`.

    Args:
        given: The settings that are set explicitly, by name.
    """
    defaults = {
        "check_env": False,
        "restore_episodes": "no",
        "evaluations": NO_EVALUATIONS,
        "policy_checkpoints": False,
    }
    if given.get("evaluations") == SHARED or given.get("policy_lag") == 0:
        return defaults | {"updates_per_call": 1}  # the environment waits for each call
    steps = given.get("rollout_steps", _HARDWARE_ROUND)
    per_call = min(steps, _HARDWARE_UPDATES) if isinstance(steps, int) else 1
    return defaults | {"policy_lag": 1, "rollout_steps": steps, "updates_per_call": per_call}


def _check_hardware(config: RunConfig) -> None:
    needed = {"num_envs": 1, "collectors": HERE, "check_env": False, "restore_episodes": "no"}
    for name, value in needed.items():
        if config.hardware and (found := getattr(config, name)) != value:
            raise ValueError(
                f"{name} must be {value} with hardware, because only one environment exists, which "
                f"must not be reset or stepped for other purposes; got {found}: omit {name}"
            )
    if config.hardware and config.evaluations == SEPARATE:
        raise ValueError(
            "evaluations must be none or shared with hardware, because only one environment "
            "exists; got separate"
        )


def _check_collection(config: RunConfig) -> None:
    check_collectors(config.collectors)
    every, steps = config.evaluate_every_steps, config.steps_per_round
    if config.rollout_steps > 1 and every < steps and config.evaluations != NO_EVALUATIONS:
        raise ValueError(
            f"rollout_steps {config.rollout_steps} with num_envs {config.num_envs} gives rounds of "
            f"{steps} steps, but evaluate_every_steps is {every}: reduce rollout_steps, or set "
            f"evaluate_every_steps to at least {steps}"
        )
    if config.group_size > config.num_envs:
        raise ValueError(
            f"group_size must be at most num_envs ({config.num_envs}); got {config.group_size}"
        )
    if config.num_collectors > config.most_collectors:
        raise ValueError(
            f"num_collectors must be at most {config.most_collectors} with num_envs "
            f"{config.num_envs}, group_size {config.group_size}, policy_lag {config.policy_lag} "
            f"and collectors {config.collectors}; got {config.num_collectors}: reduce it, or set 0 "
            "to use as many as are useful (a group that acts is never split)"
        )


def _check_updates(config: RunConfig) -> None:
    if config.replay_capacity < config.num_envs:
        raise ValueError(
            f"replay_capacity must be at least num_envs ({config.num_envs}); got "
            f"{config.replay_capacity}"
        )


def _check_evaluation(config: RunConfig) -> None:
    kind = config.evaluations
    needed = {"num_envs": 1, "rollout_steps": 1, "policy_lag": 0, "collectors": HERE}
    for name, value in needed.items():
        if kind == SHARED and (found := getattr(config, name)) != value:
            raise ValueError(
                f"evaluations shared requires {name} {value}, because evaluations alternate with "
                f"the episodes of one environment in this process; got {name} {found}"
            )
    for name in ("video_every_steps", "evaluation_env_kwargs"):
        if kind != SEPARATE and getattr(config, name):
            why = f"evaluations is {kind}: omit {name}, or set evaluations to separate"
            if config.hardware:
                why = f"with hardware, only one exists: omit {name}"
            raise ValueError(f"{name} needs a second environment, but {why}")
    if kind == NO_EVALUATIONS and config.stop_at_return is not None:
        raise ValueError("stop_at_return needs evaluations, but evaluations is none: omit one")


def _check_offline(config: RunConfig) -> None:
    if not config.offline:
        return
    if config.evaluations == SHARED:
        raise ValueError("evaluations must be separate or none with offline; got shared")
    if not config.data:
        raise ValueError("offline training needs logged data: add --data")
    for name in _OF_COLLECTION:
        value, default = getattr(config, name), getattr(RunConfig, name)
        if value != default:
            raise ValueError(
                f"{name} must be {default} with offline, because nothing is collected; got {value}"
            )


def _check_policy_checkpoints(config: RunConfig) -> None:
    if config.policy_lag and config.policy_checkpoints:
        raise ValueError(
            "policy_lag must be 0 with policy_checkpoints, because policies are evaluated on the "
            "episodes that they collect: add --no-policy-checkpoints"
        )


ENVIRONMENT = Group("Environment", _check_hardware)
RUN = Group("Run")
DATA = Group("Logged data", _check_offline)
COLLECTION = Group("Collection", _check_collection)
UPDATES = Group("Updates", _check_updates)
POLICY_CHECKPOINTS = Group("Policy checkpoints", _check_policy_checkpoints)
EVALUATION = Group("Evaluation", _check_evaluation)
CURVES = Group("Curves and videos", lambda config: check_track(config.track))
CHECKPOINTS = Group("Checkpoints")
HARDWARE = Group("Hardware")


class RunConfig(Settings):
    """Settings of a run. A step is one step of one environment."""

    env: str | Callable[..., Any] = setting(
        dataclasses.MISSING,
        "Gymnasium id, or package:id for an id that a package registers; in Python also a factory",
        longest=500,
        basic=True,
        group=ENVIRONMENT,
    )
    env_kwargs: dict[str, Any] = setting(
        {},
        "Keyword arguments of the environment, such as '{\"frame_skip\": 2}'",
        unit="JSON",
        group=ENVIRONMENT,
    )
    wrapper: tuple[str | Callable[..., Any], ...] = setting(
        (),
        "Wrapper of the environment, such as 'eagerly.wrappers:RateLimit(change=0.1)'; can be "
        "repeated, the first is the innermost (documentation: Wrap environments)",
        longest=32,
        names="module:factory or module:factory(name=value, ...)",
        repeatable=True,
        group=ENVIRONMENT,
    )
    check_env: bool = setting(
        True,
        "Run Gymnasium's environment checker before a new run",
        resumable=True,
        group=ENVIRONMENT,
    )
    hardware: bool = setting(
        False,
        "The environment is a machine that moves in real time: one instance, no check, no time "
        "limit for reset, programs compiled before the first reset "
        "(documentation: Train on one robot in real time)",
        comparable=True,
        group=ENVIRONMENT,
    )
    num_envs: int = setting(
        1,
        "Number of environments stepped in parallel",
        unit="environments",
        at_least=1,
        at_most=4096,
        basic=True,
        group=ENVIRONMENT,
    )
    environment_timeout_seconds: float = setting(
        300.0,
        "Time limit of an environment step or reset, after which the process ends; 0: none",
        unit="seconds",
        at_least=0,
        at_most=10**6,
        resumable=True,
        group=ENVIRONMENT,
    )

    steps: int = setting(
        1_000_000,
        "Environment steps of the run, summed over all environments",
        unit="steps",
        at_least=1,
        at_most=MOST_STEPS,
        resumable=True,
        basic=True,
        group=RUN,
    )
    stop_at_return: float | None = setting(
        None,
        "Finish the run early once an evaluation reaches this mean return",
        unit="mean return",
        resumable=True,
        group=RUN,
    )
    seed: int = setting(
        0,
        "Seed of all randomness in training",
        at_least=0,
        at_most=2**31 - 1,
        comparable=True,
        basic=True,
        group=RUN,
    )
    init_from: str = setting(
        "",
        "Another run, whose policy initializes the actor of a new run",
        unit="run directory",
        group=RUN,
    )
    init_critics: bool = setting(
        False,
        "Also initialize the critics, with those of the newest checkpoint of that run",
        requires=(when("init_from"),),
        group=RUN,
    )

    data: str = setting(
        "",
        "Logged data for the replay buffer of a new run; can be repeated "
        "(documentation: Learn from logged data: offline RL)",
        unit="files or folders",
        immutable=True,
        repeatable=True,
        basic=True,
        group=DATA,
    )
    data_share: float = setting(
        0.5,
        "Share of each batch that is drawn from the data (Ball et al. 2023: 0.5)",
        at_least=0,
        at_most=1,
        requires=(_WITH_DATA, _COLLECTING),
        group=DATA,
    )
    offline: bool = setting(
        False,
        "Train on the data only: each step permits updates, but collects nothing",
        immutable=True,
        requires=(_WITH_DATA,),
        basic=True,
        group=DATA,
    )

    warmup_steps: int = setting(
        10_000,
        "Initial steps with uniform random actions and no updates (TD3 paper, HalfCheetah: 10,000)",
        unit="steps",
        at_least=0,
        at_most=MOST_STEPS,
        requires=(_COLLECTING,),
        basic=True,
        group=COLLECTION,
    )
    group_size: int = setting(
        0,
        "Environments per group, whose actions come from one call of the policy; 0: all",
        unit="environments",
        at_least=0,
        at_most=4096,
        comparable=True,
        group=COLLECTION,
    )
    rollout_steps: int = setting(
        1,
        "Steps of each environment per round, with the same policy; updates follow each round",
        unit="steps",
        at_least=1,
        at_most=10**5,
        group=COLLECTION,
    )
    policy_lag: int = setting(
        0,
        "1: collect each round while updating on the previous one (the acting policy is one round "
        "old); 0: alternate",
        unit="rounds",
        at_least=0,
        at_most=1,
        group=COLLECTION,
    )
    collectors: str = setting(
        HERE,
        "Where environment groups are stepped: in this process, in other processes, on a new local "
        "Ray cluster (ray) or on an existing one (ray:HOST:PORT); the results are the same",
        unit="here|processes|ray|ray:HOST:PORT",
        longest=300,
        resumable=True,
        group=COLLECTION,
    )
    num_collectors: int = setting(
        0,
        "Processes or Ray actors that step the groups; 0: one per group, at most one per core",
        unit="collectors",
        at_least=0,
        at_most=4096,
        resumable=True,
        group=COLLECTION,
    )
    allow_different_collectors: bool = setting(
        False,
        "Accept collectors whose versions or instruction set differ from this machine's; results "
        "then depend on the assignment of groups to collectors",
        resumable=True,
        group=COLLECTION,
    )

    replay_ratio: float = setting(
        1.0,
        "Gradient updates per environment step after the warm-up, for any --num-envs",
        unit="updates",
        above=0,
        at_most=1000,
        basic=True,
        group=UPDATES,
    )
    updates_per_call: int = setting(
        50,
        "Gradient updates per call of the train body, which runs once this many are pending",
        at_least=1,
        at_most=10**5,
        immutable=BY_PRIORITY,  # priorities change between calls
        group=UPDATES,
    )
    replay_capacity: int = setting(
        1_000_000,
        "Capacity of the replay buffer (paper)",
        unit="transitions",
        at_least=1,
        at_most=10**12,
        immutable=BY_PRIORITY,  # priorities belong to ring positions
        group=UPDATES,
    )

    policy_checkpoints: bool = setting(
        False,
        "Evaluate and save a copy of the policy with the highest worst-episode return, and update "
        "only at the ends of episodes (TD7 paper)",
        immutable=True,
        group=POLICY_CHECKPOINTS,
    )
    checkpoint_untrained: bool = setting(
        False,
        "Also assess the untrained policy (TD7 authors)",
        requires=_WITH_CHECKPOINTS,
        group=POLICY_CHECKPOINTS,
    )
    checkpoint_episodes: int = setting(
        20,
        "Episodes per policy assessment after more than --checkpoint-episodes-after updates; until "
        "then one (TD7 paper)",
        unit="episodes",
        at_least=1,
        at_most=10**6,
        requires=_WITH_CHECKPOINTS,
        group=POLICY_CHECKPOINTS,
    )
    checkpoint_episodes_after: int = setting(
        750_000,
        "Updates after which a policy is assessed by --checkpoint-episodes episodes (TD7 authors)",
        unit="updates",
        at_least=0,
        at_most=10**12,
        requires=_WITH_CHECKPOINTS,
        group=POLICY_CHECKPOINTS,
    )
    checkpoint_reset: float = setting(
        0.9,
        "Factor applied once to the worst return of the saved policy, when "
        "--checkpoint-episodes-after is passed; set it to 1 if returns are negative (TD7 authors)",
        above=0,
        at_most=1,
        requires=_WITH_CHECKPOINTS,
        group=POLICY_CHECKPOINTS,
    )

    evaluations: str = setting(
        SEPARATE,
        "Evaluate in a separate environment; in the training environment, between two episodes "
        "(shared); or never (none)",
        choices=(SEPARATE, SHARED, NO_EVALUATIONS),
        group=EVALUATION,
    )
    evaluation_env_kwargs: dict[str, Any] = setting(
        {},
        "Keyword arguments of evaluation and video environments, merged over --env-kwargs",
        unit="JSON",
        group=EVALUATION,
    )
    evaluate_every_steps: int = setting(
        5_000,
        "Environment steps between evaluations (paper)",
        unit="steps",
        at_least=1,
        at_most=MOST_STEPS,
        comparable=True,
        requires=when("evaluations", SEPARATE, SHARED),
        basic=True,
        group=EVALUATION,
    )
    evaluation_episodes: int = setting(
        10,
        "Episodes per evaluation (paper)",
        unit="episodes",
        at_least=1,
        at_most=MOST_EPISODES,
        comparable=True,
        group=EVALUATION,
    )
    evaluation_steps_limit: int = setting(
        100_000,
        "Maximum length of an evaluation episode or video; longer ones end with a warning",
        unit="steps",
        at_least=1,
        at_most=MOST_STEPS,
        group=EVALUATION,
    )
    evaluation_seed: int = setting(
        0,
        "Seed of the evaluation episodes, which are the same in every evaluation",
        at_least=0,
        at_most=2**63 - 1,
        comparable=True,
        group=EVALUATION,
    )

    summarize_every_steps: int = setting(
        1_000,
        "Environment steps between points of the training curves",
        unit="steps",
        at_least=1,
        at_most=MOST_STEPS,
        comparable=True,
        group=CURVES,
    )
    histograms: bool = setting(
        False,
        "Write histograms of all weights at each point of the training curves",
        resumable=True,
        group=CURVES,
    )
    video_every_steps: int = setting(
        0,
        "Environment steps between videos of an evaluation episode; 0: none",
        unit="steps",
        at_least=0,
        at_most=MOST_STEPS,
        resumable=True,
        group=CURVES,
    )
    track: str = setting(
        "",
        "Experiment tracker that also receives the curves: Weights & Biases or MLflow",
        unit="wandb[:PROJECT]|mlflow[:URI]",
        longest=300,
        resumable=True,
        group=CURVES,
    )

    checkpoint_every_steps: int = setting(
        10_000,
        "Environment steps between checkpoints",
        unit="steps",
        at_least=1,
        at_most=MOST_STEPS,
        resumable=True,
        group=CHECKPOINTS,
    )
    checkpoint_every_minutes: float = setting(
        10.0,
        "Maximum wall time between checkpoints; 0: only --checkpoint-every-steps applies",
        unit="minutes",
        at_least=0,
        at_most=10**6,
        resumable=True,
        group=CHECKPOINTS,
    )
    keep_checkpoints: int = setting(
        2,
        "Number of newest checkpoints to keep",
        unit="checkpoints",
        at_least=1,
        at_most=MOST_STEPS,
        resumable=True,
        group=CHECKPOINTS,
    )
    restore_episodes: str = setting(
        "yes",
        "On resume, restore unfinished episodes by repeating their actions; no: start new ones",
        choices=("yes", "no"),
        resumable=True,
        group=CHECKPOINTS,
    )

    device: str = setting(
        "auto",
        "Training device; auto: a GPU if available",
        choices=DEVICES,
        comparable=True,
        basic=True,
        group=HARDWARE,
    )
    intra_op_threads: int = setting(
        2,
        "Threads per TensorFlow operation; fixed, because their number can change the last bits",
        at_least=1,
        at_most=1024,
        comparable=True,
        group=HARDWARE,
    )
    inter_op_threads: int = setting(
        2,
        "TensorFlow operations run in parallel (best in graph mode: 2, with --intra-op-threads 1)",
        at_least=1,
        at_most=1024,
        comparable=True,
        group=HARDWARE,
    )

    @property
    def groups_act(self) -> bool:
        """Returns whether each group selects its own actions, be it in this process or a collector.

        A single group of all environments does so only in this process or with a policy lag.
        Otherwise it is split: this process selects its actions, and collectors only step the
        environments.
        """
        return self.collectors == HERE or bool(self.group_size) or bool(self.policy_lag)

    @property
    def most_collectors(self) -> int:
        """The largest useful number of collectors."""
        if self.collectors == HERE:
            return 1
        groups = -(-self.num_envs // self.group_size) if self.group_size else 1
        return groups if self.groups_act else self.num_envs

    @property
    def steps_per_round(self) -> int:
        """Steps per round, counted over all environments."""
        return self.num_envs * self.rollout_steps

    def is_due(self, every: int, steps: int) -> bool:
        """Returns whether the round that ended at `steps` reached a multiple of `every` steps.

        Args:
            every: Interval in steps; 0 means never.
            steps: Environment steps at the end of the round.
        """
        return every > 0 and steps % every < self.steps_per_round

    def next_due(self, steps: int) -> int:
        """Returns the next step at which anything periodic is due, or the last step of the run."""
        intervals = (
            self.evaluate_every_steps,
            self.video_every_steps,
            self.summarize_every_steps,
            self.checkpoint_every_steps,
        )
        due = [(steps // every + 1) * every for every in intervals if every > 0]
        return min([self.steps, *due]) if steps < self.steps else steps

    def limits_reached(self, steps: int, best_return: float) -> list[str]:
        """Returns which of the settings "steps" and "stop_at_return" end a run at this point.

        Args:
            steps: Environment steps completed.
            best_return: Mean return of the best evaluation, or -inf without one.
        """
        wanted = self.stop_at_return
        found = {
            "steps": steps >= self.steps,
            "stop_at_return": wanted is not None and best_return >= wanted,
        }
        return [name for name, is_reached in found.items() if is_reached]


# Settings that cannot affect a run's result and may therefore change when it is resumed.
RESUMABLE = frozenset(name for name, each in RunConfig.SETTINGS.items() if each.resumable)
