"""Acting without TensorFlow: NumPy actors, exploration, recurrent state and policies."""

from eagerly.policies.episode_policy import EpisodePolicy, Episodes
from eagerly.policies.heads import ActionHead
from eagerly.policies.policy import PlayedEpisodes, Policy

__all__ = ["ActionHead", "EpisodePolicy", "Episodes", "PlayedEpisodes", "Policy"]
