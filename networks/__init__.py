"""Keras models: actors, critic ensembles, encoders and observation normalization.

Only this package imports Keras, whose backend it checks first.
"""

from eagerly.keras_backend import check_backend

check_backend()

from eagerly.networks.acting import KerasPolicy, acting_policy
from eagerly.networks.actor import Actor
from eagerly.networks.critic import Critic
from eagerly.networks.encoded import EncodedActor, EncodedCritic
from eagerly.networks.memory import History, HistoryEncoder, MemoryActor
from eagerly.networks.normalization import LastColumns, ObservationNormalization

__all__ = [
    "Actor",
    "Critic",
    "EncodedActor",
    "EncodedCritic",
    "History",
    "HistoryEncoder",
    "KerasPolicy",
    "LastColumns",
    "MemoryActor",
    "ObservationNormalization",
    "acting_policy",
]
