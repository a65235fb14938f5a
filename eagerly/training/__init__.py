"""The training loop: data collection, evaluation, checkpoints and summaries.

This module imports nothing, so that processes that only step environments stay lightweight.
"""
