"""Efficient actor calls, for acting at every environment step."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, cast

import keras
import numpy as np
import tensorflow as tf

from eagerly.networks.tracing import traced


class _SnapshotCache:
    """Caches the NumPy snapshot of an actor that supports snapshots.

    Threads may act while another thread trains: they use the snapshot of the last `refresh`.

    Attributes:
        version: Number of `refresh` calls. The snapshot changes only when this number does.
    """

    def __init__(self, actor: keras.Model) -> None:
        self._actor = actor
        self._cached: Any = None  # taken when it is first needed, then by `refresh`
        self._first = threading.Lock()
        self.version = 0
        self._has_snapshot = hasattr(actor, "snapshot")
        # By width: observations may contain columns that only critics see.
        self._concrete: dict[int, Callable[..., Any]] = {}

    @property
    def model(self) -> Any:
        """The model of a custom actor, with the current weights; otherwise, the actor itself."""
        return getattr(self._actor, "model", self._actor)

    def weights(self) -> tuple[tf.Tensor, ...]:
        """Returns the weights for `refresh`. Call it inside the compiled update function."""
        if not self._has_snapshot:
            return ()
        return tuple(tf.convert_to_tensor(variable.value) for variable in self._actor.variables)

    def refresh(self, weights: Sequence[np.ndarray] = ()) -> None:
        """Takes a new snapshot. `weights` optionally supplies the actor's new weights."""
        if self._has_snapshot:
            self._cached = self._actor.snapshot(*([weights] if weights else []))
        self.version += 1

    def snapshot(self) -> Any:
        """Returns a NumPy copy of the current actor, or None if it does not support snapshots.

        Later updates do not change the copy.
        """
        if self._cached is None and self._has_snapshot:
            with self._first:
                if self._cached is None:
                    self._cached = self._actor.snapshot()
        return self._cached

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Prevents pickling and copying.

        Raises:
            TypeError: Always, with an alternative in the message.
        """
        raise TypeError(
            "a policy that acts through TensorFlow is bound to its process and cannot be pickled "
            "or copied: send the run directory instead, and call eagerly.load_policy(run_dir) in "
            "the other process"
        )


class KerasPolicy(_SnapshotCache):
    """Calls an actor on NumPy observations, through its snapshot if it supports one.

    An actor without `snapshot()` is called through a compiled function instead, at about ten times
    the cost.
    """

    def __call__(self, observations: np.ndarray) -> np.ndarray:
        """Maps observations `[N, O]` to actions `[N, A]` in [-1, 1]."""
        if not self._has_snapshot:
            return self._call_actor(observations)
        return cast(np.ndarray, self.snapshot()(observations))

    def _call_actor(self, observations: np.ndarray) -> np.ndarray:
        # Models with lower compute precision cast their inputs themselves, after normalization.
        dtype = tf.dtypes.as_dtype(self._actor.variable_dtype)
        width = observations.shape[1]
        if width not in self._concrete:
            self._concrete[width] = traced(self._actor, tf.TensorSpec((None, width), dtype))
        return cast(np.ndarray, self._concrete[width](tf.constant(observations, dtype)).numpy())


class MemoryPolicy(_SnapshotCache):
    """Calls a recurrent actor on NumPy arrays, one step at a time.

    It implements `EpisodePolicy`; `Episodes` keeps its state. An actor without `snapshot()` is
    called through a compiled function.

    Args:
        actor: A model with `step` and `initial_state`, such as `networks.MemoryActor`.
        action_size: A.
    """

    def __init__(self, actor: keras.Model, action_size: int) -> None:
        super().__init__(actor)
        self.action_size = action_size

    def __call__(self, observations: np.ndarray) -> np.ndarray:
        """Raises an error, because a recurrent policy needs more than observations.

        Raises:
            ValueError: Always.
        """
        raise ValueError(
            "a recurrent policy needs more than observations: collect with agent.behavior(), and "
            "call its act and observe alternately"
        )

    def initial_state(self, count: int) -> list[np.ndarray]:
        """Returns the initial state of N episodes, all zeros."""
        return list(self._actor.initial_state(count))

    def step(
        self,
        observations: np.ndarray,
        previous_actions: np.ndarray,
        previous_rewards: np.ndarray,
        state: list[np.ndarray],
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """Returns actions and the next state; see `policies.EpisodePolicy`."""
        given = [observations, previous_actions, previous_rewards, *state]
        if self._has_snapshot:
            found: tuple[np.ndarray, list[np.ndarray]] = self.snapshot().step(*given[:3], state)
            return found
        dtype = tf.dtypes.as_dtype(self._actor.variable_dtype)
        width = observations.shape[1]
        if width not in self._concrete:
            specs = [tf.TensorSpec((None, *part.shape[1:]), dtype) for part in given]
            self._concrete[width] = traced(
                lambda first, second, third, *rest: self._actor.step(
                    first, second, third, list(rest)
                ),
                *specs,
            )
        actions, after = self._concrete[width](*(tf.constant(part, dtype) for part in given))
        return actions.numpy(), [part.numpy() for part in after]


def acting_policy(actor: keras.Model, action_size: int) -> KerasPolicy | MemoryPolicy:
    """Creates the policy that calls the actor: a `MemoryPolicy` if the actor is recurrent."""
    if hasattr(actor, "initial_state"):
        return MemoryPolicy(actor, action_size)
    return KerasPolicy(actor)
