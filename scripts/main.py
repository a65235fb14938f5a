"""The command `eagerly`, with all scripts as subcommands."""

from __future__ import annotations

import importlib
from typing import Any

import click
from click.shell_completion import get_completion_class

from eagerly.agents import agent_names
from eagerly.scripts.commands import CommandGroup
from eagerly.version import __version__


class _Lazy(click.Command):
    """A command whose module is imported only when the command is used."""

    def __init__(self, name: str, module: str, attribute: str, help: str) -> None:
        super().__init__(name, short_help=help)
        self._module, self._attribute = f"eagerly.scripts.{module}", attribute

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        found: click.Command = getattr(importlib.import_module(self._module), self._attribute)
        return found.make_context(info_name, args, parent, **extra)


class _Commands(CommandGroup):
    """The group of all commands. The error about an agent suggests `train`."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name.lower() in agent_names() and not ctx.resilient_parsing:  # no shell completion
            hint = f"Use {ctx.command_path} train {cmd_name}."
            raise click.UsageError(f"No such command {cmd_name!r}. {hint}", ctx)
        return super().get_command(ctx, cmd_name)


@click.group(cls=_Commands)
@click.version_option(__version__, message="eagerly %(version)s")
def main() -> None:
    """Train deterministic actor-critic agents for continuous control."""


for words in (
    ("train", "train", "main", "Train an agent."),
    ("resume", "train", "resume", "Resume a run with its saved settings."),
    ("evaluate", "evaluate", "main", "Evaluate a trained policy and record a video."),
    ("record", "record", "main", "Record episodes of a trained policy as logged data."),
    ("export", "export", "main", "Export a trained policy to files that run without TensorFlow."),
    ("plot", "plot", "main", "Plot and compare learning curves."),
    ("report", "report", "main", "Write an HTML page with curves, scores, settings and videos."),
    ("sweep", "sweep", "main", "Train all runs of a grid of settings."),
    ("tune", "tune", "main", "Search for good settings with Optuna."),
    ("study", "study", "main", "List and draw the trials of a study."),
    ("runs", "runs", "main", "List runs: environment, agent, steps, best return, state."),
):
    main.add_command(_Lazy(*words))


@main.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for a shell.

    For bash, add `eval "$(eagerly completion bash)"` to ~/.bashrc.
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(main, {}, "eagerly", "_EAGERLY_COMPLETE").source())


if __name__ == "__main__":
    main()
