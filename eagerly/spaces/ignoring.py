"""Removes hidden entries from observations and their spaces."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import gymnasium
from gymnasium import spaces

from eagerly.spaces.description import below, inner_spaces, text_of


class UnreadSpace(spaces.Space[Any]):
    """Placeholder for a space that a saved policy contains only as a description.

    The space belongs to an ignored entry, so the placeholder contains every value.

    Args:
        description: Description of the original space.
    """

    def __init__(self, description: str) -> None:
        super().__init__()
        self.description = description

    def contains(self, x: Any) -> bool:
        """Returns True: ignored entries are never validated."""
        return True

    def sample(self, mask: Any = None, probability: Any = None) -> Any:
        """Raises an error, because only the description was saved.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError(f"only the description of {self.description} was saved")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnreadSpace) and self.description == other.description

    def __repr__(self) -> str:
        return f"UnreadSpace({self.description!r})"


def hidden_paths(
    space: gymnasium.Space[Any], names: Collection[str], setting: str, hidden: Collection[str] = ()
) -> frozenset[str]:
    """Returns the paths of all entries that a setting hides.

    Args:
        space: The observation space.
        names: Paths of entries, such as "mission" or "robot/camera", or of whole dictionaries.
        setting: Name of the setting, for messages.
        hidden: Paths that are hidden already, also as a part of the result.

    Returns:
        The paths of all hidden entries, and of each dictionary or tuple that is left empty.

    Raises:
        ValueError: If a name is unknown or hidden already, or no entry would be left.
    """
    if not names:
        return frozenset(hidden)
    inside = _inside(space, "")
    if unknown := [name for name in names if name not in inside]:
        has = f"the entries {', '.join(inside)}"
        if not inside:
            has = f"no entries; they are {text_of(space)}"
        raise ValueError(f"{setting}: unknown entry {unknown[0]!r}; observations have {has}")
    if twice := [name for name in names if name in hidden]:
        raise ValueError(
            f"{setting}: entry {twice[0]!r} is ignored already: remove it from {setting} or from "
            "ignore_entries"
        )
    found = set(hidden)
    for path in reversed(inside):  # children before parents
        parents = (name for name in names if path == name or path.startswith(f"{name}/"))
        parts = inside[path]
        if any(parents) or (parts and all(part in found for part in parts)):
            found.add(path)
    if all(path in found for path in inside):
        raise ValueError(
            f"{setting} {','.join(names)} would leave the actor no entry: keep at least one of "
            f"{', '.join(path for path in inside if path not in hidden)}"
        )
    return frozenset(found)


def _inside(space: gymnasium.Space[Any], path: str) -> dict[str, list[str]]:
    """Maps the path of each entry, at any depth, to the paths of its direct children."""
    found: dict[str, list[str]] = {}
    for key, part in (inner_spaces(space) or {}).items():
        inner_path = below(path, key)
        found[inner_path] = [below(inner_path, inner) for inner in inner_spaces(part) or ()]
        found |= _inside(part, inner_path)
    return found


def without(
    space: gymnasium.Space[Any], ignored: Collection[str], path: str = ""
) -> gymnasium.Space[Any]:
    """Returns a space without its ignored entries; the space itself if nothing is ignored.

    Args:
        space: A space.
        ignored: Result of `hidden_paths`.
        path: Path of the space.
    """
    inner = inner_spaces(space)
    if not ignored or inner is None:
        return space
    kept = [
        (key, without(part, ignored, inner_path))
        for key, part in inner.items()
        if (inner_path := below(path, key)) not in ignored
    ]
    # Passed as pairs, because Gymnasium sorts the keys of a dictionary.
    return (
        spaces.Dict(kept) if isinstance(space, spaces.Dict) else spaces.Tuple(dict(kept).values())
    )


def without_values(
    space: gymnasium.Space[Any], observation: Any, ignored: Collection[str], path: str = ""
) -> Any:
    """Returns an observation without its ignored entries, matching `without`.

    Parts that do not have the structure of the space are returned unchanged.

    Args:
        space: The space of the observation.
        observation: An observation.
        ignored: Result of `hidden_paths`.
        path: Path of the observation.
    """
    inner = inner_spaces(space)
    if not ignored or inner is None:
        return observation

    def kept(values: dict[Any, Any]) -> dict[Any, Any]:
        return {
            key: without_values(inner[key], value, ignored, inner_path) if key in inner else value
            for key, value in values.items()
            if (inner_path := below(path, key)) not in ignored
        }

    if isinstance(space, spaces.Dict):
        return kept(observation) if isinstance(observation, dict) else observation
    if not isinstance(observation, tuple) or len(observation) != len(inner):
        return observation
    return tuple(kept(dict(enumerate(observation))).values())


def unread_message(
    unread: Mapping[str, gymnasium.Space[Any]], ignored: str, *, others: bool
) -> str:
    """Returns the error message for entries that no network can read, with advice.

    Args:
        unread: The unsupported spaces, by path.
        ignored: Entries that are already ignored, in the format of `--ignore-entries`.
        others: Whether the observations have other entries.
    """
    path, space = next(iter(unread.items()))
    what = f"observation entry {path!r} is" if path else "observations are"
    wrapper = "FlattenObservation" if isinstance(space, spaces.OneOf) else "TransformObservation"
    advice = f"convert {'it' if path else 'them'} to a Box with gymnasium.wrappers.{wrapper}"
    if others and not any("," in name for name in unread):
        names = ",".join([*filter(None, [ignored]), *unread])
        advice = f"ignore it with --ignore-entries {names}, or {advice}"
    return f"{what} {text_of(space)}, which networks cannot read: {advice}"
