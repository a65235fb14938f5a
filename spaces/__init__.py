"""Spaces as an agent sees them: observations as rows of numbers, actions in [-1, 1] and one-hot.

Nothing here imports TensorFlow: environments in processes of their own use it, too.
"""

from eagerly.spaces.actions import Actions
from eagerly.spaces.documents import document_of, space_of
from eagerly.spaces.flattening import FlatEnvironment, SpaceError, make_flat
from eagerly.spaces.observations import Entry, Observations

__all__ = [
    "Actions",
    "Entry",
    "FlatEnvironment",
    "Observations",
    "SpaceError",
    "document_of",
    "make_flat",
    "space_of",
]
