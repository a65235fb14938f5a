"""Settings of a run, as opposed to those of its agent."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from eagerly.agents.agent_settings import BY_PRIORITY
from eagerly.settings import Group, Settings, setting, when
from eagerly.workers.group_specs import HERE, check_collectors

DEVICES = ("auto", "cpu", "gpu")
MOST_STEPS = 10**12 - 1  # twelve digits in checkpoint names
MOST_EPISODES = 10**5  # per evaluation
_WITH_CHECKPOINTS = when("policy_checkpoints")


def _check_collection(config: RunConfig) -> None:
    check_collectors(config.collectors)
    every, steps = config.evaluate_every_steps, config.steps_per_round
    if config.rollout_steps > 1 and every < steps:
        raise ValueError(
            f"rollout_steps {config.rollout_steps} of num_envs {config.num_envs} make rounds of "
            f"{steps} steps, which cannot be evaluated every {every}: give fewer, or "
            f"evaluate_every_steps of at least {steps}"
        )
    if config.group_size > config.num_envs:
        raise ValueError(
            f"group_size must be at most num_envs ({config.num_envs}); got {config.group_size}"
        )
    if config.num_collectors > config.most_collectors:
        raise ValueError(
            f"num_collectors must be at most {config.most_collectors} with num_envs "
            f"{config.num_envs}, group_size {config.group_size}, policy_lag {config.policy_lag} "
            f"and collectors {config.collectors}; got {config.num_collectors}. A group that acts "
            "is not divided; 0 gives as many as are useful"
        )


def _check_updates(config: RunConfig) -> None:
    if config.replay_capacity < config.num_envs:
        raise ValueError(
            f"replay_capacity must be at least num_envs ({config.num_envs}); got "
            f"{config.replay_capacity}"
        )


def _check_policy_checkpoints(config: RunConfig) -> None:
    if config.policy_lag and config.policy_checkpoints:
        raise ValueError(
            "policy_lag must be 0 with policy_checkpoints, because a policy is judged by the "
            "episodes that it collects: add --no-policy-checkpoints"
        )


ENVIRONMENT = Group("Environment")
RUN = Group("Run")
COLLECTION = Group("Collection", _check_collection)
UPDATES = Group("Updates", _check_updates)
POLICY_CHECKPOINTS = Group("Policy checkpoints", _check_policy_checkpoints)
EVALUATION = Group("Evaluation")
CURVES = Group("Curves and videos")
CHECKPOINTS = Group("Checkpoints")
HARDWARE = Group("Hardware")


class RunConfig(Settings):
    """Settings of a run. A step is one step of one environment."""

    env: str | Callable[..., Any] = setting(
        dataclasses.MISSING,
        "Gymnasium id, with package:id for one that a package registers; in Python also a factory",
        longest=500,
        group=ENVIRONMENT,
    )
    env_kwargs: dict[str, Any] = setting(
        {},
        "Keyword arguments of the environment, such as '{\"frame_skip\": 2}'",
        unit="JSON",
        group=ENVIRONMENT,
    )
    check_env: bool = setting(
        True,
        "Run Gymnasium's environment checker before a new run",
        resumable=True,
        group=ENVIRONMENT,
    )
    num_envs: int = setting(
        1, "Stepped side by side", unit="environments", at_least=1, at_most=4096, group=ENVIRONMENT
    )
    environment_timeout_seconds: float = setting(
        300.0,
        "A step or reset that takes longer ends the process; 0: never",
        unit="seconds",
        at_least=0,
        at_most=10**6,
        resumable=True,
        group=ENVIRONMENT,
    )

    steps: int = setting(
        1_000_000,
        "Length of the run",
        unit="steps",
        at_least=1,
        at_most=MOST_STEPS,
        resumable=True,
        group=RUN,
    )
    stop_at_return: float | None = setting(
        None,
        "Finish the run once an evaluation has this mean return, before its steps are done",
        unit="mean return",
        resumable=True,
        group=RUN,
    )
    seed: int = setting(
        0, "Seed of everything random in training", at_least=0, at_most=2**31 - 1, group=RUN
    )
    init_from: str = setting(
        "",
        "Another run, whose policy the actor of a new run begins with",
        unit="run directory",
        group=RUN,
    )

    warmup_steps: int = setting(
        10_000,
        "Uniformly random actions, and no updates, at first (TD3 paper, HalfCheetah: 10,000)",
        unit="steps",
        at_least=0,
        at_most=MOST_STEPS,
        group=COLLECTION,
    )
    group_size: int = setting(
        0,
        "How many of them act together, with one call of the policy; 0: all",
        unit="environments",
        at_least=0,
        at_most=4096,
        group=COLLECTION,
    )
    rollout_steps: int = setting(
        1,
        "Of each environment in a round, with one version of the policy; then updates are made",
        unit="steps",
        at_least=1,
        at_most=10**5,
        group=COLLECTION,
    )
    policy_lag: int = setting(
        0,
        "1: a round is collected while the updates of the one before are made, with the policy "
        "that was there before them",
        unit="rounds",
        at_least=0,
        at_most=1,
        group=COLLECTION,
    )
    collectors: str = setting(
        HERE,
        "Where groups are stepped: in this process, in processes, or on a Ray cluster, which ray "
        "starts here and ray:HOST:PORT finds there; the run is the same",
        unit="here|processes|ray|ray:HOST:PORT",
        longest=300,
        resumable=True,
        group=COLLECTION,
    )
    num_collectors: int = setting(
        0,
        "Processes or actors that share the groups; 0: one for each group, at most as many as "
        "there are cores",
        unit="collectors",
        at_least=0,
        at_most=4096,
        resumable=True,
        group=COLLECTION,
    )
    allow_different_collectors: bool = setting(
        False,
        "Take collectors whose versions or instruction set differ from this machine's; then the "
        "run depends on which of them collected what",
        resumable=True,
        group=COLLECTION,
    )

    replay_ratio: float = setting(
        1.0,
        "Updates per step after the warm-up, whatever num_envs is",
        unit="updates",
        above=0,
        at_most=1000,
        group=UPDATES,
    )
    updates_per_call: int = setting(
        50,
        "Updates made in one call of the train body, as soon as they are owed",
        at_least=1,
        at_most=10**5,
        immutable=BY_PRIORITY,  # priorities change between calls
        group=UPDATES,
    )
    replay_capacity: int = setting(
        1_000_000,
        "What the replay buffer keeps (paper)",
        unit="transitions",
        at_least=1,
        at_most=10**12,
        immutable=BY_PRIORITY,  # priorities belong to ring positions
        group=UPDATES,
    )

    policy_checkpoints: bool = setting(
        False,
        "Evaluate and save a copy of the policy whose worst episode was the best, and make updates "
        "only at the ends of episodes (TD7 paper)",
        immutable=True,
        group=POLICY_CHECKPOINTS,
    )
    checkpoint_untrained: bool = setting(
        False,
        "Also judge the untrained policy, as the authors of TD7 do",
        requires=_WITH_CHECKPOINTS,
        group=POLICY_CHECKPOINTS,
    )
    checkpoint_episodes: int = setting(
        20,
        "Episodes by which a policy is judged, once there are more than "
        "--checkpoint-episodes-after updates; until then it is one (TD7 paper)",
        unit="episodes",
        at_least=1,
        at_most=10**6,
        requires=_WITH_CHECKPOINTS,
        group=POLICY_CHECKPOINTS,
    )
    checkpoint_episodes_after: int = setting(
        750_000,
        "Updates after which a policy is judged by --checkpoint-episodes episodes (TD7 authors)",
        unit="updates",
        at_least=0,
        at_most=10**12,
        requires=_WITH_CHECKPOINTS,
        group=POLICY_CHECKPOINTS,
    )
    checkpoint_reset: float = setting(
        0.9,
        "Multiplies the kept policy's worst return once, when --checkpoint-episodes-after is "
        "passed; set it to 1 if returns are negative (TD7 authors)",
        above=0,
        at_most=1,
        requires=_WITH_CHECKPOINTS,
        group=POLICY_CHECKPOINTS,
    )

    evaluate_every_steps: int = setting(
        5_000,
        "Between evaluations (paper)",
        unit="steps",
        at_least=1,
        at_most=MOST_STEPS,
        group=EVALUATION,
    )
    evaluation_episodes: int = setting(
        10,
        "Per evaluation (paper)",
        unit="episodes",
        at_least=1,
        at_most=MOST_EPISODES,
        group=EVALUATION,
    )
    evaluation_steps_limit: int = setting(
        100_000,
        "An evaluation episode or video that lasts longer is ended, with a warning",
        unit="steps",
        at_least=1,
        at_most=MOST_STEPS,
        group=EVALUATION,
    )
    evaluation_seed: int = setting(
        0,
        "Seed of the evaluation episodes, the same ones each time",
        at_least=0,
        at_most=2**63 - 1,
        group=EVALUATION,
    )

    summarize_every_steps: int = setting(
        1_000,
        "Between points of the training curves",
        unit="steps",
        at_least=1,
        at_most=MOST_STEPS,
        group=CURVES,
    )
    histograms: bool = setting(
        False,
        "Write histograms of all weights at each of these points",
        resumable=True,
        group=CURVES,
    )
    video_every_steps: int = setting(
        0,
        "Between videos of an evaluation episode; 0: none",
        unit="steps",
        at_least=0,
        at_most=MOST_STEPS,
        resumable=True,
        group=CURVES,
    )

    checkpoint_every_steps: int = setting(
        10_000,
        "Between checkpoints",
        unit="steps",
        at_least=1,
        at_most=MOST_STEPS,
        resumable=True,
        group=CHECKPOINTS,
    )
    checkpoint_every_minutes: float = setting(
        10.0,
        "Most wall time between checkpoints, beside the steps; 0: steps alone",
        unit="minutes",
        at_least=0,
        at_most=10**6,
        resumable=True,
        group=CHECKPOINTS,
    )
    keep_checkpoints: int = setting(
        2,
        "The newest ones are kept",
        unit="checkpoints",
        at_least=1,
        at_most=MOST_STEPS,
        resumable=True,
        group=CHECKPOINTS,
    )
    restore_episodes: str = setting(
        "yes",
        "Whether a continued run brings episodes back by repeating their actions; no: begins "
        "fresh ones",
        choices=("yes", "no"),
        resumable=True,
        group=CHECKPOINTS,
    )

    device: str = setting(
        "auto", "What trains: auto takes a GPU where there is one", choices=DEVICES, group=HARDWARE
    )
    intra_op_threads: int = setting(
        2,
        "Threads inside one TensorFlow operation; fixed, as they can move the last bits",
        at_least=1,
        at_most=1024,
        group=HARDWARE,
    )
    inter_op_threads: int = setting(
        2,
        "TensorFlow operations side by side (graph mode likes 2 here and 1 above)",
        at_least=1,
        at_most=1024,
        group=HARDWARE,
    )

    @property
    def groups_act(self) -> bool:
        """Returns whether each group selects its own actions, wherever it runs.

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
            every: Interval in steps; 0 is never due.
            steps: Environment steps at the end of the round.
        """
        return every > 0 and steps % every < self.steps_per_round

    def next_due(self, steps: int) -> int:
        """Returns the first step after `steps` at which something is due or the run ends."""
        intervals = (
            self.evaluate_every_steps,
            self.video_every_steps,
            self.summarize_every_steps,
            self.checkpoint_every_steps,
        )
        due = [(steps // every + 1) * every for every in intervals if every > 0]
        return min([self.steps, *due]) if steps < self.steps else steps

    def is_reached(self, steps: int, best_return: float) -> bool:
        """Returns whether a run is finished: it completed its steps or reached `stop_at_return`.

        Args:
            steps: Environment steps completed.
            best_return: Mean return of the best evaluation since the first update, or -inf without
                one.
        """
        wanted = self.stop_at_return
        return steps >= self.steps or (wanted is not None and best_return >= wanted)


# Settings that cannot affect a run's result and may therefore change when it is resumed.
RESUMABLE = frozenset(name for name, each in RunConfig.SETTINGS.items() if each.resumable)
