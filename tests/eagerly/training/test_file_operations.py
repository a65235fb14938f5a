"""A process that dies after any file operation of a checkpoint leaves a resumable run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dying import BEFORE, DYING, survivals
from tests.tracing import can_trace


@pytest.mark.long
@pytest.mark.skipif(not can_trace(), reason="this machine lets no process trace its children")
def test_a_process_that_dies_after_any_file_operation_leaves_a_resumable_run(
    tmp_path: Path,
) -> None:
    found = survivals("checkpoint", tmp_path)
    assert [one for one in found if not one.equal or one.left or one.said] == []
    operations = " ".join(one.operation for one in found)
    for kind in ("mkdir", "open", "write", "sync", "rename", "unlink", "rmdir"):
        assert kind in operations
    # Renaming the manifest publishes the checkpoint. Before that, the previous one is the newest.
    renames = [one for one in found if one.operation.startswith("rename")]
    published = next(one.number for one in renames if one.path.endswith("manifest.json.tmp"))
    assert {one.published for one in found if one.number < published} == {BEFORE}
    assert {one.published for one in found if one.number >= published} == {DYING}
