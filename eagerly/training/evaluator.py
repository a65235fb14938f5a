"""Schedules and runs evaluations and video recordings during training."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterable

from eagerly.environments.group import Rollout
from eagerly.errors import RunError
from eagerly.policies.episode_policy import EpisodePolicy
from eagerly.policies.numpy_actor import RowPolicy
from eagerly.policies.policy import Policy
from eagerly.storage.config import NO_EVALUATIONS, SEPARATE, SHARED
from eagerly.storage.run import Run
from eagerly.training.assembly import Assembly
from eagerly.training.evaluation import (
    Evaluation,
    episodes_at_limit,
    evaluation_seeds,
    run_episodes,
)
from eagerly.training.video import record_in_run

_log = logging.getLogger(__name__)


class InterruptedEvaluationError(Exception):
    """Raised by `watch` to interrupt an evaluation or a video between two steps."""


class Evaluator:
    """Evaluates a run's policies and records videos.

    Args:
        run: The run.
        parts: The components of the run.
        watch: Called between two steps. It may raise `InterruptedEvaluationError`.

    Attributes:
        pending: The remaining work of the newest round: "evaluation", "round" (its curves and
            callbacks), "video". Checkpoints store it, so that a resumed run completes an
            interrupted round.
    """

    def __init__(self, run: Run, parts: Assembly, watch: Callable[[], object]) -> None:
        self._run, self._parts, self._watch = run, parts, watch
        self._warned_of_limit = False
        self.pending: set[str] = set()

    @property
    def lacks_final(self) -> bool:
        """Whether a run that ends now has neither a best policy nor an evaluation at this step."""
        if self._run.config.evaluations == NO_EVALUATIONS:
            return False
        at_end = self._parts.summaries.table.last_step == self._parts.collector.steps
        return self._parts.policies.best_step is None and not at_end

    def schedule(self, rollout: Rollout, *, is_due: bool) -> bool:
        """Adds the evaluation and the video that are due after the newest round to `pending`.

        An evaluation in the training environment waits for the end of an episode. Whether one waits
        depends only on the steps and the evaluation table, so that a resumed run continues to wait.

        Args:
            rollout: The newest round.
            is_due: Whether the round reached the step of an evaluation, video, curve or checkpoint.

        Returns:
            Whether an evaluation or a video was added.
        """
        config, steps = self._run.config, self._parts.collector.steps
        before, every = set(self.pending), config.evaluate_every_steps
        if config.evaluations == SHARED and rollout.episodes:
            if steps // every > (self._parts.summaries.table.last_step or 0) // every:
                self.pending.add("evaluation")
        elif config.evaluations == SEPARATE and is_due and config.is_due(every, steps):
            self.pending.add("evaluation")
        if is_due and config.is_due(config.video_every_steps, steps):
            self.pending.add("video")
        return self.pending != before

    def restore(self, pending: Iterable[str]) -> None:
        """Restores `pending`, without videos and evaluations that are now disabled."""
        self.pending = set(pending)
        if self._parts.camera is None:
            self.pending.discard("video")
        if self._parts.evaluation_env is None:
            self.pending.discard("evaluation")

    def complete(self, notify: Callable[..., None]) -> bool:
        """Runs the pending evaluation and video; returns False if interrupted.

        Args:
            notify: Called with "on_evaluation" and the results of `evaluate`.
        """
        try:
            if "evaluation" in self.pending:
                found = self.evaluate()
                if self._run.config.evaluations == SHARED:
                    self._parts.collector.begin()  # resets to the next training episode
                notify("on_evaluation", *found)
            if "video" in self.pending:
                self.record()
        except InterruptedEvaluationError:
            return False
        return True

    def policy(self, act: RowPolicy | EpisodePolicy | None = None) -> Policy:
        """Returns a policy that acts in the environment's units; by default the evaluated one."""
        agent = self._parts.agent
        steps = self._parts.collector.steps
        act = act or self._parts.policies.evaluated[""]
        return Policy(act, agent.observations, agent.actions, steps)

    def evaluate(self) -> tuple[Evaluation, bool]:
        """Evaluates the policy, and keeps its weights if its mean return is the best so far.

        With policy checkpoints, the current policy is evaluated as well, from the same seeds.

        Returns:
            The evaluation, and whether it is the best so far.

        Raises:
            InterruptedEvaluationError: If `watch` raises it. The evaluation remains pending.
            RunError: If a policy rejects an observation or a mask, or its name is invalid.
            FloatingPointError: If an observation or reward is NaN or infinite.
        """
        config, parts = self._run.config, self._parts
        assert parts.evaluation_env is not None
        seeds = evaluation_seeds(config.evaluation_seed, config.evaluation_episodes)
        try:
            found = {
                name: run_episodes(
                    self.policy(act),
                    parts.evaluation_env,
                    seeds,
                    steps_limit=config.evaluation_steps_limit,
                    watch=self._watch,
                )
                for name, act in parts.policies.evaluated.items()
            }
            evaluation = dataclasses.replace(found.pop(""), others=found)
        except ValueError as error:
            raise RunError(str(error)) from error
        self.pending.discard("evaluation")
        steps = parts.collector.steps
        limited = [e for e in (evaluation, *evaluation.others.values()) if e.at_limit]
        if limited and not self._warned_of_limit:
            self._warned_of_limit = True
            text = episodes_at_limit(limited[0], config.evaluation_steps_limit)
            _log.warning("step %s: %s", steps, text)
        return evaluation, parts.policies.compare(steps, evaluation.returns.mean())

    def record(self) -> None:
        """Records a video of the evaluated policy in the first evaluation episode.

        Raises:
            InterruptedEvaluationError: If `watch` raises it. The video remains pending.
        """
        assert self._parts.camera is not None
        config = self._run.config
        (seed,) = evaluation_seeds(config.evaluation_seed, 1)
        self._run.check_lock()
        preview = record_in_run(
            self._parts.camera,
            self.policy(),
            seed,
            self._run.path,
            steps_limit=config.evaluation_steps_limit,
            watch=self._watch,
        )
        self.pending.discard("video")
        if preview:
            self._parts.summaries.video(preview, self._parts.collector.steps)
