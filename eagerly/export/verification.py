"""Compares an export with its original policy and limits the differences."""

from __future__ import annotations

import dataclasses
import importlib.util
import logging
import math
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from eagerly.agents.config import AgentConfig
from eagerly.environments.factory import EnvironmentMaker
from eagerly.errors import RunError
from eagerly.export.children import in_child
from eagerly.export.examples import Layout, Steps, rows_of, score_steps
from eagerly.export.plan import ExportPlan, Gathered
from eagerly.export.played_episodes import open_environment
from eagerly.export.runner import differences, violations
from eagerly.policies.network import ActorNetwork
from eagerly.policies.policy import Policy
from eagerly.storage.run import Run
from eagerly.training.evaluation import Evaluation, evaluation_seeds, run_episodes

_log = logging.getLogger(__name__)
# Limits on the differences between an export and its network in NumPy (see `runner.differences`).
TOLERANCES: dict[str, dict[str, float]] = {
    "float32": {"largest": 1e-5, "other_choices": 0.0, "margin": 1e-4},
    "float16": {"largest": 5e-3, "other_choices": 0.0, "margin": 2e-2},
    "int8": {"largest": 0.03, "unequal": 0.002, "other_choices": 0.002, "margin": 0.0},
}
# Limits on the differences between int8 and the original float network. Above the first, a warning
# is logged; above the second, the export fails.
ROUNDING_WARNING = {"mean": 0.015, "percentile_99": 0.05, "other_choices": 0.01}
ROUNDING_LIMIT = {"mean": 0.05, "percentile_99": 0.25, "other_choices": 0.05}
# Limit on the differences of actions in `examples.c`, as a fraction of the span between bounds.
# Integer outputs must be equal.
C_TOLERANCE = 1e-4


def runner_of(folder: Path) -> ModuleType:
    """Imports the package `runner` from the folder of an export, as `exported_runner`."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "exported_runner"]:
        del sys.modules[name]  # the runner of another export
    source = folder / "runner" / "__init__.py"
    spec = importlib.util.spec_from_file_location("exported_runner", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["exported_runner"] = module  # required by the package's relative imports
    spec.loader.exec_module(module)
    return module


def verify(
    plan: ExportPlan, folder: Path, network: ActorNetwork, gathered: Gathered
) -> dict[str, Any]:
    """Runs the exported files in a child process and compares them with the policy.

    Args:
        plan: The requested export.
        folder: The folder of the export.
        network: The converted network, the same object as `plan.network` unless exported in int8.
        gathered: The examples, and the evaluation of the policy.

    Returns:
        The `measured` entry of `policy.json`.

    Raises:
        RunError: If a difference is larger than allowed.
    """
    seeds = evaluation_seeds(plan.run.config.evaluation_seed, plan.episodes)
    # The child cannot import a custom agent's settings class from the working directory, and needs
    # only the settings of layouts.
    config = plan.run.agent_config
    layouts = AgentConfig(ignore_entries=config.ignore_entries, action_masks=config.action_masks)
    found, after = in_child(
        "the exported policy",
        run_export,
        folder,
        plan.policy,
        gathered.make,
        dataclasses.replace(plan.run, agent_config=layouts),
        seeds,
        # Environments may need a GPU, but a SavedModel must run on the CPU.
        cpu_only=plan.format == "saved-model",
    )
    measured = _compare(plan, folder, network, gathered.layout, found)
    returns, before = None, gathered.evaluation
    if before is not None:
        returns = {"policy": summary(before), "exported": summary(after)}
        if (lost := loss(before, after)) is not None:
            _log.warning("%s", lost)
    return measured | {"returns": returns}


class _Evaluated:
    """Adapts an exported policy to the interface that `run_episodes` expects."""

    def __init__(self, exported: Any, policy: Policy) -> None:
        self.start_episode = exported.start_episode
        if exported.about["preprocessing"] is None:
            self.parts = policy.parts


def run_export(
    folder: Path, policy: Policy, make: EnvironmentMaker | None, run: Run, seeds: list[int]
) -> tuple[np.ndarray, Evaluation | None]:
    """Runs an export on its examples and in episodes, in this process.

    Args:
        folder: The folder of the export.
        policy: The original policy, which determines the parts of an observation that are read.
        make: The environment factory; None if no episodes are played.
        run: The run.
        seeds: Seeds of the episodes.

    Returns:
        Rows of actions, as in `runner.replay`, and the evaluation (None without episodes).

    Raises:
        RunError: If the environment fails.
        ValueError: If a file of the export is missing or was modified.
        FloatingPointError: If an action is not finite.
    """
    runner = runner_of(folder)
    exported = runner.Policy(folder)
    runner.check_files(folder, exported.about)
    with np.load(folder / "examples.npz", allow_pickle=False) as file:
        actions = runner.replay(exported, {name: file[name] for name in file.files})
    evaluation = None
    if make is not None and seeds:
        with open_environment(make, run, "while playing episodes with the exported policy") as env:
            limit = run.config.evaluation_steps_limit
            evaluation = run_episodes(_Evaluated(exported, policy), env, seeds, steps_limit=limit)
    return actions, evaluation


def _compare(
    plan: ExportPlan, folder: Path, network: ActorNetwork, layout: Layout, found: np.ndarray
) -> dict[str, Any]:
    """Compares rows of actions, as `run_export` returns them, with those of networks in NumPy.

    Returns:
        The number of `examples`, the `differences` from the converted network, and
        `differences_to_policy` from the original network (None if it was exported unchanged).
    """
    observations, actions = layout
    with np.load(folder / "examples.npz", allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    rows = rows_of(arrays, observations)
    none = np.zeros(len(rows))
    steps = Steps(
        rows, arrays.get("reward", none).astype(np.float32), arrays.get("begins", none > 0)
    )
    # Read the bounds from the spaces, so that wrong bounds in `policy.json` are detected.
    bounds = {
        "action": {
            "continuous": actions.continuous,
            "choices": actions.choices,
            "low": actions.low,
            "high": actions.high,
        },
        "tolerance": TOLERANCES[plan.precision],
    }

    def compared(network: ActorNetwork) -> dict[str, float]:
        scores, _ = score_steps(network, actions, steps)
        expected = actions.to_environment(actions.decided(scores))
        return differences(bounds, found, expected, scores)

    measured, to_original = compared(network), None
    _check(measured, TOLERANCES[plan.precision])
    if network is not plan.network:
        to_original = compared(plan.network)
        if plan.network.architecture.quantized:
            _check(to_original, TOLERANCES[plan.precision])
        else:
            _check_rounding(to_original)
    return {
        "examples": len(rows),
        "differences": measured,
        "differences_to_policy": to_original,
    }


def _check(measured: dict[str, float], limits: dict[str, float]) -> None:
    if wrong := violations(measured, limits):
        raise RunError(f"the export's actions differ from the policy's: {'; '.join(wrong)}")


def _check_rounding(measured: dict[str, float]) -> None:
    """Checks the differences between int8 and the original float network."""
    measured.pop("unequal", None)  # nearly all outputs differ slightly
    if wrong := violations(measured, ROUNDING_LIMIT):
        raise RunError(
            f"int8 rounding changes the actions too much: {'; '.join(wrong)}. Train with "
            "--quantize int8 and --normalize-observations, or export in float32"
        )
    if unusual := violations(measured, ROUNDING_WARNING):
        _log.warning(
            "int8 rounding changes the actions more than usual: %s. Training with --quantize int8 "
            "reduces the differences",
            "; ".join(unusual),
        )


def summary(evaluation: Evaluation | None) -> dict[str, Any] | None:
    """Returns the `policy.json` entry of an evaluation, or None without one."""
    if evaluation is None:
        return None
    returns = [float(value) for value in evaluation.returns]
    mean, deviation = float(np.mean(returns)), float(np.std(returns))
    return {"mean": mean, "std": deviation, "returns": returns}


def loss(before: Evaluation, after: Evaluation) -> str | None:
    """Returns a message if the export's return is significantly lower than the policy's, else None.

    A loss is significant if it exceeds 5 % of the policy's return and three standard errors.

    Args:
        before: Episodes of the policy.
        after: The same episodes with the export.
    """
    apart, count = after.returns - before.returns, len(after.returns)
    mean, usual = float(apart.mean()), abs(float(before.returns.mean()))
    error = float(apart.std(ddof=1)) / math.sqrt(count) if count > 1 else math.inf
    if mean >= -0.05 * usual or mean >= -3.0 * error:
        return None
    return (
        f"the export's return is lower than the policy's: {after.returns.mean():.2f} over {count} "
        f"episodes instead of {before.returns.mean():.2f}"
    )
