"""Settings dataclasses whose fields declare their help, range, source and requirements.

One declaration supplies the validation, the command-line option and the documentation. A setting
has the same flat name in Python, on the command line, in presets, in files and in run directories.

Existing libraries do not fit. pydantic is the closest, but importing it adds 25 % to the CPU time
of every command. attrs accepts True as a number and infinity as a float. msgspec does not validate
objects that are constructed in Python.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, ClassVar, NamedTuple, Self

from eagerly.importing import FACTORY, split_call, split_name
from eagerly.suggestions import suggestion

NONE = "none"  # `Setting.none` on the command line, in files and in messages
_SHOWN = 200  # maximum characters of a value in messages, since files may hold any value
_LONGEST_NAME = 500  # characters of an element of a tuple of names
_KINDS = {int, float, bool, str, tuple, dict, type(None), Callable}
_ENDS = {"at_least": "at least", "above": "above", "at_most": "at most", "below": "below"}


@dataclasses.dataclass(frozen=True, eq=False)
class Group:
    """Settings under one heading in `--help-all` and the documentation.

    Attributes:
        heading: The heading.
        check: Called with all settings once each value is valid. Raises a `ValueError` if values
            are incompatible.
    """

    heading: str
    check: Callable[[Any], None] | None = None


class Requirement(NamedTuple):
    """A condition without which a setting has no effect.

    Attributes:
        text: The condition, for help and messages, such as "for discrete actions".
        unmet: Called with the settings and the spaces: a pair `(Observations, Actions)`, or None
            before they are known. Returns None if the condition holds or cannot be decided yet,
            otherwise the actual value, for messages.
        setting: Name of the setting that the condition depends on, if any.
    """

    text: str
    unmet: Callable[[Any, Any], Any]
    setting: str = ""


def flag_name(setting: str) -> str:
    """Returns the command-line option of a setting."""
    return "--" + setting.replace("_", "-")


def when(name: str, *values: Any) -> Requirement:
    """Requires a setting to have one of these values, or to be set if no values are given."""
    flag = flag_name(name)

    def unmet(config: Any, spaces: Any) -> str | None:
        value = getattr(config, name)
        if value in values if values else value:
            return None
        if isinstance(value, bool):
            return flag if value else f"--no-{flag[2:]}"
        return f"{flag} {value or 'none'}"

    text = f"with {flag} {' or '.join(map(str, values))}".strip()
    return Requirement(f"without {flag}" if values and values[0] is False else text, unmet, name)


@dataclasses.dataclass(frozen=True)
class Setting:
    """The declaration of a setting. Range limits apply to each element of a tuple."""

    default: Any  # `dataclasses.MISSING` makes it required
    help: str  # meaning and source of the default, in one line
    _: dataclasses.KW_ONLY
    group: Any = None  # None: the group of the declaring class
    unit: str = ""
    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None
    longest: int | None = None  # maximum elements of a tuple, or printable characters of a string
    choices: tuple[str, ...] = ()
    # Form of an importable name, such as "module:factory". The elements of a tuple are such names,
    # with or without arguments, or callables.
    names: str = ""
    resumable: bool = False  # may change on resume: it cannot affect the result
    # May differ between the runs of one learning curve: it changes random numbers, rounding or the
    # times of measurements, but neither the algorithm nor the measured quantities.
    comparable: bool = False
    # True: a saved run can never change the setting, because the contents of its checkpoints depend
    # on it. A requirement: only while it holds.
    immutable: bool | Requirement = False
    # The setting is used only while networks are built. It has no effect if a custom builder
    # ignores it.
    built: bool = False
    basic: bool = False  # shown by `--help`; `--help-all` shows all settings
    # The option can be repeated. Commas separate its values, unless the setting is a tuple.
    repeatable: bool = False
    requires: tuple[Requirement, ...] = ()  # conditions for the setting to have an effect
    name: str = ""  # field name
    kinds: tuple[Any, ...] = ()  # value types, the main one first

    @property
    def none(self) -> Any:
        """The value that unsets an optional setting: None, "" or (); otherwise `MISSING`."""
        if type(None) in self.kinds:
            return None
        is_optional = self.default in ("", ()) and not self.choices
        return self.default if is_optional else dataclasses.MISSING

    def from_file(self, value: Any) -> Any:
        """Converts a value from TOML or JSON: a list to a tuple, and the text "none" to `none`.

        Raises:
            ValueError: If the value is invalid.
        """
        if value == NONE and self.none is not dataclasses.MISSING:
            return self.none
        found = tuple(value) if isinstance(value, list) else value
        if expected := self.expected(found):
            raise ValueError(f"{self.name} must be {expected}; got {value!r}")
        return found

    def idle_because(self, config: Any, spaces: Any = None) -> str:
        """Returns why the setting has no effect with this config and these spaces, or ""."""
        for needed in self.requires:
            if (found := needed.unmet(config, spaces)) is not None:
                return f"{self.name} has an effect only {needed.text}; got {found}"
        return ""

    def range(self, far: float = float("inf")) -> str:
        """Returns the range as text, such as "at least 0 and below 1", or "" if unlimited.

        Args:
            far: Limits above this value are omitted.
        """
        ends = ((words, getattr(self, end)) for end, words in _ENDS.items())
        given = ((words, end) for words, end in ends if end is not None and end <= far)
        return " and ".join(f"{words} {end:,}" for words, end in given)

    def expected(self, value: Any) -> str:
        """Returns what an invalid value must be, such as "of type int", or "" if it is valid.

        Raises:
            ValueError: If the value must be an importable name and has a different form.
        """
        kind = self.kinds[0]
        if (value is None and type(None) in self.kinds) or (
            callable(value) and Callable in self.kinds
        ):
            return ""
        if kind is dict:
            return "" if _is_json(value) else "a dictionary of JSON values"
        if kind is str:
            if not isinstance(value, str):
                return "of type str"
            if self.choices and value not in self.choices:
                return f"one of {', '.join(self.choices)}"
            if self.longest is not None and not (
                len(value) <= self.longest and value.isprintable()
            ):
                return f"at most {self.longest} printable characters"
            if self.names and value and not value.startswith(FACTORY):
                split_name(value, self.name, self.names)
            is_text = value.encode(errors="ignore").decode() == value
            return "" if is_text else "text that UTF-8 can encode"
        if kind is tuple and self.names:
            return self._expected_names(value)
        if kind is tuple and not isinstance(value, tuple):
            return "a tuple of int"
        values = value if kind is tuple else (value,)
        if self.longest is not None and len(values) > self.longest:
            return f"a tuple of at most {self.longest} elements"
        for each in values:
            allowed = (int, float) if kind is float else int
            if not isinstance(each, allowed) or isinstance(each, bool) is not (kind is bool):
                return f"of type {kind.__name__}" if kind is not tuple else "a tuple of int"
            if not (
                abs(each) <= sys.float_info.max
                and (self.at_least is None or each >= self.at_least)
                and (self.above is None or each > self.above)
                and (self.at_most is None or each <= self.at_most)
                and (self.below is None or each < self.below)
            ):
                return self.range() or "finite"
        return ""

    def _expected_names(self, value: Any) -> str:
        names = value if isinstance(value, tuple) else (None,)
        if not all(isinstance(name, str) or callable(name) for name in names):
            return f"a list of {self.names} or callables"
        if self.longest is not None and len(names) > self.longest:
            return f"a list of at most {self.longest} elements"
        for name in (name for name in names if isinstance(name, str)):
            if len(name) > _LONGEST_NAME or not name.isprintable():
                return f"a list of names of at most {_LONGEST_NAME} printable characters"
            if not name.startswith(FACTORY):
                split_call(name, self.name, self.names)
        return ""


def _is_json(value: Any) -> bool:
    try:  # encoding fails for lone surrogates
        written = json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
        return isinstance(value, dict) and bool(json.loads(written) == value)
    except (TypeError, ValueError):
        return False


def setting(default: Any, help: str, *, requires: Any = (), **declaration: Any) -> Any:
    """Declares a field of a settings class.

    Args:
        default: Default value; `dataclasses.MISSING` makes the setting required.
        help: Meaning and source of the default, in one line.
        requires: A `Requirement` or a tuple of requirements.
        **declaration: `group`, `unit`, `at_least`, `above`, `at_most`, `below`, `choices`,
            `longest`, `names`, `resumable`, `comparable`, `immutable`, `built`, `basic` and
            `repeatable`, as in `Setting`.
    """
    needed = (requires,) if isinstance(requires, Requirement) else requires
    return Setting(default, help, requires=needed, **declaration)


@typing.dataclass_transform(kw_only_default=True, frozen_default=True)
class Settings:
    """Base class of settings: frozen, keyword-only dataclasses that validate their values.

    Subclasses become dataclasses automatically, without a decorator.

    Attributes:
        DEFAULTS: Changed defaults of inherited settings, by name.
        WITHOUT: Names of inherited settings that this class and its subclasses remove. Their values
            stay at the defaults.
        SETTINGS: The declarations of all settings of the class, by name.
        GROUPS: The groups of these settings, in order.
    """

    DEFAULTS: ClassVar[Mapping[str, Any]] = types.MappingProxyType({})
    WITHOUT: ClassVar[Collection[str]] = frozenset()
    SETTINGS: ClassVar[dict[str, Setting]] = {}
    GROUPS: ClassVar[tuple[Group, ...]] = ()

    def __new__(cls, *args: Any, **given: Any) -> Self:
        """Rejects unknown settings.

        Raises:
            TypeError: If a setting does not exist. The message suggests the intended one.
        """
        for name in given:
            if name not in cls.SETTINGS:
                problem = f"{cls.__name__}() got an unexpected keyword argument {name!r}"
                raise TypeError(f"{problem}. {suggestion(name, cls.SETTINGS)}".removesuffix(". "))
        return super().__new__(cls)

    def __init_subclass__(cls) -> None:
        """Turns the subclass into a dataclass.

        Raises:
            TypeError: If a field is not declared with `setting`, or has no type or an unsupported
                one, or if `DEFAULTS` or `WITHOUT` names no inherited setting.
        """
        super().__init_subclass__()
        hints: dict[str, Any] = inspect.get_annotations(cls, eval_str=True)
        own = {n: hint for n, hint in hints.items() if typing.get_origin(hint) is not ClassVar}
        base, group = typing.cast(Any, cls.__mro__[1]), Group(cls.__name__.removesuffix("Config"))
        inherited: dict[str, Setting] = base.SETTINGS
        defaults, without = vars(cls).get("DEFAULTS", {}), vars(cls).get("WITHOUT", ())
        if unknown := sorted({*defaults, *without} - inherited.keys()):
            raise TypeError(f"{cls.__name__}: {unknown[0]!r} is not an inherited setting")
        bare = [n for n, each in vars(cls).items() if isinstance(each, Setting) and n not in own]
        if bare:
            raise TypeError(f"{cls.__name__}.{bare[0]} has no type: declare {bare[0]}: float = ...")
        declared: dict[str, Setting] = {}
        for name, each in inherited.items():
            kept = tuple(needed for needed in each.requires if needed.setting not in without)
            default = defaults.get(name, each.default)
            declared[name] = dataclasses.replace(each, default=default, requires=kept)
        for name, hint in own.items():
            declared[name] = _declaration(name, hint, vars(cls).get(name), group)
        for name in dict.fromkeys([*own, *defaults, *without]):
            setattr(cls, name, _field(declared[name].default, name not in without))
            cls.__annotations__.setdefault(name, Any)
        dataclasses.dataclass(frozen=True, kw_only=True)(cls)
        cls.SETTINGS = {n: each for n, each in declared.items() if n not in without}
        cls.GROUPS = tuple(dict.fromkeys(each.group for each in cls.SETTINGS.values()))

    def __post_init__(self) -> None:
        """Validates each value, then each group.

        Raises:
            ValueError: If a value is invalid, or values are incompatible.
        """
        for name, each in self.SETTINGS.items():
            if expected := each.expected(value := getattr(self, name)):
                shown = repr(value)
                shown = shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "..."
                raise ValueError(f"{name} must be {expected}; got {shown}")
        for group in self.GROUPS:
            if group.check:
                group.check(self)

    def flat(self) -> dict[str, Any]:
        """Returns all settings by name: keyword arguments that recreate an equal object."""
        return {name: getattr(self, name) for name in self.SETTINGS}

    def changed(self) -> list[str]:
        """Returns the names of the settings that differ from their defaults."""
        return [name for name, each in self.SETTINGS.items() if getattr(self, name) != each.default]

    def without_effect(self, spaces: Any = None) -> dict[str, str]:
        """Returns the settings that have no effect, each with the reason.

        Args:
            spaces: The pair `(Observations, Actions)`; None before it is known.
        """
        found = {n: s.idle_because(self, spaces) for n, s in self.SETTINGS.items() if s.requires}
        return {name: reason for name, reason in found.items() if reason}

    def check_effect(self, names: Iterable[str], spaces: Any = None) -> None:
        """Raises a `ValueError` if one of the named settings of this class has no effect."""
        for name in names:
            if name in self.SETTINGS and (reason := self.SETTINGS[name].idle_because(self, spaces)):
                raise ValueError(reason)


def _declaration(name: str, hint: Any, found: Any, group: Group) -> Setting:
    """Returns the declaration of a field, completed with its name, types and group."""
    is_union = typing.get_origin(hint) in (types.UnionType, typing.Union)
    kinds = tuple(
        typing.get_origin(h) or h for h in (typing.get_args(hint) if is_union else [hint])
    )
    if not isinstance(found, Setting) or not _KINDS.issuperset(kinds):
        raise TypeError(
            f"{name} must be an int, float, bool, str or tuple of int that is declared with "
            f"eagerly.algorithms.setting; got {hint}"
        )
    return dataclasses.replace(found, name=name, kinds=kinds, group=found.group or group)


def _field(default: Any, is_argument: bool) -> Any:
    if isinstance(default, dict):
        return dataclasses.field(default_factory=default.copy, init=is_argument)
    return dataclasses.field(default=default, init=is_argument)


def with_tuples(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Converts the lists among settings from JSON or TOML to tuples."""
    return {n: tuple(each) if isinstance(each, list) else each for n, each in settings.items()}


def recorded(config: Any) -> tuple[Any, set[str]]:
    """Returns a copy of the settings, and a set that collects the names read from the copy."""
    read: set[str] = set()

    def get(self: Any, name: str) -> Any:
        read.add(name)
        return object.__getattribute__(self, name)

    kind: Any = type(type(config).__name__, (type(config),), {"__getattribute__": get})
    copied: Any = object.__new__(kind)
    vars(copied).update(vars(config))
    return copied, read
