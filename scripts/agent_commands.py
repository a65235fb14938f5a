"""Command groups with one command per agent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from eagerly.agents import agent_name, agent_names, config_class
from eagerly.sanitizing import sanitize
from eagerly.scripts.commands import CommandGroup


class AgentCommands(CommandGroup):
    """A group with one command per agent, whose options are created on lookup."""

    COMMAND = "train"

    def agent_command(self, agent: str, config: Any) -> click.Command:
        """Returns the command of an agent.

        Args:
            agent: Name of the agent.
            config: The class of its settings.
        """
        raise NotImplementedError

    def suggestion(self, name: str, options: Mapping[str, str]) -> str:
        return f"Options follow the agent, such as in {self.COMMAND} td3 --env Pendulum-v1."

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*agent_names(), *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        cmd_name = agent_name(cmd_name)
        if found := super().get_command(ctx, cmd_name):
            return found
        try:
            config = config_class(cmd_name)
        except ValueError as error:
            if ctx.resilient_parsing:  # shell completion
                return None
            raise click.UsageError(sanitize(str(error)), ctx) from error
        return self.agent_command(cmd_name, config)
