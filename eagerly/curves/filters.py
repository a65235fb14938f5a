"""Selects runs by the values of their settings."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from eagerly.curves.labels import Found
from eagerly.errors import UsageError
from eagerly.settings import NONE
from eagerly.storage.run_settings import format_setting
from eagerly.suggestions import suggestion


def matching(runs: Sequence[Found], wanted: Mapping[str, Any]) -> list[Found]:
    """Returns the runs whose settings have the wanted values.

    Args:
        runs: Run directories with their settings.
        wanted: A value by setting, or a list of alternative values. A list that equals a saved list
            is one value. Text is converted to the type of the saved value, such as "0.005" to a
            number and "256,256" to sizes; "none" is the value that unsets an optional setting.

    Raises:
        RunError: If no run has one of the settings, or no run matches, for example because a value
            has the wrong type.
    """
    known = sorted({name for _, settings in runs for name in settings})
    for name in wanted:
        if name not in known:
            problem = f"no run has the setting {name!r}, which a filter names"
            raise UsageError(f"{problem}. {suggestion(name, known)}".removesuffix(". "))
    kept, wrong = [], None
    for run in runs:
        try:
            if all(n in run[1] and _matches(n, run[1][n], value) for n, value in wanted.items()):
                kept.append(run)
        except UsageError as error:  # the saved value of one run may have the wrong type
            wrong = wrong or error
    if not kept and wrong:
        raise wrong
    if not kept:
        raise UsageError(f"no run matches the filter {_described(wanted)}: {_saved(runs, wanted)}")
    return kept


def _matches(name: str, saved: Any, wanted: Any) -> bool:
    saved = list(saved) if isinstance(saved, tuple) else saved
    if isinstance(saved, list) and wanted == saved:
        return True
    for each in wanted if isinstance(wanted, list) else [wanted]:
        value = _converted(name, each, saved) if isinstance(each, str) else each
        value = list(value) if isinstance(value, tuple) else value
        if value == saved and isinstance(value, bool) is isinstance(saved, bool):
            return True
    return False


def _converted(name: str, text: str, like: Any) -> Any:
    """Converts text to the type of a saved value.

    Raises:
        RunError: If the text has another form.
    """
    if name == "agent":  # names of built-in agents are saved in lower case
        return like if text.lower() == like else text
    if text == NONE and like in ("", [], {}):
        return like
    if text == NONE and not isinstance(like, str):
        return None
    expected = "a number"
    try:
        if like is None or isinstance(like, str):
            return text
        if isinstance(like, bool):
            expected = "true or false"
            return {"true": True, "false": False}[text.lower()]
        if isinstance(like, dict):
            expected = "JSON such as '{\"frame_skip\": 2}'"
            return json.loads(text)
        if isinstance(like, list):
            if not like or isinstance(like[0], str):
                return like if text == format_setting(like) else [text]
            expected = "a list such as 256,256"
            return [int(size) for size in text.split(",")]
        return int(text) if text.lstrip("+-").isdecimal() else float(text)
    except (KeyError, ValueError) as error:
        raise UsageError(f"a filter on {name} requires {expected}; got {text!r}") from error


def _described(wanted: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name}={' or '.join(map(_text, value if isinstance(value, list) else [value]))}"
        for name, value in wanted.items()
    )


def _saved(runs: Sequence[Found], names: Iterable[str]) -> str:
    """Returns the values of these settings in the runs, as text."""
    found = []
    for name in names:
        values = (settings[name] for _, settings in runs if name in settings)
        found.append(f"{name} {' or '.join(dict.fromkeys(map(_text, values)))}")
    return f"the runs have {', '.join(found)}"


def _text(value: Any) -> str:
    return format_setting(value)
