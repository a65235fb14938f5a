"""Run directories: settings, checkpoints, curves, locking and trust."""
