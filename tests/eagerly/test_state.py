"""Objects declare their saved attributes. States become JSON and arrays, and are validated."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from eagerly.state import Saved, flatten_state, packed, unflatten_state, unpacked

STATE = {"count": 3, "best": None, "rows": [np.arange(2), {"name": "a", "on": True}]}


def test_a_flattened_state_is_restored() -> None:
    document, arrays = flatten_state(STATE)
    assert list(arrays) == ["rows.0"]
    again = unflatten_state(document, arrays)
    np.testing.assert_array_equal(again["rows"][0], [0, 1])
    assert again | {"rows": again["rows"][1:]} == STATE | {"rows": STATE["rows"][1:]}


@pytest.mark.parametrize("value", [np.float32(1), {1, 2}, b"bytes", object()])
def test_unsupported_values_are_named(value: Any) -> None:
    with pytest.raises(TypeError, match=f"sampling.beta is {type(value).__name__}: convert it"):
        flatten_state({"sampling": {"beta": value}})


class Part(Saved):
    """An object with one saved attribute."""

    _saved = ("count",)

    def __init__(self, count: int) -> None:
        self.count = count


class Whole(Saved):
    """Has an attribute of every type that can be saved."""

    _saved = (
        *("part", "_rows", "grows", "best", "mean", "is_on", "owed", "_generator", "sums", "parts"),
        *("texts", "seen", "pair", "counts"),
    )
    _compared = ("updates",)

    def __init__(self, seed: int = 0) -> None:
        self.part, self.parts = Part(seed), {"a": Part(seed)}
        self._rows, self.grows = np.full(3, seed, np.float32), np.zeros((0, 0), np.int64)
        self.best: float | None = None
        self.mean, self.is_on, self.owed = float(seed), False, Fraction(seed)
        self._generator = np.random.default_rng(seed)
        self.sums: dict[str, Any] = {}
        self.texts, self.seen = "none", [np.zeros(2), 0]
        self.updates, self.pair, self.counts = 4, (0.0, 0), {"left": 0}


def lived() -> Whole:
    """Returns an object that differs from a new one in every saved attribute."""
    whole = Whole(seed=3)
    whole.grows, whole.best, whole.is_on = np.ones((2, 5), np.int64), -2.5, True
    whole.owed, whole.sums, whole.texts = Fraction(7, 3), {"x": [1.5, 2]}, "some"
    whole.seen, whole.pair = [np.array([1.0, 2.0]), 9], (1.5, 2)
    whole.counts["right"] = 5
    whole._generator.random(5)
    return whole


def test_declared_attributes_are_restored_in_a_new_object() -> None:
    one, other = lived(), Whole()
    state = one.state()
    assert state.keys() == {name.lstrip("_") for name in (*Whole._saved, "updates")}
    one._rows += 1  # does not change `state`, which holds copies
    other.restore(unpacked(packed(state)))
    np.testing.assert_equal(other.state(), state)
    assert (other.owed, other.parts["a"].count) == (Fraction(7, 3), 3)
    assert (other.pair, other.counts) == ((1.5, 2), {"left": 0, "right": 5})
    assert other._generator.random() == lived()._generator.random()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("updates", 5, "updates of Whole must be 4; got 5"),
        ("part", {"count": -1}, "count of Part must be an integer of at least 0; got -1"),
        ("part", {}, r"the state of Part must be a dictionary of \['count'\]; got \[\]"),
        ("rows", np.zeros(4, np.float32), r"rows .* finite array of float32 \(3,\)"),
        ("rows", np.zeros(3), r"rows .* finite array of float32 \(3,\)"),
        ("rows", np.full(3, np.nan, np.float32), r"rows .* finite array of float32 \(3,\)"),
        ("rows", [0.0, 0.0, 0.0], r"rows .* finite array of float32 \(3,\)"),
        ("grows", np.zeros((2, 2)), "grows .* finite array of int64"),
        ("best", "many", "best of Whole must be a finite number; got many"),
        ("best", float("inf"), "best of Whole must be a finite number; got inf"),
        ("mean", None, "mean of Whole must be a finite number; got None"),
        ("mean", True, "mean of Whole must be a finite number; got True"),
        ("is_on", 1, "is_on of Whole must be bool; got 1"),
        ("owed", "1/0", "owed of Whole must be a fraction; got 1/0"),
        ("generator", {"bit_generator": "MT19937"}, "PCG64"),
        ("sums", [], r"sums of Whole must be dict; got \[\]"),
        ("parts", {}, r"parts of Whole must be a dictionary of \['a'\]; got {}"),
        ("texts", 3, "texts of Whole must be str; got 3"),
        ("seen", [np.zeros(2)], "seen of Whole must be a list of length 2"),
    ],
)
def test_saved_values_that_do_not_fit_the_object_are_rejected(
    name: str, value: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Whole().restore(lived().state() | {name: value})


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("best", float("nan"), "best of Whole must be a finite number; got nan"),
        ("parts", {1: 2}, r"parts of Whole must be a dictionary whose keys are text; got {1: 2}"),
        ("sums", {"x": [-1]}, "x of sums of Whole must be an integer of at least 0; got -1"),
        ("grows", np.array(["a"]), "grows of Whole must be a finite array of <U1"),
    ],
)
def test_values_that_could_not_be_restored_are_not_saved(
    name: str, value: Any, message: str
) -> None:
    whole = Whole()
    setattr(whole, name, value)
    with pytest.raises(ValueError, match=message):
        whole.state()


def test_arrays_of_the_same_name_are_rejected() -> None:
    with pytest.raises(ValueError, match=r"two arrays with the name a\.b: rename a key"):
        flatten_state({"a": {"b": np.zeros(1)}, "a.b": np.ones(1)})


@pytest.mark.parametrize("state", [[], {}, {"count": 1, "more": 2}, None])
def test_the_state_of_another_class_is_rejected(state: Any) -> None:
    with pytest.raises(ValueError, match="the state of Part must be a dictionary of"):
        Part(0).restore(state)
