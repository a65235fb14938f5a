"""The base class of agents: modules, exploration, acting and compiled updates."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from copy import copy
from pathlib import Path
from typing import Any, ClassVar, Self

import gymnasium
import numpy as np
import tensorflow as tf

from eagerly.agents.agent_files import save_agent, saved_agent
from eagerly.agents.algorithm import Algorithm
from eagerly.agents.builder import ModelBuilder
from eagerly.agents.config import AgentConfig
from eagerly.agents.inputs import Batch, inputs_of
from eagerly.agents.learner import Learner
from eagerly.agents.modules import Module, Modules
from eagerly.agents.outputs import outputs_of
from eagerly.agents.persistence import VariableCheckpoint, check_loadable, check_weights
from eagerly.agents.replicas import Replicas
from eagerly.agents.results import two_dictionaries
from eagerly.agents.rewards import RewardScaling
from eagerly.agents.running_statistics import Statistics
from eagerly.agents.schedule import Phase
from eagerly.agents.update_random import UpdateRandom
from eagerly.buffers import Buffer, Layout, Replay, replay_buffer
from eagerly.errors import whole_number
from eagerly.importing import FACTORY
from eagerly.networks import acting_policy
from eagerly.networks.acting import MemoryPolicy
from eagerly.networks.actor import Actor
from eagerly.networks.factories import seeded
from eagerly.networks.models import Model, weights_by_path
from eagerly.policies.behavior import BehaviorPolicy, check_rows, finite_scores
from eagerly.policies.exploration import Exploration
from eagerly.policies.numpy_actor import RowPolicy
from eagerly.policies.policy import Policy
from eagerly.quiet import find_devices
from eagerly.seeding import Stream, seed_word
from eagerly.settings import recorded, with_tuples
from eagerly.spaces.serialization import recorded_spaces, restored_spaces
from eagerly.state import Saved


class Agent(Algorithm, Saved):
    """Base class of agents: an algorithm that acts, learns in compiled calls and can be saved.

    To define a new kind of agent, write a subclass in a separate file, with its settings and the
    method `update`. `Algorithm` documents the other methods to override.

    Create an agent for an environment, `TD3(env, n_step=3)`, or for two spaces,
    `TD3(observation_space, action_space, n_step=3)`.

    Args:
        env: An environment, which is only used for its spaces, or an observation space.
        action_space: The action space, if the first argument is a space. Within the agent, an
            action is A numbers in [-1, 1].
        config: The settings; the defaults if None.
        seed: Seed of the initial weights and of all noise, at least 0.
        **settings: Individual settings, which take precedence over `config`.

    Attributes:
        seed: As given.
        Config: The settings class.
        Builder: The class that builds actor and critics.
        observations: The layout of observations as rows.
        actions: The layout of actions.
        inputs: Converts replay buffer rows to batches.
        outputs: Creates the `ActionHeadOps` of an update, given its `UpdateRandom`.
        modules: Networks with their targets and optimizers, by name.
        learner: Runs the updates.
        acting: The model that acts and is saved as the policy: the network of the module `policy`,
            or of `actor` if no `policy` exists.
        policy: Calls `acting` on NumPy observations.
        checkpoint: Saves and restores all networks, optimizers and the update counter.
        normalization: Normalizes observations for all networks, or None.
        rewards: Scales the rewards of batches.
        clock: Provides the number of the current update.
        lock: Held while variables are updated, read or saved (documentation: Write your
            own loop).

    Raises:
        TypeError: If the first two arguments are neither an environment nor two spaces, `config`
            has the wrong type or a setting is unknown.
        ValueError: If a space is not supported, a setting is invalid or has no effect, or the seed
            is not an integer of at least 0.
    """

    Config: ClassVar[type[AgentConfig]] = AgentConfig
    Builder: ClassVar[type[ModelBuilder]] = ModelBuilder
    _saved: ClassVar[tuple[str, ...]] = ("_statistics",)
    _compared = ("updates",)  # must equal the counter that `checkpoint` restored

    def __init__(
        self,
        env: gymnasium.Env[Any, Any] | gymnasium.vector.VectorEnv[Any, Any, Any] | gymnasium.Space,
        action_space: gymnasium.Space | None = None,
        config: Any = None,
        *,
        seed: int = 0,
        **settings: Any,
    ) -> None:
        spaces, seed = _spaces_of(env, action_space), whole_number("seed", seed)
        config = self.Config() if config is None else config
        if not isinstance(config, self.Config):
            expected, found = self.Config.__name__, type(config).__name__
            raise TypeError(
                f"{type(self).__name__} requires a config of type {expected}; got {found}"
            )
        self.config = config = type(config)(**config.flat() | settings) if settings else config
        find_devices()
        builder = self.Builder(config, *spaces, seed=seed)
        self.observations, self.actions = builder.observations, builder.actions
        layouts = self.observations, self.actions
        config.check_spaces(*layouts)
        config.check_effect(config.changed(), layouts)
        self.seed, self._spaces = seed, builder.spaces
        self._updating: int | None = None  # the thread that is in `update`
        self.inputs = inputs_of(config, *layouts, seed)
        self.rewards = RewardScaling(config, self.inputs.dtype)
        rows = self.inputs.rows_per_update // config.replicas
        self.outputs = outputs_of(self.actions, config, rows)
        self.modules = self._built(builder)
        self._rates, self.clock = builder.rates, builder.clock
        self._rates.check_reach(self.modules)
        self.normalization = builder.normalization
        of_actor = builder.columns and builder.columns.normalization
        self._statistics = Statistics(self.normalization, self.rewards, of_actor)
        self.acting = self.modules["policy" if "policy" in self.modules else "actor"].network
        builder.check_quantized(self.acting)
        if "policy" in self.modules:
            check_loadable(self.acting, builder.policy_actor())
        self.policy = acting_policy(self.acting, self.actions.size)
        self._counter = tf.Variable(0, dtype=tf.int64, trainable=False, name="updates")
        self.clock.count_with(self._counter)
        self.learner = Learner(
            self._update,
            self.inputs,
            seed=seed,
            counter=self._counter,
            mode=config.mode,
            intervals=self.intervals,
            copied=[module for module in self.modules.values() if module.copy_every],
            published=self.policy.weights,
            autograph=self._needs_autograph(),
        )
        self.checkpoint = VariableCheckpoint(updates=[self._counter], **self.modules.groups())
        self.lock = threading.RLock()
        self._replicas: Replicas | None = None
        if config.replicas > 1:
            self._replicas = Replicas(self, self._replica, self._statistics.layers)

    def _replica(self) -> Self:
        """Returns an agent with separate modules, which shares everything else with this one."""
        builder, replica = self.Builder(self.config, *self._spaces, seed=self.seed), copy(self)
        replica.modules, replica.clock = replica._built(builder), builder.clock
        return replica

    def _needs_autograph(self) -> bool:
        """Returns whether updates run user code, which may branch on tensors in Python."""
        classes = type(self), self.Builder
        if not all(each.__module__.startswith("eagerly.") for each in classes):
            return True
        networks = [n for module in self.modules.values() for n in module.networks().values()]
        return any(getattr(network, "needs_autograph", False) for network in networks)

    def _built(self, builder: ModelBuilder) -> Modules:
        """Builds the modules.

        Raises:
            ValueError: If a setting that is only used while networks are built was changed, but
                `build` did not read it.
        """
        if type(self).build is Algorithm.build and self.Builder is ModelBuilder:
            return self.build(builder)  # the default seeds each network and reads all settings
        config = self.config
        self.config, read = recorded(config)
        builder.config = self.config
        with seeded(seed_word(builder.seed, Stream.MODULES)):
            modules = self.build(builder)
        self.config = builder.config = config
        for name in config.changed():
            if config.SETTINGS[name].built and name not in read:
                raise ValueError(
                    f"{name} has no effect, because {type(self).__name__} builds its networks "
                    f"without reading it: use builder.config.{name} there, or remove the setting "
                    "(for presets, see FROM_ENVIRONMENTS)"
                )
        return modules

    def _update(self, batch: Batch, random: UpdateRandom, phase: Phase) -> Any:
        batch = batch._replace(reward=self.rewards(batch.reward))
        self._updating = threading.get_ident()
        try:
            with self.clock.during(phase.update):
                results = (self._replicas or self).update(batch, random, phase)
                more = self.rewards.metrics() | self._rates.metrics()
        finally:
            self._updating = None
        metrics, per_row = two_dictionaries(results)
        if taken := metrics.keys() & more.keys():
            raise ValueError(f"metric {min(taken)} is reserved for the agent: rename yours")
        return metrics | more, per_row

    @property
    def updates(self) -> int:
        """The number of updates made so far.

        Raises:
            RuntimeError: If read within `update`, where it would be a constant of the traced
                program.
        """
        if self._updating == threading.get_ident():
            raise RuntimeError("within an update, its number is phase.update, not self.updates")
        return self.learner.updates

    @property
    def actor(self) -> Module:
        """The module `actor`."""
        return self.modules["actor"]

    @property
    def critic(self) -> Module:
        """The module `critic`."""
        return self.modules["critic"]

    @property
    def layout(self) -> Layout:
        """The row layout that a replay buffer must have."""
        return self.inputs.layout

    def act(self, observations: np.ndarray) -> np.ndarray:
        """Returns greedy actions, without exploration noise or recurrent state.

        Args:
            observations: `[N, O]`, as returned by `observations.flatten`.

        Returns:
            `[N, A]`, float32, in [-1, 1]; `actions.to_environment` converts them to environment
            units. They depend on `observations` only.

        Raises:
            ValueError: If the observations have another shape, or the policy is recurrent.
                Recurrent policies act through `behavior`.
            FloatingPointError: If an action is NaN or infinite, because a weight or an observation
                is.
        """
        check_rows(observations, self.layout.observation_size)
        return self.actions.decided(finite_scores(self.policy(observations), observations))

    def replay_buffer(self, capacity: int, *, seed: int | np.random.SeedSequence = 0) -> Buffer:
        """Creates an empty replay buffer with this agent's row layout and sampler.

        Args:
            capacity: Maximum number of rows; see `buffers.replay_buffer`.
            seed: Seed of the sampler.

        Raises:
            TypeError: If `sampler` returns None or a sampler that this kind of buffer cannot use.
            ValueError: If the capacity or the seed is out of range.
        """
        if not isinstance(seed, np.random.SeedSequence):
            seed = np.random.SeedSequence(whole_number("seed", seed))
        sampler = self.sampler(seed)
        if sampler is None:
            raise TypeError(f"{type(self).__name__}.sampler must return a sampler; got None")
        return replay_buffer(self.layout, capacity, sampler=sampler)

    def exploration(self, first: int = 0) -> Exploration:
        """Creates the exploration noise of a group of environments, in its initial state.

        Args:
            first: Index of the group's first environment.
        """
        config = self.config
        return Exploration(
            config.exploration,
            config.exploration_noise,
            config.ou_theta,
            config.exploration_epsilon,
            self.observations,
            self.actions,
            seed=self.seed,
            first=first,
        )

    def rollout_policy(self) -> RowPolicy | None:
        """Returns a NumPy copy of the policy, with which environment groups select their actions.

        Returns None if the agent must select the actions of all environments itself, because the
        policy is recurrent, the model has no NumPy snapshot, or `behavior` is overridden.
        """
        if type(self).behavior is not Agent.behavior or isinstance(self.policy, MemoryPolicy):
            return None
        policy: RowPolicy | None = self.policy.snapshot()
        return policy

    def behavior(self) -> BehaviorPolicy:
        """Returns the policy that collects data: the acting model with exploration noise.

        In each returned policy, the noise starts again from the agent's seed. If a subclass
        overrides this method, its policy selects the actions of all environments together.
        """
        return BehaviorPolicy(
            self.policy,
            self.exploration(),
            self.observations,
            self.actions,
            normalization=self.normalization,
            returns=self.rewards.returns(),
        )

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores a state returned by `state()`. Call it after reading `checkpoint`.

        Learning rates keep their configured values.

        Raises:
            ValueError: If it is the state of a different agent.
        """
        self.refresh()
        super().restore(state)

    def refresh(self) -> None:
        """Updates the state derived from the variables, after they were changed externally.

        Learning rates are reset to their configured values.
        """
        self.learner.updates = int(self._counter.numpy())
        self.policy.refresh()
        for module in self.modules.values():
            module.keep_learning_rate()

    def as_policy(self) -> Policy:
        """Returns the current deterministic policy, in environment units.

        Later updates of the agent do not change it, unless the actor is a custom network, which is
        not copied.
        """
        actor = self.policy.snapshot() or self.policy
        return Policy(actor, self.observations, self.actions, steps=0, which="latest")

    def save(self, path: str | Path) -> None:
        """Writes the agent to a directory, from which `load` restores it.

        Networks, targets, optimizers, statistics and counters are saved, so that the next update on
        the same transitions is identical. The replay buffer is not saved: `LoopCheckpoints` saves
        both. A kill at any time leaves either the old or the new agent.

        Args:
            path: The directory. An agent saved there before is replaced. Only one process may save
                to it at a time.

        Raises:
            FloatingPointError: If a variable is not finite; nothing is written.
            OSError: If a file cannot be written, or the directory contains other files.
        """
        with self.lock:
            save_agent(Path(path), self.record(), self.state(), self.checkpoint)

    def record(self) -> dict[str, Any]:
        """Returns the class, settings, spaces and seed of the agent, which JSON can represent."""
        return {
            "agent": _name(type(self)),
            "settings": {
                name: f"{FACTORY}{getattr(value, '__qualname__', type(value).__qualname__)}"
                if callable(value)
                else value
                for name, value in self.config.flat().items()
            },
            "spaces": recorded_spaces(
                self.observations, self.actions, custom_models=self.config.has_custom_models
            ),
            "seed": self.seed,
        }

    @classmethod
    def load(cls, path: str | Path, **settings: Any) -> Self:
        """Creates an agent from a directory written by `save`.

        No code in the directory is executed. Factories of custom networks are not imported by their
        saved names: pass them again, as in `TD3.load(path, actor=make_actor)`.

        Args:
            path: The directory.
            **settings: Settings that override the saved ones, such as factories or `mode`.

        Raises:
            OSError: If the files cannot be read.
            ValueError: If the files do not contain an agent of this class.
        """
        document, state, prefix = saved_agent(Path(path), _name(cls))
        known = with_tuples(document["settings"])
        factories = [n for n, each in cls.Config.SETTINGS.items() if each.names]
        if missing := [n for n in factories if known.get(n) and n not in settings]:
            raise ValueError(
                f"{path} was saved with {missing[0]} {known[missing[0]]!r}, which is not imported "
                f"automatically: pass {missing[0]}=... to load"
            )
        config = cls.Config(**known | settings)
        try:
            agent = cls(*restored_spaces(document["spaces"]), config, seed=document["seed"])
            agent.checkpoint.read(prefix)
            agent.restore(state)
        except (KeyError, TypeError, tf.errors.OpError) as error:
            raise ValueError(f"{path} does not contain a saved agent: {error}") from error
        return agent

    def scalars(self) -> dict[str, float]:
        """Returns values to log in addition to metrics: the actor's quantization ranges, if any."""
        return self.acting.scalars() if isinstance(self.acting, Actor) else {}

    def another_policy(self) -> Model:
        """Builds a second acting model, which shares no variables with the first.

        Raises:
            ValueError: If a custom factory returns the same variables again.
        """
        found = self.Builder(self.config, *self._spaces, seed=self.seed).policy_actor()
        ids = {id(variable.value) for variable in self.acting.variables}
        if any(id(variable.value) in ids for variable in found.variables):
            raise ValueError(
                f"the factory of {self.acting.name} returned the same variables in a second call: "
                "create new ones in every call"
            )
        return found

    def policy_weights(self) -> dict[str, np.ndarray]:
        """Returns copies of the acting model's weights, by path."""
        return weights_by_path(self.acting)

    def get_weights(self) -> dict[str, np.ndarray]:
        """Returns copies of the weights of all networks and targets, keyed by `network/path`.

        The keys, such as `actor/...` and `actor_target/...`, are the same in every process. Shared
        variables appear once. The statistics of normalized observations and rewards are included as
        `observations/...` and `rewards/...`.
        """
        with self.lock:
            weights = {n: np.asarray(each.numpy()) for n, each in self._weights().items()}
            return weights | self._statistics.arrays()

    def set_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        """Sets all weights to those returned by `get_weights`. Optimizers are unchanged.

        If an error is raised, nothing changes.

        Raises:
            ValueError: If names, shapes or dtypes differ. The message states the difference.
            FloatingPointError: If a value is not finite.
        """
        check_weights(weights, self.get_weights())
        with self.lock:
            self._statistics.restore_arrays(weights)
            for name, variable in self._weights().items():
                variable.assign(weights[name])
            self.policy.refresh()

    def _weights(self) -> dict[str, tf.Variable]:
        groups = self.checkpoint.groups
        return {
            f"{group}/{path}": variable
            for group in self.modules.networks()
            for path, variable in groups[group].items()
        }

    def train(self, buffer: Replay, updates: int) -> dict[str, np.ndarray]:
        """Runs `updates` updates in one compiled call.

        A program is traced and compiled once for each value of `updates`, which takes seconds.

        Returns:
            The values of each metric, one for each update that returned the metric.

        Raises:
            ValueError: If `updates` is not an integer of at least 1; if the buffer is empty or has
                another layout; if observations or rewards are normalized but have no statistics
                yet; if targets would have to be copied during the call (see `Learner.check_call`).
            FloatingPointError: If a metric is NaN or infinite. The message names the metric and the
                update.
        """
        if buffer.layout != self.inputs.layout:
            raise ValueError(f"the buffer must have layout {self.layout}; got {buffer.layout}")
        updates = whole_number("updates", updates, 1)
        with self.lock:
            self.policy.snapshot()  # threads that act during this call use the weights before it
            self._statistics.sync()
            if self._replicas is not None:
                self._replicas.copy_first()
            metrics, weights = self.learner.learn(buffer, updates)
            self.policy.refresh(weights)
        return metrics


def _name(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _spaces_of(
    env: Any, action_space: gymnasium.Space | None
) -> tuple[gymnasium.Space, gymnasium.Space]:
    """Returns the spaces of an environment, or two given spaces unchanged.

    Raises:
        TypeError: If the arguments are neither an environment nor two spaces.
    """
    if isinstance(env, gymnasium.Space) and isinstance(action_space, gymnasium.Space):
        return env, action_space
    if isinstance(env, gymnasium.vector.VectorEnv) and action_space is None:
        return env.single_observation_space, env.single_action_space
    if isinstance(env, gymnasium.Env) and action_space is None:
        return env.observation_space, env.action_space
    fix = "pass settings by keyword, such as config=... or n_step=3"
    if isinstance(env, str):
        fix = (
            "omit the text, because an agent has no policy argument, and create the environment "
            "with gymnasium.make; or train a run with eagerly.train"
        )
    raise TypeError(
        "an agent requires an environment, or an observation_space and an action_space; got "
        f"{type(env).__name__} and {type(action_space).__name__}: {fix}"
    )
