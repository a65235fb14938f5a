"""Errors whose messages address the user."""

# Raised by signals and by closing generators. Any other exception in user code counts as an error,
# even if it does not derive from Exception, such as a panic in a Rust library.
INTERRUPTIONS = (KeyboardInterrupt, GeneratorExit)


class RunError(RuntimeError):
    """An error in a run that the user can correct, reported in one message."""


class UsageError(RunError):
    """An invalid request, which fails again if the command is repeated.

    Commands then end with exit code 2, and with 1 after any other error.
    """


class RunStoppedError(RunError):
    """An error that ends a run as if a stop had been requested: the run is saved first."""
