"""What tests of whole runs share."""

from tests.eagerly.training.conftest import _unoptimized, train  # noqa: F401
