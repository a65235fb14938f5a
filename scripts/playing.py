"""Opens the environment of a run for commands that play its policy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, Any

from eagerly.errors import UsageError
from eagerly.storage.config import RunConfig

if TYPE_CHECKING:
    import gymnasium

    from eagerly.environments.factory import EnvironmentMaker
    from eagerly.storage.run import Run


def check_kwargs(setting: str, kwargs: Any) -> None:
    """Validates the JSON value of an option that replaces a run's environment arguments.

    Raises:
        UsageError: If it is not a valid value of the setting.
    """
    try:
        RunConfig.SETTINGS[setting].from_file(kwargs)
    except ValueError as error:
        raise UsageError(str(error)) from error


@contextmanager
def open_environment(
    run: Run, make: EnvironmentMaker, doing: str, outcome: str, **options: Any
) -> Iterator[gymnasium.Env[Any, Any]]:
    """Creates the environment of a run with its checks and its watchdog, and closes it on exit.

    Args:
        run: The run.
        make: Its environment factory.
        doing: The activity, such as "the evaluation", for the watchdog's message.
        outcome: What a timeout means, such as "Nothing was evaluated."
        **options: Options of the environment, such as `render_mode`.
    """
    from eagerly.environments.guard import GuardedEnvironment
    from eagerly.environments.watchdog import Watchdog

    with ExitStack() as opened:
        config = run.config
        watchdog = Watchdog(
            config.environment_timeout_seconds,
            lambda: doing,
            outcome,
            limits_resets=not config.hardware,
        )
        opened.callback(watchdog.close)
        with watchdog.calling(f"creating environment {make.name!r}"):
            made = make(**options)
        observations, _ = run.agent_config.spaces(made.observation_space, made.action_space)
        env = GuardedEnvironment(made, f"environment {make.name!r}", watchdog, observations)
        yield opened.enter_context(closing(env))
