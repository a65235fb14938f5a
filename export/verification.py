"""What is checked of an export, and within which limits."""

from __future__ import annotations

import importlib.util
import logging
import math
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from eagerly.environments.factory import EnvironmentMaker
from eagerly.errors import RunError
from eagerly.export.examples import Steps, acted, opened, rows_of
from eagerly.export.runner import differences, violations
from eagerly.policies.network import ActorNetwork
from eagerly.policies.numpy_actor import numpy_actor
from eagerly.policies.policy import Policy
from eagerly.spaces import Actions, Observations
from eagerly.storage.run import Run
from eagerly.training.evaluation import Evaluation, evaluate

_log = logging.getLogger(__name__)
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
# What is allowed in `examples.c`, as a part of the span; integers must be equal there.
C_TOLERANCE = 1e-4


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


def exported_acted(
    folder: Path, reads: Policy, make: EnvironmentMaker | None, run: Run, seeds: list[int]
) -> tuple[np.ndarray, Evaluation | None]:
    """Lets an export act on its examples, and in episodes, in the process that calls it.

    Args:
        folder: The export.
        reads: The policy, which knows what of an observation is read.
        make: Makes the environment; None where no episodes are played.
        run: The run.
        seeds: Seeds of the episodes.

    Returns:
        Rows of actions, as `runner.replay` does, and what the episodes gave.
    """
    runner = runner_of(folder)
    policy = runner.Policy(folder)
    runner.check_files(folder, policy.about)
    with np.load(folder / "examples.npz", allow_pickle=False) as file:
        actions = runner.replay(policy, {name: file[name] for name in file.files})
    evaluation = None
    if make is not None and seeds:
        with opened(make, run, "the episodes of the exported policy") as env:
            evaluation = evaluate(_Exported(policy, reads), env, seeds)
    return actions, evaluation


def judged(
    folder: Path,
    found: np.ndarray,
    layout: tuple[Observations, Actions],
    network: ActorNetwork,
    original: ActorNetwork,
    precision: str,
) -> dict[str, Any]:
    """Compares what an export does on its examples with networks in NumPy.

    Args:
        folder: The export.
        found: Rows of actions, as `exported_acted` returns them.
        layout: How observations and actions are laid out.
        network: The network that was converted.
        original: That of the policy; the same one unless it was rounded to integers.
        precision: Of the export.

    Returns:
        What `policy.json` keeps of the comparison: how many `examples` there are, the
        `differences` from the network, and from the original if that is another one.

    Raises:
        RunError: If a difference is larger than allowed.
    """
    observations, actions = layout
    with np.load(folder / "examples.npz", allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    rows = rows_of(arrays, observations)
    none = np.zeros(len(rows))
    steps = Steps(
        rows, arrays.get("reward", none).astype(np.float32), arrays.get("begins", none > 0)
    )
    # Bounds come from the spaces, not from `policy.json`, which may be wrong, too.
    bounds = {
        "action": {
            "continuous": actions.continuous,
            "choices": actions.choices,
            "low": actions.low,
            "high": actions.high,
        },
        "tolerance": TOLERANCES[precision],
    }

    def compared(network: ActorNetwork) -> dict[str, float]:
        scores, _ = acted(numpy_actor(network.architecture, network.weights), actions, steps)
        expected = actions.to_environment(actions.decided(scores))
        return differences(bounds, found, expected, scores)

    measured, to_original = compared(network), None
    _check(measured, TOLERANCES[precision])
    if network is not original:
        to_original = compared(original)
        if original.architecture.quantized:
            _check(to_original, TOLERANCES[precision])
        else:
            _check_rounding(to_original)
    return {
        "examples": len(rows),
        "differences": measured,
        "differences_to_policy": to_original,
    }


def _check(measured: dict[str, float], most: dict[str, float]) -> None:
    if wrong := violations(measured, most):
        raise RunError(f"the export does not act as the policy: {'; '.join(wrong)}")


def _check_rounding(measured: dict[str, float]) -> None:
    """Judges what integers differ by from the floats that they were rounded from."""
    measured.pop("unequal", None)  # nearly all of them
    if wrong := violations(measured, MOST):
        raise RunError(
            f"too much is lost in 8 bits: {'; '.join(wrong)}. Train with --quantize int8 and "
            "--normalize-observations, or export in float32"
        )
    if unusual := violations(measured, USUAL):
        _log.warning("more is lost in 8 bits than usual: %s", "; ".join(unusual))


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
