"""States are split into JSON and arrays, and refuse what is neither."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from eagerly.state import joined, split

STATE = {"count": 3, "best": None, "rows": [np.arange(2), {"name": "a", "on": True}]}


def test_what_was_split_is_joined_again() -> None:
    document, arrays = split(STATE)
    assert list(arrays) == ["rows.0"]
    again = joined(document, arrays)
    np.testing.assert_array_equal(again["rows"][0], [0, 1])
    assert again | {"rows": again["rows"][1:]} == STATE | {"rows": STATE["rows"][1:]}


@pytest.mark.parametrize("value", [np.float32(1), {1, 2}, b"bytes", object()])
def test_what_no_state_can_hold_is_named(value: Any) -> None:
    with pytest.raises(TypeError, match=f"sampling.beta is {type(value).__name__}: make it"):
        split({"sampling": {"beta": value}})
