"""Untrusted run directories cannot execute code, write elsewhere or exhaust the machine."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

from eagerly import Trainer, load_policy, open_run
from eagerly.errors import RunError
from eagerly.storage import documents
from eagerly.storage.digests import digests
from eagerly.storage.evaluations import read_results
from eagerly.storage.event_log import seconds_at_evaluations
from eagerly.storage.files import RunFiles
from eagerly.storage.listing import runs_below
from tests.helpers import edit_sealed
from tests.small_runs import logged, train_in

Document = dict[str, Any]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with one checkpoint; tests modify only copies of it."""
    path = tmp_path_factory.mktemp("finished") / "run"
    train_in(
        path, steps=200, keep_checkpoints=1, exploration="ornstein_uhlenbeck", hidden_sizes=(8,)
    )
    return path


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy of the finished run, which a test modifies."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


def manifest_of(run: Path) -> Path:
    (path,) = run.glob("checkpoints/*/manifest.json")
    return path


def contents(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}


def refused(run: Path, match: str = ".") -> None:
    """Asserts that resuming raises a RunError and changes nothing."""
    before = contents(run) | {"lock": b""}
    with pytest.raises(RunError, match=match):
        Trainer(open_run(run, None, {"steps": 210})).close()
    assert contents(run) | {"lock": b""} == before


def rename(old: str, new: str) -> Callable[[Document], None]:
    """Returns a function that renames a file in a manifest."""

    def change(document: Document) -> None:
        for group in ("parts", "growing"):
            for name in [name for name in document[group] if name.endswith(old)]:
                document[group][new] = document[group].pop(name)

    return change


def at(*keys: Any) -> Callable[[Any], Callable[[Document], None]]:
    def setting(value: Any) -> Callable[[Document], None]:
        def change(document: Any) -> None:
            for key in keys[:-1]:
                document = document[key]
            document[keys[-1]] = value

        return change

    return setting


NAMES = {
    "leads out": rename("policies.npz", "../../precious.npz"),
    "absolute": rename("policies.npz", "/etc/passwd"),
    "hidden steps": rename("policies.npz", "checkpoints/../../precious.npz"),
    "a table elsewhere": rename("evaluations.csv", "../precious"),
    "events elsewhere": rename("evaluations.csv", "events.out.tfevents./../../precious"),
    "another folder": at("steps")(100),
    "segment elsewhere": at("replay", 0, "path")("../precious"),
    "no parts": at("parts")({}),
}
SIZES = {
    "steps": at("steps")(10**30),
    "negative": at("steps")(-1),
    "a segment of all": at("replay", -1, "stop")(10**15),
    "overlapping": at("replay", 0, "start")(-(10**9)),
    "bytes": at("parts")({"replay/000000000000-000000000100.npy": {"bytes": 10**18, "sha256": ""}}),
}
TYPES = {
    "steps are text": at("steps")("200"),
    "parts are a list": at("parts")([]),
    "a part is a number": at("parts", "replay/000000000000-000000000100.npy")(3),
    "state is a list": at("state")([]),
    "replay is a number": at("replay")(3),
    "a segment is a number": at("replay", 0)(3),
    "more than there is": at("surprise")(1),
}
STATES = {
    "more updates owed than a round leaves": at("state", "budget", "owed")("9" * 15),
    "no updates owed": at("state", "budget", "owed")("many"),
    "a fraction by zero": at("state", "budget", "owed")("1/0"),
    "a number that never ends": at("state", "budget", "owed")("1e999999999"),
    "episodes": at("state", "collector", "environments", "episodes")(["x"]),
    "many episodes": at("state", "collector", "environments", "episodes")([0] * 50),
    "no episodes": at("state", "collector", "environments", "episodes")(7),
    "random state": at("state", "buffer", "sampler", "generator")({"bit_generator": "MT19937"}),
    "random numbers": at("state", "collector", "behavior", "exploration", "step")(-5),
    "exploration": at("state", "collector", "behavior", "exploration", "process")([["x"]]),
    "no random states": at("state", "collector", "behavior")({}),
    "summaries": at("state", "summaries")([]),
    "sums": at("state", "summaries", "sums")({"a": 3}),
    "best": at("state", "policies", "best")(["a", "b"]),
    "spaces": at("spaces", "observation_size")(10**9),
}
ALL = NAMES | SIZES | TYPES | STATES


@pytest.mark.parametrize("name", ALL)
def test_a_forged_manifest_with_a_valid_checksum_is_rejected(run: Path, name: str) -> None:
    for precious in (run.parent / "precious", run.parent / "precious.npz"):
        precious.write_text("thesis")
    edit_sealed(manifest_of(run), ALL[name])
    refused(run)
    assert (run.parent / "precious").read_text() == "thesis"
    assert (run.parent / "precious.npz").read_text() == "thesis"


def replace_part(run: Path, name: str, content: Callable[[Path], Any]) -> None:
    """Replaces a checkpoint file and updates its checksum in the manifest."""
    (path,) = run.glob(name)
    content(path)
    key = path.relative_to(run).as_posix()
    described = RunFiles(run).described(key)
    edit_sealed(manifest_of(run), lambda document: document["parts"].update({key: described}))


def objects(path: Path) -> None:
    with path.open("wb") as file:
        if path.suffix == ".npz":
            np.savez(file, **{"actions_0": np.array([{}], dtype=object)}, allow_pickle=True)  # type: ignore[arg-type]
        else:
            np.save(file, np.array([{}], dtype=object), allow_pickle=True)


@pytest.mark.parametrize("part", ["replay/*0200.npy", "checkpoints/*/collector.npz"])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (objects, "could execute code"),
        (lambda path: path.write_bytes(b""), "."),
        (lambda path: path.write_bytes(path.read_bytes()[:-4]), "."),
    ],
    ids=["objects", "empty", "short"],
)
def test_forged_arrays_are_rejected(run: Path, part: str, content: Any, message: str) -> None:
    replace_part(run, part, content)
    refused(run, message)


def test_forged_policies_are_rejected(run: Path) -> None:
    for content in (objects, lambda path: path.write_bytes(b"")):
        replace_part(run, "checkpoints/*200-*/policies.npz", content)
        with pytest.raises(RunError, match="/run cannot be loaded: "):
            load_policy(run)


def test_forged_networks_are_rejected(run: Path) -> None:
    replace_part(run, "checkpoints/*/networks.index", lambda path: path.write_bytes(bytes(500)))
    refused(run)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (at("settings")({}), "env"),
        (at("settings", "num_envs")(10**9), r"num_envs must be at least 1 and at most 4,096"),
        (at("settings", "replay_capacity")(10**30), "replay_capacity must be at least"),
        (at("settings", "env")("factory os:system"), "pass the factory again from your program"),
        (
            at("settings", "evaluation_episodes")(10**9),
            r"evaluation_episodes must be at least 1 and at most 100,000",
        ),
        (
            at("settings", "intra_op_threads")(10**6),
            r"intra_op_threads must be at least 1 and at most 1,024",
        ),
        (at("settings", "replay_ratio")(1e15), r"replay_ratio must be above 0 and at most 1,000"),
        (at("settings", "n_critics")(10**6), r"n_critics must be at least 1 and at most 256"),
        (at("settings", "hidden_sizes")([16384] * 12), "networks with .* GiB of memory"),
        (at("settings", "seed")(float("nan")), "seed must be of type int; got nan"),
        (at("settings", "seed")(10**400), "seed must be at least"),
        (at("settings", "discount")(10**400), "discount must be at least"),
        (at("settings", "env")("../x"), "unknown environment"),
        (
            at("settings", "env_kwargs")({"nonsense": 1}),
            r"would pass .\"nonsense\": 1. to its environment: add --trust",
        ),
        (at("agent")("__import__"), "agent must be one of"),
        (
            at("settings", "hidden_sizes")([10**9]),
            r"hidden_sizes must be at least 1 and at most 16,384",
        ),
        (
            at("settings", "hidden_sizes")([8] * 10**4),
            "must be a tuple of at most 64 elements",
        ),
        (at("settings", "tau")("x"), "tau must be"),
        (at("format")(99), "newer version of eagerly"),
    ],
)
def test_excessive_or_unknown_settings_are_rejected(run: Path, change: Any, message: str) -> None:
    edit_sealed(run / "config.json", change)
    refused(run, message)


@pytest.mark.parametrize("depth", [1000, 100_000])
def test_deeply_nested_documents_are_rejected(run: Path, depth: int) -> None:
    for path in (run / "config.json", manifest_of(run)):
        path.write_text('{"a":' * depth + "1" + "}" * depth)
    refused(run)


def test_named_pipes_in_place_of_files_do_not_block(run: Path) -> None:
    events = next(run.glob("events.out.tfevents.*"))
    for path in (run / "evaluations.csv", events):
        path.unlink()
        os.mkfifo(path)
    with logged() as lines, Trainer(open_run(run, None, {"steps": 210})) as trainer:
        trainer.train()
    assert [line.partition(" is missing")[0] for line in lines] == [
        str(run / "evaluations.csv"),
        str(events),
    ]
    read_results(run / "evaluations.csv")
    for path in (*run.glob("checkpoints/*/policies.npz"), run / "config.json"):
        path.unlink()
        os.mkfifo(path)
    with pytest.raises(RunError, match="has no intact checkpoint"):
        Trainer(open_run(run, None, {})).close()


def test_file_links_cannot_change_files_elsewhere(run: Path) -> None:
    outside = run.parent / "thesis.tex"
    outside.write_text("precious")
    (run / "events.out.tfevents.9.evil").symlink_to(outside)
    (run / "config.json.tmp").symlink_to(outside)
    link = {"events.out.tfevents.9.evil": {"bytes": 0}}
    edit_sealed(manifest_of(run), lambda document: document["growing"].update(link))
    with logged() as lines, Trainer(open_run(run, None, {"steps": 210})) as trainer:
        trainer.train()
    assert any("events.out.tfevents.9.evil is missing" in line for line in lines)
    assert outside.read_text() == "precious"


@pytest.mark.parametrize("name", ["checkpoints", "replay", "videos"])
def test_directory_links_are_rejected_before_anything_is_removed(run: Path, name: str) -> None:
    outside = run.parent / "outside"
    (run / name).rename(outside) if (run / name).exists() else outside.mkdir()
    (outside / "000000009999-000000000001").mkdir()
    for precious in ("000000009999-000000000001/thesis.tex", "000000000000-000000000001.npy"):
        (outside / precious).write_text("precious")
    before = contents(outside)
    (run / name).symlink_to(outside)
    with pytest.raises(RunError, match=f"{name} is a symbolic link: link the whole run directory"):
        Trainer(open_run(run, None, {"steps": 210})).close()
    assert contents(outside) == before


@pytest.mark.parametrize("depth", ["checkpoints", "plugins", "plugins/profile"])
def test_nested_links_are_rejected_before_anything_is_removed(run: Path, depth: str) -> None:
    outside = run.parent / "outside"
    outside.mkdir()
    for precious in ("manifest.json", "thesis.tmp", "policies.npz"):
        (outside / precious).write_text("precious")
    link = run / depth
    if depth == "checkpoints":  # tests two links: only the first has a checkpoint's name
        (link / "000000009999-000000000001").symlink_to(outside)
        link = link / "any"
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(outside)
    before = contents(outside)
    with pytest.raises(RunError, match="is a symbolic link: link the whole run directory instead"):
        Trainer(open_run(run, None, {"steps": 210})).close()
    assert contents(outside) == before


def test_hard_linked_copies_are_resumed_independently(run: Path) -> None:
    """`cp -al` creates hard links, but the runs must not share event files, tables or locks."""
    shared = run.parent / "shared"
    shutil.copytree(run, shared, copy_function=os.link)
    before = contents(run)
    train_in(shared, steps=260)
    assert contents(run) == before
    train_in(run, steps=260)
    assert digests(run) == digests(shared)


def test_a_run_path_may_contain_special_characters(finished: Path, tmp_path: Path) -> None:
    """TensorFlow expands brackets, asterisks and question marks in paths that it reads."""
    odd = tmp_path / "runs [1] *? 'a' \"b\"\n\N{HOT BEVERAGE}" / ("x" * 250)
    shutil.copytree(finished, odd)
    trainer = train_in(odd, steps=260)
    assert (trainer.steps, trainer.lines) == (260, [])
    assert load_policy(odd).steps == 150


def test_the_length_of_an_event_record_is_not_trusted(run: Path) -> None:
    """TensorFlow's reader would allocate 2 ** 40 bytes and crash the process."""
    times = seconds_at_evaluations(run)
    (events,) = run.glob("events.out.tfevents.*")
    length = struct.pack("<Q", 2**40)
    record = length + struct.pack("<I", masked_crc32c(length)) + b"short"
    for name in ("events.out.tfevents.1", f"{events.name}.more"):
        (run / name).write_bytes(record)
    (run / "events.out.tfevents.2").mkdir()
    os.mkfifo(run / "events.out.tfevents.3")
    assert seconds_at_evaluations(run) == times
    assert times


def test_a_closed_trainer_neither_trains_nor_writes(run: Path) -> None:
    with Trainer(open_run(run, None, {"steps": 260})) as trainer:
        pass
    before = contents(run)
    for call in (trainer.train, trainer.checkpoint):
        with pytest.raises(RunError, match=r"the trainer of .* is closed: create a new one"):
            call()
    assert contents(run) == before


def test_a_run_directory_may_be_a_link(run: Path) -> None:
    link = run.parent / "link"
    link.symlink_to(run)
    assert train_in(link, steps=260).steps == 260
    assert load_policy(link).steps == 150
    assert [found.state for found in runs_below(run.parent) if found.path == link] == ["finished"]


@pytest.mark.parametrize("what", ["pipe", "link", "file"])
def test_tensorflow_reads_only_files_listed_in_the_manifest(run: Path, what: str) -> None:
    """TensorFlow opens the files that are named in `networks.index`."""
    (data,) = run.glob("checkpoints/*/networks.data*")
    other = data.with_name("networks.data-00001-of-00002")
    if what == "pipe":
        os.mkfifo(other)
    elif what == "link":
        other.symlink_to(data)
    else:
        other.write_bytes(b"")
    refused(run, "is not part of the checkpoint")
    other.unlink()

    def unlisted(document: Document) -> None:
        del document["parts"][data.relative_to(run).as_posix()]

    edit_sealed(manifest_of(run), unlisted)
    refused(run, "has no intact checkpoint")


def test_deeply_nested_settings_are_rejected(run: Path) -> None:
    deep: Any = 1
    for _ in range(900):
        deep = {"a": deep}
    shutil.rmtree(run / "checkpoints")
    edit_sealed(run / "config.json", at("settings", "env_kwargs")(deep))
    refused(run, "it is nested too deeply")


def test_deeply_nested_folders_are_searched_up_to_a_limit(run: Path) -> None:
    for start in (run.parent, run / "checkpoints" / "000000000001-000000000001"):
        start.mkdir(exist_ok=True)
        at_ = os.open(start, os.O_RDONLY)
        for _ in range(1200):
            os.mkdir("a", dir_fd=at_)
            inner = os.open("a", os.O_RDONLY, dir_fd=at_)
            os.close(at_)
            at_ = inner
        os.close(at_)
    (run.parent / "root").symlink_to("/")
    assert [found.path for found in runs_below(run.parent)] == [run]
    with pytest.raises(RunError, match="directories are nested too deeply"):
        Trainer(open_run(run, None, {"steps": 210})).close()
    for start in (run.parent / "a", run / "checkpoints" / "000000000001-000000000001"):
        subprocess.run(["rm", "-rf", start], check=True)  # pytest cannot remove folders this deep


def test_tables_and_documents_have_a_maximum_size(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.truncate(run / "evaluations.csv", 2**36)  # a sparse file needs no disk space
    with pytest.raises(RunError, match="got 68719476736"):
        read_results(run / "evaluations.csv")
    os.truncate(run / "evaluations.csv", 0)
    monkeypatch.setattr(documents, "_LARGEST_DOCUMENT", 100)
    refused(run, "config.json cannot be read")


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document.pop("in_round"),
        at("config")([]),
        at("format")(float("nan")),
        lambda document: next(iter(document["growing"].values())).update(bytes=-1),
    ],
)
def test_an_incomplete_or_invalid_manifest_counts_as_damaged(run: Path, change: Any) -> None:
    edit_sealed(manifest_of(run), change)
    assert [found.state for found in runs_below(run)] == ["damaged"]
    refused(run, "has no intact checkpoint")


def test_a_manifest_of_a_newer_version_is_listed_as_damaged(run: Path) -> None:
    edit_sealed(manifest_of(run), at("format")(99))
    assert [found.state for found in runs_below(run)] == ["damaged"]
    refused(run, "newer version of eagerly .*: upgrade")
