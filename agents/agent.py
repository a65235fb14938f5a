"""What every agent is: networks, exploration, acting, and updates in one compiled call.

An algorithm adds its settings and `_update`; it stands in a file of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import gymnasium
import numpy as np
import tensorflow as tf

from eagerly.agents.actor_critic import ActorCritic, check_weights
from eagerly.agents.augmentation import RandomShift
from eagerly.agents.builder import ModelBuilder
from eagerly.agents.config import AgentConfig
from eagerly.agents.discrete import DiscreteActions
from eagerly.agents.execution import compiled, named_metrics
from eagerly.agents.inputs import Batch, batch_of
from eagerly.agents.random import UpdateRandom
from eagerly.buffers import Buffer, FrameLayout, Layout
from eagerly.networks.custom import CustomCritics, CustomModel
from eagerly.policies.behavior import BehaviorPolicy, check_rows, finite_scores
from eagerly.policies.episodes import EpisodePolicy
from eagerly.policies.exploration import ChoiceNoise, exploration_noise
from eagerly.seeding import Stream, seed_sequence, seed_word

_STATISTICS = "observations/"  # begins their names among the weights
ACTOR_METRICS = ("losses/actor", "actions/saturation")
# Updates that are written out one after the other in a program; more of them become a loop.
_UNROLLED = 4
METRICS = ("losses/critic", "values/mean", "values/max", "values/target_mean", *ACTOR_METRICS)


def _in_order(metrics: Mapping[str, tf.Tensor], *, moves: bool) -> tf.Tensor:
    """Stacks what an update returned, `[len(METRICS)]`, with zeros where the actor stood still."""
    expected = METRICS if moves else tuple(name for name in METRICS if name not in ACTOR_METRICS)
    missing = [name for name in expected if name not in metrics]
    if missing:
        raise ValueError(
            f"_update must return {', '.join(expected)} where moves is {moves}; "
            f"missing: {', '.join(missing)}"
        )
    nothing = tf.zeros_like(metrics[METRICS[0]])
    return tf.stack([metrics[name] if name in expected else nothing for name in METRICS])


class Agent:
    """Networks, optimisers and a train body that runs as one compiled call.

    Args:
        observation_space: What `spaces.Observations` takes; it lays out rows of O numbers.
        action_space: What `spaces.Actions` takes. Inside, an action is A numbers in [-1, 1].
        config: The settings; None for their defaults.
        seed: Seed of the initial weights and of all noise, at least 0.
        **models: `actor`, `critic` or `models`, in place of the settings of these names.

    Attributes:
        Config: The dataclass of its settings.
        Builder: What builds actor and critics.
        observations: How observations are laid out as rows.
        actions: How actions are.
        networks: The `ActorCritic`: actor, critics, targets, optimisers; saved as one.
        normalization: What observations go through before any network, or None.

    Raises:
        ValueError: If a space is not supported.
    """

    Config: ClassVar[type[AgentConfig]] = AgentConfig
    Builder: ClassVar[type[ModelBuilder]] = ModelBuilder

    def __init__(
        self,
        observation_space: gymnasium.Space,
        action_space: gymnasium.Space,
        config: Any = None,
        *,
        seed: int = 0,
        **models: Any,
    ) -> None:
        config = self.Config() if config is None else config
        unknown = models.keys() - {"actor", "critic", "models"}
        if unknown:
            raise TypeError(f"{type(self).__name__} has no argument {min(unknown)!r}")
        self.config = config = dataclasses.replace(config, **models) if models else config
        builder = self.Builder(config, observation_space, action_space, seed=seed)
        self.observations, self.actions = builder.observations, builder.actions
        config.check_spaces(self.observations, self.actions)
        self.discrete = DiscreteActions(self.actions, config.discrete)
        self._layout, self._seed = config.layout(self.observations, self.actions), seed
        self._dtype = tf.dtypes.as_dtype(config.variable_dtype)
        # Rows with bytes stay as the buffer has them: what looks like a float there is none.
        bytes_ = isinstance(self._layout, FrameLayout)
        self._row_dtype = tf.float32 if bytes_ else self._dtype
        self.normalization = builder.normalization
        self._shift = (
            RandomShift(self.observations, config.random_shift) if config.random_shift else None
        )
        self.networks = ActorCritic(builder, self.discrete)
        for model in (self.networks.actor, self.networks.critic):
            if isinstance(model, CustomModel | CustomCritics):
                model.check_mode(config.mode)
        self._compiled_train_body = compiled(self._train_body, config.mode)

    @property
    def updates(self) -> int:
        """Gradient steps of the critics so far."""
        return self.networks.updates_made

    @property
    def policy_delay(self) -> int:
        """Updates from one in which the actor moves to the next."""
        return 1

    @property
    def layout(self) -> Layout:
        """What a row of the replay buffer must hold; `buffers.replay_buffer` makes one of it."""
        return self._layout

    @property
    def windows_per_update(self) -> int:
        """Rows of the sample of an update: transitions, or windows with a memory."""
        config = self.config
        return int(config.memory.sequences_per_update if config.remembers else config.batch_size)

    @property
    def rows_per_update(self) -> int:
        """B, how many steps a batch has; with a memory padding is among them."""
        length = self.config.memory.sequence_length if self.config.remembers else 1
        return self.windows_per_update * length

    def act(self, observations: np.ndarray) -> np.ndarray:
        """Chooses the actions that the policy holds best, without exploration or memory.

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
        check_rows(observations, self._layout.observation_size)
        policy = self.networks.policy
        if isinstance(policy, EpisodePolicy):
            raise ValueError(
                "this policy has a memory: collect with agent.behavior(), whose act and observe "
                "are called in turn"
            )
        return self.actions.decided(finite_scores(policy(observations), observations))

    def behavior(self) -> BehaviorPolicy:
        """Makes the policy that collects: this agent's, as it is at each call, with exploration.

        Each one begins with the noise of the agent's seed.
        """
        config, seed = self.config.exploration, self._seed
        exploration = exploration_noise(
            config.kind, config.noise, config.ou_theta, seed_sequence(seed, Stream.EXPLORATION)
        )
        if self.actions.choices:
            choices = seed_sequence(seed, Stream.EXPLORATION, 1)
            exploration = ChoiceNoise(exploration, self.actions, config.epsilon, choices)
        return BehaviorPolicy(
            self.networks.policy,
            exploration,
            self.observations,
            self.actions,
            normalization=self.normalization,
            seed=seed_sequence(seed, Stream.WARMUP),
        )

    def state(self) -> dict[str, Any]:
        """Returns what `networks.checkpoint` does not hold: statistics of observations."""
        statistics = None if self.normalization is None else self.normalization.state()
        return {"updates": self.updates, "normalization": statistics}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes over what `state` returned, once `networks.checkpoint` was read.

        The learning rates stay as the settings say.

        Raises:
            ValueError: If it is the state of another agent.
        """
        self.networks.refresh()
        if state["updates"] != self.updates:
            raise ValueError(
                f"{state['updates']} updates were made; the networks had {self.updates}"
            )
        if self.normalization is not None:
            self.normalization.restore(state["normalization"])

    def get_weights(self) -> dict[str, np.ndarray]:
        """Copies the weights of actor, critics and targets, by name; see `ActorCritic`.

        The statistics of normalised observations are among them, as `observations/...`.
        """
        known = self.normalization.state() if self.normalization else {}
        statistics = {f"{_STATISTICS}{name}": np.array(value) for name, value in known.items()}
        return self.networks.get_weights() | statistics

    def set_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        """Takes over what `get_weights` returned.

        Raises:
            ValueError: If they are the weights of other networks, naming what differs.
            FloatingPointError: If a value is not finite. Nothing is taken over then.
        """
        check_weights(weights, self.get_weights())
        if self.normalization is not None:
            names = self.normalization.state()
            self.normalization.restore({name: weights[f"{_STATISTICS}{name}"] for name in names})
        rest = {name: v for name, v in weights.items() if not name.startswith(_STATISTICS)}
        self.networks.set_weights(rest)

    def train(self, buffer: Buffer, updates: int) -> dict[str, np.ndarray]:
        """Makes `updates` gradient steps in one call of the compiled train body.

        Each new number of updates is traced and compiled once more, which takes seconds.

        Returns:
            One float per update for each metric; those of the actor only for the updates in
            which it moved.

        Raises:
            ValueError: If the buffer holds transitions of other sizes, or none; if observations
                are to be normalised and none was counted.
            FloatingPointError: If a metric is NaN or infinite, naming it and the update.
        """
        if buffer.layout != self._layout:
            raise ValueError(f"the buffer must hold {self._layout}; got {buffer.layout}")
        if self.normalization is not None:
            if not self.normalization.count:
                raise ValueError(
                    "normalize_observations is set, but no observation was counted: collect "
                    "with agent.behavior(), which counts what it acts upon"
                )
            self.normalization.publish()
        first = self.updates + 1
        rows = buffer.sample_rows(updates, self.windows_per_update)
        since_move = (first - 1) % self.policy_delay
        history, weights = self._compiled_train_body(self._transferred(rows), since_move)
        self.networks.updates_made += updates
        self.networks.policy.refresh([weight.numpy() for weight in weights])
        metrics = named_metrics(METRICS, history.numpy(), first)
        moved = np.arange(first, first + updates) % self.policy_delay == 0
        return metrics | {name: metrics[name][moved] for name in ACTOR_METRICS}

    def _transferred(self, rows: np.ndarray) -> tf.Tensor:
        """Hands the rows of a call to TensorFlow, which on a CPU reads them where they are.

        They must stay what they are until the call has come back.
        """
        return tf.cast(tf.experimental.dlpack.from_dlpack(rows.__dlpack__()), self._row_dtype)

    def _batch(self, rows: tf.Tensor, update: tf.Tensor) -> Batch:
        """Makes the batch of an update of its rows; images are shifted at random."""
        batch = batch_of(self._layout, rows, self._dtype)
        if self._shift is None:
            return batch
        random = UpdateRandom(seed_word(self._seed, Stream.AUGMENTATION), update, self._dtype)
        shape = 2 * self.rows_per_update, len(self.observations.images)
        now, then = tf.split(random.uniform_pairs(shape), 2, axis=1)
        return batch._replace(
            observation=self._shift(batch.observation, now),
            next_observation=self._shift(batch.next_observation, then),
        )

    def _train_body(
        self, rows: tf.Tensor, since_move: int
    ) -> tuple[tf.Tensor, tuple[tf.Tensor, ...]]:
        """Makes K updates; in which of them the actor moves is settled while this is traced.

        A branch inside the compiled program would copy every variable that it could change.

        Args:
            rows: `[K, B, width]`, windows `[K, N, T + 1, width]`, or with images
                `[K, B, S + 1, width]`.
            since_move: Updates since one in which the actor moved, less than `policy_delay`; a
                Python number, and each one is another program.

        Returns:
            Metrics `[K, len(METRICS)]`, and the weights that acting needs: what is asked of
            TensorFlow after the call, when its code has left the processor's caches, is expensive.
        """
        updates, delay = rows.shape[0], self.policy_delay
        first = self.networks.updates.value() + 1
        self.networks.updates.assign_add(updates)
        history = tf.TensorArray(self._dtype, size=updates)
        head = min(-since_move % delay, updates)  # completes the round that is under way
        rounds, tail = divmod(updates - head, delay)
        if head:
            moves = since_move + head == delay
            history = self._updates(history, rows, first, 0, head, moves)
        if rounds:
            for number in tf.range(rounds):
                start = head + number * delay
                history = self._updates(history, rows, first, start, delay, True)
        if tail:
            history = self._updates(history, rows, first, updates - tail, tail, False)
        return history.stack(), self.networks.policy.weights()

    def _updates(
        self,
        history: tf.TensorArray,
        rows: tf.Tensor,
        first: tf.Tensor,
        start: tf.Tensor | int,
        count: int,
        moves: bool,
    ) -> tf.TensorArray:
        """Makes `count` updates from `start` on; in the last one the actor moves if `moves`."""
        still = count - 1 if moves else count
        for k in range(still) if still <= _UNROLLED else tf.range(still):
            metrics = self._numbered_update(rows[start + k], first, start + k, False)
            history = history.write(start + k, _in_order(metrics, moves=False))
        if moves:
            k = start + still
            metrics = self._numbered_update(rows[k], first, k, True)
            history = history.write(k, _in_order(metrics, moves=True))
        return history

    def _numbered_update(
        self, rows: tf.Tensor, first: tf.Tensor, k: tf.Tensor | int, moves: bool
    ) -> dict[str, tf.Tensor]:
        """Makes update k of a call whose first one has the number `first`."""
        number = first + tf.cast(k, first.dtype)
        random = UpdateRandom(self._seed, number, self._dtype)
        return self._update(self._batch(rows, number), random, moves)

    def _update(self, batch: Batch, random: UpdateRandom, moves: bool) -> dict[str, tf.Tensor]:
        """Makes one update: the algorithm.

        Args:
            batch: What is learned from.
            random: Its random numbers.
            moves: Whether the actor moves in it.

        Returns:
            A scalar for each of `METRICS`; those of the actor only where it moves.
        """
        raise NotImplementedError

    def graph(self) -> tf.Graph | None:
        """Traces one update in which everything moves, for looking at; names as in the code.

        In eager mode, where a breakpoint must meet real tensors only, nothing is traced.
        """
        if self.config.mode == "eager":
            return None
        shape = self.windows_per_update, *self._layout.sample_shape
        rows = tf.TensorSpec(shape, self._row_dtype)

        def update(rows: tf.Tensor) -> dict[str, tf.Tensor]:
            return self._numbered_update(rows, self.networks.updates.value(), 1, True)

        return tf.function(update).get_concrete_function(rows).graph
