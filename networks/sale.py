"""State-action embeddings (SALE), and the actor and critics that take them as additional inputs.

Fujimoto, Chang, Smith, Gu, Precup and Meger 2023, "For SALE: State-Action Representation Learning
for Deep Reinforcement Learning", section 4.1. Shapes: B rows, and the sizes S of a state (a
normalized observation), A of an action and Z of an embedding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from eagerly.networks.actor import NumpySnapshot, scores
from eagerly.networks.initializers import initial_values, member_weights, weight_seeds
from eagerly.networks.layers import ACTIVATIONS, EnsembleDense, Linear, built, product
from eagerly.networks.normalization import ObservationNormalization
from eagerly.policies.architecture import ActorArchitecture
from eagerly.policies.heads import ActionHead
from eagerly.policies.operations import AVERAGE_L1_EPSILON

_INITIAL_BOUND = 1e8  # beyond any return, as in the authors' code


def average_l1_norm(x: tf.Tensor) -> tf.Tensor:
    """Divides by the mean absolute value of the last axis: N(x) = x / max(mean abs(x), 1e-8).

    This is Eq. 4. It keeps the scale of embeddings that predict each other from growing or
    collapsing.
    """
    wide = tf.cast(x, tf.float32) if x.dtype == tf.bfloat16 else x
    size = tf.reduce_mean(tf.abs(wide), axis=-1, keepdims=True)
    return tf.cast(wide / tf.maximum(size, AVERAGE_L1_EPSILON), x.dtype)


class _Layers(keras.layers.Layer):
    """Linear layers with activations in between.

    Args:
        inputs: Number of inputs.
        sizes: Units of each layer.
        layers: Prefix of the layer names.
        activation: One of `ACTIVATIONS`; the last layer has none.
        initializer, seed, dtype: As in `Linear`.
        name: Name of this layer.
    """

    def __init__(
        self,
        inputs: int,
        sizes: Sequence[int],
        layers: str,
        *,
        activation: str,
        initializer: str,
        seed: int,
        dtype: str,
        name: str,
    ) -> None:
        super().__init__(name=name, dtype=dtype, autocast=False)
        self._activation = ACTIVATIONS[activation]
        self._linear = []
        for index, (units, own) in enumerate(
            zip(sizes, weight_seeds(seed, len(sizes)), strict=True)
        ):
            layer = Linear(
                inputs,
                units,
                initializer=initializer,
                seed=own,
                name=f"{layers}_{index}",
                dtype=dtype,
            )
            self._linear.append(built(layer, inputs))
            inputs = units
        self.built = True

    def _outputs(self, inputs: tf.Tensor) -> tf.Tensor:
        """Maps `[B, inputs]` to `[B, units]` of the last layer."""
        hidden = self._linear[0](tf.cast(inputs, self.compute_dtype))
        for layer in self._linear[1:]:
            hidden = layer(self._activation(hidden))
        return tf.cast(hidden, self.variable_dtype)


class StateEncoder(_Layers):
    """Computes the state embedding zs = N(f(s)), with N as in `average_l1_norm`."""

    def call(self, state: tf.Tensor) -> tf.Tensor:
        """Maps states `[B, S]` to zs `[B, Z]`."""
        return average_l1_norm(self._outputs(state))


class PairEncoder(_Layers):
    """Computes the state-action embedding zsa = g(zs, a), which predicts the next state's zs."""

    def call(self, zs: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        """Maps zs `[B, Z]` and actions `[B, A]` to zsa `[B, Z]`."""
        return self._outputs(tf.concat([zs, action], axis=-1))


class StateActionEncoder(keras.Model):
    """The encoders of both embeddings, which are learned jointly (Eq. 1 to 3).

    Args:
        state_size: S.
        action_size: A.
        units: Z.
        hidden_sizes: Units of the hidden layers of each encoder.
        activation: Their activation, one of `ACTIVATIONS`.
        initializer: One of `networks.initializers.INITIALIZERS`.
        seed: Seed of the initial weights.
        dtype: Precision of the network.
        name: Name of the model in graphs.

    Attributes:
        states: f, a `StateEncoder`.
        pairs: g, a `PairEncoder`.
    """

    def __init__(
        self,
        state_size: int,
        action_size: int,
        *,
        units: int,
        hidden_sizes: Sequence[int],
        seed: int,
        name: str = "encoder",
        **layers: Any,
    ) -> None:
        super().__init__(name=name, dtype=layers["dtype"], autocast=False)
        self.states = self.of_states(
            state_size, units=units, hidden_sizes=hidden_sizes, seed=seed, **layers
        )
        self.pairs = PairEncoder(
            units + action_size,
            (*hidden_sizes, units),
            "pair_embedding",
            seed=weight_seeds(seed, 2)[1],
            name="pairs",
            **layers,
        )
        self.built = True

    @staticmethod
    def of_states(
        state_size: int, *, units: int, hidden_sizes: Sequence[int], seed: int, **layers: Any
    ) -> StateEncoder:
        """Builds the state encoder that a `StateActionEncoder` with these arguments has."""
        own, _ = weight_seeds(seed, 2)
        sizes = (*hidden_sizes, units)
        return StateEncoder(state_size, sizes, "embedding", seed=own, name="states", **layers)

    def call(self, state: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        """Maps states `[B, S]` and actions `[B, A]` to zsa `[B, Z]`."""
        return self.pairs(self.states(state), action)


class EmbeddedActor(keras.Model):
    """Maps states and their embeddings to actions: π(N(linear(s)), zs).

    Args:
        state_size: S.
        embedding_units: Z.
        head: Maps the last layer's outputs to actions.
        hidden_sizes: Units of the hidden layers. The first is also the number of linear features.
        activation: Their activation, one of `ACTIVATIONS`.
        initializer: One of `networks.initializers.INITIALIZERS`.
        seed: Seed of the initial weights.
        dtype: Precision of the network.
        name: Name of the model in graphs.
    """

    def __init__(
        self,
        state_size: int,
        embedding_units: int,
        *,
        head: ActionHead,
        hidden_sizes: Sequence[int],
        activation: str,
        initializer: str,
        seed: int,
        dtype: str,
        name: str = "actor",
    ) -> None:
        super().__init__(name=name, dtype=dtype, autocast=False)
        self._head, self._activation = head, ACTIVATIONS[activation]
        features = hidden_sizes[0]
        widths = [state_size, features + embedding_units, *hidden_sizes]
        units = [features, *hidden_sizes, head.size]
        names = ["features", *(f"hidden_{n}" for n in range(len(hidden_sizes))), "action"]
        seeds = weight_seeds(seed, len(units))
        self._features, *self._linear = (
            built(
                Linear(width, size, initializer=initializer, seed=own, name=layer, dtype=dtype),
                width,
            )
            for width, size, layer, own in zip(widths, units, names, seeds, strict=True)
        )
        self.built = True

    def call(self, state: tf.Tensor, zs: tf.Tensor) -> tf.Tensor:
        """Maps states `[B, S]` and zs `[B, Z]` to actions `[B, A]` in [-1, 1]."""
        state, zs = (tf.cast(part, self.compute_dtype) for part in (state, zs))
        hidden = tf.concat([average_l1_norm(self._features(state)), zs], axis=-1)
        for layer in self._linear[:-1]:
            hidden = self._activation(layer(hidden))
        outputs = tf.cast(self._linear[-1](hidden), self.variable_dtype)
        return scores(self._head, outputs, state)


class ConcatDense(keras.layers.Layer):
    """An ensemble of linear layers, with separate inputs per member and shared inputs.

    Separate inputs and shared inputs are multiplied in two products, so that shared inputs are not
    copied for each member, and no gradient is computed for inputs that need none. Each member is
    initialized like one layer over all its inputs.

    Args:
        members: C, the number of members.
        own: I, the number of separate inputs per member.
        shared: J, the number of shared inputs.
        units: Number of outputs per member.
        initializer, seed, name, dtype: As in `Linear`.
    """

    def __init__(
        self,
        members: int,
        own: int,
        shared: int,
        units: int,
        *,
        initializer: str,
        seed: int,
        name: str,
        dtype: str,
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        self._members, self._units = members, units
        kernels, biases = member_weights(
            initializer, members, own + shared, units, seed, dtype=self.variable_dtype
        )
        of_shared = np.concatenate(kernels[:, own:], axis=1)  # [J, members · units]
        self.kernel = self.add_weight(name="kernel", **initial_values(kernels[:, :own]))
        self.shared_kernel = self.add_weight(name="shared_kernel", **initial_values(of_shared))
        self.bias = self.add_weight(name="bias", **initial_values(biases))
        self.built = True

    def call(self, own: tf.Tensor, shared: tf.Tensor) -> tf.Tensor:
        """Maps separate inputs `[C, B, I]` and shared ones `[B, J]` to `[C, B, units]`."""
        of_shared = tf.reshape(
            product(shared, self.shared_kernel), [-1, self._members, self._units]
        )
        of_own = product(own, self.kernel) + self.bias[:, tf.newaxis, :]
        return of_own + tf.transpose(of_shared, [1, 0, 2])


class EmbeddedCritic(keras.Model):
    """Maps states, actions and embeddings to values: Q(N(linear(s, a)), zsa, zs).

    Args:
        state_size: S.
        action_size: A.
        embedding_units: Z.
        n_critics: C, the number of members.
        hidden_sizes: Units of the hidden layers. The first is also the number of linear features.
        activation: Their activation, one of `ACTIVATIONS`.
        initializer: One of `networks.initializers.INITIALIZERS`.
        seed: Seed of the initial weights.
        dtype: Precision of the network.
        name: Name of the model in graphs.
    """

    def __init__(
        self,
        state_size: int,
        action_size: int,
        embedding_units: int,
        *,
        n_critics: int,
        hidden_sizes: Sequence[int],
        activation: str,
        initializer: str,
        seed: int,
        dtype: str,
        name: str = "critic",
    ) -> None:
        super().__init__(name=name, dtype=dtype, autocast=False)
        self._activation = ACTIVATIONS[activation]
        features, first, *others = weight_seeds(seed, len(hidden_sizes) + 2)
        width = hidden_sizes[0]
        parts: dict[str, Any] = {"initializer": initializer, "dtype": dtype}
        self._features = EnsembleDense(
            n_critics, state_size + action_size, width, seed=features, name="features", **parts
        )
        self._joined = ConcatDense(
            n_critics, width, 2 * embedding_units, width, seed=first, name="hidden_0", **parts
        )
        self._linear = []
        for index, units in enumerate((*hidden_sizes[1:], 1), 1):
            layer = "value" if index == len(hidden_sizes) else f"hidden_{index}"
            self._linear.append(
                EnsembleDense(n_critics, width, units, seed=others[index - 1], name=layer, **parts)
            )
            width = units
        self.built = True

    def call(self, state: tf.Tensor, action: tf.Tensor, zsa: tf.Tensor, zs: tf.Tensor) -> tf.Tensor:
        """Maps states `[B, S]`, actions `[B, A]`, zsa and zs `[B, Z]` to values `[C, B]`."""
        pair, embedded = (
            tf.cast(tf.concat(parts, axis=-1), self.compute_dtype)
            for parts in ((state, action), (zsa, zs))
        )
        hidden = self._joined(average_l1_norm(self._features(pair)), embedded)
        for layer in self._linear:
            hidden = layer(self._activation(hidden))
        return tf.cast(tf.squeeze(hidden, axis=-1), self.variable_dtype)


class EmbeddedPolicy(keras.Model, NumpySnapshot):
    """An actor combined with its state encoder: a policy on observations `[B, O]`.

    Args:
        encoder: Maps states to zs.
        actor: Maps states and zs to actions.
        architecture: Description of both networks.
        normalization: Applied to observations first.
    """

    def __init__(
        self,
        encoder: StateEncoder,
        actor: EmbeddedActor,
        *,
        architecture: ActorArchitecture,
        normalization: ObservationNormalization | None,
    ) -> None:
        super().__init__(name="policy", dtype=actor.dtype_policy, autocast=False)
        self._encoder, self._actor, self._normalization = encoder, actor, normalization
        self.architecture = architecture
        self.built = True

    def call(self, observation: tf.Tensor) -> tf.Tensor:
        """Maps observations `[B, O]` to actions `[B, A]` in [-1, 1]."""
        state = observation if self._normalization is None else self._normalization(observation)
        return self._actor(state, self._encoder(state))


class ValueRange(keras.layers.Layer):
    """Clips values to the range of all targets observed so far.

    Fujimoto et al. 2023, section 4.1, Eq. 9. Clipping keeps extrapolation error from growing
    without bound.

    Args:
        dtype: Dtype of the values.
    """

    def __init__(self, dtype: str) -> None:
        super().__init__(name="value_range", dtype=dtype, autocast=False)
        self.low, self.high = (
            self.add_weight(
                name=name, initializer=keras.initializers.Constant(value), trainable=False
            )
            for name, value in (("low", _INITIAL_BOUND), ("high", -_INITIAL_BOUND))
        )
        self.built = True

    def call(self, values: tf.Tensor) -> tf.Tensor:
        """Clips values of any shape to [low, high]; returns zeros before the first target."""
        low, high = self.low.value, self.high.value
        return tf.where(low > high, tf.zeros_like(values), tf.clip_by_value(values, low, high))

    def observe(self, targets: tf.Tensor) -> None:
        """Extends the range to include targets `[B]`."""
        self.low.assign(tf.minimum(self.low.value, tf.reduce_min(targets)))
        self.high.assign(tf.maximum(self.high.value, tf.reduce_max(targets)))
