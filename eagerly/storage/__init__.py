"""The run directory: its settings, checkpoints, curves, and who may use it."""
