"""The built-in actors in NumPy, which act without TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from eagerly.policies.architecture import ActorArchitecture, MemoryCore
from eagerly.policies.network import ActorNetwork
from eagerly.policies.operations import ACTIVATIONS, NumpyOperations
from eagerly.policies.weights import check_weights

# Maps observations `[N, O]` to scores `[N, A]`, see `ActionHead`.
RowPolicy = Callable[[np.ndarray], np.ndarray]
# Normalized observations are clipped to this many standard deviations (10 in Henderson et al. 2018
# and, before that, in OpenAI Baselines).
CLIP = 10.0
_NUMPY = NumpyOperations()
_Function = Callable[[np.ndarray], np.ndarray]


def normalized(observations: np.ndarray, mean: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Normalizes observations as `networks.ObservationNormalization` does."""
    scaled = (observations - mean) * scale
    return np.minimum(np.maximum(scaled, -CLIP), CLIP)


class _Scaled:
    """Normalizes observation rows as in training and removes their action mask."""

    def __init__(self, network: ActorNetwork) -> None:
        architecture = network.architecture
        self._head, self._dtype = architecture.head, network.dtype
        self._size = architecture.observation_size
        self._moments = network.moments
        self._pixels: np.ndarray | None = None
        # One-hot columns and pixels have mean 0 and scale 1, but clipping would change pixels.
        if self._moments and (pixels := architecture.pixels).any():
            self._pixels = pixels

    def __call__(self, observations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns scaled rows `[N, O]`, and the same rows without their mask, `[N, V]`."""
        rows = observations = observations[:, -self._size :]
        if self._moments:
            rows = normalized(rows, *self._moments)
            if self._pixels is not None:
                rows = np.where(self._pixels, observations, rows)
        rows = np.ascontiguousarray(rows, self._dtype)
        return rows, self._head.visible(rows)


class NumpyActor:
    """A built-in actor that is not recurrent: a thread-safe function of observations.

    It reads the last O columns of rows, because those that only critics see come first.

    Args:
        network: The network with its weights.
    """

    def __init__(self, network: ActorNetwork) -> None:
        self.network, self._dtype, architecture = network, network.dtype, network.architecture
        self._size = architecture.observation_size
        # Most actors need no scaling, feature or score function, and each extra call would cost as
        # much as a layer.
        scaled = architecture.normalized or architecture.head.masked
        self._rows_and_inputs = _Scaled(network) if scaled else None
        self._features: _Function | None = None
        if architecture.encoder is not None or architecture.quantized:
            whole = network.outputs if architecture.quantized else network.features
            self._features = partial(whole, _NUMPY)
        is_tanh = not (architecture.head.choices or architecture.quantized)
        self._scores = None if is_tanh else architecture.scores
        self._layers: list[tuple[np.ndarray, np.ndarray, _Function]] = []
        if not architecture.quantized:
            activation = ACTIVATIONS[architecture.activation]
            for (kernel, bias), norm in zip(network.hidden, network.norms, strict=True):
                function = _normed(activation, *norm) if norm else activation
                self._layers.append((kernel, bias, function))
            kernel, bias = network.last
            self._layers.append((kernel, bias, np.tanh if is_tanh else _unchanged))

    def __reduce__(self) -> tuple[Any, ...]:
        return NumpyActor, (self.network,)

    def __call__(self, observations: np.ndarray) -> np.ndarray:
        """Maps observations `[N, O]` to scores `[N, A]`."""
        if self._rows_and_inputs is None:
            rows = x = np.ascontiguousarray(observations[:, -self._size :], self._dtype)
        else:
            rows, x = self._rows_and_inputs(observations)
        if self._features is not None:
            x = self._features(x)
        for kernel, bias, function in self._layers:
            x = x @ kernel
            x += bias
            x = function(x)
        return x if self._scores is None else self._scores(x, rows)

    def scaled(self, observations: np.ndarray) -> np.ndarray:
        """Maps observations `[N, O]` to network inputs `[N, V]`."""
        return _Scaled(self.network)(observations)[1]


class NumpyMemoryActor:
    """A recurrent built-in actor: a thread-safe `EpisodePolicy`.

    It reads the last O columns of rows, because those that only critics see come first.

    Args:
        network: The network with its weights.

    Attributes:
        action_size: A, the length of an action.
    """

    def __init__(self, network: ActorNetwork) -> None:
        self.network, self.action_size = network, network.architecture.head.size
        self._scaled = _Scaled(network)

    def initial_state(self, count: int) -> list[np.ndarray]:
        """Returns the initial state of N episodes, which is all zeros."""
        core = self.network.architecture.encoder
        assert isinstance(core, MemoryCore)
        return [np.zeros((count, *shape), self.network.dtype) for shape in core.state_shapes()]

    def step(
        self,
        observations: np.ndarray,
        previous_actions: np.ndarray,
        previous_rewards: np.ndarray,
        state: list[np.ndarray],
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """Computes scores and the next state; see `policies.EpisodePolicy`."""
        rows, visible = self._scaled(observations)
        actions = np.asarray(previous_actions, rows.dtype)
        rewards = np.asarray(previous_rewards, rows.dtype)
        outputs, state = self.network.step(_NUMPY, visible, actions, rewards, state)
        return self.network.architecture.scores(outputs, rows), state


def _normed(activation: _Function, gamma: np.ndarray, beta: np.ndarray) -> _Function:
    """Returns a layer normalization followed by an activation."""
    return lambda x: activation(_NUMPY.layer_norm(x, gamma, beta))


def _unchanged(x: np.ndarray) -> np.ndarray:
    return x


def acting_in_numpy(network: ActorNetwork) -> NumpyActor | NumpyMemoryActor:
    """Builds the NumPy actor for a network."""
    remembers = isinstance(network.architecture.encoder, MemoryCore)
    return NumpyMemoryActor(network) if remembers else NumpyActor(network)


def numpy_actor(
    architecture: ActorArchitecture, weights: Mapping[str, np.ndarray], dtype: str | None = None
) -> NumpyActor | NumpyMemoryActor:
    """Builds a NumPy actor from an architecture and weights.

    Args:
        architecture: The structure of the actor.
        weights: Weights by `layer/weight`; they are not copied.
        dtype: If given, the values of the weights are also validated; see `check_weights`.

    Raises:
        ValueError: If the weights do not match the architecture or the dtype.
    """
    check_weights(architecture, weights, dtype)
    return acting_in_numpy(ActorNetwork(architecture, weights))
