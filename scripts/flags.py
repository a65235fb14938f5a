"""Command-line flags generated from settings dataclasses."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import click

from eagerly.errors import UsageError
from eagerly.sanitizing import sanitize
from eagerly.scripts.commands import Command
from eagerly.settings import NONE, Setting, Settings, flag_name
from eagerly.storage.config import RunConfig
from eagerly.storage.run_settings import agents_with, format_setting


def _reader(example: str, read: Callable[[str], Any]) -> Callable[[str], Any]:
    def convert(text: str) -> Any:
        try:
            return read(text)
        except (ValueError, RecursionError) as error:
            got = text if len(text) < 200 else f"{text[:200]}..."
            raise click.BadParameter(f"expected {example}; got {got!r} ({error})") from None

    return convert


_MOST_SEEDS = 1000


def parse_seeds(text: str) -> tuple[int, ...]:
    """Parses seeds from the command line, such as `0..4`, `0,3,7` or `0..2,7`."""
    found: list[int] = []
    for part in text.split(","):
        ends = re.fullmatch(r"\s*([0-9]{1,10})(?:\.\.([0-9]{1,10}))?\s*", part)
        if not ends:
            raise click.BadParameter(f"expected seeds such as 0..4 or 0,3,7; got {text!r}")
        first, last = int(ends[1]), int(ends[2] or ends[1])
        if last < first:
            raise click.BadParameter(f"expected an ascending range; got {part.strip()}")
        if len(found) + last - first >= _MOST_SEEDS:
            raise click.BadParameter(f"expected at most {_MOST_SEEDS} seeds; got {text!r}")
        found += range(first, last + 1)
    if len(set(found)) < len(found):
        raise click.BadParameter(f"expected distinct seeds; got {text!r}")
    return tuple(found)


def format_seeds(seeds: Iterable[int]) -> str:
    """Formats seeds in the syntax of `parse_seeds`, in the same order."""
    ranges: list[list[int]] = []
    for seed in seeds:
        if ranges and seed == ranges[-1][1] + 1:
            ranges[-1][1] = seed
        else:
            ranges.append([seed, seed])
    return ",".join(str(a) if a == b else f"{a}..{b}" for a, b in ranges)


class _Integer(click.types.IntParamType):
    """An integer, also in scientific notation, such as 3e5."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if re.fullmatch(r"\d+(\.\d+)?e\d{1,2}", str(value), re.IGNORECASE):
            number = float(value)
            value = int(number) if number.is_integer() else value
        return super().convert(value, param, ctx)


_SIZES = _reader(
    "a list such as 256,256",
    lambda text: () if text == NONE else tuple(map(int, text.split(","))),
)
KEYWORDS = _reader("JSON such as '{\"frame_skip\": 2}'", json.loads)
_TYPES: dict[Any, Any] = {
    tuple: _SIZES,
    dict: KEYWORDS,
    bool: None,
    int: _Integer(),
}
_NAMES = "MODULE:FACTORY"
_METAVARS = {tuple: "INT,INT,...", dict: "JSON"}
_ALL_FLAG = "--help-all"
_ALL_OPTIONS = f"{__name__}.all"  # entry of `click.Context.meta`
_SOURCE = re.compile(r" \([^()]+\)$")  # at the end of a help text
_FAR = 10**9  # larger upper bounds are not shown


class Option(click.Option):
    """An option that `--help` lists only with a `brief` help text; `--help-all` lists it always."""

    def __init__(self, *args: Any, heading: str = "Options", brief: str = "", **more: Any) -> None:
        super().__init__(*args, **more)
        self.heading, self.brief = heading, brief


class SettingsCommand(Command):
    """A command with two lists of options by group: basic ones (`--help`), all (`--help-all`).

    Args:
        examples: Complete commands, for the end of the help.
    """

    def __init__(self, *args: Any, examples: Iterable[str] = (), **more: Any) -> None:
        super().__init__(*args, **more)
        self._examples = tuple(examples)
        option = click.Option(
            [_ALL_FLAG],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_print_all_options,
            help="Show all settings and exit.",
        )
        self.params.append(option)

    def suggestion(self, name: str, options: Mapping[str, str]) -> str:
        return agents_with(name) or super().suggestion(name, options)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes one section per group. Without blank lines, the basic options fit on a page."""
        sections: dict[str, list[tuple[str, str]]] = {}
        shows_all = ctx.meta.get(_ALL_OPTIONS)
        for param in self.get_params(ctx):
            if not (record := param.get_help_record(ctx)):
                continue
            heading = "Options"
            if isinstance(param, Option):
                if not shows_all and not param.brief:
                    continue
                heading = param.heading
                record = record if shows_all else (record[0], param.brief)
            sections.setdefault(heading, []).append(record)
        for number, (heading, records) in enumerate(sections.items()):
            if shows_all or number == 0:
                formatter.write_paragraph()
            formatter.write_heading(heading)
            with formatter.indentation():
                formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the examples, and how to list the remaining options."""
        if self._examples:
            with formatter.section("Examples"):
                for example in self._examples:
                    formatter.write(f"  {example}\n")
        if not ctx.meta.get(_ALL_OPTIONS):
            formatter.write(
                "\nThese are the basic settings, with their defaults in brackets. "
                f"{_ALL_FLAG} shows all.\n"
            )


def _print_all_options(ctx: click.Context, _: click.Parameter, given: bool) -> None:
    if given and not ctx.resilient_parsing:
        ctx.meta[_ALL_OPTIONS] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


class _OrNone(click.ParamType):
    """Converts the word "none" to a given value, and other text with another type."""

    def __init__(self, other: Any, none: Any) -> None:
        self._other, self._none = click.types.convert_type(other), none
        self.name = self._other.name

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return f"{self.name.upper()}|{NONE}"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return self._none if value == NONE else self._other.convert(value, param, ctx)


def _type(setting: Setting) -> Any:
    if setting.kinds[0] is tuple and setting.names:
        return click.STRING
    kind = click.Choice(setting.choices) if setting.choices else setting.kinds[0]
    kind = _TYPES.get(kind, kind)
    return kind if setting.none is dataclasses.MISSING else _OrNone(kind, setting.none)


def _option(setting: Setting, default: Any) -> click.Option:
    """Returns the option for a setting. Its value is None if the option is not passed."""
    flag, kind = flag_name(setting.name), setting.kinds[0]
    if isinstance(default, bool):
        default = str(default).lower()
    elif default is not dataclasses.MISSING:
        default = format_setting(default)
    default = "" if default is dataclasses.MISSING else default
    notes = [setting.unit, setting.range(_FAR), *(needed.text for needed in setting.requires)]
    notes.append(default and f"default {default}")
    return Option(
        [f"{flag}/--no-{flag[2:]}" if kind is bool else flag],
        type=_type(setting),
        default=None,
        help=_with_notes(setting.help, *notes),
        metavar=_NAMES if setting.names and kind is tuple else _METAVARS.get(kind),
        multiple=setting.repeatable,
        callback=(lambda _, __, values: _joined_values(kind, values))
        if setting.repeatable
        else None,
        heading=setting.group.heading,
        brief=_with_notes(_SOURCE.sub("", setting.help), default) if setting.basic else "",
    )


def _with_notes(text: str, *notes: str) -> str:
    shown = "; ".join(filter(None, notes))
    return f"{text}. [{shown}]" if shown else f"{text}."


def _joined_values(kind: type, values: tuple[str, ...]) -> Any:
    """Returns the value of an option that can be repeated; None if it is not passed."""
    if kind is tuple and values:
        return () if values == (NONE,) else values
    return ",".join(values) if values else None


def options_of(config: type[Settings], defaults: Mapping[str, Any]) -> list[click.Option]:
    """Returns one option per setting. The help shows `defaults` in place of declared defaults."""
    return [_option(each, defaults.get(n, each.default)) for n, each in config.SETTINGS.items()]


def resumable_options() -> list[click.Option]:
    """Returns options for the settings that may change when a run is resumed."""
    settings = RunConfig.SETTINGS.values()
    return [_option(each, "as saved") for each in settings if each.resumable]


def format_config(*configs: Settings) -> str:
    """Formats settings as TOML for `read_settings_file`. Settings without effect become comments.

    Raises:
        RunError: If TOML cannot represent a value, such as null.
    """
    import tomlkit

    document = tomlkit.document()
    for config in configs:
        idle, values = config.without_effect(), config.flat()
        for group in config.GROUPS:
            document.add(tomlkit.nl())
            document.add(tomlkit.comment(group.heading))
            for name in [n for n, each in config.SETTINGS.items() if each.group is group]:
                value = values[name]
                if name in idle:
                    document.add(tomlkit.comment(idle[name]))
                    continue
                try:
                    value = NONE if value is None else value
                    item = tomlkit.item(list(value) if isinstance(value, tuple) else value)
                    if isinstance(value, dict):
                        item = tomlkit.inline_table()
                        item.update(value)
                except ValueError as error:
                    raise UsageError(f"TOML cannot represent {name} {value}: {error}") from error
                document.add(name, item)
    return tomlkit.dumps(document).lstrip()


def interpreter() -> str:
    """Returns the Python executable's path, relative if it is below the working directory."""
    inside = os.path.relpath(sys.executable)
    return sys.executable if inside.startswith("..") else inside


def command(script: str, *words: str) -> str:
    """Returns a shell command that runs a script the way this process was started.

    Args:
        script: File name, such as "evaluate.py". If this process is the command `eagerly`, the
            result is `eagerly evaluate` instead.
        words: Command-line arguments.
    """
    if os.path.basename(sys.argv[0]) == "eagerly":
        found = shutil.which("eagerly") == os.path.abspath(sys.argv[0])
        program = "eagerly" if found else os.path.relpath(sys.argv[0])
        resumes = script == "train.py" and words[:1] == ("resume",)
        name = () if resumes else (os.path.splitext(script)[0],)
        return _joined([program, *name, *words])
    return _joined([interpreter(), os.path.join(os.path.dirname(sys.argv[0]), script), *words])


def _joined(words: list[str]) -> str:
    """Joins words into a shell command. Control characters use bash's `$'...'` syntax."""
    return " ".join(
        shlex.quote(word) if sanitize(word, lines=False) == word else _ansi_quoted(word)
        for word in words
    )


def _ansi_quoted(word: str) -> str:
    content = os.fsencode(word).decode("utf-8", "surrogateescape")
    escaped = "".join(
        character
        if sanitize(character, lines=False) == character and character not in "\\'"
        else "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogateescape"))
        for character in content
    )
    return f"$'{escaped}'"
