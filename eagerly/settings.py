"""Settings as dataclass fields that carry their help, range and source.

One declaration serves the documentation, the validation and the command-line flag.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Callable, Collection
from typing import Any

_FAR = 10**9


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
    return Condition(
        " ".join(["with", flag, " or ".join(map(str, values))]).strip(),
        lambda situation: situation.of(name) in values if values else bool(situation.of(name)),
        lambda situation: f"{flag} {situation.of(name) or 'none'}",
        (name, values),
    )


def flag_name(setting: str) -> str:
    """Writes a setting as its command-line flag."""
    return "--" + setting.replace("_", "-")


def setting(
    default: Any,
    help: str,
    *,
    unit: str = "",
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
    longest: int | None = None,
    choices: tuple[str, ...] = (),
    free: bool = False,
    acts: Condition | tuple[Condition, ...] = (),
) -> Any:
    """Declares a field of a settings dataclass.

    Args:
        default: Its default; `dataclasses.MISSING` makes it required. A dict is copied.
        help: What it means, and the source of the default, in one line.
        unit: What it counts in.
        at_least: Least value; of a tuple, of each element, as for the other ends.
        above: What it must be greater than.
        at_most: Greatest value.
        below: What it must be less than.
        longest: Most elements of a tuple.
        choices: The allowed words.
        free: Whether it cannot change a run's result, so that a continued run may differ in it.
        acts: Where it acts; everywhere without.
    """
    ends = {"at_least": at_least, "above": above, "at_most": at_most, "below": below}
    metadata: dict[str, Any] = {"help": help, "unit": unit, "choices": choices, "free": free}
    conditions = acts if isinstance(acts, tuple) else (acts,)
    metadata |= {**ends, "longest": longest, "acts": conditions}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=lambda: dict(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def hindrance(field: dataclasses.Field[Any], situation: Situation) -> Condition | None:
    """Returns the condition that keeps a setting from acting; None where it acts."""
    conditions: tuple[Condition, ...] = field.metadata["acts"]
    return next((each for each in conditions if not each.holds(situation)), None)


def check_acting(
    config: Any, names: Collection[str] | None = None, observations: Any = None, actions: Any = None
) -> None:
    """Refuses settings that do nothing.

    Args:
        config: A settings dataclass.
        names: Which of its settings; None for those that differ from their default.
        observations: How observations are laid out; None before that is known.
        actions: How actions are laid out; None before that is known.

    Raises:
        ValueError: Naming the setting, where it acts, and what is there instead.
    """
    situation = Situation(functools.partial(getattr, config), observations, actions)
    for field in dataclasses.fields(config):
        is_changed = getattr(config, field.name) != field.default
        if is_changed if names is None else field.name in names:
            condition = hindrance(field, situation)
            if condition is not None:
                raise ValueError(
                    f"{field.name} acts only {condition.where}; got {condition.got(situation)}"
                )


def check_settings(config: Any) -> None:
    """Checks every field of a settings dataclass against its declaration.

    Raises:
        ValueError: Naming the field, the value and the allowed range.
    """
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        kind = kind_of(field)
        if kind.endswith(_OPTIONAL):
            if value is None:
                continue
            kind = kind.removesuffix(_OPTIONAL)
        if "Callable" in kind:
            kind = "callable" if callable(value) else "str"
        if kind.startswith("dict"):
            _check_json(field.name, value)
            continue
        if not kind.startswith("tuple"):
            _check_value(field, kind, value)
            continue
        if not isinstance(value, tuple):
            raise ValueError(f"{field.name} must be a tuple of int; got {value!r}")
        longest = field.metadata["longest"]
        if longest is not None and len(value) > longest:
            raise ValueError(f"{field.name} must have at most {longest} elements; got {len(value)}")
        for element in value:
            _check_value(field, "int", element)


_OPTIONAL = " | None"
_KINDS = {"int": (int,), "float": (int, float), "bool": (bool,), "str": (str,)}


def kind_of(field: dataclasses.Field[Any]) -> str:
    """Writes the type of a setting as its source has it, with postponed annotations or without.

    Raises:
        TypeError: If it is declared in another way than settings are.
    """
    kind = field.type.__name__ if field.type in (int, float, bool, str) else str(field.type)
    if "help" not in field.metadata or not (
        kind.removesuffix(_OPTIONAL) in _KINDS
        or kind.startswith(("tuple", "dict"))
        or "Callable" in kind
    ):
        raise TypeError(
            f"{field.name} must be an int, float, bool, str or tuple of int that is declared with "
            f"eagerly.settings.setting; got {kind}"
        )
    return kind


def _check_json(name: str, value: Any) -> None:
    try:
        written = json.dumps(value, allow_nan=False, ensure_ascii=False)
        written.encode()  # which refuses halves of surrogate pairs
        if not isinstance(value, dict) or json.loads(written) != value:
            raise ValueError("it does not come back as it was")
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} must be a dictionary of what JSON can hold; got {value!r}: {error}"
        ) from error


def _check_value(field: dataclasses.Field[Any], kind: str, value: Any) -> None:
    if kind == "callable":
        return
    if not isinstance(value, _KINDS[kind]) or (kind != "bool" and isinstance(value, bool)):
        raise ValueError(f"{field.name} must be of type {kind}; got {value!r}")
    if isinstance(value, str) and not _is_text(value):
        raise ValueError(f"{field.name} must be text that UTF-8 can hold; got {value!r}")
    if field.metadata["choices"] and value not in field.metadata["choices"]:
        words = ", ".join(field.metadata["choices"])
        raise ValueError(f"{field.name} must be one of {words}; got {value!r}")
    if isinstance(value, int | float) and not _in_range(field, value):
        raise ValueError(f"{field.name} must be {describe_range(field)}; got {value!r}")


def _is_text(value: str) -> bool:
    """Whether text holds no half of a surrogate pair, as names of files do that are not UTF-8."""
    return not any(0xD800 <= ord(character) <= 0xDFFF for character in value)


def _in_range(field: dataclasses.Field[Any], value: float) -> bool:
    low, above = field.metadata["at_least"], field.metadata["above"]
    high, below = field.metadata["at_most"], field.metadata["below"]
    try:
        finite = math.isfinite(value)
    except OverflowError:  # a whole number that no float can hold
        finite = kind_of(field) != "float"
    return (
        finite
        and (low is None or value >= low)
        and (above is None or value > above)
        and (high is None or value <= high)
        and (below is None or value < below)
    )


def describe_range(field: dataclasses.Field[Any], *, brief: bool = False) -> str:
    """Writes the range of a numeric field, for example "in [0, 1)", or "finite" if open.

    Args:
        field: The setting.
        brief: Whether to leave out an upper end that nobody comes near.
    """
    low, above, high, below = (
        None if end is None else f"{end:g}" if float(f"{end:g}") == end else str(end)
        for end in (field.metadata[name] for name in ("at_least", "above", "at_most", "below"))
    )
    if brief and high and float(high) > _FAR:
        high = None
    left = f"[{low}" if low else f"({above}" if above else ""
    right = f"{high}]" if high else f"{below})" if below else ""
    if left and right:
        return f"in {left}, {right}"
    if left:
        return f"at least {low}" if low else f"above {above}"
    if right:
        return f"at most {high}" if high else f"below {below}"
    return "finite"
