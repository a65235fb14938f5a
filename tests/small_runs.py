"""Training runs that take about a second: small networks, few updates and eager mode."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from eagerly import Trainer, open_run
from eagerly.storage.digests import curves
from eagerly.training.callbacks import Callback
from eagerly.training.signals import StopSignals
from tests import toys

toys.register()

SMALL: dict[str, Any] = {
    "env": "Pendulum-v1",
    "preset": "defaults",
    "steps": 400,
    "warmup_steps": 50,
    # The run makes updates at steps 150, 250 and 350. In eager mode, they take less time than
    # tracing one update. Tests with many updates use graph mode, where tracing takes half as long
    # for calls of one update.
    "updates_per_call": 1,
    "replay_ratio": 0.01,
    "evaluate_every_steps": 150,
    "evaluation_episodes": 1,
    "summarize_every_steps": 50,
    "checkpoint_every_steps": 100,
    "hidden_sizes": (8, 8),
    "batch_size": 16,
    "mode": "eager",
    "policy_delay": 1,  # tracing takes half as long as with a delay of 2
}
TD3S = ("policy_delay",)  # settings that only TD3 has


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@contextmanager
def logged() -> Iterator[list[str]]:
    """Collects the messages that the package logs within a `with` block."""
    logger, handler = logging.getLogger("eagerly"), _Lines()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield handler.lines
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


TrainRun = Callable[..., Any]


def train_in(
    path: Path,
    *,
    agent: str = "td3",
    override: bool = False,
    callbacks: Iterable[Callback] = (),
    **settings: Any,
) -> Any:
    """Trains a small run in a directory, or resumes an existing one.

    Logged messages are in `trainer.lines`.
    """
    is_new = not (path / "config.json").exists()
    others = (() if agent == "td3" else TD3S) + (("batch_size",) if "memory" in settings else ())
    if "models" in settings or {"actor", "critic"} <= set(settings):
        others += ("hidden_sizes",)
    if settings.get("evaluations") == "none":
        others += ("evaluate_every_steps",)
    if settings.get("offline") and "n_step" in settings:  # warmup_steps would be an error
        others += ("warmup_steps",)
    small = {name: value for name, value in SMALL.items() if name not in others}
    given = small | settings if is_new else settings
    with logged() as lines:
        run = open_run(path, agent if is_new else None, given, override=override)
        with Trainer(run, callbacks) as trainer, StopSignals() as signals:
            trainer.train(signals)
    trainer.lines = lines
    return trainer


def scalars(path: Path) -> dict[tuple[str, int], list[float]]:
    """Returns the values of all curves, by (tag, step), except speed, settings and weights."""
    return {
        (tag, step): [float(value) for value in values]
        for (tag, step), values in curves(path).items()
        if not tag.startswith(("actor/", "critic/"))
    }
