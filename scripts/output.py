"""What the commands print: names from a stranger's run directory must not steer the terminal."""

from __future__ import annotations

import ctypes
import logging
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from functools import partial
from pathlib import Path

import click
from tqdm import tqdm

# Control characters, halves of surrogate pairs, separators of lines, and what turns the direction
# of writing around.
_UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def sanitize(text: str, *, lines: bool = True) -> str:
    """Writes control characters as escape sequences, so that they are seen and do nothing.

    Args:
        text: Any text.
        lines: Whether line breaks and tabs stay.
    """

    def escaped(found: re.Match[str]) -> str:
        if lines and found[0] in "\n\t":
            return found[0]
        return found[0].encode("unicode_escape", "surrogatepass").decode()

    return _UNPRINTABLE.sub(escaped, text)


def echo(text: object, *, err: bool = False) -> None:
    """Prints a line, harmless to a terminal."""
    click.echo(sanitize(str(text)), err=err)


say = partial(echo, err=True)


def write_page(path: Path, title: str, lines: Iterable[str]) -> None:
    """Writes a page of Markdown and prints it."""
    text = "\n".join([f"# {title}", "", *lines]) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    click.echo(text)


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Sends everything that is printed while entered to standard error.

    That includes the output of compiled code, such as simulators, and of processes that are
    started meanwhile. Standard output is left to the JSON of the command.
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
            ctypes.CDLL(None).fflush(None)  # the buffers of C
        os.dup2(kept, 1)
        os.close(kept)


class Failure(click.ClickException):
    """Ends a command with exit code 1 and a message that is harmless to a terminal."""

    def __init__(self, message: object) -> None:
        super().__init__(sanitize(str(message)))


def tell(text: object) -> None:
    """Prints a line; the run goes on where nobody reads what it prints, as behind `| head -1`."""
    try:
        echo(text)
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)  # where all further lines go
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        with suppress(OSError):
            echo("nobody reads the output any more: the run goes on without it", err=True)


class _Terminal(logging.Handler):
    """Writes log records to standard error, above a progress bar."""

    def emit(self, record: logging.LogRecord) -> None:
        """Writes one; a terminal that has gone away must not end the run."""
        with suppress(OSError):
            tqdm.write(sanitize(record.getMessage()), file=sys.stderr)


def log_to_terminal() -> None:
    """Shows what the package logs on standard error, as plain lines."""
    logger = logging.getLogger("eagerly")
    # TensorFlow gives the root logger a handler, which would print a record again, unescaped.
    logger.propagate = False
    if not any(isinstance(handler, _Terminal) for handler in logger.handlers):
        logger.addHandler(_Terminal())
        logger.setLevel(logging.INFO)


TRUST_HELP = (
    "Let all settings of the run directory take effect, even if somebody else made it: modules to "
    "import, environment arguments, addresses and numbers of collectors. Runs that you have "
    "trained there need no --trust."
)
