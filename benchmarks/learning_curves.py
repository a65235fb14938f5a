"""Draws learning curves from evaluation tables: `learning_curves.py TITLE PICTURE TABLE ...`."""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

from eagerly.training.results import read_results


def main(title: str, picture: str, *tables: str) -> None:
    """Draws one line per table, labelled with its file's last word."""
    figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
    for table, color in zip(tables, ("#0072b2", "#d55e00", "#009e73", "#cc79a7"), strict=False):
        results = read_results(Path(table))
        seed = Path(table).stem.rpartition("-")[2]
        axes.plot(results.steps / 1000, results.return_mean, color=color, label=f"seed {seed}")
    axes.set(title=title, xlabel="environment steps (thousands)", ylabel="return, 10 episodes")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(picture, dpi=150)


if __name__ == "__main__":
    main(*sys.argv[1:])
