"""Recurrent networks: an encoder of histories, and an actor that can also act step by step."""

from __future__ import annotations

from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from eagerly.networks.cores import memory_core
from eagerly.networks.encoded import EncodedActor
from eagerly.networks.initializers import weight_seeds
from eagerly.networks.layers import Linear, built
from eagerly.networks.normalization import ObservationNormalization
from eagerly.policies.architecture import MemoryCore


class History(NamedTuple):
    """Sequences of up to S steps, padded with zeros at the end.

    Attributes:
        observation: `[B, S, O]`.
        previous_action: `[B, S, A]`, the action that led to each observation; 0 at the beginning of
            an episode.
        previous_reward: `[B, S]`, the reward received with each observation; 0 at the beginning of
            an episode.
        valid: `[B, S]` bool, false in padding.
        output_valid: `[B, S']`, the last S' columns of `valid`. Networks return outputs for these
            steps; earlier steps only provide context.
    """

    observation: Any
    previous_action: Any
    previous_reward: Any
    valid: Any
    output_valid: Any


class HistoryEncoder(keras.layers.Layer):
    """Maps histories to features: the outputs of a recurrent core, and the observation itself.

    Observation, previous action and previous reward pass through one layer to the core. A mask at
    the end of the observation bypasses the core, but is part of the features. All computations use
    the dtype of the weights, even with mixed precision.

    Args:
        observation_size: O, including the mask.
        action_size: A.
        masked: M, the number of mask columns.
        units: H, the number of outputs of the core.
        activation, initializer: Activation and initializer of the layer before the core.
        normalization: Applied to observations first.
        seed, dtype: Seed and dtype of all weights.
        **memory: Other arguments of `memory_core`.

    Attributes:
        observation_size: O.
        features: H + O, the number of features, including the mask.
        normalization: As given.
        architecture: Description of the core.
    """

    def __init__(
        self,
        observation_size: int,
        action_size: int,
        *,
        masked: int = 0,
        units: int,
        activation: str,
        initializer: str,
        normalization: ObservationNormalization | None,
        seed: int,
        dtype: str,
        **memory: Any,
    ) -> None:
        super().__init__(name="encoder", dtype=dtype, autocast=False)
        self.normalization, self.observation_size = normalization, observation_size
        self.features = units + observation_size
        self._visible = observation_size - masked
        inputs = self._visible + action_size + 1
        layer_seed, core_seed = weight_seeds(seed, 2)
        parts: dict[str, Any] = {"initializer": initializer, "seed": layer_seed, "dtype": dtype}
        layer = Linear(inputs, units, activation=activation, name="encoder_inputs", **parts)
        self._linear = built(layer, inputs)
        self.core = memory_core(units=units, seed=core_seed, dtype=dtype, **memory)
        self.architecture = MemoryCore(units=units, **memory)
        self.built = True

    def call(self, history: History) -> tf.Tensor:
        """Maps a history to features `[B · S', H + O]`."""
        observation, inputs = self._inputs(*history[:3])
        known = self.core(inputs, history.valid)
        features = tf.concat([known, observation], axis=-1)
        return tf.reshape(features[:, -history.output_valid.shape[1] :], [-1, self.features])

    def step(
        self,
        observation: tf.Tensor,
        previous_action: tf.Tensor,
        previous_reward: tf.Tensor,
        state: list[tf.Tensor],
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Maps the next step `[N, ...]` and a state to features `[N, H + O]` and the next state."""
        observation, inputs = self._inputs(observation, previous_action, previous_reward)
        known, state = self.core.step(inputs, state)
        return tf.concat([known, observation], axis=-1), state

    def _inputs(
        self, observation: tf.Tensor, previous_action: tf.Tensor, previous_reward: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        if self.normalization is not None:
            observation = self.normalization(observation)
        visible = observation[..., : self._visible]
        parts = (visible, previous_action, previous_reward[..., tf.newaxis])
        joined = tf.concat([tf.cast(part, self.variable_dtype) for part in parts], axis=-1)
        return tf.cast(observation, self.variable_dtype), self._linear(joined)


class MemoryActor(EncodedActor):
    """An `Actor` on top of a `HistoryEncoder` that can also act step by step."""

    def step(
        self,
        observation: tf.Tensor,
        previous_action: tf.Tensor,
        previous_reward: tf.Tensor,
        state: list[tf.Tensor],
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Maps the next step `[N, ...]` and a state to actions `[N, A]` and the next state."""
        features, state = self._encoder.step(observation, previous_action, previous_reward, state)
        return self._network(features), state

    def initial_state(self, count: int) -> list[np.ndarray]:
        """Returns the initial state of N episodes, all zeros."""
        dtype = tf.dtypes.as_dtype(self.variable_dtype).as_numpy_dtype
        return [
            np.zeros((count, *shape), dtype) for shape in self._encoder.architecture.state_shapes()
        ]
