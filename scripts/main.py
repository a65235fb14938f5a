"""The command `eagerly`: everything that people do with runs."""

from __future__ import annotations

import importlib

import click
from click.shell_completion import CompletionItem, get_completion_class

from eagerly import __version__

# Where each command lives; it is imported when it is used.
_HOMES = {
    "train": ("train", "main", "Train an agent."),
    "resume": ("train", "resume", "Continue a run with its saved settings."),
    "evaluate": ("evaluate", "main", "Run episodes with a trained policy, and film one."),
    "plot": ("plot", "main", "Draw and compare learning curves."),
    "runs": ("runs", "main", "List runs: environment, agent, steps, best return, state."),
}
_SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_EAGERLY_COMPLETE"


class _Lazy(click.Group):
    """A group whose commands are imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*_HOMES, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _HOMES:
            return super().get_command(ctx, cmd_name)
        module, name, _ = _HOMES[cmd_name]
        found: click.Command = getattr(importlib.import_module(f"eagerly.scripts.{module}"), name)
        return found

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        # Click's own would import every command to ask for its help.
        described = {name: home[2] for name, home in _HOMES.items()}
        described |= {name: c.get_short_help_str() for name, c in self.commands.items()}
        options = click.Command.shell_complete(self, ctx, incomplete)
        return options + [
            CompletionItem(name, help=text)
            for name, text in described.items()
            if name.startswith(incomplete)
        ]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, home[2]) for name, home in _HOMES.items()]
        rows += [
            (name, command.get_short_help_str()) for name, command in sorted(self.commands.items())
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


@click.group(cls=_Lazy, context_settings={"max_content_width": 100})
@click.version_option(__version__, message="eagerly %(version)s")
def main() -> None:
    """Trains deterministic actor-critic agents for continuous control."""


@main.command()
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(shell: str) -> None:
    """Print what completes these commands in a shell.

    For bash: `eval "$(eagerly completion bash)"`, in ~/.bashrc.
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(main, {}, "eagerly", _VARIABLE).source())
