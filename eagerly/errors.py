"""Errors whose messages address the user, and summaries of errors in user code."""

from __future__ import annotations

import operator
import os
import re
import sysconfig
import traceback
from collections.abc import Iterator
from typing import Any

# Raised by signals and by closing generators. Any other exception in user code counts as an error,
# even if it does not derive from Exception, such as a panic in a Rust library.
INTERRUPTIONS = (KeyboardInterrupt, GeneratorExit)


class RunError(RuntimeError):
    """An error in a run that the user can correct, reported in one message.

    Attributes:
        exit_code: Exit code of a command that ends with this error.
    """

    exit_code = 1


class UsageError(RunError):
    """An invalid request, which fails again if the command is repeated."""

    exit_code = 2


class NonFiniteError(RunError):
    """A value of a run became NaN or infinite, as it does again if the run is resumed."""

    exit_code = 3


class InterruptedRolloutError(Exception):
    """Raised when a stop is requested while a rollout waits for a reset without a time limit."""


class RunStoppedError(RunError):
    """An error that ends a run after it was saved, as if a stop had been requested."""


def whole_number(name: str, value: Any, least: int = 0) -> int:
    """Returns an argument as an `int`.

    Raises:
        ValueError: If it is not an integer, or below `least`. The message contains `name`.
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise ValueError(f"{name} must be an integer; got {value!r}") from None
    if number < least:
        raise ValueError(f"{name} must be at least {least}; got {value}")
    return number


# Code in these folders is not the user's. An editable install reaches this package through a link.
_HERE = os.path.dirname(__file__)
_FOLDERS = tuple(
    folder + os.sep for folder in (_HERE, os.path.realpath(_HERE), sysconfig.get_path("stdlib"))
)
_LIBRARY = re.compile(r"[\\/](site|dist)-packages[\\/]|__autograph_generated_file")


def summary(error: BaseException) -> str:
    """Returns the type and message of an error in one line, and the line of user code that failed.

    For example "NameError: name 'size' is not defined (my_env.py:12, in reset)". If a library
    raised the error while handling one from user code, the latter is described. The type is
    omitted if it is `ValueError` and no user code was running.
    """
    blamed, place = _blamed(error)
    traced = getattr(blamed, "ag_error_metadata", None)  # TensorFlow adds a traceback to messages
    told = traced.cause_message if traced else f"{type(blamed).__name__}: {blamed}"
    told = told if place else told.removeprefix("ValueError: ")
    plain = re.sub(r"\x1b\[[0-9;]*m", "", told)  # Keras prints in bold
    lines = [line.strip() for line in plain.splitlines() if line.strip()]
    return " ".join(lines[:3]).removesuffix(":") + (f" ({place})" if place else "")


def location(error: BaseException) -> str:
    """Returns the innermost line of user code that failed, such as "my_env.py:12, in reset".

    The result is "" if no user code was running.
    """
    return _blamed(error)[1]


def _blamed(error: BaseException) -> tuple[BaseException, str]:
    each: BaseException | None = error
    while each is not None:
        for file, line, function in _frames(each):
            if not file.startswith(("<", *_FOLDERS)) and not _LIBRARY.search(file):
                within = "" if function == "<module>" else f", in {function}"
                return each, f"{short_path(file)}:{line}{within}"
        each = each.__cause__ or each.__context__
    return error, ""


def _frames(error: BaseException) -> Iterator[tuple[str, int, str]]:
    """Yields the file, line and function of each frame, the innermost first."""
    traced: Any = getattr(error, "ag_error_metadata", None)
    if traced:  # AutoGraph ran a converted copy of the code
        yield from (frame[:3] for frame in traced.translated_stack)
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        yield frame.f_code.co_filename, line, frame.f_code.co_name


def short_path(file: str) -> str:
    """Returns a path relative to the working directory if it lies there."""
    try:
        here = os.getcwd() + os.sep
    except OSError:  # the directory was removed
        return file
    return file.removeprefix(here)
