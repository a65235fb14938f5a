"""Settings: fields that carry their help, range, source and requirements.

One declaration supplies the check, the command-line option and the documentation. Settings are flat
everywhere: each has one name, in Python, as an option, in a preset, in a file and in a run
directory. Groups are headings of `--help` and the documentation.

pydantic, attrs and msgspec were tried in place of `Setting.check`. pydantic comes closest and would
save some 40 lines, but the range in the message would still be ours to write, and importing it
adds a quarter to the CPU time of every command; attrs accepts True as a number and infinity as a
float; msgspec checks what it reads from a file, not what a program constructs.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, ClassVar

from eagerly.importing import FACTORY, split_name

_FAR = 10**9
_SHOWN = 200  # characters of a value in a message: a file may hold any
_KINDS = {int, float, bool, str, tuple, dict, type(None), Callable}
_UNIONS = types.UnionType, typing.Union


@dataclasses.dataclass(frozen=True, eq=False)
class Group:
    """Settings that share a heading.

    Attributes:
        heading: Heading in `--help` and the documentation.
        check: Called with all settings once each value is valid. Raises a `ValueError` if values
            exclude each other.
    """

    heading: str
    check: Callable[[Any], None] | None = None


@dataclasses.dataclass(frozen=True)
class Requirement:
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


@dataclasses.dataclass(frozen=True)
class Setting:
    """The declaration of a setting.

    Attributes:
        default: Its default; `dataclasses.MISSING` makes it required. A dict is copied.
        help: Its meaning and the source of the default, in one line.
        group: Its group; None for the group of the class that declares it.
        unit: Its unit.
        at_least, above, at_most, below: Ends of its range; of a tuple, those of each element.
        longest: Most elements of a tuple; most characters of a text, which must be printable then.
        choices: The allowed words.
        names: What a text names that is imported, "module:factory" for example.
        resumable: Whether it cannot change a run's result, so that a resumed run may differ in it.
        immutable: Whether a saved run keeps it for good, because it determines what a checkpoint
            holds; or the requirement under which it does.
        built: Whether it is read only while networks and optimizers are built. Where a custom
            `build` or `Builder` does not read it, it has no effect.
        requires: Conditions without which it has no effect.
        name: Its name, from its field.
        kinds: The types of its values, the main one first, from its annotation.
    """

    default: Any
    help: str
    _: dataclasses.KW_ONLY
    group: Any = None
    unit: str = ""
    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None
    longest: int | None = None
    choices: tuple[str, ...] = ()
    names: str = ""
    resumable: bool = False
    immutable: bool | Requirement = False
    built: bool = False
    requires: tuple[Requirement, ...] = ()
    name: str = ""
    kinds: tuple[Any, ...] = ()

    @property
    def kind(self) -> Any:
        """The main type of its values: int, float, bool, str, tuple (of int) or dict."""
        return self.kinds[0]

    def idle_because(self, config: Any, spaces: Any = None) -> str:
        """Returns why it has no effect with these settings and spaces, "" if it has one."""
        for needed in self.requires:
            if (found := needed.unmet(config, spaces)) is not None:
                return f"{self.name} has an effect only {needed.text}; got {found}"
        return ""

    def check(self, value: Any) -> None:
        """Checks a value against the declaration.

        Raises:
            ValueError: Naming the setting, the value and the allowed range.
        """
        kind, wrong = self.kinds[0], ""
        if (value is None and type(None) in self.kinds) or (
            callable(value) and Callable in self.kinds
        ):
            return
        if kind is tuple:
            if not isinstance(value, tuple):
                wrong = "be a tuple of int"
            elif self.longest is not None and len(value) > self.longest:
                raise ValueError(
                    f"{self.name} must have at most {self.longest} elements; got {len(value)}"
                )
            else:
                for element in value:
                    dataclasses.replace(self, kinds=(int,), longest=None).check(element)
        elif kind is dict:
            wrong = _not_json(value)
        elif not isinstance(value, (int, float) if kind is float else kind) or (
            kind is not bool and isinstance(value, bool)
        ):
            wrong = f"be of type {kind.__name__}"
        elif kind is str:
            wrong = self._wrong_text(value)
        elif not (
            (kind is int or abs(value) <= sys.float_info.max)
            and (self.at_least is None or value >= self.at_least)
            and (self.above is None or value > self.above)
            and (self.at_most is None or value <= self.at_most)
            and (self.below is None or value < self.below)
        ):
            wrong = f"be {self.range()}"
        if wrong:
            shown = repr(value)
            shown = shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "..."
            raise ValueError(f"{self.name} must {wrong}; got {shown}")

    def _wrong_text(self, value: Any) -> str:
        if value.encode("utf-8", "ignore").decode() != value:
            return "be text that UTF-8 can hold"
        if self.choices and value not in self.choices:
            return f"be one of {', '.join(self.choices)}"
        if self.longest is not None and not (len(value) <= self.longest and value.isprintable()):
            return f"be at most {self.longest} printable characters"
        if self.names and value and not value.startswith(FACTORY):
            split_name(value, self.name, self.names)
        return ""

    def range(self, *, brief: bool = False) -> str:
        """Returns the range of a number as text, such as "in [0, 1)", or "finite" if open.

        Args:
            brief: Whether to omit an upper end that is out of reach in practice.
        """
        low, above, high, below = (
            None if end is None else f"{end:g}" if float(f"{end:g}") == end else str(end)
            for end in (self.at_least, self.above, self.at_most, self.below)
        )
        if brief and high and float(high) > _FAR:
            high = None
        left = f"[{low}" if low else f"({above}" if above else ""
        right = f"{high}]" if high else f"{below})" if below else ""
        if left and right:
            return f"in {left}, {right}"
        if left:
            return f"at least {low}" if low else f"above {above}"
        return (f"at most {high}" if high else f"below {below}") if right else "finite"


def _not_json(value: Any) -> str:
    """Returns what is wrong with a value that must be a JSON object, "" if nothing is."""
    expected = "be a dictionary of JSON values"
    try:
        written = json.dumps(value, allow_nan=False, ensure_ascii=False)
        written.encode()  # which raises on halves of surrogate pairs
        return "" if isinstance(value, dict) and json.loads(written) == value else expected
    except (TypeError, ValueError) as error:
        return f"{expected} ({error})"


def setting(default: Any, help: str, *, requires: Any = (), **declaration: Any) -> Any:
    """Declares a field of a settings class. Further arguments are those of `Setting`.

    Args:
        default: As in `Setting`.
        help: As in `Setting`.
        requires: A `Requirement`, or a tuple of them.
        **declaration: As in `Setting`.
    """
    requires = requires if isinstance(requires, tuple) else (requires,)
    return _field(Setting(default, help, requires=requires, **declaration))


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
        WITHOUT: Names of inherited settings that this class does not have. They keep their
            defaults. Settings that have no effect without them are left out, too.
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
        inherited, own = cls._declared, cls.__annotations__.keys()
        group = Group(cls.__name__.removesuffix("Config"))
        declared = {name: each for name, each in inherited.items() if name not in own}
        for name, value in vars(cls).get("DEFAULTS", {}).items():
            if name not in declared:
                raise TypeError(f"{cls.__name__}.DEFAULTS: {name!r} is not an inherited setting")
            declared[name] = dataclasses.replace(declared[name], default=value)
            setattr(cls, name, _field(declared[name]))
            cls.__annotations__[name] = Any
        dataclasses.dataclass(frozen=True, kw_only=True)(cls)
        hints = typing.get_type_hints(cls)
        fields = dataclasses.fields(typing.cast(Any, cls))
        cls._declared = {
            field.name: declared.get(field.name) or _declaration(field, hints[field.name], group)
            for field in fields
        }
        at_default = types.SimpleNamespace(**{n: s.default for n, s in cls._declared.items()})
        out = set(cls.WITHOUT)
        for name, each in cls._declared.items() if out else ():
            idle = (n for n in each.requires if n.setting in out and n.unmet(at_default, None))
            out |= {name} if any(idle) else set()
        cls.SETTINGS = {name: each for name, each in cls._declared.items() if name not in out}
        for name, each in cls.SETTINGS.items() if out else ():
            requires = tuple(needed for needed in each.requires if needed.setting not in out)
            cls.SETTINGS[name] = dataclasses.replace(each, requires=requires)
        cls.GROUPS = tuple(dict.fromkeys(each.group for each in cls.SETTINGS.values()))

    def __post_init__(self) -> None:
        """Checks each value, then each group.

        Raises:
            ValueError: Naming the setting, the value and what is allowed.
        """
        for name, each in self._declared.items():
            value = getattr(self, name)
            if name in self.SETTINGS:
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
        """Checks that settings have an effect.

        Args:
            names: Names of the settings; others than this class's are skipped.
            spaces: As in `without_effect`.

        Raises:
            ValueError: Naming the setting, what it requires, and what is there instead.
        """
        reasons = self.without_effect(spaces)
        for name in names:
            if name in reasons:
                raise ValueError(reasons[name])


def recorded(config: Any) -> tuple[Any, set[str]]:
    """Returns equal settings, and a set that collects the names of those that are read."""
    read: set[str] = set()

    def get(self: Any, name: str) -> Any:
        read.add(name)
        return object.__getattribute__(self, name)

    kind = types.new_class(
        type(config).__name__,
        (type(config),),
        {"declares": False},
        lambda body: body.update(__getattribute__=get),
    )
    copied: Any = object.__new__(kind)
    vars(copied).update(vars(config))
    return copied, read


def _declaration(field: Any, hint: Any, group: Group) -> Setting:
    """Returns the declaration of a field, complete with its name, types and group."""
    found = field.metadata.get("setting")
    parts = typing.get_args(hint) if typing.get_origin(hint) in _UNIONS else (hint,)
    kinds = tuple(typing.get_origin(part) or part for part in parts)
    if found is None or not set(kinds) <= _KINDS:
        raise TypeError(
            f"{field.name} must be an int, float, bool, str or tuple of int that is declared with "
            f"eagerly.settings.setting; got {field.type}"
        )
    group = found.group or group
    return dataclasses.replace(found, name=field.name, kinds=kinds, group=group)
