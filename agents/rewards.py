"""Rewards as updates see them; the replay buffer and all evaluations keep them as they came."""

from __future__ import annotations

import tensorflow as tf

from eagerly.agents.config import AgentConfig
from eagerly.networks.moments import RunningMoments
from eagerly.policies.returns import DiscountedReturns


class RewardScaling:
    """Multiplies the rewards of a batch, by a constant and by 1 / deviation of the return.

    The return is that of exploration so far, discounted and running: G ← γ G + r, from 0 in each
    episode. Its mean is not subtracted: that would change which policy is best. Statistics
    change for updates with `sync` alone, so that all updates of a call see the same ones.

    Args:
        config: The settings.
        dtype: Dtype of batches.

    Attributes:
        scale: What rewards are multiplied by.
        moments: Those of the returns that were counted; None unless they normalise.
    """

    def __init__(self, config: AgentConfig, dtype: tf.DType) -> None:
        self._constant, self._discount = config.reward_scale, config.discount
        self.moments = RunningMoments("discounted returns", 1) if config.normalize_rewards else None
        # Not in checkpoints: every call publishes it anew.
        self.scale = tf.Variable(self._constant, trainable=False, dtype=dtype, name="reward_scale")

    def __call__(self, rewards: tf.Tensor) -> tf.Tensor:
        """Scales rewards `[B]`."""
        if self.moments is None:
            return rewards if self._constant == 1.0 else rewards * self._constant
        return rewards * self.scale

    def returns(self) -> DiscountedReturns | None:
        """Returns a counter of the discounted returns of episodes; None unless they normalize."""
        return None if self.moments is None else DiscountedReturns(self.moments, self._discount)

    def metrics(self) -> dict[str, tf.Tensor]:
        """Returns what rewards are multiplied by, where that changes."""
        return {} if self.moments is None else {"rewards/scale": self.scale.value()}

    def sync(self) -> None:
        """Lets updates use the statistics so far; before two returns there are none."""
        if self.moments is not None and self.moments.count > 1:
            self.scale.assign(self._constant * self.moments.inverse_deviation()[0])
