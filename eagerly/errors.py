"""Errors that are meant for the person at the keyboard."""

# Raised by signals and by closing generators. Every other exception in a user's code is an error of
# that code, whether it derives from Exception or, as the panic of a Rust library, does not.
INTERRUPTIONS = (KeyboardInterrupt, GeneratorExit)


class RunError(RuntimeError):
    """Something about a run that its user must know and can change, said in one message."""


class RunStoppedError(RunError):
    """Why a run cannot go on, although nothing is lost: it ends as if it had been asked to stop."""
