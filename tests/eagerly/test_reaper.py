"""The process that kills what outlives its parent."""

from __future__ import annotations

import os

from eagerly.reaper import Reaper


def test_a_forked_child_does_not_keep_the_pipe_that_tells_the_end_of_its_parent() -> None:
    reaper = Reaper()
    child = os.fork()
    if not child:
        os._exit(0 if reaper._input.closed else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert not reaper._input.closed
    reaper.close()


def test_a_reaper_that_was_killed_ends_no_run() -> None:
    reaper = Reaper()
    reaper._process.kill()
    reaper._process.wait()
    reaper.add([os.getpid()])
    reaper.close()
