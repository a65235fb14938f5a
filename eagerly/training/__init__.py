"""The loop around an agent: environments, evaluation, run directories, summaries.

Nothing is imported here, so that a process that only steps environments stays light.
"""
