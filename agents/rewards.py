"""Reward scaling for updates; the replay buffer and all evaluations keep the original rewards."""

from __future__ import annotations

import tensorflow as tf

from eagerly.agents.config import AgentConfig
from eagerly.networks.moments import RunningMoments
from eagerly.policies.returns import DiscountedReturns


class RewardScaling:
    """Multiplies rewards by a constant and by the inverse standard deviation of the return.

    The standard deviation is computed over all steps of exploration, from the running return
    G ← γ G + r, which starts at 0 in each episode. The mean is not subtracted, because that would
    change which policy is optimal. Updates use new statistics only after `sync`, so all updates of
    a call use the same scale.

    Args:
        config: The settings.
        dtype: Dtype of batches.

    Attributes:
        scale: The factor applied to rewards.
        moments: Running moments of the returns G; None if rewards are not normalized.
    """

    def __init__(self, config: AgentConfig, dtype: tf.DType) -> None:
        self._constant, self._discount = config.reward_scale, config.discount
        self.moments = RunningMoments("discounted returns", 1) if config.normalize_rewards else None
        # This variable is not in checkpoints, because `sync` sets it before every call.
        self.scale = tf.Variable(self._constant, trainable=False, dtype=dtype, name="reward_scale")

    def __call__(self, rewards: tf.Tensor) -> tf.Tensor:
        """Scales rewards `[B]`."""
        if self.moments is None:
            return rewards if self._constant == 1.0 else rewards * self._constant
        return rewards * self.scale

    def returns(self) -> DiscountedReturns | None:
        """Returns a tracker of discounted returns, or None if rewards are not normalized."""
        return None if self.moments is None else DiscountedReturns(self.moments, self._discount)

    def metrics(self) -> dict[str, tf.Tensor]:
        """Returns the reward scale, if rewards are normalized."""
        return {} if self.moments is None else {"rewards/scale": self.scale.value()}

    def sync(self) -> None:
        """Updates the scale from the statistics, if they include at least two returns."""
        if self.moments is not None and self.moments.count > 1:
            self.scale.assign(self._constant * self.moments.inverse_deviation()[0])
