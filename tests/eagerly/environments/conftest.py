"""What tests of whole runs share."""

from tests.training.conftest import _unoptimized, train  # noqa: F401
