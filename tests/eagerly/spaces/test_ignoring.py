"""Observation entries can be hidden by name, from all networks or from the actor only."""

from __future__ import annotations

import json
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Graph, OneOf, Sequence, Text, Tuple

from eagerly.spaces import Actions, Observations, document_of, space_of
from eagerly.spaces.serialization import recorded_spaces, restored_spaces

INNER = Dict({"notes": Text(5), "arm": Box(-1, 1, (2,), np.float32)})
ROBOT = Dict(
    {
        "mission": Text(9, charset="abc"),
        "robot": INNER,
        "sounds": Sequence(Box(-1, 1, (2,))),
        "tool": Tuple([Discrete(3), Text(2)]),
    }
)
IGNORED = ("mission", "robot/notes", "sounds", "tool/1")
SEEN = {
    "mission": "abc",
    "robot": {"notes": "x", "arm": np.array([0.5, -0.5], np.float32)},
    "sounds": (),
    "tool": (2, "no"),
}


def test_ignored_entries_have_no_columns() -> None:
    laid = Observations(ROBOT, masked=1, ignored=IGNORED)
    found = [(entry.path, entry.start, entry.stop) for entry in laid.entries]
    assert found == [("robot/arm", 0, 2), ("tool/0", 2, 5)]
    np.testing.assert_array_equal(laid.flatten(SEEN), [0.5, -0.5, 0, 0, 1, 1])
    kept = Dict({"robot": Dict({"arm": INNER["arm"]}), "tool": Tuple([Discrete(3)])})
    assert laid.kept_space == kept
    assert Observations(INNER["arm"]).kept_space is INNER["arm"]


def test_ignored_entries_of_a_dictionary_may_be_missing() -> None:
    laid = Observations(ROBOT, ignored=IGNORED)
    short = {"robot": {"arm": SEEN["robot"]["arm"]}, "tool": (2, None)}
    np.testing.assert_array_equal(laid.flatten(short), laid.flatten(SEEN))
    many = {"robot": {"arm": np.zeros((3, 2), np.float32)}, "tool": (np.array([0, 1, 2]), "no")}
    assert laid.flatten(many).shape == (3, 5)
    for wrong in ({**SEEN, "more": 1}, {"robot": SEEN["robot"]}, {**short, "tool": (2,)}):
        with pytest.raises(
            ValueError, match=r"must be a dictionary with|must be a tuple of length 2"
        ):
            laid.flatten(wrong)


def test_an_observation_without_ignored_entries_is_in_the_kept_space() -> None:
    laid = Observations(ROBOT, ignored=IGNORED)
    broken = {**SEEN, "mission": np.nan, "tool": (2, None)}
    assert laid.kept_space.contains(laid.kept(broken))
    again = laid.completed(laid.kept(SEEN))
    assert again["tool"] == (2, None)
    np.testing.assert_array_equal(laid.flatten(again), laid.flatten(SEEN))
    for wrong in ({**SEEN, "more": 1}, {**SEEN, "tool": 2}, {**SEEN, "robot": 3}, None):
        assert not laid.kept_space.contains(laid.kept(wrong))
    everything = Observations(INNER["arm"])
    assert everything.kept(SEEN) is SEEN


def test_a_dictionary_is_ignored_by_its_name_or_by_all_of_its_entries() -> None:
    for names in (("robot",), ("robot/notes", "robot/arm")):
        laid = Observations(ROBOT, ignored=(*names, "mission", "sounds", "tool/1"))
        assert [entry.path for entry in laid.entries] == ["tool/0"]
        assert laid.flatten({"tool": (1, "")}).tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("space", "ignored", "message"),
    [
        (
            ROBOT,
            ["mision"],
            "ignore_entries: unknown entry 'mision'; observations have the entries mission, robot, "
            "robot/arm, robot/notes, sounds, tool, tool/0, tool/1",
        ),
        (Box(0, np.arange(1.0, 31.0)), ["x"], r"no entries; they are Box\(0.0, 1.0 to 30.0, \("),
        (Box(-1, 1, (2,)), ["x"], "unknown entry 'x'; observations have no entries; they are Box"),
        (
            INNER,
            ["notes", "arm"],
            "notes,arm would leave the actor no entry: keep at least one of arm, n",
        ),
        (
            ROBOT,
            [],
            r"observation entry 'mission' is Text\(1, 9, .*\), which networks cannot read: ignore "
            "it with --ignore-entries mission,robot/notes,sounds,tool/1, or convert it to a Box "
            "with gymnasium.wrappers.TransformObservation",
        ),
        (ROBOT, ["mission", "tool"], "'robot/notes' is .*-entries mission,tool,robot/notes,sounds"),
        (Text(3), [], "^observations are .* read: convert them to a Box with gymnasium.wrap"),
        (Graph(Box(0, 1), None), [], "observations are Graph.* read: convert them to a Box with"),
        (OneOf([Discrete(2), Discrete(3)]), [], r"wrappers\.FlattenObservation"),
        (Dict({"a": Text(2)}), [], "'a' is Text.* read: convert it to a Box"),
    ],
)
def test_errors_name_unknown_and_unsupported_entries(
    space: gymnasium.Space[Any], ignored: list[str], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Observations(space, ignored=ignored)


def test_entries_that_only_critics_see_come_first_and_end_with_the_row_of_the_actor() -> None:
    laid = Observations(ROBOT, 1, IGNORED, ("tool",))
    found = [(entry.path, entry.start, entry.stop) for entry in laid.entries]
    assert found == [("tool/0", 0, 3), ("robot/arm", 3, 5)]
    assert laid.flatten(SEEN, np.zeros(1)).tolist() == [0, 0, 1, 0.5, -0.5, 0]
    assert laid.space_columns.tolist() == [3, 4, 0, 1, 2]
    assert next(iter(laid.parts(SEEN))) == 2
    back = laid.unflatten(laid.flatten(SEEN))
    assert back["tool"] == (2, None)
    np.testing.assert_array_equal(back["robot"]["arm"], [0.5, -0.5])
    actor = laid.actor
    assert (actor.size, actor.actor, actor.masked) == (3, actor, 1)
    for seen in (SEEN, {"robot": SEEN["robot"]}):
        np.testing.assert_array_equal(actor.flatten(seen), [0.5, -0.5, 1])
    assert actor.kept_space == Dict({"robot": Dict({"arm": INNER["arm"]})})
    assert laid.kept_space["tool"] == Tuple([Discrete(3)])
    assert Observations(ROBOT, 1, IGNORED).actor.size == 6


@pytest.mark.parametrize(
    ("space", "names", "message"),
    [
        (INNER, ["leg"], "^critic_entries: unknown entry 'leg'; observations have the entries arm"),
        (
            INNER,
            ["arm"],
            "^critic_entries arm would leave the actor no entry: keep at least one of arm$",
        ),
        (
            INNER,
            ["notes"],
            "^critic_entries: entry 'notes' is ignored already: remove it from crit",
        ),
        (Box(-1, 1, (2,)), ["x"], "^critic_entries: unknown entry 'x'; observations have no entri"),
    ],
)
def test_errors_name_the_entries_that_only_critics_see(
    space: gymnasium.Space[Any], names: list[str], message: str
) -> None:
    ignored = ["notes"] if isinstance(space, Dict) else []
    with pytest.raises(ValueError, match=message):
        Observations(space, ignored=ignored, of_critics=names)


class _Unknown(gymnasium.Space[Any]):
    """A third-party space whose representation contains a memory address."""


def test_recorded_spaces_are_restored_with_ignored_entries() -> None:
    space = Dict({**ROBOT.spaces, "own": _Unknown(), "stamp": Discrete(2**31 - 1)})
    actions, ignored = Actions(Discrete(2)), (*IGNORED, "own", "stamp")
    recorded = json.dumps(
        recorded_spaces(Observations(space, ignored=ignored), actions, custom_models=False)
    )
    assert " at 0x" not in recorded  # addresses differ between processes
    restored, _ = restored_spaces(json.loads(recorded))
    assert restored["mission"] == ROBOT["mission"]
    assert restored["robot"] == INNER
    laid = Observations(restored, ignored=ignored)
    np.testing.assert_array_equal(laid.flatten(SEEN), [0.5, -0.5, 0, 0, 1])
    again = recorded_spaces(laid, actions, custom_models=False)
    assert json.dumps(again) == recorded
    with pytest.raises(ValueError, match="cannot be converted to JSON"):
        document_of(space)
    unread = restored["sounds"]
    assert space_of({"Unread": unread.description}) == unread
    with pytest.raises(NotImplementedError, match="only the description of Sequence"):
        unread.sample()
