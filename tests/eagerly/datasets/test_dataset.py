from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from eagerly.datasets import Dataset, Transitions, dataset, open_dataset
from eagerly.datasets.steps import EpisodeReturns, Steps, transitions_of_flat
from eagerly.errors import UsageError
from tests.eagerly.datasets.files import (
    ACTIONS,
    FLAT,
    OBSERVATIONS,
    arrays,
    csv_text,
    episode,
    write,
    write_minari,
)


def joined(found: Dataset, steps: int = 50) -> dict[str, Any]:
    chunks = list(found.chunks(steps))
    assert max(map(len, chunks)) <= steps
    names = vars(chunks[0])
    return {name: np.concatenate([getattr(c, name) for c in chunks]) for name in names}


def first(values: np.ndarray) -> list[int]:
    """Returns the first number of each observation, which is its index in the file."""
    assert (values[:, 1] == -values[:, 0]).all()
    return values[:, 0].tolist()


@pytest.mark.parametrize("kind", FLAT)
@pytest.mark.parametrize("steps", [1, 2, 3, 50])
def test_next_observations_follow_and_the_last_steps_of_cut_episodes_are_omitted(
    tmp_path: Path, kind: str, steps: int
) -> None:
    # Step 2 terminates, step 5 is cut by a time limit, and step 6 by the end of the file.
    found = open_dataset(write(tmp_path, kind, arrays()), OBSERVATIONS, ACTIONS)
    data = joined(found, steps)
    assert first(data["observations"]) == [0, 1, 2, 3, 4]
    assert first(data["next_observations"]) == [1, 2, 2, 4, 5]
    assert data["terminated"].tolist() == [False, False, True, False, False]
    assert data["truncated"].tolist() == [False, False, False, False, True]
    assert data["rewards"].tolist() == [1, 2, 4, 8, 16]
    assert (data["actions"] == np.float32(0.4)).all()
    assert data["observations"].dtype == np.float64
    assert data["actions"].dtype == np.float32
    assert str(found.summary) == (
        "5 transitions of 7 steps in 3 episodes, mean return 42.3"  # (7 + 56 + 64) / 3
    )


@pytest.mark.parametrize("kind", FLAT)
def test_stored_next_observations_are_used_and_complete_every_step(
    tmp_path: Path, kind: str
) -> None:
    fields = arrays()
    fields["next_observations"] = fields["observations"] + np.array([0.5, -0.5])
    data = joined(open_dataset(write(tmp_path, kind, fields), OBSERVATIONS, ACTIONS), 3)
    assert first(data["observations"]) == [0, 1, 2, 3, 4, 5, 6]
    assert first(data["next_observations"]) == [0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5]
    assert np.flatnonzero(data["terminated"]).tolist() == [2]
    assert np.flatnonzero(data["truncated"]).tolist() == [5, 6]


@pytest.mark.parametrize("steps", [1, 2, 4, 50])
def test_episodes_in_minaris_layout_have_complete_last_steps(tmp_path: Path, steps: int) -> None:
    parts = [episode(3), episode(2, 10, terminations=[False, True], truncations=[False, False])]
    parts += [episode(1, 20 + i, truncations=[False]) for i in range(9)]  # 10 after 9, not 1
    found = open_dataset(write_minari(tmp_path / "a.hdf5", *parts), OBSERVATIONS, ACTIONS)
    data = joined(found, steps)
    assert first(data["observations"]) == [0, 1, 2, 10, 11, *range(20, 29)]
    assert first(data["next_observations"]) == [1, 2, 3, 11, 12, *range(21, 30)]
    assert np.flatnonzero(data["terminated"]).tolist() == [4]
    assert np.flatnonzero(data["truncated"]).tolist() == [2, *range(5, 14)]
    assert found.summary is not None
    assert (found.summary.steps, found.summary.episodes) == (14, 11)


@pytest.mark.parametrize("place", ["main_data.hdf5", "data/main_data.hdf5"])
def test_minari_folders_are_found_and_their_code_is_not_read(tmp_path: Path, place: str) -> None:
    (tmp_path / place).parent.mkdir(exist_ok=True)
    write_minari(tmp_path / place, episode())
    (tmp_path / place).with_name("metadata.json").write_text("not read")
    assert open_dataset(tmp_path, OBSERVATIONS, ACTIONS).kind == "minari"


def test_chunks_do_not_change_transitions() -> None:
    generator = np.random.default_rng(0)
    for _ in range(60):
        count = int(generator.integers(1, 12))
        terminated, truncated = generator.random((2, count)) < 0.3
        index = np.arange(count, dtype=float)

        def part(place: slice, index: Any = index, flags: Any = (terminated, truncated)) -> Steps:
            return Steps(
                [index[place]], [index[place]], index[place], *(f[place] for f in flags), []
            )

        # The definition, one step at a time.
        kept = [i for i in range(count) if terminated[i] or not (truncated[i] or i == count - 1)]
        following = [i if terminated[i] else i + 1 for i in kept]
        ends = [
            bool(terminated[i] or (not terminated[i + 1] and (truncated[i + 1] or i + 2 == count)))
            for i in kept
        ]
        size = int(generator.integers(1, 6))
        blocks = [part(slice(start, start + size)) for start in range(0, count, size)]
        found = list(transitions_of_flat(blocks, EpisodeReturns()))
        assert [row for each in found for row in each.observations[0]] == kept
        assert [row for each in found for row in each.next_observations[0]] == following
        assert [end for each in found for end in each.terminated | each.truncated] == ends


NESTED = spaces.Dict(
    {
        "empty": spaces.Box(-9, 9, (0,), np.float32),
        "goal": spaces.Box(-9, 9, (2, 2), np.float32),
        "robot": spaces.Tuple([spaces.Discrete(3, start=1), spaces.MultiBinary(2)]),
    }
)
NOTHING = np.zeros(0)
CHOICES = spaces.Dict({"grip": spaces.Discrete(2), "move": ACTIONS})


@pytest.mark.parametrize("kind", [*FLAT, "minari"])
def test_nested_spaces_are_read_in_every_format(tmp_path: Path, kind: str) -> None:
    count = 4
    observations = {
        "observations/empty": np.zeros((count + 1, 0)),
        "observations/goal": np.arange(4.0 * (count + 1)).reshape(-1, 2, 2),
        "observations/robot/_index_0": np.array([1, 2, 3, 1, 2]),
        "observations/robot/_index_1": np.eye(count + 1, 2, dtype=np.int8),
    }
    actions = {"actions/grip": np.arange(count) % 2, "actions/move": np.zeros((count, 1))}
    ends, rewards = np.arange(count) == count - 1, np.ones(count)
    if kind == "minari":
        flags = {"rewards": rewards, "terminations": ends, "truncations": ~ends & ends}
        path = write_minari(tmp_path / "a.h5", {**observations, **actions, **flags})
    else:
        cut = {name: values[:count] for name, values in observations.items()}
        flags = {"rewards": rewards, "terminals": ends, "timeouts": ~ends & ends}
        path = write(tmp_path, kind, {**cut, **actions, **flags})
    chunk, *others = open_dataset(path, NESTED, CHOICES).chunks()
    assert isinstance(chunk, Transitions)
    assert len(chunk) + sum(map(len, others)) == count
    assert chunk.observations["empty"].shape == (len(chunk), 0)
    assert chunk.observations["goal"].shape[1:] == (2, 2)
    assert chunk.observations["goal"].dtype == np.float32
    assert chunk.next_observations["goal"][0].tolist() == [[4, 5], [6, 7]]
    assert chunk.observations["robot"][0][:2].tolist() == [1, 2]
    assert chunk.observations["robot"][1].dtype == np.int8
    assert chunk.actions["grip"][:2].tolist() == [0, 1]
    assert chunk.actions["grip"].dtype == np.int64


def test_other_arrays_and_columns_are_ignored(tmp_path: Path) -> None:
    fields = arrays()
    np.savez(tmp_path / "a.npz", **fields, infos=np.array([{}], object))
    header, *rows = csv_text(fields).splitlines()
    lines = [f"﻿note,{header}", "", *(f'"a # note",{row}' for row in rows)]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    for name in ("a.npz", "a.csv"):
        data = joined(open_dataset(tmp_path / name, OBSERVATIONS, ACTIONS))
        assert first(data["observations"]) == [0, 1, 2, 3, 4]


def test_other_datasets_in_a_file_of_d4rl_are_ignored(tmp_path: Path) -> None:
    path = write(tmp_path, "hdf5", arrays() | {"episode_returns": np.zeros(3), "infos/x": NOTHING})
    assert open_dataset(path, OBSERVATIONS, ACTIONS).kind == "hdf5"


def test_compressed_files_are_read(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", **arrays())
    assert len(joined(open_dataset(tmp_path / "a.npz", OBSERVATIONS, ACTIONS))["rewards"]) == 5


def test_chunks_with_next_observations_have_at_most_the_given_size(tmp_path: Path) -> None:
    rows = arrays()
    path = write(tmp_path, "npz", rows | {"next_observations": rows["observations"]})
    assert len(joined(open_dataset(path, OBSERVATIONS, ACTIONS), steps=1)["rewards"]) == 7


def test_chunks_of_large_observations_are_shorter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataset, "_CHUNK_BYTES", 100)
    found = open_dataset(write(tmp_path, "npz", arrays()), OBSERVATIONS, ACTIONS)
    assert max(map(len, found.chunks())) == 3  # of 16 + 4 + 8 + 2 bytes


def test_the_hash_covers_exactly_what_is_read(tmp_path: Path) -> None:
    file = write(tmp_path, "npz", arrays())
    found = open_dataset(file, OBSERVATIONS, ACTIONS)
    assert found.sha256() == hashlib.sha256(file.read_bytes()).hexdigest()
    folder = write(tmp_path, "npy", arrays())
    before = open_dataset(folder, OBSERVATIONS, ACTIONS).sha256()
    (folder / "notes.npy").write_text("not read")
    assert open_dataset(folder, OBSERVATIONS, ACTIONS).sha256() == before
    np.save(folder / "rewards.npy", np.zeros(7))
    assert open_dataset(folder, OBSERVATIONS, ACTIONS).sha256() != before


def test_hdf5_without_h5py_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, "hdf5", arrays())
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(UsageError, match=r"require h5py: pip install 'eagerly\[offline\]'"):
        open_dataset(path, OBSERVATIONS, ACTIONS)
