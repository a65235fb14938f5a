"""The curves of a run: `evaluations.csv`, and TensorBoard's scalars, settings and graph."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from typing import Any

import keras
import numpy as np
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.custom_scalar import summary as layout_summary
from tensorboard.plugins.histogram.summary_v2 import histogram_pb
from tensorboard.plugins.hparams import api as hp
from tensorboard.plugins.image.metadata import create_summary_metadata
from tensorboard.plugins.scalar.summary_v2 import scalar_pb
from tensorboard.plugins.text.summary_v2 import text_pb
from tensorboard.util.tensor_util import make_tensor_proto

from eagerly.agents.agent import Agent
from eagerly.environments.group import Rollout
from eagerly.state import Saved
from eagerly.storage.checkpoint_reader import Checkpoint
from eagerly.storage.config import RESUMABLE, RunConfig
from eagerly.storage.evaluations import EvaluationTable
from eagerly.storage.event_log import EventLog
from eagerly.storage.run import Run
from eagerly.storage.run_settings import format_setting
from eagerly.training.callbacks import Callback, TrainerView
from eagerly.training.evaluation import Evaluation

BEST = "evaluation/return_best"
_MEAN = "evaluation/return_mean"
_METRICS = [
    hp.Metric(BEST, display_name="best return"),
    hp.Metric(_MEAN, display_name="last return"),
]
# What TensorBoard's tab Custom Scalars shows together: title, and the tags of each chart.
_LAYOUT = {
    "Returns": {
        "evaluation": [_MEAN, BEST],
        "evaluation and training": [_MEAN, "training/return_mean"],
        "lengths of episodes": ["evaluation/length_mean", "training/length_mean"],
    },
    "Values": {
        "values of the critic and their targets": [
            "values/mean",
            "values/target_mean",
            "values/max",
        ]
    },
    "Losses": {"critics": ["losses/critic"], "actor": ["losses/actor"]},
    "Actions": {"share at the bounds": ["actions/saturation"]},
    "Speed": {"steps and updates": ["speed/steps_per_second", "speed/updates_per_second"]},
}


def _layout() -> Any:
    """Returns the layout of the tab Custom Scalars, with the spread of evaluations as a band."""
    categories = []
    for title, parts in _LAYOUT.items():
        charts = [
            layout_pb2.Chart(title=name, multiline=layout_pb2.MultilineChartContent(tag=tags))
            for name, tags in parts.items()
        ]
        categories.append(layout_pb2.Category(title=title, chart=charts))
    band = layout_pb2.MarginChartContent.Series(
        value=_MEAN, lower="evaluation/return_min", upper="evaluation/return_max"
    )
    margin = layout_pb2.MarginChartContent(series=[band])
    spread = layout_pb2.Chart(title="evaluation: mean, least and most", margin=margin)
    categories[0].chart.insert(0, spread)
    return layout_summary.pb(layout_pb2.Layout(category=categories))


class Summaries(Callback, Saved):
    """Gathers what happens between two points of the curves, and writes the means.

    A (tag, step) is written once, whatever happens in between: episodes that end in the same
    window share a point.

    Args:
        config: Determines how often points are written, and whether histograms are.

    Attributes:
        log: The event file, which `open` opens before anything is written.
        table: `evaluations.csv`, as well.
    """

    log: EventLog
    table: EvaluationTable
    _saved = ("_sums",)

    def __init__(self, config: RunConfig) -> None:
        self._every, self._histograms = config.summarize_every_steps, config.histograms
        self._sums: dict[str, list[float]] = {}  # tag: [sum, count]
        self._last = (time.perf_counter(), 0, 0)

    def open(self, run: Run) -> None:
        """Opens the files of a run, to append to them."""
        self.log, self.table = EventLog(run.path), EvaluationTable(run.evaluations_path)

    def flush(self) -> None:
        """Writes what still waits for space.

        Raises:
            OSError: If it cannot be written; nothing is lost, and the next time tries again.
        """
        self.log.flush()
        self.table.flush()

    def on_begin(self, training: TrainerView) -> None:
        """Starts the clock of the speed curves, and the event file, which says when that was."""
        self.log.add(training.steps)
        self._last = (time.perf_counter(), training.steps, training.updates)

    def settings(self, run: Run, agent: Agent, steps: int) -> None:
        """Writes the settings as a table, and those that act for the hparams dashboard.

        Args:
            run: The run, by whose name the dashboard calls it.
            agent: Its agent, which knows the spaces.
            steps: Where on the table's axis they stand.
        """
        settings = run.settings()
        rows = "".join(f"| {name} | {value} |\n" for name, value in settings.items())
        idle = agent.config.without_effect((agent.observations, agent.actions))
        idle |= run.config.without_effect()
        left_out = {*idle, *RESUMABLE} - {"steps"}
        acting = {name: value for name, value in settings.items() if name not in left_out}
        known = {"agent": run.agent} | acting
        self._add_all(
            steps,
            text_pb("settings", f"| setting | value |\n|---|---|\n{rows}"),
            hp.hparams_config_pb(hparams=[hp.HParam(name) for name in known], metrics=_METRICS),
            hp.hparams_pb(
                {name: _plain(value) for name, value in known.items()}, trial_id=run.path.name
            ),
        )

    def begin(self, run: Run, agent: Agent, steps: int, saved: Checkpoint | None) -> None:
        """Writes the settings if they are new, and in a new run the layout and the update's graph.

        Args:
            run: The run.
            agent: Its agent.
            steps: Environment steps done.
            saved: The checkpoint from which the run continues, None in a new one.
        """
        if not saved:
            self._add_all(0, _layout())
            if (graph := agent.learner.graph()) is not None:
                definition = graph.as_graph_def(add_shapes=True)
                self.log.add(0, graph_def=definition.SerializeToString())
        if not saved or saved.manifest.config.get("history") != run.history:
            self.settings(run, agent, steps)

    def video(self, preview: tuple[int, int, bytes], steps: int) -> None:
        """Shows an animation, width, height and GIF, under Images."""
        width, height, content = preview
        about = "The first evaluation episode, as it would be played at this step."
        metadata = create_summary_metadata("evaluation episode", about)
        tensor = make_tensor_proto([str(width).encode(), str(height).encode(), content])
        video = Summary()
        video.value.add(tag="evaluation/video", tensor=tensor, metadata=metadata)
        self._add_all(steps, video)

    def histograms(self, models: Iterable[keras.Model], steps: int) -> None:
        """Writes a histogram of every weight."""
        weights = {
            f"{model.name}/{variable.path.removeprefix(f'{model.name}/')}": variable.numpy()
            for model in models
            for variable in model.variables
        }
        self._add_all(steps, *(histogram_pb(name, values) for name, values in weights.items()))

    def on_rollout(self, training: TrainerView, rollout: Rollout) -> None:
        """Takes the episodes that ended, and their infos."""
        if episodes := rollout.episodes:
            returns = np.array([each.total_reward for each in episodes])
            lengths = np.array([each.length for each in episodes])
            self._add({"training/return_mean": returns, "training/length_mean": lengths})
        for info in rollout.infos:
            self._add({f"training_info/{name}": np.array([v]) for name, v in info.items()})

    def on_update(self, training: TrainerView, metrics: Mapping[str, np.ndarray]) -> None:
        """Takes the metrics of a call of the train body, some values each."""
        self._add(metrics)

    def _add(self, found: Mapping[str, np.ndarray]) -> None:
        for tag, values in found.items():
            entry = self._sums.setdefault(tag, [0.0, 0])
            entry[0] += float(values.sum(dtype=np.float64))
            entry[1] += len(values)

    def on_round(self, training: TrainerView) -> None:
        """Writes a point of the curves where one is due: means since the last one, and speed."""
        steps = training.steps
        if not training.run.config.is_due(self._every, steps):
            return
        updates = training.updates
        training.run.check_lock()
        now = time.perf_counter()
        last, last_steps, last_updates = self._last
        elapsed = now - last
        means = {tag: total / count for tag, (total, count) in self._sums.items() if count}
        means["speed/steps_per_second"] = (steps - last_steps) / elapsed
        means["speed/updates_per_second"] = (updates - last_updates) / elapsed
        self._scalars(means | training.agent.scalars() | training.budget.scalars(), steps)
        self._sums.clear()
        self._last = (now, steps, updates)
        if self._histograms:
            modules = training.agent.modules.values()
            self.histograms((module.network for module in modules), steps)

    def on_evaluation(self, training: TrainerView, evaluation: Evaluation, is_best: bool) -> None:
        """Writes the figures of an evaluation, and the best mean return so far, if there is one."""
        training.run.check_lock()
        figures = _figures("evaluation", evaluation)
        for name, other in evaluation.others.items():
            figures |= _figures(f"evaluation_{name}", other)
        infos = evaluation.info_means().items()
        figures |= {f"evaluation_info/{name}": value for name, value in infos}
        if math.isfinite(training.best_return):
            figures[BEST] = training.best_return
        self._scalars(figures, training.steps)
        # After the points: a process that dies in between has not made this evaluation.
        self.table.add(evaluation.row(training.steps, training.policies.updates))

    def on_end(self, training: TrainerView) -> None:
        """Makes an evaluation after the last checkpoint durable: no other checkpoint will do it."""
        self.log.sync()
        self.table.sync()  # last: its row says that the run is finished

    def _scalars(self, values: Mapping[str, float], steps: int) -> None:
        self._add_all(steps, *(scalar_pb(tag, value) for tag, value in values.items()))

    def _add_all(self, steps: int, *summaries: Any) -> None:
        """Writes summaries as one record."""
        record = Summary()
        for summary in summaries:
            record.MergeFromString(summary.SerializeToString())  # TensorFlow has a class of its own
        self.log.add(steps, summary=record)

    def _check(self, values: dict[str, Any]) -> None:
        sums = values["sums"].items()
        values["sums"] = {tag: [float(total), int(count)] for tag, (total, count) in sums}


def _figures(group: str, evaluation: Evaluation) -> dict[str, float]:
    return {f"{group}/{name}": value for name, value in evaluation.summary().items()}


def _plain(value: Any) -> Any:
    """Writes a setting as the dashboard takes it: a number, a truth value or text."""
    return format_setting(value) if isinstance(value, dict | tuple) else value
