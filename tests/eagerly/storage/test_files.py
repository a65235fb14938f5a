"""Run files: links are not followed, opening never blocks, hard-linked files do not change."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import tensorflow as tf

from eagerly.storage.files import _DESCRIPTORS, RunFiles

PRECIOUS = b"thesis"


@pytest.fixture
def files(tmp_path: Path) -> RunFiles:
    (tmp_path / "run" / "a" / "b").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    for path in (tmp_path / "run" / "a" / "b" / "file", tmp_path / "outside" / "file"):
        path.write_bytes(PRECIOUS)
    return RunFiles(tmp_path / "run")


# Operations that change a file, and `READS` that read one. Each is tested with links at all depths.
CHANGES: dict[str, Callable[[RunFiles, str], object]] = {
    "write": lambda files, name: files.write(name, [b"x"]),
    "append": lambda files, name: files.append(name, b"x"),
    "cut": lambda files, name: files.cut(name, 1),
    "own": lambda files, name: files.own(name),
    "remove": lambda files, name: files.remove(name),
    "remove folder": lambda files, name: files.remove_folder(name.rpartition("/")[0]),
    "make folder": lambda files, name: files.make_folder(f"{name}-folder"),
}
READS: dict[str, Callable[[RunFiles, str], object]] = {
    "open": lambda files, name: files.open(name).close(),
    "described": lambda files, name: files.described(name),
    "sync": lambda files, name: files.sync(name),
}


def put_link(files: RunFiles, depth: int) -> str:
    """Replaces a parent directory, or the file itself, with a link to the outside."""
    outside = files.path.parent / "outside"
    place = files.path / ("a", "a/b", "a/b/file")[depth]
    place.rename(files.path.parent / "moved")
    (outside / "b").mkdir(exist_ok=True)
    (outside / "b" / "file").write_bytes(PRECIOUS)
    place.symlink_to(outside if depth < 2 else outside / "file")
    return "a/b/file"


@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("change", CHANGES)
def test_nothing_is_changed_through_a_link(files: RunFiles, change: str, depth: int) -> None:
    name = put_link(files, depth)
    with suppress(OSError):
        CHANGES[change](files, name)
    outside = files.path.parent / "outside"
    found = {str(p.relative_to(outside)): p.is_file() for p in outside.rglob("*")}
    assert found == {"file": True, "b": False, "b/file": True}
    assert {p.read_bytes() for p in outside.rglob("file")} == {PRECIOUS}


@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("read", READS)
def test_nothing_is_read_through_a_link(files: RunFiles, read: str, depth: int) -> None:
    name = put_link(files, depth)
    with pytest.raises(OSError if depth < 2 else ValueError, match="link"):
        READS[read](files, name)
    assert not files.is_file(name)
    assert files.size(name) == 0


@pytest.mark.parametrize("what", ["pipe", "folder", "device"])
def test_opening_something_that_is_not_a_file_does_not_block(files: RunFiles, what: str) -> None:
    place = files.path / "odd"
    if what == "pipe":
        os.mkfifo(place)
    elif what == "folder":
        place.mkdir()
    else:
        place = Path("/dev/zero")
        files = RunFiles(Path("/dev"))
    name = place.name
    with pytest.raises(ValueError, match="must be a regular file"):
        files.open(name)
    assert not files.is_file(name)
    if what != "device":
        with pytest.raises(OSError, match="must be a regular file"):
            files.append(name, b"x")


@pytest.mark.parametrize("change", ["append", "cut"])
def test_a_file_with_other_hard_links_is_copied_before_it_changes(
    files: RunFiles, change: str
) -> None:
    thesis = files.path.parent / "outside" / "file"
    os.link(thesis, files.path / "shared")
    CHANGES[change](files, "shared")
    assert thesis.read_bytes() == PRECIOUS
    assert (files.path / "shared").read_bytes() == (PRECIOUS + b"x", PRECIOUS[:1])[change == "cut"]
    assert files.names() == ["shared"]  # no temporary file remains


def test_a_file_is_written_completely_or_not_at_all(files: RunFiles) -> None:
    def chunks() -> object:
        yield b"new"
        raise OSError("no more")

    with pytest.raises(OSError, match="no more"):
        files.write("a/b/file", chunks())  # type: ignore[arg-type]
    assert (files.path / "a/b/file").read_bytes() == PRECIOUS
    assert files.names("a/b") == ["a/b/file"]
    assert files.write("a/b/file", [b"new", memoryview(b"er")]) == files.described("a/b/file")
    assert (files.path / "a/b/file").read_bytes() == b"newer"


def test_links_to_files_and_directories_are_listed_and_can_be_removed(
    files: RunFiles,
) -> None:
    outside = files.path.parent / "outside"
    (files.path / "a" / "to-folder").symlink_to(outside)
    (files.path / "a" / "events.out.tfevents.1").symlink_to(outside / "file")
    assert files.folders("a") == ["a/b"]
    assert files.names("a") == ["a/events.out.tfevents.1", "a/to-folder"]
    assert not files.is_file("a/events.out.tfevents.1")
    files.remove_folder("a/to-folder")
    assert outside.is_dir()
    assert files.names("a") == ["a/events.out.tfevents.1"]
    assert files.names("nothing") == []


@pytest.mark.parametrize("descriptors", ["/proc/self/fd", "/no/such/folder"])
def test_tensorflow_gets_a_path_without_special_characters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, descriptors: str
) -> None:
    monkeypatch.setattr("eagerly.storage.files._DESCRIPTORS", Path(descriptors))
    files = RunFiles(tmp_path / "od[d] *?\n run")
    files.path.mkdir()
    files.make_folder("a", is_new=True)
    with files.for_tensorflow("a") as path:
        assert not set("[]*?\n ") & set(path)
        Path(path, "file").write_bytes(PRECIOUS)
    assert files.names("a") == ["a/file"]
    with pytest.raises(OSError, match=r"\?\n run/a/x is full"), files.for_tensorflow("a") as path:
        raise OSError(errno.ENOSPC, f"the disk of {path}/x is full")
    damaged = pytest.raises(ValueError, match=r"\?\n run/a/x is damaged")
    with damaged, files.for_tensorflow("a") as path:
        raise tf.errors.DataLossError(None, None, f"{path}/x is damaged")
    with pytest.raises(FileExistsError):
        files.make_folder("a", is_new=True)


def test_the_path_for_tensorflow_always_refers_to_the_opened_directory(
    files: RunFiles,
) -> None:
    if not _DESCRIPTORS.is_dir():
        pytest.skip("only Linux has paths of open directories")
    outside = files.path.parent / "outside"
    with files.for_tensorflow("a") as path:
        (files.path / "a").rename(files.path / "moved")
        (files.path / "a").symlink_to(outside)
        Path(path, "new").write_bytes(b"x")
    assert (files.path / "moved" / "new").exists()
    assert not (outside / "new").exists()
