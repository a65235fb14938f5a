"""Base classes and options for all commands. Imports little, to keep `eagerly --help` fast."""

from __future__ import annotations

import io
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import click

from eagerly.errors import RunError
from eagerly.importing import around_import
from eagerly.suggestions import suggestion

FOLDER = click.Path(path_type=Path, file_okay=False)
WHICH = click.option(
    "--which",
    type=click.Choice(["best", "latest"]),
    help="Policy of the best evaluation since the first update, or the latest policy. "
    "[default: best, or latest without a best one]",
)
STEPS_LIMIT = click.option(
    "--steps-limit",
    type=click.IntRange(min=1),
    help="Maximum steps per episode. [default: --evaluation-steps-limit of the run]",
)


class Command(click.Command):
    """A command that exits on Ctrl-C as shells expect: without a traceback, with exit code 130.

    The import of TensorFlow, which takes many seconds, is announced on standard error.
    """

    def __init__(self, *args: Any, **more: Any) -> None:
        settings = {"max_content_width": 100, "show_default": True}
        more["context_settings"] = settings | more.get("context_settings", {})
        super().__init__(*args, **more)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parses arguments. The error about an unknown option suggests the intended one."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            known = [option for param in self.get_params(ctx) for option in param.opts]
            options = {_setting(option): option for option in known if option.startswith("--")}
            hint = self.suggestion(_setting(error.option_name), options)
            problem = f"No such option {error.option_name!r}. {hint}".rstrip()
            raise click.UsageError(problem, ctx) from None

    def suggestion(self, name: str, options: Mapping[str, str]) -> str:
        """Returns a sentence for the error about an unknown option, or "".

        Args:
            name: The unknown name, in the form of a setting.
            options: The existing options by name.
        """
        return suggestion(name, options, options.__getitem__)

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command and converts exceptions into a line and an exit code.

        `RunError`, `OSError` and `KeyboardInterrupt` are converted. The line is the message of the
        exception, if it has one.
        """
        if ctx.parent is not None:  # the group does this for its commands
            return super().invoke(ctx)
        if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
            # An encoding without "±" or "→" must not end a run.
            sys.stdout.reconfigure(errors="backslashreplace")
        _announce_tensorflow()
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise
        except (RunError, OSError) as error:
            from eagerly.scripts.output import Failure

            raise Failure(error) from error
        except KeyboardInterrupt as stopped:
            number = signal.Signals(getattr(stopped, "number", signal.SIGINT))
            messages = [text for text in stopped.args if isinstance(text, str)]
            _say(messages[0] if messages else f"stopped by {number.name}")
            ctx.exit(128 + number)


def _setting(option: str) -> str:
    return option.lstrip("-").replace("-", "_")


@cache
def _announce_tensorflow() -> None:
    around_import("tensorflow", _announced)


@contextmanager
def _announced() -> Iterator[None]:
    _say("loading TensorFlow ...")
    yield


def _say(text: str) -> None:
    from eagerly.scripts.output import say

    with suppress(OSError):  # standard error is closed
        say(text)


class CommandGroup(Command, click.Group):
    """A command group that lists its commands in the order in which they were added."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)
