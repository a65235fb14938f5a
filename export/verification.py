"""What is checked of an export, in a process of its own: the files that stay, by their runner."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from eagerly.environments.factory import EnvironmentMaker
from eagerly.export.examples import opened
from eagerly.policies.policy import Policy
from eagerly.storage.run import Run
from eagerly.training.evaluation import Evaluation, evaluate

# What is allowed between the runner and the network that it should compute: see `runner.py`.
TOLERANCES: dict[str, dict[str, float]] = {
    "float32": {"largest": 1e-5, "other_choices": 0.0, "margin": 1e-4},
    "float16": {"largest": 5e-3, "other_choices": 0.0, "margin": 2e-2},
    "int8": {"largest": 0.03, "unequal": 0.002, "other_choices": 0.002, "margin": 0.0},
}
# What is allowed between integers and the network that they were rounded from. Beyond `USUAL` a
# warning is logged, beyond `MOST` the export fails.
USUAL = {"mean": 0.015, "percentile_99": 0.05, "other_choices": 0.01}
MOST = {"mean": 0.05, "percentile_99": 0.25, "other_choices": 0.05}


def runner_of(folder: Path) -> ModuleType:
    """Imports the runner of an export, from its file there."""
    spec = importlib.util.spec_from_file_location("exported_runner", folder / "runner.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class _Exported:
    """An exported policy, as `evaluate` takes it."""

    def __init__(self, policy: Any, reads: Policy) -> None:
        self.begin_episodes, self.parts = policy.begin_episode, reads.parts


def acted(
    folder: Path, reads: Policy, make: EnvironmentMaker | None, run: Run, seeds: list[int]
) -> tuple[np.ndarray, Evaluation | None]:
    """Lets an export act on its examples, and in episodes.

    Args:
        folder: The export.
        reads: The policy, which knows what of an observation is read.
        make: Makes the environment; None where no episodes are played.
        run: The run.
        seeds: Seeds of the episodes.

    Returns:
        Rows of actions, as `runner.replayed` does, and what the episodes gave.
    """
    runner = runner_of(folder)
    policy = runner.Policy(folder)
    runner.check_files(folder, policy.about)
    with np.load(folder / "examples.npz", allow_pickle=False) as file:
        actions = runner.replayed(policy, {name: file[name] for name in file.files})
    evaluation = None
    if make is not None and seeds:
        with opened(make, run, "the episodes of the exported policy") as env:
            evaluation = evaluate(_Exported(policy, reads), env, seeds)
    return actions, evaluation


def summary(evaluation: Evaluation | None) -> dict[str, Any] | None:
    """Returns what `policy.json` keeps of episodes."""
    if evaluation is None:
        return None
    returns = [float(value) for value in evaluation.returns]
    mean, deviation = float(np.mean(returns)), float(np.std(returns))
    if not math.isfinite(mean):
        raise FloatingPointError(f"the returns became {returns}")
    return {"mean": mean, "std": deviation, "returns": returns}


def loss(before: Evaluation, after: Evaluation) -> str | None:
    """Says that an export reaches less than its policy, where that is more than chance.

    Args:
        before: Episodes of the policy.
        after: The same episodes, of the export.
    """
    apart, count = after.returns - before.returns, len(after.returns)
    mean, usual = float(apart.mean()), abs(float(before.returns.mean()))
    error = float(apart.std(ddof=1)) / math.sqrt(count) if count > 1 else math.inf
    if mean >= -0.05 * usual or mean >= -3.0 * error:
        return None
    return (
        f"the export's return is lower: {after.returns.mean():.2f} over {count} episodes, where "
        f"the policy has {before.returns.mean():.2f}"
    )
