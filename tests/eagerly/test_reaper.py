"""The process that kills processes that outlive their parent."""

from __future__ import annotations

import os

from eagerly.reaper import Reaper


def test_a_forked_child_closes_the_pipe_to_the_reaper() -> None:
    reaper = Reaper()
    child = os.fork()
    if not child:
        os._exit(0 if reaper._input.closed else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert not reaper._input.closed
    reaper.close()


def test_a_killed_reaper_does_not_stop_the_run() -> None:
    reaper = Reaper()
    reaper._process.kill()
    reaper._process.wait()
    reaper.add([os.getpid()])
    reaper.close()
