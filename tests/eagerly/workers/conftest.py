"""Shared fixtures for tests of complete runs."""

from tests.eagerly.training.conftest import _unoptimized, train  # noqa: F401
