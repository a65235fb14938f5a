"""Writes a run's curves: `evaluations.csv`, TensorBoard's records and an experiment tracker."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.histogram.summary_v2 import histogram_pb
from tensorboard.plugins.image.metadata import create_summary_metadata
from tensorboard.plugins.scalar.summary_v2 import scalar_pb
from tensorboard.util.tensor_util import make_tensor_proto

from eagerly.agents.agent import Agent
from eagerly.agents.algorithm import algorithm_errors
from eagerly.environments.group import Rollout
from eagerly.environments.timing import ActionTiming
from eagerly.state import Saved
from eagerly.storage.checkpoint_reader import Checkpoint
from eagerly.storage.config import RunConfig
from eagerly.storage.evaluations import EvaluationTable
from eagerly.storage.event_log import EventLog
from eagerly.storage.run import Run
from eagerly.training.callbacks import Callback, TrainerView
from eagerly.training.curriculum import scalars
from eagerly.training.dashboards import BEST, active_settings, layout, settings_summaries
from eagerly.training.evaluation import Evaluation
from eagerly.training.trackers import Tracker


class Summaries(Callback, Saved):
    """Accumulates values between two points of the curves, and writes their means.

    Each (tag, step) is written only once: episodes that end in the same window share a point.

    Args:
        config: Determines how often points are written, and whether histograms are included.
        timing: Measures the actions of a run with `hardware`, for curves; None measures nothing.

    Attributes:
        log: The event file. Call `open` before anything is written.
        table: `evaluations.csv`, also opened by `open`.
        tracker: Receives the points as well; None without an experiment tracker.
        timing: As given.
    """

    log: EventLog
    table: EvaluationTable
    _saved = ("_sums",)

    def __init__(self, config: RunConfig, timing: ActionTiming | None = None) -> None:
        self._every, self._histograms = config.summarize_every_steps, config.histograms
        self._sums: dict[str, list[float]] = {}  # tag: [sum, count]
        self._last = (time.perf_counter(), 0, 0)
        self.tracker = Tracker(config.track) if config.track else None
        self.timing = timing

    def open(self, run: Run, agent: Agent, steps: int, saved: Checkpoint | None) -> None:
        """Opens the event file and the evaluation table, and writes new or overridden settings.

        In a new run, also writes the Custom Scalars layout and the update's graph.

        Args:
            run: The run.
            agent: The agent of the run.
            steps: Environment steps so far.
            saved: The checkpoint from which the run resumes; None in a new run.
        """
        self.log = EventLog(run.path)
        self.table = EvaluationTable(run.evaluations_path, run.last_override, self.log)
        if not saved:
            self._add_all(0, layout())
            with algorithm_errors(type(agent), "updating"):
                graph = agent.learner.graph()
            if graph is not None:
                definition = graph.as_graph_def(add_shapes=True)
                self.log.add(0, graph_def=definition.SerializeToString())
        if not saved or saved.manifest.config.get("history") != run.history:
            self._add_all(steps, *settings_summaries(run, agent))

    def flush(self) -> None:
        """Writes records that are still waiting for disk space.

        Raises:
            OSError: If they cannot be written. Nothing is lost, and the next call retries.
        """
        self.log.flush()
        self.table.flush()

    def on_begin(self, training: TrainerView) -> None:
        """Starts the tracker and the timer of the speed curves, and records the start time."""
        self.log.add(training.steps)
        if self.tracker:
            self.tracker.begin(training.run, active_settings(training.run, training.agent))
        self._last = (time.perf_counter(), training.steps, training.updates)

    def video(self, preview: tuple[int, int, bytes], steps: int) -> None:
        """Writes an animation, given as width, height and GIF, for TensorBoard's Images tab."""
        width, height, content = preview
        about = "The first evaluation episode, played by the policy at this step."
        metadata = create_summary_metadata("evaluation episode", about)
        tensor = make_tensor_proto([str(width).encode(), str(height).encode(), content])
        video = Summary()
        video.value.add(tag="evaluation/video", tensor=tensor, metadata=metadata)
        self._add_all(steps, video)

    def on_rollout(self, training: TrainerView, rollout: Rollout) -> None:
        """Adds the returns, lengths and infos of finished episodes to the means."""
        if episodes := rollout.episodes:
            returns = np.array([each.total_reward for each in episodes])
            lengths = np.array([each.length for each in episodes])
            self._add({"training/return_mean": returns, "training/length_mean": lengths})
        for info in rollout.infos:
            self._add({f"training_info/{name}": np.array([v]) for name, v in info.items()})

    def on_update(self, training: TrainerView, metrics: Mapping[str, np.ndarray]) -> None:
        """Adds the metrics of a call of the train body, one value per update, to the means."""
        self._add(metrics)

    def log_value(self, name: str, value: float) -> None:
        """Adds a number to the means; see `TrainerView.log`."""
        tag = f"custom/{name}"
        try:
            tag.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"log: a name must be valid Unicode; got {name!r}") from error
        if not math.isfinite(number := float(value)):
            raise ValueError(f"log: {name} must be a finite number; got {number}")
        self._add({tag: np.array([number])})

    def _add(self, found: Mapping[str, np.ndarray]) -> None:
        for tag, values in found.items():
            entry = self._sums.setdefault(tag, [0.0, 0])
            entry[0] += float(values.sum(dtype=np.float64))
            entry[1] += len(values)

    def on_round(self, training: TrainerView) -> None:
        """Writes a point of the curves if due: the means since the last point, and the speed."""
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
        if self.timing:
            means |= self.timing.scalars()
        means |= training.agent.scalars() | training.budget.scalars()
        self._scalars(means | scalars(training.collector.environments), steps)
        self._sums.clear()
        self._last = (now, steps, updates)
        if self._histograms:
            self._add_histograms(training.agent, steps)

    def _add_histograms(self, agent: Agent, steps: int) -> None:
        """Writes a histogram of each variable of the agent's networks."""
        weights = {
            f"{model.name}/{variable.path.removeprefix(f'{model.name}/')}": variable.numpy()
            for model in (module.network for module in agent.modules.values())
            for variable in model.variables
        }
        self._add_all(steps, *(histogram_pb(name, values) for name, values in weights.items()))

    def on_evaluation(self, training: TrainerView, evaluation: Evaluation, is_best: bool) -> None:
        """Writes the statistics of an evaluation, and the best mean return so far, if any."""
        training.run.check_lock()
        figures = _figures("evaluation", evaluation)
        for name, other in evaluation.others.items():
            figures |= _figures(f"evaluation_{name}", other)
        infos = evaluation.info_means().items()
        figures |= {f"evaluation_info/{name}": value for name, value in infos}
        if math.isfinite(training.best_return):
            figures[BEST] = training.best_return
        self._scalars(figures, training.steps)
        self.table.add(evaluation.row(training.steps, training.policies.updates))

    def on_end(self, training: TrainerView) -> None:
        """Syncs the files to disk: no checkpoint does so after a final evaluation."""
        self.log.sync()
        self.table.sync()  # last, because its row marks the run as finished
        if self.tracker:
            self.tracker.end(failed=training.has_failed)

    def _scalars(self, values: Mapping[str, float], steps: int) -> None:
        self._add_all(steps, *(scalar_pb(tag, value) for tag, value in values.items()))
        if self.tracker:
            self.tracker.add(values, steps)

    def _add_all(self, steps: int, *summaries: Any) -> None:
        """Writes summaries as one record."""
        record = Summary()
        for summary in summaries:
            # Serialize, because a summary may be an instance of TensorFlow's own Summary class.
            record.MergeFromString(summary.SerializeToString())
        self.log.add(steps, summary=record)

    def _check(self, values: dict[str, Any]) -> None:
        sums = values["sums"].items()
        values["sums"] = {tag: [float(total), int(count)] for tag, (total, count) in sums}


def _figures(group: str, evaluation: Evaluation) -> dict[str, float]:
    return {f"{group}/{name}": value for name, value in evaluation.summary().items()}
