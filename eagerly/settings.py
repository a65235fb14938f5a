"""Settings: fields that carry their help, range, source and requirements.

One declaration supplies the check, the command-line option and the documentation. A setting has one
flat name everywhere: in Python, as an option, in a preset, in a file and in a run directory.

pydantic comes closest, and importing it adds a quarter to the CPU time of every command. attrs
accepts True as a number and infinity as a float; msgspec does not check what a program constructs.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, ClassVar, NamedTuple

from eagerly.importing import FACTORY, split_name

_SHOWN = 200  # characters of a value in a message: a file may hold any
_KINDS: dict[str, Any] = {kind.__name__: kind for kind in (int, float, bool, str, tuple, dict)}
_KINDS |= {"None": type(None), "Callable": Callable}


@dataclasses.dataclass(frozen=True, eq=False)
class Group:
    """Settings that share a heading of `--help` and the documentation.

    Attributes:
        heading: The heading.
        check: Called with all settings once each value is valid. Raises a `ValueError` if values
            exclude each other.
    """

    heading: str
    check: Callable[[Any], None] | None = None


class Requirement(NamedTuple):
    """A condition without which a setting has no effect.

    Attributes:
        text: The condition, for help and messages, such as "for discrete actions".
        unmet: Called with the settings and the spaces, a pair `Observations, Actions`, or None
            before these are known. Returns None if the condition holds or is not known yet,
            otherwise what is there instead, for messages.
        setting: Name of the setting that it depends on, if any.
    """

    text: str
    unmet: Callable[[Any, Any], Any]
    setting: str = ""


def flag_name(setting: str) -> str:
    """Returns the command-line option of a setting."""
    return "--" + setting.replace("_", "-")


def when(name: str, *values: Any) -> Requirement:
    """Requires that another setting has one of these values; without values, that it is set."""
    flag = flag_name(name)

    def unmet(config: Any, spaces: Any) -> str | None:
        value = getattr(config, name)
        if value in values if values else value:
            return None
        return f"--no-{flag[2:]}" if value is False else f"{flag} {value or 'none'}"

    return Requirement(f"with {flag} {' or '.join(map(str, values))}".strip(), unmet, name)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """The declaration of a setting, as `setting` makes it."""

    default: Any  # `dataclasses.MISSING` makes it required
    help: str  # its meaning and the source of the default, in one line
    group: Any = None  # None: that of the class that declares it
    unit: str = ""
    at_least: float | None = None  # ends of the range, of each element of a tuple
    above: float | None = None
    at_most: float | None = None
    below: float | None = None
    longest: int | None = None  # most elements of a tuple, most printable characters of a text
    choices: tuple[str, ...] = ()
    names: str = ""  # what a text names that is imported, such as "module:factory"
    resumable: bool = False  # cannot change a run's result: a resumed run may differ in it
    # A saved run keeps it for good, because it determines what a checkpoint holds.
    immutable: bool | Requirement = False
    # Read only while networks are built: without effect if a custom builder does not read it.
    built: bool = False
    requires: tuple[Requirement, ...] = ()  # without them it has no effect
    name: str = ""  # that of the field
    kinds: tuple[Any, ...] = ()  # the types of its values, the main one first

    def idle_because(self, config: Any, spaces: Any = None) -> str:
        """Returns why it has no effect with these settings and spaces, "" if it has one."""
        for needed in self.requires:
            if (found := needed.unmet(config, spaces)) is not None:
                return f"{self.name} has an effect only {needed.text}; got {found}"
        return ""

    def check(self, value: Any) -> None:
        """Raises a `ValueError` that names the setting, the value and the allowed range."""
        if expected := self.expected(value):
            shown = repr(value)
            shown = shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "..."
            raise ValueError(f"{self.name} must {expected}; got {shown}")

    def expected(self, value: Any, kind: Any = None) -> str:
        """Returns what a wrong value must do, such as "be of type int", "" if it is right.

        Args:
            value: The value.
            kind: Its expected type, if it is not the main one of this setting.
        """
        kinds, kind = self.kinds, kind or self.kinds[0]
        if (value is None and type(None) in kinds) or (callable(value) and Callable in kinds):
            return ""
        if kind is tuple:
            if not isinstance(value, tuple):
                return "be a tuple of int"
            if self.longest is not None and len(value) > self.longest:
                return f"have at most {self.longest} elements"
            return next(filter(None, (self.expected(element, int) for element in value)), "")
        if kind is dict:
            return _expected_json(value)
        allowed: Any = (int, float) if kind is float else kind
        if not isinstance(value, allowed) or (kind is not bool and isinstance(value, bool)):
            return f"be of type {kind.__name__}"
        if kind is str:
            if value.encode("utf-8", "ignore").decode() != value:
                return "be text that UTF-8 can hold"
            if self.choices and value not in self.choices:
                return f"be one of {', '.join(self.choices)}"
            if self.longest is not None and not (
                len(value) <= self.longest and value.isprintable()
            ):
                return f"be at most {self.longest} printable characters"
            if self.names and value and not value.startswith(FACTORY):
                split_name(value, self.name, self.names)
            return ""
        is_within = (
            (kind is int or abs(value) <= sys.float_info.max)
            and (self.at_least is None or value >= self.at_least)
            and (self.above is None or value > self.above)
            and (self.at_most is None or value <= self.at_most)
            and (self.below is None or value < self.below)
        )
        return "" if is_within else f"be {self.range()}"

    def range(self, far: float = float("inf")) -> str:
        """Returns the range of a number, such as "in [0, 1)" or "at least 1", "finite" if open.

        Args:
            far: An inclusive upper end beyond this is omitted.
        """
        at_most = None if self.at_most is None or self.at_most > far else self.at_most
        ends = {"[": self.at_least, "(": self.above, "]": at_most, ")": self.below}
        given = [(bracket, end) for bracket, end in ends.items() if end is not None]
        shown = [f"{end:g}" if float(f"{end:g}") == end else str(end) for _, end in given]
        if len(given) == 2:
            return f"in {given[0][0]}{shown[0]}, {shown[1]}{given[1][0]}"
        words = {"[": "at least", "(": "above", "]": "at most", ")": "below"}
        return f"{words[given[0][0]]} {shown[0]}" if given else "finite"


def _expected_json(value: Any) -> str:
    expected = "be a dictionary of JSON values"
    try:
        written = json.dumps(value, allow_nan=False, ensure_ascii=False)
        written.encode()  # which raises on halves of surrogate pairs
        return "" if isinstance(value, dict) and json.loads(written) == value else expected
    except (TypeError, ValueError) as error:
        return f"{expected} ({error})"


def setting(default: Any, help: str, *, requires: Any = (), **declaration: Any) -> Any:
    """Declares a field of a settings class.

    Args:
        default: Its default.
        help: Its meaning and the source of the default, in one line.
        requires: A `Requirement`, or a tuple of them.
        **declaration: `group`, `unit`, `at_least`, `above`, `at_most`, `below`, `choices`,
            `longest`, `names`, `resumable`, `immutable` and `built`, as in `Setting`.
    """
    requires = (requires,) if isinstance(requires, Requirement) else requires
    return _field(Setting(default=default, help=help, requires=requires, **declaration))


def _field(declared: Setting) -> Any:
    metadata = {"setting": declared}
    if isinstance(declared.default, dict):
        return dataclasses.field(default_factory=declared.default.copy, metadata=metadata)
    return dataclasses.field(default=declared.default, metadata=metadata)


@typing.dataclass_transform(kw_only_default=True, frozen_default=True)
class Settings:
    """Base of settings classes: frozen, keyword-only dataclasses that check their values.

    A subclass is made a dataclass when it is defined; it needs no decorator.

    Attributes:
        DEFAULTS: Other defaults of inherited settings, by name.
        WITHOUT: Names of inherited settings that this class does not have; they keep their
            defaults. Subclasses do not have them either.
        SETTINGS: The declarations of all settings that the class has, by name.
        GROUPS: Their groups, in order.
    """

    DEFAULTS: ClassVar[Mapping[str, Any]] = types.MappingProxyType({})
    WITHOUT: ClassVar[Collection[str]] = frozenset()
    SETTINGS: ClassVar[dict[str, Setting]] = {}
    GROUPS: ClassVar[tuple[Group, ...]] = ()
    _declared: ClassVar[Mapping[str, Setting]] = types.MappingProxyType({})

    def __init_subclass__(cls, *, declares: bool = True) -> None:
        """Makes the class a dataclass and reads its declarations.

        Args:
            declares: Whether the class has declarations of its own.

        Raises:
            TypeError: If a field is not declared with `setting`, or `DEFAULTS` names no setting.
        """
        super().__init_subclass__()
        if not declares:
            return
        own, group = dict(cls.__annotations__), Group(cls.__name__.removesuffix("Config"))
        declared = {name: each for name, each in cls._declared.items() if name not in own}
        for name, value in vars(cls).get("DEFAULTS", {}).items():
            if name not in declared:
                raise TypeError(f"{cls.__name__}.DEFAULTS: {name!r} is not an inherited setting")
            declared[name] = dataclasses.replace(declared[name], default=value)
            setattr(cls, name, _field(declared[name]))
            cls.__annotations__[name] = Any
        dataclasses.dataclass(frozen=True, kw_only=True)(cls)
        for field in dataclasses.fields(typing.cast(Any, cls)):
            if field.name in own:
                declared[field.name] = _declaration(field, own[field.name], group)
        base: Any = cls.__mro__[1]
        cls._declared, cls.WITHOUT = declared, {*base.WITHOUT, *cls.WITHOUT}
        cls.SETTINGS = {n: each for n, each in declared.items() if n not in cls.WITHOUT}
        for name, each in cls.SETTINGS.items() if cls.WITHOUT else ():
            kept = tuple(needed for needed in each.requires if needed.setting not in cls.WITHOUT)
            cls.SETTINGS[name] = dataclasses.replace(each, requires=kept)
        cls.GROUPS = tuple(dict.fromkeys(each.group for each in cls.SETTINGS.values()))

    def __post_init__(self) -> None:
        """Checks each value, then each group, which raise a `ValueError`."""
        for name, each in self._declared.items():
            value = getattr(self, name)
            if name in self.SETTINGS:
                if each.expected(value):
                    each.check(value)
            elif value != each.default:
                raise ValueError(f"{type(self).__name__} has no setting {name!r}; got {value!r}")
        for group in self.GROUPS:
            if group.check:
                group.check(self)

    def flat(self) -> dict[str, Any]:
        """Returns all settings by name, which construct equal settings."""
        return {name: getattr(self, name) for name in self.SETTINGS}

    def changed(self) -> list[str]:
        """Returns the names of the settings that differ from their defaults."""
        return [name for name, each in self.SETTINGS.items() if getattr(self, name) != each.default]

    def without_effect(self, spaces: Any = None) -> dict[str, str]:
        """Returns the settings that have no effect, each with the reason.

        Args:
            spaces: The layouts `Observations` and `Actions`; None before they are known.
        """
        found = {n: s.idle_because(self, spaces) for n, s in self.SETTINGS.items() if s.requires}
        return {name: reason for name, reason in found.items() if reason}

    def check_effect(self, names: Iterable[str], spaces: Any = None) -> None:
        """Raises a `ValueError` if a setting of this class among `names` has no effect."""
        for name in names:
            if name in self.SETTINGS and (reason := self.SETTINGS[name].idle_because(self, spaces)):
                raise ValueError(reason)


def _declaration(field: Any, hint: Any, group: Group) -> Setting:
    """Returns the declaration of a field, complete with its name, types and group."""
    found = field.metadata.get("setting")
    # An annotation is text with `from __future__ import annotations`, and a type without.
    text = hint.__name__ if isinstance(hint, type) else str(hint)
    words = [part.partition("[")[0].rpartition(".")[2] for part in text.split(" | ")]
    if found is None or not set(words) <= _KINDS.keys():
        raise TypeError(
            f"{field.name} must be an int, float, bool, str or tuple of int that is declared with "
            f"eagerly.algorithms.setting; got {text}"
        )
    kinds = tuple(_KINDS[word] for word in words)
    return dataclasses.replace(found, name=field.name, kinds=kinds, group=found.group or group)


def recorded(config: Any) -> tuple[Any, set[str]]:
    """Returns equal settings, and a set that collects the names of those that are read."""
    read: set[str] = set()

    def get(self: Any, name: str) -> Any:
        read.add(name)
        return object.__getattribute__(self, name)

    kind: Any = types.new_class(type(config).__name__, (type(config),), {"declares": False})
    kind.__getattribute__ = get
    copied: Any = object.__new__(kind)
    vars(copied).update(vars(config))
    return copied, read
