"""An export folder is renamed when it is complete, and removed after a failure."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eagerly import RunError
from eagerly.export import staging
from eagerly.export.staging import publish, replay, run_examples, staged
from eagerly.training.signals import Terminated
from tests.eagerly.export.test_c import needs_compiler


def nothing() -> None:
    pass


def terminated() -> None:
    raise Terminated(signal.SIGTERM)


def export(
    out: Path, before: Callable[[], object] = nothing, after: Callable[[], object] = nothing
) -> None:
    with staged(out) as folder:
        (folder / "part").mkdir()
        (folder / "part" / "file").write_text("content")
        before()
        publish(folder, out)
        after()


def test_a_published_folder_has_its_name_and_the_default_mode(tmp_path: Path) -> None:
    export(tmp_path / "new" / "out")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["out"]
    assert (tmp_path / "new" / "out" / "part" / "file").read_text() == "content"
    (tmp_path / "usual").mkdir()
    assert (tmp_path / "new" / "out").stat().st_mode == (tmp_path / "usual").stat().st_mode


@pytest.mark.parametrize("call", ["mkdir", "rename", "publish"])
def test_a_signal_after_any_step_leaves_no_files(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, after = tmp_path / "new" / "deep" / "out", nothing
    if call == "publish":
        after = terminated
    else:
        original = getattr(Path, call)

        def stepped(path: Path, *args: Any, **more: Any) -> None:
            original(path, *args, **more)
            if out.exists():
                terminated()

        monkeypatch.setattr(Path, call, stepped)
    with pytest.raises(Terminated):
        export(out, after=after)
    assert list(tmp_path.iterdir()) == []


def test_an_empty_directory_created_in_the_meantime_is_not_replaced(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(RunError, match="out was created by another program in the meantime"):
        export(out, before=out.mkdir)
    assert list(tmp_path.iterdir()) == [out]
    assert list(out.iterdir()) == []


@needs_compiler
def test_programs_that_hang_are_terminated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "TIMEOUT_SECONDS", 0.2)
    (tmp_path / "runner").mkdir()
    (tmp_path / "runner" / "__main__.py").write_text("while True: pass")
    with pytest.raises(RunError, match=r"replaying the export did not finish within 0\.2 seconds"):
        replay(tmp_path)
    (tmp_path / "policy.c").write_text("int policy = 1;")
    (tmp_path / "examples.c").write_text("int main(void) { for (volatile int i = 0; i < 1;) {} }")
    with pytest.raises(RunError, match=r"examples\.c did not finish within"):
        run_examples(tmp_path)
