"""Reads and writes logged data: transitions that other policies, programs or people recorded.

For the formats, see "Learn from logged data: offline RL" in the documentation. Nothing in a data
file is executed, and nothing in it is unpickled. Nothing here imports TensorFlow.
"""

from eagerly.datasets.dataset import Dataset, Summary, Transitions, open_dataset

__all__ = ["Dataset", "Summary", "Transitions", "open_dataset"]
