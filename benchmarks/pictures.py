"""Figures of the benchmark results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
from matplotlib import pyplot as plt

from eagerly.benchmarks.inside import SWEEPS, limit_figures, row_of
from eagerly.benchmarks.measuring import spread
from eagerly.benchmarks.whole_runs import seconds_per_step
from eagerly.storage.evaluations import Results

OURS, OTHERS = "#0072b2", "#999999"


def bars(found: dict[str, Any], title: str, path: Path) -> None:
    """Draws the milliseconds per step of each contender with 90 % intervals."""
    times = {name: spread([1e3 * v for v in vs]) for name, vs in seconds_per_step(found).items()}
    names = sorted(times, key=lambda name: -times[name].median)
    figure, axes = plt.subplots(figsize=(7, 0.9 + 0.42 * len(names)), layout="constrained")
    medians = [times[name].median for name in names]
    errors = [
        [times[name].median - times[name].low for name in names],
        [times[name].high - times[name].median for name in names],
    ]
    colors = [OURS if name.startswith("ours") else OTHERS for name in names]
    axes.barh(names, medians, xerr=errors, color=colors, ecolor="#333333", capsize=3)
    # The axis cuts off the bars of eager runs, which would dwarf all others.
    rest = [times[name].high for name in names if times[name].median < 5 * min(medians)]
    limit = 1.15 * max(rest)
    axes.set_xlim(0, limit)
    for row, name in enumerate(names):
        text = f"{times[name].median:.2f}"
        if times[name].median > limit:
            axes.annotate(f"{text} → ", (limit, row), va="center", ha="right", color="white")
        else:
            axes.annotate(f" {text}", (times[name].high, row), va="center")
    axes.set(title=title, xlabel="milliseconds per environment step and update")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def shares(found: dict[str, Any], path: Path) -> None:
    """Draws the share of the matrix product rate that updates reach, by batch, width and K."""
    figures = limit_figures(found)
    figure, panels = plt.subplots(1, 3, figsize=(9, 3), sharey=True, layout="constrained")
    for axes, setting, label in zip(
        panels,
        ("batch", "width", "updates_per_call"),
        ("batch", "units per layer", "K"),
        strict=True,
    ):
        points = [(value, figures[row_of(setting, value)]) for value in SWEEPS[setting]]
        values = [value for value, _ in points]
        medians = [100 * s.median for _, s in points]
        errors = [
            [100 * (s.median - s.low) for _, s in points],
            [100 * (s.high - s.median) for _, s in points],
        ]
        axes.errorbar(values, medians, errors, marker="o", color=OURS, capsize=3)
        axes.set(xlabel=label, xscale="log", ylim=(0, 100))
        axes.set_xticks(values, [str(value) for value in values])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("% of the matrix product rate")
    figure.savefig(path, dpi=150)
    plt.close(figure)


def learning(found: dict[str, list[Results]], path: Path) -> None:
    """Draws the mean and the range of returns over seeds, for this package and for PyTorch."""
    figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
    for (side, runs), color in zip(found.items(), (OURS, "#d55e00"), strict=True):
        steps = runs[0].steps / 1000
        returns = np.array([run.return_mean for run in runs])
        axes.plot(steps, returns.mean(0), color=color, label=f"{side}, mean of {len(runs)} seeds")
        axes.fill_between(steps, returns.min(0), returns.max(0), color=color, alpha=0.2)
    axes.set(
        title="DDPG as in the article, HalfCheetah-v5",
        xlabel="environment steps (thousands)",
        ylabel="return, 10 episodes",
    )
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    plt.close(figure)
