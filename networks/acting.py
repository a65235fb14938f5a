"""How an actor is called at every environment step, cheaply."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import keras
import numpy as np
import tensorflow as tf

from eagerly.networks.tracing import traced


class _SnapshotCache:
    """Keeps a snapshot of an actor in NumPy, where it offers one.

    Without weights from `refresh` it is taken when it is needed. Whether there is one is decided
    here, once.

    Attributes:
        version: How many times `refresh` was called: while it stays, so does the snapshot.
    """

    def __init__(self, actor: keras.Model) -> None:
        self._actor = actor
        self._taken: Any = None
        self.version = 0
        self._has_snapshot = hasattr(actor, "snapshot")
        self._concrete: Callable[..., Any] | None = None

    def weights(self) -> tuple[tf.Tensor, ...]:
        """Reads what `refresh` takes; to be called inside the compiled function that changes it."""
        if not self._has_snapshot:
            return ()
        return tuple(tf.convert_to_tensor(variable.value) for variable in self._actor.variables)

    def refresh(self, weights: Sequence[np.ndarray] = ()) -> None:
        """Says that the actor's weights have changed, and to what, where `weights` were read."""
        self._taken = self._actor.snapshot(weights) if weights else None
        self.version += 1

    def snapshot(self) -> Any:
        """Returns the actor in NumPy as it is now, or None where there is none.

        Later updates do not change it.
        """
        if self._taken is None and self._has_snapshot:
            self._taken = self._actor.snapshot()
        return self._taken

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Refuses to be pickled or copied.

        Raises:
            TypeError: Always, saying what to do instead.
        """
        raise TypeError(
            "what acts through TensorFlow belongs to its process and cannot be pickled or copied. "
            "Send the run directory instead, and call eagerly.load_policy(run_dir) where it is to "
            "act"
        )


class KerasPolicy(_SnapshotCache):
    """Calls an actor on NumPy observations, through its snapshot where it offers one.

    An actor without `snapshot()` is called through one compiled function instead, at about ten
    times the cost.
    """

    def __call__(self, observations: np.ndarray) -> np.ndarray:
        """Maps observations `[N, O]` to actions `[N, A]` in [-1, 1]."""
        if not self._has_snapshot:
            return self._called(observations)
        return cast(np.ndarray, self.snapshot()(observations))

    def _called(self, observations: np.ndarray) -> np.ndarray:
        # Models that compute in less round their inputs themselves, once these are scaled.
        dtype = tf.dtypes.as_dtype(self._actor.variable_dtype)
        if self._concrete is None:
            rows = tf.TensorSpec((None, *observations.shape[1:]), dtype)
            self._concrete = traced(self._actor, rows)
        return cast(np.ndarray, self._concrete(tf.constant(observations, dtype)).numpy())


class MemoryPolicy(_SnapshotCache):
    """Calls an actor with a memory on NumPy arrays, one step at a time.

    It is an `EpisodePolicy`: `Episodes` keeps its state. An actor without `snapshot()` is called
    through one compiled function.

    Args:
        actor: A model with `step` and `initial_state`, such as `networks.MemoryActor`.
        action_size: A.
    """

    def __init__(self, actor: keras.Model, action_size: int) -> None:
        super().__init__(actor)
        self.action_size = action_size

    def __call__(self, observations: np.ndarray) -> np.ndarray:
        """Refuses to act on observations alone.

        Raises:
            ValueError: Always.
        """
        raise ValueError(
            "this policy has a memory: collect with agent.behavior(), whose act and observe are "
            "called in turn"
        )

    def initial_state(self, count: int) -> list[np.ndarray]:
        """Returns the state in which N episodes begin; it is all zeros."""
        return list(self._actor.initial_state(count))

    def step(
        self,
        observations: np.ndarray,
        previous_actions: np.ndarray,
        previous_rewards: np.ndarray,
        state: list[np.ndarray],
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """Chooses actions, as `policies.EpisodePolicy` says."""
        given = [observations, previous_actions, previous_rewards, *state]
        if self._has_snapshot:
            found: tuple[np.ndarray, list[np.ndarray]] = self.snapshot().step(*given[:3], state)
            return found
        dtype = tf.dtypes.as_dtype(self._actor.variable_dtype)
        if self._concrete is None:
            specs = [tf.TensorSpec((None, *part.shape[1:]), dtype) for part in given]
            self._concrete = traced(
                lambda first, second, third, *rest: self._actor.step(
                    first, second, third, list(rest)
                ),
                *specs,
            )
        actions, after = self._concrete(*(tf.constant(part, dtype) for part in given))
        return actions.numpy(), [part.numpy() for part in after]


def acting_policy(actor: keras.Model, action_size: int) -> KerasPolicy | MemoryPolicy:
    """Makes what calls an actor at every step: one that remembers is handed its state."""
    if hasattr(actor, "initial_state"):
        return MemoryPolicy(actor, action_size)
    return KerasPolicy(actor)
