"""Terminal output of commands, with control characters escaped: run names may be untrusted."""

from __future__ import annotations

import ctypes
import logging
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from functools import partial
from pathlib import Path

import click
from tqdm import tqdm

from eagerly.sanitizing import sanitize


def echo(text: object, *, err: bool = False) -> None:
    """Prints a line with control characters escaped."""
    click.echo(sanitize(str(text)), err=err)


say = partial(echo, err=True)


def write_page(path: Path, title: str, lines: Iterable[str]) -> None:
    """Writes a Markdown page to a file and prints it."""
    text = "\n".join([f"# {title}", "", *lines]) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    click.echo(text)


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Redirects standard output to standard error inside a `with` block.

    This includes the output of native code, such as simulators, and of child processes. Standard
    output then contains only the JSON that the command prints afterwards.
    """
    before = sys.stdout
    before.flush()
    try:
        kept = os.dup(1)
    except OSError:  # there is no standard output
        yield
        return
    try:
        with suppress(OSError):  # there is no standard error
            os.dup2(2, 1)
        with redirect_stdout(sys.stderr):
            yield
    finally:
        before.flush()
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).fflush(None)  # C stdio buffers
        os.dup2(kept, 1)
        os.close(kept)


class Failure(click.ClickException):
    """An error that ends a command with a sanitized message and the exit code of the error."""

    def __init__(self, error: object) -> None:
        super().__init__(sanitize(str(error)))
        self.exit_code = getattr(error, "exit_code", 1)  # type: ignore[misc]


def tell(text: object) -> None:
    """Prints a line. The run continues if standard output is closed (as by `| head -1`)."""
    try:
        echo(text)
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)  # receives all further output
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        with suppress(OSError):
            echo("standard output is closed: the run continues without it", err=True)


class _Terminal(logging.Handler):
    """A log handler that writes to standard error, above any progress bar."""

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a record. Errors are ignored, because a closed terminal must not end the run."""
        with suppress(OSError):
            tqdm.write(sanitize(record.getMessage()), file=sys.stderr)


def log_to_terminal() -> None:
    """Prints the package's log records on standard error, as plain lines."""
    logger = logging.getLogger("eagerly")
    # TensorFlow adds a handler to the root logger, which would print records again, unescaped.
    logger.propagate = False
    if not any(isinstance(handler, _Terminal) for handler in logger.handlers):
        logger.addHandler(_Terminal())
        logger.setLevel(logging.INFO)


TRUST_HELP = (
    "Apply all settings of the run directory, even if another user created it: modules to import, "
    "environment arguments, addresses and numbers of collectors. Runs that you trained at the "
    "same path need no --trust."
)
