"""Settings as dataclass fields that carry their help, range and source.

One declaration serves the documentation, the validation and the command-line flag.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from typing import Any

_FAR = 10**9
DISCRETE, CONTINUOUS = "discrete", "continuous"  # actions


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
    needs: tuple[str, tuple[Any, ...]] | None = None,
    shapes: tuple[str, ...] = (),
    actions: str = "",
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
        needs: Another field and the values, one of which it must have for this one to act; without
            values any but nothing will do.
        shapes: The networks that it shapes, "actor" and "critic"; where models of one's own stand
            in place of them all it does nothing.
        actions: `DISCRETE` or `CONTINUOUS` where it acts on such actions alone.
    """
    ends = {"at_least": at_least, "above": above, "at_most": at_most, "below": below}
    metadata: dict[str, Any] = {"help": help, "unit": unit, "choices": choices, "free": free}
    metadata |= {**ends, "needs": needs, "shapes": shapes, "longest": longest, "actions": actions}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=lambda: dict(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def misses_what_it_needs(field: dataclasses.Field[Any], of: Callable[[str], Any]) -> bool:
    """Whether a setting does not act because the one that it needs has another value.

    Args:
        field: The setting.
        of: Returns the value of a setting by its name.
    """
    if not field.metadata["needs"]:
        return False
    name, values = field.metadata["needs"]
    return of(name) not in values if values else not of(name)


def shapes_nothing(field: dataclasses.Field[Any], of: Callable[[str], Any]) -> bool:
    """Whether models of one's own stand in place of all networks that a setting shapes."""
    shapes = field.metadata["shapes"]
    return bool(shapes) and bool(of("models") or all(of(part) for part in shapes))


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
