"""The runs of `make reproduce`: agents, environments, seeds, and the reason for each choice.

The protocol follows Agarwal et al. 2021, "Deep reinforcement learning at the edge of the
statistical precipice": runs are complete, seeds are fixed in advance, and no run is dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eagerly.agents.td7_config import TD7Config
from eagerly.scripts.grid import runs_of

SEEDS = (0, 1, 2, 3, 4)
CHEETAH, WALKER, REACHER = "HalfCheetah-v5", "Walker2d-v5", "Reacher-v5"
HOPPER, ANT, HUMANOID = "Hopper-v5", "Ant-v5", "Humanoid-v5"
# Tasks that are solved within minutes with the presets of their environments, and the return from
# which each counts as solved. The highest possible returns of the two pendulums are about 9360 and
# 1000.
SOLVED = {
    "InvertedDoublePendulum-v5": 9000.0,
    "InvertedPendulum-v5": 950.0,
    REACHER: -6.5,
}
SOLVED_BY = 50_000
PENDULUM = "Pendulum-v1"
PENDULUM_POSITIONS, FLICKERING = "PendulumPositions-v1", "PendulumFlickering-v1"
MEMORIES = ("lstm", "gru", "attention")
MEMORY_STEPS = 20_000
_MEMORY: dict[str, Any] = {
    "hidden_sizes": (64, 64),
    "replay_ratio": 0.5,
    "tau": 0.015,
    "evaluate_every_steps": 1000,
    "evaluation_episodes": 20,
}
_WINDOWS: dict[str, Any] = {"memory_units": 64, "sequence_length": 32, "sequences_per_update": 32}
# Environments with discrete actions or images. Their presets supply all settings not given here.
CART_POLE, CART_POLE_POSITIONS = "CartPole-v1", "CartPolePositions-v1"
TAXI, PENDULUM_PIXELS = "Taxi-v4", "PendulumPixels-v1"
CART_POLE_STEPS, CART_POLE_POSITIONS_STEPS, TAXI_STEPS = 30_000, 30_000, 300_000
PIXEL_STEPS, THREE_SEEDS = 20_000, (0, 1, 2)
# Variants of TD3 with n-step returns and prioritized sampling, by label.
REPLAY: dict[str, dict[str, Any]] = {
    "td3": {},
    "td3-lap": {"sampling": "lap"},
    "td3-3-steps": {"n_step": 3},
    "td3-3-steps-lap": {"n_step": 3, "sampling": "lap"},
}
# Label, environment, steps, seeds and settings of TD7 and of variants with other updates per call,
# warm-up or checkpoints. A run takes an hour or more, so there are few seeds.
TD7: tuple[tuple[str, str, int, tuple[int, ...], dict[str, Any]], ...] = (
    ("td7", CHEETAH, 200_000, (0,), {}),
    ("td7", CHEETAH, 100_000, (1,), {}),
    ("td7", HOPPER, 100_000, (0,), {}),
    ("td7-single-updates", CHEETAH, 40_000, (0, 1), {"updates_per_call": 1}),
    ("td7-short-warm-up", CHEETAH, 40_000, (0, 1), {"warmup_steps": 10_000}),
    ("td7-untrained", CHEETAH, 40_000, (0, 1), {"checkpoint_untrained": True}),
)
# Runs of one million steps, as in published results, with the presets of their environments. Their
# label is `td3-million`, because `td3` denotes the shorter runs.
MILLION, LOCOMOTION = 1_000_000, (CHEETAH, HOPPER, WALKER, ANT)
# Runs with the preset `efficient` of TD7. Its settings were chosen with seed 0, and five new
# seeds decide about the gates.
EFFICIENT_STEPS, NEW_SEEDS = 100_000, (5, 6, 7, 8, 9)
# Components of other sample-efficient methods, by label: one at a time, and all together with each
# kind of exploration noise.
_COMPONENTS: dict[str, dict[str, Any]] = {
    "td3-normalized-rewards": {"normalize_rewards": True},
    "td3-normalized": {"normalize_observations": True},
    "td3-3-steps": REPLAY["td3-3-steps"],
    "td3-layer-norm": {"layer_norm": True},
}
_HELD: dict[str, Any] = {"exploration": "held", "exploration_noise": 0.2}
_COMBINED = {name: value for each in _COMPONENTS.values() for name, value in each.items()}
_COMBINED |= {"warmup_steps": 5000, "exploration_noise": 0.2}
COMPONENTS: dict[str, dict[str, Any]] = {
    "td3-combined": _COMBINED,
    "td3-combined-held": _COMBINED | _HELD,
    "td3-combined-ornstein-uhlenbeck": _COMBINED | {"exploration": "ornstein_uhlenbeck"},
    "td3-held": _HELD,
    "td3-3-steps-held": _COMPONENTS["td3-3-steps"] | _HELD,
    **_COMPONENTS,
    # TD7 normalizes within its networks, so it has no layer norm.
    "td7-efficient-combined": {
        name: value
        for name, value in {**TD7Config.PRESETS["efficient"], **_COMBINED, **_HELD}.items()
        if name != "layer_norm"
    },
}
# Rounds of 25 steps in four environments that act independently.
_ROUNDS: dict[str, Any] = {"num_envs": 4, "group_size": 1, "rollout_steps": 25}
# All supported kinds of custom models. PyTorch models need the extra `torch`.
OWN_KINDS, OWN_STEPS = (
    ("sequential", "functional", "subclassed", "module", "sonnet", "torch"),
    15_000,
)
_OWN = "eagerly.benchmarks.own_models"
_CART_POLE: dict[str, Any] = {"evaluate_every_steps": 1000, "evaluation_episodes": 20}
# Episodes have 200 steps with mostly equal rewards, so one update per ten steps is enough.
_TAXI: dict[str, Any] = {
    "actor_learning_rate": 1e-3,
    "critic_learning_rate": 1e-3,
    "tau": 0.05,
    "replay_ratio": 0.1,
    "updates_per_call": 10,
    "evaluate_every_steps": 20_000,
    "evaluation_episodes": 20,
    "restore_episodes": "no",
}


# Other suites than MuJoCo: Box2D, and dm_control through Shimmy, with small networks and batches.
# The engines of Lunar Lander ignore small actions, so its exploration noise is large and correlated
# in time. The cart-pole acts every 0.04 s instead of every 0.01 s, so an episode has 250 steps.
LUNAR_LANDER, LUNAR_LANDER_STEPS = "LunarLanderContinuous-v3", 150_000
SWINGUP, SWINGUP_STEPS = "shimmy:dm_control/cartpole-swingup-v0", 25_000
_SMALL: dict[str, Any] = {
    "actor_learning_rate": 1e-3,
    "critic_learning_rate": 1e-3,
    "hidden_sizes": (128, 128),
    "batch_size": 128,
}


# Goal-conditioned tasks with sparse rewards, from gymnasium_robotics.
FETCH_REACH, FETCH_REACH_STEPS = "gymnasium_robotics:FetchReach-v4", 20_000
POINT_MAZE, POINT_MAZE_STEPS = "gymnasium_robotics:PointMaze_UMaze-v3", 60_000
_POINT_MAZE: dict[str, Any] = {"env_kwargs": {"continuing_task": False, "reset_target": False}}
_GOALS: dict[str, Any] = {"warmup_steps": 1000, "evaluation_episodes": 50}
HINDSIGHT: dict[str, dict[str, Any]] = {"td3": {}, "td3-hindsight": {"hindsight": "future"}}


@dataclass(frozen=True)
class Recording:
    """Logged data: episodes of a trained policy with Gaussian noise.

    Attributes:
        teacher: The run that trains the policy.
        noise: Standard deviation of the noise, relative to actions in [-1, 1].
        episodes: Number of episodes.
    """

    teacher: Cell
    noise: float
    episodes: int

    @property
    def name(self) -> str:
        """File name of the data, without suffix."""
        return f"{self.teacher.name}-noise-{self.noise}"


@dataclass(frozen=True)
class Cell:
    """One run of the grid.

    Attributes:
        label: Name in file names and legends: the agent and the variant.
        agent: Agent, such as "td3".
        env: Gymnasium id.
        seed: Seed of the run.
        steps: Environment steps.
        settings: Settings that differ from the defaults.
        peer: Whether the run uses Stable-Baselines3 instead of this package.
        data: The logged data from which the run learns, without collecting; None: no data.
    """

    label: str
    agent: str
    env: str
    seed: int
    steps: int
    settings: dict[str, Any] = field(default_factory=dict, hash=False)
    peer: bool = False
    data: Recording | None = None

    @property
    def name(self) -> str:
        """File name of the run's table, without suffix."""
        return f"{self.label}-{table_name(self.env)}-{self.seed}"


def table_name(env: str) -> str:
    """Returns the form of an environment id in file names of tables.

    "shimmy:dm_control/cartpole-swingup-v0" becomes "dm_control_cartpole_swingup-v0".
    """
    name, _, version = env.rpartition(":")[2].rpartition("-")
    return f"{re.sub('[-/]', '_', name)}-{version}"


def cells(
    label: str,
    env: str,
    steps: int,
    seeds: Iterable[int] = SEEDS,
    recording: Recording | None = None,
    **settings: Any,
) -> list[Cell]:
    """Returns one cell per seed, with validated settings.

    Args:
        label: Name of the runs, which starts with the agent, or with `sb3-` and the agent.
        env: Gymnasium id.
        steps: Environment steps.
        seeds: Seeds of the runs.
        recording: Logged data for offline training.
        **settings: Settings that differ from the defaults.
    """
    peer = label.startswith("sb3-")
    agent = label.removeprefix("sb3-").partition("-")[0]
    if not (seeds := list(seeds)):
        return []
    task = {"agent": agent, "env": env, "steps": steps, "seed": seeds}
    given = settings | ({"offline": True, "data": recording.name} if recording else {})
    runs = runs_of(task | {name: [value] for name, value in given.items()}, Path(), label)
    return [
        Cell(label, run.agent, env, run.given["seed"], steps, settings, peer, recording)
        for run in runs
    ]


# Offline training from the data of a policy of moderate quality. On HalfCheetah, its return is half
# of the return of TD3 after a million steps.
OFFLINE_STEPS = 50_000
_OFFLINE: dict[str, Any] = {
    "evaluate_every_steps": 1000,
    "evaluation_episodes": 20,
    "hidden_sizes": (64, 64),
    "actor_learning_rate": 1e-3,
    "critic_learning_rate": 1e-3,
}
_PENDULUM_TEACHER = Cell("td3", "td3", PENDULUM, 0, 10_000, {"hidden_sizes": (64, 64)})
_CHEETAH_TEACHER = Cell("td3", "td3", CHEETAH, 1, 500_000, {"stop_at_return": 4660.0})
OFFLINE: tuple[tuple[str, str, int, tuple[int, ...], Recording, dict[str, Any]], ...] = (
    ("much-noise", PENDULUM, 8000, SEEDS, Recording(_PENDULUM_TEACHER, 0.7, 100), _OFFLINE),
    ("little-noise", PENDULUM, 8000, SEEDS, Recording(_PENDULUM_TEACHER, 0.3, 100), _OFFLINE),
    ("half", CHEETAH, OFFLINE_STEPS, THREE_SEEDS, Recording(_CHEETAH_TEACHER, 0.1, 100), {}),
)


def parts(seeds: Iterable[int] = SEEDS) -> dict[str, list[Cell]]:
    """Returns the parts of the grid in training order.

    Each part contains all runs that it compares, so a run may belong to several parts.
    """
    seeds = tuple(seeds)
    three = [seed for seed in seeds if seed in THREE_SEEDS]
    plain = cells("td3", CHEETAH, 200_000, seeds)
    return {
        "td3": [
            *plain,
            *cells("sb3-td3", CHEETAH, 200_000, seeds),
        ],
        "ddpg": [
            *cells("ddpg", CHEETAH, 100_000, seeds),
            *cells("sb3-ddpg", CHEETAH, 100_000, seeds),
        ],
        "walker": [
            *cells("td3", WALKER, 200_000, seeds),
            *cells("ddpg", WALKER, 200_000, seeds),
        ],
        "solved": [cell for env in SOLVED for cell in cells("td3", env, SOLVED_BY, seeds)],
        "pendulum": [
            *cells("td3", PENDULUM, 10_000, seeds, evaluate_every_steps=1000),
            *cells("ddpg", PENDULUM, 10_000, seeds, evaluate_every_steps=1000),
        ],
        "normalization": [
            *plain,
            *cells("td3-normalized", CHEETAH, 100_000, seeds, normalize_observations=True),
            *cells("td3", REACHER, SOLVED_BY, seeds),
            *cells("td3-normalized", REACHER, SOLVED_BY, seeds, normalize_observations=True),
            *cells("td3", PENDULUM, 10_000, seeds, evaluate_every_steps=1000),
            *cells(
                "td3-normalized",
                PENDULUM,
                10_000,
                seeds,
                evaluate_every_steps=1000,
                normalize_observations=True,
            ),
        ],
        "quantization": [
            *cells("td3-normalized", CHEETAH, 100_000, seeds, normalize_observations=True),
            *cells(
                "td3-int8",
                CHEETAH,
                100_000,
                three,
                normalize_observations=True,
                quantize="int8",
            ),
        ],
        "replay": [
            *cells("td3", CHEETAH, 200_000, three),
            *(
                cell
                for env in (CHEETAH, HOPPER)
                for label, settings in REPLAY.items()
                if (label, env) != ("td3", CHEETAH)
                for cell in cells(label, env, 100_000, three, **settings)
            ),
            *cells(
                "td3-lap-single-updates",
                CHEETAH,
                50_000,
                three,
                sampling="lap",
                updates_per_call=1,
            ),
        ],
        "goals": [
            *(
                cell
                for label, settings in HINDSIGHT.items()
                for cell in cells(
                    label,
                    FETCH_REACH,
                    FETCH_REACH_STEPS,
                    three,
                    evaluate_every_steps=2000,
                    **_GOALS,
                    **settings,
                )
            ),
            *(
                cell
                for label, settings in HINDSIGHT.items()
                for cell in cells(
                    label,
                    POINT_MAZE,
                    POINT_MAZE_STEPS,
                    three,
                    **_POINT_MAZE,
                    **_GOALS,
                    **settings,
                )
            ),
        ],
        "td7": [
            cell
            for label, env, steps, two, settings in TD7
            for cell in cells(label, env, steps, [s for s in seeds if s in two], **settings)
        ],
        "lag": [
            cell
            for label, lag in (("td3-rounds", 0), ("td3-rounds-lag", 1))
            for cell in cells(label, CHEETAH, 100_000, three, **_ROUNDS, policy_lag=lag)
        ],
        "vector": [*plain, *cells("td3-8-environments", CHEETAH, 100_000, seeds, num_envs=8)],
        "memory": [
            *(
                cell
                for env in (PENDULUM_POSITIONS, PENDULUM)
                for memory in MEMORIES
                for cell in cells(
                    f"td3-{memory}", env, MEMORY_STEPS, seeds, memory=memory, **_MEMORY, **_WINDOWS
                )
            ),
            *cells("td3-without", PENDULUM_POSITIONS, MEMORY_STEPS, seeds, **_MEMORY),
        ],
        "flickering": [
            *cells("td3-gru", FLICKERING, MEMORY_STEPS, three, memory="gru", **_MEMORY, **_WINDOWS),
            *cells("td3-without", FLICKERING, MEMORY_STEPS, three, **_MEMORY),
        ],
        "discrete": [
            *cells("td3", CART_POLE, CART_POLE_STEPS, three, **_CART_POLE),
            *cells(
                "td3-gru",
                CART_POLE_POSITIONS,
                CART_POLE_POSITIONS_STEPS,
                three,
                memory="gru",
                replay_ratio=0.5,
                **_WINDOWS,
                **_CART_POLE,
            ),
            *cells("td3", TAXI, TAXI_STEPS, three, **_TAXI),
            *cells("td3-unmasked", TAXI, TAXI_STEPS, three, action_masks=False, **_TAXI),
        ],
        "own": [
            cell
            for kind in OWN_KINDS
            for cell in cells(
                f"td3-{kind}",
                PENDULUM,
                OWN_STEPS,
                three,
                actor=f"{_OWN}:{kind}_actor",
                critic=f"{_OWN}:{kind}_critic",
                mode="graph" if kind == "torch" else "xla",
                evaluate_every_steps=1000,
            )
        ],
        "pixels": cells(
            "td3",
            PENDULUM_PIXELS,
            PIXEL_STEPS,
            three,
            evaluate_every_steps=1000,
            evaluation_episodes=5,
        ),
        "box2d": cells(
            "td3",
            LUNAR_LANDER,
            LUNAR_LANDER_STEPS,
            three,
            exploration="ornstein_uhlenbeck",
            exploration_noise=0.3,
            **_SMALL,
        ),
        "dm_control": cells(
            "td3",
            SWINGUP,
            SWINGUP_STEPS,
            three,
            env_kwargs={"environment_kwargs": {"control_timestep": 0.04}},
            warmup_steps=2500,
            evaluate_every_steps=2500,
            evaluation_episodes=5,
            **_SMALL,
        ),
        "offline": [
            cell
            for label, env, steps, some, data, settings in OFFLINE
            for variant, alpha in (("", {}), ("-cloning", {"bc_alpha": 0.0}))
            for cell in cells(
                f"td3_bc-{label}{variant}",
                env,
                steps,
                [seed for seed in seeds if seed in some],
                data,
                **settings,
                **alpha,
            )
        ],
        # These runs take about 40 core-hours. The runs of TD7 are long enough to show whether it
        # escapes the local optimum of standing upright.
        "million": [
            *(cell for env in LOCOMOTION for cell in cells("td3-million", env, MILLION, three)),
            *cells("td3-million", HUMANOID, MILLION, [s for s in seeds if s == 0]),
            *cells("td7-long", HOPPER, 300_000, [s for s in seeds if s in (0, 1)]),
        ],
        "efficient": [
            *(
                cell
                for env in (*LOCOMOTION, HUMANOID)
                for cell in cells(
                    "td7-efficient",
                    env,
                    EFFICIENT_STEPS,
                    [seed for seed in seeds if seed in (*THREE_SEEDS, *NEW_SEEDS)],
                    **TD7Config.PRESETS["efficient"],
                )
            ),
            *cells("td3", HUMANOID, EFFICIENT_STEPS, three),
        ],
        "components": [
            *(
                cell
                for env in (HOPPER, ANT)
                for label, settings in COMPONENTS.items()
                for cell in cells(label, env, EFFICIENT_STEPS, three, **settings)
            ),
            # Most observations of Ant-v5 are contact forces, which normalization without a floor
            # enlarges.
            *cells(
                "td3-normalized-floor",
                ANT,
                EFFICIENT_STEPS,
                three,
                normalize_observations=True,
                normalization_floor=1.0,
            ),
        ],
    }
