"""Hyperparameter studies: search spaces, and studies as directories of runs."""
