"""Fixtures for tests with complete runs."""

from tests.eagerly.training.conftest import _unoptimized, train  # noqa: F401
