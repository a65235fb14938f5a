"""Checkpoints of a custom training loop: agent, replay buffer and other components together."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

import numpy as np

from eagerly.agents.agent import Agent
from eagerly.buffers import Replay
from eagerly.errors import RunError, UsageError, summary, whole_number
from eagerly.policies.behavior import BehaviorPolicy
from eagerly.spaces.serialization import spaces_text
from eagerly.state import Stateful
from eagerly.storage.checkpoint_reader import Checkpoint, newest_checkpoint
from eagerly.storage.checkpoint_writer import CheckpointWriter, Contents
from eagerly.storage.files import RunFiles
from eagerly.storage.lock import RunLock
from eagerly.storage.manifest import folders_of
from eagerly.training.hardware import conditions, differing

_log = logging.getLogger(__name__)
_NAME = re.compile(r"[a-z_]{1,40}")


class LoopCheckpoints:
    """Saves and restores everything that a custom training loop needs to continue exactly.

    Create all components as in a new loop, then call `restore`, then `save` from time to time:

        checkpoints = LoopCheckpoints("robot", agent, buffer, behavior=behavior)
        steps = checkpoints.restore(began=np.array([True]))

    A checkpoint appears only once it is complete, so a kill during `save` leaves the previous one.
    `restore` verifies checksums and falls back to the previous checkpoint if the newest one is
    damaged. No code in the directory is executed. Each checkpoint writes the networks and the rows
    added since the last checkpoint. While this object exists, it locks the directory.

    TensorBoard event files in the directory belong to its checkpoints: `restore` removes points
    that were written after the checkpoint, and nothing without a checkpoint. Create their writer
    after `restore`, and flush it before `save`.

    Args:
        path: The directory, which is created if it does not exist.
        agent: The agent.
        buffer: Its replay buffer.
        keep: Number of checkpoints to keep, at least 1.
        **components: Other objects to save, by name: `behavior=agent.behavior()`, the accumulator,
            or your own ones with the methods `state` and `restore`, see `eagerly.replay.Saved`.

    Attributes:
        path: The directory.

    Raises:
        UsageError: If the path is a run directory, or `keep` or the name of a component is invalid.
        TypeError: If a component cannot be saved.
        RunError: If another object or process uses the directory.
        OSError: If the directory cannot be created.
    """

    def __init__(
        self,
        path: str | Path,
        agent: Agent,
        buffer: Replay,
        *,
        keep: int = 2,
        **components: Stateful,
    ) -> None:
        self.path = Path(path)
        if (self.path / "config.json").exists():
            raise UsageError(f"{path} is a run directory: continue it with eagerly.resume")
        try:
            keep = whole_number("keep", keep, 1)
        except ValueError as error:
            raise UsageError(str(error)) from error
        for name, component in components.items():
            if not _NAME.fullmatch(name):
                raise UsageError(f"names of components must match {_NAME.pattern}; got {name}")
            if not (hasattr(component, "state") and hasattr(component, "restore")):
                raise TypeError(
                    f"{name} must have the methods state and restore; got "
                    f"{type(component).__name__}: derive its class from eagerly.replay.Saved"
                )
        self._agent, self._buffer, self._components = agent, buffer, components
        self._contents = Contents(
            agent.checkpoint, buffer, {"buffer": buffer, "agent": agent, **components}
        )
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = RunLock(self.path)
        self._writer = CheckpointWriter(self.path, keep)
        self._last = (0, 0, 0)  # steps, updates and rows at the last save or restore
        self._restored = not folders_of(RunFiles(self.path))

    def restore(self, began: np.ndarray, *, override: bool = False) -> int:
        """Restores the newest intact checkpoint, if any, and removes everything written after it.

        Args:
            began: `[N]` bool, true for each environment that begins a new episode instead of
                continuing the saved one, as a robot does. Its pending transitions, temporally
                correlated noise and recurrent state are discarded.
            override: Whether the agent may have other settings than the saved one.

        Returns:
            The `steps` passed to `save`, or 0 if there is no checkpoint.

        Raises:
            UsageError: If `began` has the wrong shape, the agent or the components differ from the
                saved ones, rows were added to the buffer before, or an episode cannot continue
                because `save` was called between `act` and `observe`.
            RunError: If no intact checkpoint is left, or it does not fit the components. Create
                them again before the next attempt.
        """
        began = np.asarray(began, bool)
        if began.ndim != 1:
            raise UsageError(f"began must have shape [N], as in np.array([True]); got {began}")
        saved = newest_checkpoint(self.path)
        if saved is None:
            return 0
        try:
            self._check(saved, began, override=override)
            saved.restore(self._contents)
        except (RunError, FloatingPointError):
            raise
        except Exception as error:  # the directory is untrusted input
            problem = summary(error)
            raise RunError(f"the checkpoint does not fit the components: {problem}") from error
        for part in (self._buffer, *self._components.values()):
            if began.any() and hasattr(part, "on_reset"):
                part.on_reset(began)
        self._writer.cut_back(saved.manifest)
        if changed := differing(saved.manifest.conditions, conditions()):
            _log.warning(
                "restored, but results may differ from an uninterrupted loop in the last bits: %s",
                "; ".join(changed),
            )
        self._restored = True
        self._last = saved.manifest.steps, self._agent.updates, self._buffer.added
        return saved.manifest.steps

    def _check(self, saved: Checkpoint, began: np.ndarray, *, override: bool) -> None:
        manifest = saved.manifest
        if self._buffer.added:
            raise UsageError("the buffer must be empty: call restore before rows are added")
        record, before = self._record(), manifest.config
        spaces = record.pop("spaces")
        if record["agent"] != before.get("agent") or spaces != manifest.spaces:
            raise UsageError(
                f"{self.path} contains the agent {before.get('agent')} with the spaces "
                f"{spaces_text(manifest.spaces)}; got {record['agent']} with {spaces_text(spaces)}"
            )
        old, new = ({"seed": d.get("seed"), **d.get("settings", {})} for d in (before, record))
        changed = [n for n in sorted(old.keys() | new.keys()) if old.get(n) != new.get(n)]
        if changed and not override:
            values = (f"{n} {new.get(n)!r} instead of {old.get(n)!r}" for n in changed)
            raise UsageError(
                f"{self.path} was saved with other settings; got {', '.join(values)}: create the "
                "agent with the saved settings, or pass override=True"
            )
        names = [name for name in manifest.state if name not in ("buffer", "agent")]
        if names != [*self._components]:
            raise UsageError(
                f"{self.path} contains the components {', '.join(names) or 'none'} in this order; "
                f"got {', '.join(self._components) or 'none'}"
            )
        count = before.get("environments")  # 0 if unknown
        if count and len(began) != count:
            raise UsageError(
                f"began must have shape [{count}], one value per environment; got {began}"
            )
        if before.get("waiting") and not began.all():
            raise UsageError(
                "the checkpoint was saved between act and observe, so its episodes cannot "
                "continue: pass True for all environments in began, or save after observe"
            )

    def save(self, steps: int) -> None:
        """Writes a checkpoint, and removes those beyond `keep`.

        Call it between `observe` and the next `act`. Otherwise, all episodes must begin again after
        `restore`. No other thread may add rows or use the accumulator in the meantime; a training
        call in another thread is waited for. If an error is raised, the previous checkpoint remains
        the newest one.

        Args:
            steps: The number of environment steps so far, which must increase from save to save.
                If steps, updates and rows are those of the last one, nothing is written.

        Raises:
            UsageError: If the directory has checkpoints and `restore` was not called, or `steps`
                did not increase.
            FloatingPointError: If a variable is not finite.
            RunError: If a state could not be read back, or rows were added in the meantime.
            OSError: If a file cannot be written.
        """
        if not self._restored:
            raise UsageError(
                f"{self.path} contains checkpoints: call restore first, or choose another directory"
            )
        with self._agent.lock:
            now = int(steps), self._agent.updates, self._buffer.added
            if now < self._last or (now != self._last and now[:2] == self._last[:2]):
                raise UsageError(
                    f"steps must increase from save to save; got {steps} after {self._last[0]}"
                )
            record, components = self._record(), self._components.values()
            behaviors = [c for c in components if isinstance(c, BehaviorPolicy)]
            about = {
                "waiting": any(behavior.waits for behavior in behaviors),
                "environments": max((b.environments for b in behaviors), default=0),
            }
            self._lock.check()
            self._writer.save(
                self._contents,
                steps=now[0],
                updates=now[1],
                in_round=False,
                pending=(),
                spaces=record.pop("spaces"),
                conditions=conditions(),
                config=record | about,
            )
            self._last = now

    def close(self) -> None:
        """Unlocks the directory."""
        self._lock.close()

    def _record(self) -> dict[str, Any]:
        """Returns the identity of the agent in the types that JSON yields."""
        return json.loads(json.dumps(self._agent.record()))
