"""Summaries of errors name the line of user code that failed."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium.envs.registration import EnvSpec

from eagerly.errors import location, summary


def fails(_: Any) -> None:
    raise ValueError("\x1b[1mfirst\x1b[0m\n\nsecond\nthird\nfourth")


def odd() -> gymnasium.Env:
    raise TypeError("odd")


def place(function: Callable[..., Any]) -> str:
    """Returns the location of the first line in a function of this file."""
    file = Path(__file__).relative_to(Path.cwd())
    return f"{file}:{function.__code__.co_firstlineno + 1}, in {function.__name__}"


@pytest.mark.parametrize(
    ("call", "told", "by"),
    [
        (partial(json.loads, "{}", object_hook=fails), "ValueError: first second third", fails),
        # Gymnasium raises another TypeError from the first.
        (
            partial(gymnasium.make, EnvSpec("Odd-v0", odd)),
            "TypeError: odd",
            odd,
        ),
        (
            partial(json.loads, "["),
            "JSONDecodeError: Expecting value: line 1 column 2 (char 1)",
            None,
        ),
    ],
)
def test_the_innermost_line_of_user_code_is_named(
    call: Callable[[], Any], told: str, by: Callable[..., Any] | None
) -> None:
    with pytest.raises(Exception) as raised:  # noqa: PT011
        call()
    traceback = raised.value.__traceback__
    assert traceback is not None
    error = raised.value.with_traceback(traceback.tb_next)  # without the frame of this test
    assert location(error) == (place(by) if by else "")
    assert summary(error) == told + (f" ({place(by)})" if by else "")
