"""The error that is meant for the person at the keyboard."""


class RunError(RuntimeError):
    """Something about a run that its user must know and can change, said in one message."""
