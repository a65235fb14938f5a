"""What every agent is: modules, exploration, acting, and updates in one compiled call."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import gymnasium
import numpy as np
import tensorflow as tf

from eagerly.agents.algorithm import Algorithm
from eagerly.agents.builder import ModelBuilder
from eagerly.agents.config import AgentConfig
from eagerly.agents.inputs import Batch, inputs_of
from eagerly.agents.learner import Learner
from eagerly.agents.modules import Module, Modules
from eagerly.agents.outputs import outputs_of
from eagerly.agents.persistence import (
    VariableCheckpoint,
    check_loadable,
    check_weights,
    save_agent,
    saved_agent,
)
from eagerly.agents.results import two_dictionaries
from eagerly.agents.rewards import RewardScaling
from eagerly.agents.running_statistics import Statistics
from eagerly.agents.schedule import Phase
from eagerly.agents.update_random import UpdateRandom
from eagerly.buffers import Buffer, Layout, replay_buffer
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
from eagerly.settings import recorded
from eagerly.spaces.serialization import recorded_spaces, restored_spaces
from eagerly.state import Saved


class Agent(Algorithm, Saved):
    """An algorithm that acts, learns in compiled calls, and is saved.

    A file of its own adds settings and `update`; `Algorithm` has what else it can say.

    Create it for an environment, `TD3(env, n_step=3)`, or for two spaces,
    `TD3(observation_space, action_space, n_step=3)`.

    Args:
        env: An environment, of which only the spaces are read; or the space of observations.
        action_space: The space of actions, if the first argument is a space. Inside the agent, an
            action is A numbers in [-1, 1].
        config: The settings; None for their defaults.
        seed: Seed of the initial weights and of all noise, at least 0.
        **settings: Settings by name, which take precedence over those of `config`.

    Attributes:
        seed: As given.
        Config: The dataclass of its settings.
        Builder: What builds actor and critics.
        observations: How observations are laid out as rows.
        actions: How actions are.
        inputs: How rows of the replay buffer become batches.
        outputs: Makes, of an update's random numbers, what the actor's outputs are in it.
        modules: Networks, their targets and optimisers, by name.
        learner: Makes the updates.
        acting: The model that acts and is saved as the policy: the module `policy`, or `actor`.
        policy: Calls it on NumPy observations.
        checkpoint: Everything that is learned and kept, as it is written to files and read back.
        normalization: What observations go through before any network, or None.
        rewards: What rewards go through before any update.

    Raises:
        TypeError: If the first two arguments are neither an environment nor two spaces, or a
            setting is unknown.
        ValueError: If a space is not supported, a setting is invalid or has no effect.
    """

    Config: ClassVar[type[AgentConfig]] = AgentConfig
    Builder: ClassVar[type[ModelBuilder]] = ModelBuilder
    _saved: ClassVar[tuple[str, ...]] = ("_statistics",)
    _compared = ("updates",)  # of the networks, which `checkpoint` holds

    def __init__(
        self,
        env: gymnasium.Env[Any, Any] | gymnasium.vector.VectorEnv[Any, Any, Any] | gymnasium.Space,
        action_space: gymnasium.Space | None = None,
        config: Any = None,
        *,
        seed: int = 0,
        **settings: Any,
    ) -> None:
        spaces = _spaces_of(env, action_space)
        config = self.Config() if config is None else config
        if not isinstance(config, self.Config):
            expected, found = self.Config.__name__, type(config).__name__
            raise TypeError(f"{type(self).__name__} takes settings of {expected}; got {found}")
        self.config = config = dataclasses.replace(config, **settings) if settings else config
        find_devices()
        builder = self.Builder(config, *spaces, seed=seed)
        self.observations, self.actions = builder.observations, builder.actions
        layouts = self.observations, self.actions
        config.check_spaces(*layouts)
        config.check_effect(config.changed(), layouts)
        self.seed, self._spaces, self._in_update = seed, builder.spaces, False
        self.inputs = inputs_of(config, *layouts, seed)
        self.rewards = RewardScaling(config, self.inputs.dtype)
        self.outputs = outputs_of(self.actions, config, self.inputs.rows_per_update)
        self.modules = self._built(builder)
        self._rates, self._clock = builder.rates, builder.clock
        self._rates.check_reach(self.modules)
        self.normalization = builder.normalization
        self._statistics = Statistics(self.normalization, self.rewards)
        self.acting = self.modules["policy" if "policy" in self.modules else "actor"].network
        builder.check_quantized(self.acting)
        if "policy" in self.modules:
            check_loadable(self.acting, builder.policy_actor())
        self.policy = acting_policy(self.acting, self.actions.size)
        self._counter = tf.Variable(0, dtype=tf.int64, trainable=False, name="updates")
        self._clock.count_with(self._counter)
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

    def _needs_autograph(self) -> bool:
        """Returns whether updates run code of a user, which may branch on tensors in Python."""
        classes = type(self), self.Builder
        if not all(each.__module__.startswith("eagerly.") for each in classes):
            return True
        networks = [n for module in self.modules.values() for n in module.networks().values()]
        return any(getattr(network, "needs_autograph", False) for network in networks)

    def _built(self, builder: ModelBuilder) -> Modules:
        """Builds the modules.

        Raises:
            ValueError: If a setting that differs from its default is for building, and was not
                read.
        """
        if type(self).build is Algorithm.build and self.Builder is ModelBuilder:
            return self.build(builder)  # separate seeds, and all settings are read
        config = self.config
        self.config, read = recorded(config)
        builder.config = self.config
        with seeded(seed_word(builder.seed, Stream.MODULES)):
            modules = self.build(builder)
        self.config = builder.config = config
        for name in config.changed():
            if config.SETTINGS[name].built and name not in read:
                raise ValueError(
                    f"{name} has no effect, because building the networks of "
                    f"{type(self).__name__} does not read it: use builder.config.{name} there, or "
                    "leave it out (a preset too: see FROM_ENVIRONMENTS)"
                )
        return modules

    def _update(self, batch: Batch, random: UpdateRandom, phase: Phase) -> Any:
        batch = batch._replace(reward=self.rewards(batch.reward))
        self._in_update = True
        try:
            with self._clock.during(phase.update):
                results = self.update(batch, random, phase)
                more = self.rewards.metrics() | self._rates.metrics()
        finally:
            self._in_update = False
        metrics, per_row = two_dictionaries(results)
        if taken := metrics.keys() & more.keys():
            raise ValueError(f"the metric {min(taken)} is the agent's own: give yours another name")
        return metrics | more, per_row

    @property
    def updates(self) -> int:
        """Updates so far.

        Raises:
            RuntimeError: Within `update`, where it would be a constant of the traced program.
        """
        if self._in_update:
            raise RuntimeError("in an update its number is phase.update, not self.updates")
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
        """What a row of the replay buffer must hold."""
        return self.inputs.layout

    def act(self, observations: np.ndarray) -> np.ndarray:
        """Chooses the actions that the acting model holds best, without exploration or memory.

        Args:
            observations: `[N, O]`, as `observations.flatten` lays them out.

        Returns:
            `[N, A]`, float32, in [-1, 1]; `actions.to_environment` converts them. A function of
            `observations` alone.

        Raises:
            ValueError: If the observations have another shape, or the policy has a memory, which
                acts through `behavior`.
            FloatingPointError: If an action is NaN, because a weight or an observation is.
        """
        check_rows(observations, self.layout.observation_size)
        return self.actions.decided(finite_scores(self.policy(observations), observations))

    def replay_buffer(self, capacity: int, *, seed: int | np.random.SeedSequence = 0) -> Buffer:
        """Makes an empty replay buffer of what this agent learns from, drawn from by its sampler.

        Args:
            capacity: Most rows kept; see `buffers.replay_buffer`.
            seed: Seed of the sampling.

        Raises:
            TypeError: If such a buffer cannot take the agent's sampler.
        """
        sampler = self.sampler(np.random.SeedSequence(seed) if isinstance(seed, int) else seed)
        if sampler is None:
            raise TypeError(f"{type(self).__name__}.sampler must return a sampler; got None")
        return replay_buffer(self.layout, capacity, sampler=sampler)

    def exploration(self, first: int = 0) -> Exploration:
        """Makes the exploration of a group of environments, at its beginning.

        Args:
            first: Number of the first environment of the group.
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
        """Returns a snapshot of the policy in NumPy, with which groups act by themselves.

        None where the agent acts in all environments itself: with a memory, with a model of which
        there is no such thing, or where `behavior` is overridden.
        """
        if type(self).behavior is not Agent.behavior or isinstance(self.policy, MemoryPolicy):
            return None
        policy: RowPolicy | None = self.policy.snapshot()
        return policy

    def behavior(self) -> BehaviorPolicy:
        """Returns the policy that collects: the acting model with exploration noise.

        Each one begins with the noise of the agent's seed. Where this method is overridden, what it
        returns acts in all environments together.
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
        """Takes over what `state` returned, once `checkpoint` was read.

        The learning rates stay as the settings say.

        Raises:
            ValueError: If it is the state of another agent.
        """
        self.refresh()
        super().restore(state)

    def refresh(self) -> None:
        """Updates what depends on the variables, after they were changed from outside.

        The learning rates stay as given.
        """
        self.learner.updates = int(self._counter.numpy())
        self.policy.refresh()
        for module in self.modules.values():
            module.keep_learning_rate()

    def as_policy(self) -> Policy:
        """Returns the current deterministic policy, in the units of the environment.

        A policy with custom networks changes with later updates; any other does not.
        """
        actor = self.policy.snapshot() or self.policy
        return Policy(actor, self.observations, self.actions, steps=0, which="latest")

    def save(self, path: str | Path) -> None:
        """Writes the agent to a directory, from which `load` creates it again.

        Networks, targets, optimizers, statistics and counters are saved, so that the next update
        with the same transitions is the same. The replay buffer is not.

        Args:
            path: The directory, which may hold an agent that was saved before.

        Raises:
            FloatingPointError: If a variable is not finite; nothing is written then.
            OSError: If something cannot be written, or other files are in the directory.
        """
        document = {
            "agent": _name(type(self)),
            "settings": {
                name: f"{FACTORY}{value!r}" if callable(value) else value
                for name, value in self.config.flat().items()
            },
            "spaces": recorded_spaces(
                self.observations, self.actions, custom_models=self.config.has_custom_models
            ),
            "seed": self.seed,
        }
        save_agent(Path(path), document, self.state(), self.checkpoint)

    @classmethod
    def load(cls, path: str | Path, **settings: Any) -> Self:
        """Creates an agent from a directory that `save` wrote.

        No code in the directory is executed. A factory of custom networks is not imported from its
        name there: pass it again, as in `TD3.load(path, actor=make_actor)`.

        Args:
            path: The directory.
            **settings: Settings that differ from the saved ones, such as factories or `mode`.

        Raises:
            OSError: If the files cannot be read.
            ValueError: If they are not those of such an agent.
        """
        document, state, prefix = saved_agent(Path(path), _name(cls))
        known = {n: tuple(v) if isinstance(v, list) else v for n, v in document["settings"].items()}
        factories = [n for n, each in cls.Config.SETTINGS.items() if each.names]
        if missing := [n for n in factories if known.get(n) and n not in settings]:
            raise ValueError(
                f"{path} was saved with {missing[0]} {known[missing[0]]!r}, which is not imported "
                f"from there: pass {missing[0]}=... to load"
            )
        config = cls.Config(**known | settings)
        try:
            agent = cls(*restored_spaces(document["spaces"]), config, seed=document["seed"])
            agent.checkpoint.read(prefix)
            agent.restore(state)
        except (KeyError, TypeError, tf.errors.OpError) as error:
            raise ValueError(f"{path} does not hold a saved agent: {error}") from error
        return agent

    def scalars(self) -> dict[str, float]:
        """Returns numbers of the agent as it is now, which curves show: ranges, if it has any."""
        return self.acting.scalars() if isinstance(self.acting, Actor) else {}

    def another_policy(self) -> Model:
        """Builds another model of the policy, which shares no variable with it.

        Raises:
            ValueError: If a factory of the user returns the same variables again.
        """
        found = self.Builder(self.config, *self._spaces, seed=self.seed).policy_actor()
        own = {id(variable.value) for variable in self.acting.variables}
        if any(id(variable.value) in own for variable in found.variables):
            raise ValueError(
                f"the factory of {self.acting.name} returned the same variables in a second call: "
                "make new ones in every call"
            )
        return found

    def policy_weights(self) -> dict[str, np.ndarray]:
        """Copies the weights of the acting model, by their path."""
        return weights_by_path(self.acting)

    def get_weights(self) -> dict[str, np.ndarray]:
        """Copies the weights of all networks and targets, by `group/path`.

        The names are the same in every process; what networks share stands once. The statistics of
        normalised observations and rewards are among them, as `observations/...` and `rewards/...`.
        """
        weights = {name: variable.numpy() for name, variable in self._weights().items()}
        return weights | self._statistics.arrays()

    def set_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        """Takes over what `get_weights` returned; optimisers stay as they are.

        Raises:
            ValueError: If they are the weights of other networks, naming what differs.
            FloatingPointError: If a value is not finite. Nothing is taken over then.
        """
        check_weights(weights, self.get_weights())
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

    def train(self, buffer: Buffer, updates: int) -> dict[str, np.ndarray]:
        """Makes `updates` updates in one compiled call.

        Each new number of updates is traced and compiled once more, which takes seconds.

        Returns:
            For each metric its values in the updates that returned it.

        Raises:
            ValueError: If the buffer holds transitions of other sizes, or none; if observations or
                rewards are to be normalised and none was counted; if `updates` does not divide a
                number of updates after which something happens between calls.
            FloatingPointError: If a metric is NaN or infinite, naming it and the update.
        """
        if buffer.layout != self.inputs.layout:
            raise ValueError(f"the buffer must hold {self.layout}; got {buffer.layout}")
        self._statistics.sync()
        metrics, weights = self.learner.learn(buffer, updates)
        self.policy.refresh(weights)
        return metrics


def _name(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _spaces_of(
    env: Any, action_space: gymnasium.Space | None
) -> tuple[gymnasium.Space, gymnasium.Space]:
    """Returns the spaces of an environment, or two spaces unchanged.

    Raises:
        TypeError: If it is neither.
    """
    if isinstance(env, gymnasium.Space) and isinstance(action_space, gymnasium.Space):
        return env, action_space
    if isinstance(env, gymnasium.vector.VectorEnv) and action_space is None:
        return env.single_observation_space, env.single_action_space
    if isinstance(env, gymnasium.Env) and action_space is None:
        return env.observation_space, env.action_space
    raise TypeError(
        "an agent is created for an environment, or for its observation_space and action_space; "
        f"got {type(env).__name__} and {type(action_space).__name__}. Pass settings by name: "
        "config=..., n_step=3"
    )
