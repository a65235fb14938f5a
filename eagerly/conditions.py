"""Where a setting acts: one mechanism for help, presets, documentation and error messages."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any


def flag_name(setting: str) -> str:
    """Writes a setting as its command-line flag."""
    return "--" + setting.replace("_", "-")


@dataclasses.dataclass(frozen=True)
class Situation:
    """What decides whether a setting acts: the other settings, and the spaces once they are known.

    Attributes:
        of: Returns the value of a setting by its name.
        observations, actions: How the spaces are laid out, `Observations` and `Actions`; None
            before they are known.
    """

    of: Callable[[str], Any]
    observations: Any = None
    actions: Any = None


@dataclasses.dataclass(frozen=True)
class Condition:
    """Where a setting acts; elsewhere it does nothing, and is refused.

    Attributes:
        where: In words, such as "for discrete actions"; help and error messages show them.
        holds: Says whether the setting acts; true where that cannot be known yet.
        got: What an error message shows of a situation in which it does not.
        needs: The setting and values that it asks for, if it does.
    """

    where: str
    holds: Callable[[Situation], bool]
    got: Callable[[Situation], Any]
    needs: tuple[str, tuple[Any, ...]] | None = None


def with_setting(name: str, *values: Any) -> Condition:
    """A setting acts where another one has one of these values; without values, where it is set."""
    flag = flag_name(name)

    def got(situation: Situation) -> str:
        value = situation.of(name)
        return f"--no-{flag[2:]}" if value is False else f"{flag} {value or 'none'}"

    return Condition(
        " ".join(["with", flag, " or ".join(map(str, values))]).strip(),
        lambda situation: situation.of(name) in values if values else bool(situation.of(name)),
        got,
        (name, values),
    )
