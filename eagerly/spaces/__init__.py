"""Converts between Gymnasium spaces and agent arrays.

Observations become rows of numbers; actions are in [-1, 1] and one-hot. Nothing here imports
TensorFlow, because environment processes use it, too.
"""

from eagerly.spaces.actions import Actions
from eagerly.spaces.description import first_not_finite, outside, text_of
from eagerly.spaces.observations import Entry, Observations
from eagerly.spaces.serialization import document_of, space_of

__all__ = [
    "Actions",
    "Entry",
    "Observations",
    "document_of",
    "first_not_finite",
    "outside",
    "space_of",
    "text_of",
]
