"""The loop around an agent: act, step, store, learn; evaluate, summarise, checkpoint."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from fractions import Fraction

import numpy as np
import tensorflow as tf

from eagerly.buffers import Transition
from eagerly.environments.watchdog import Watchdog
from eagerly.errors import RunError
from eagerly.policies.policy import Policy
from eagerly.seeding import Stream, seed_sequence
from eagerly.storage.checkpoint_reader import Saved, newest_intact
from eagerly.storage.checkpoint_writer import Checkpoints
from eagerly.storage.documents import is_full
from eagerly.storage.evaluations import EvaluationTable
from eagerly.storage.files import RunFiles
from eagerly.storage.run import Run
from eagerly.training import checkpointing
from eagerly.training.assembly import assemble
from eagerly.training.callbacks import Reporter
from eagerly.training.evaluation import evaluate, evaluation_seeds, single_blas_thread
from eagerly.training.profiling import Profile
from eagerly.training.signals import StopSignals
from eagerly.training.summaries import Summaries
from eagerly.training.update_budget import Debt
from eagerly.training.video import preview
from eagerly.training.warm_start import begin_with_policy_of


class Trainer:
    """Trains the agent of a run, from its beginning or from its newest checkpoint.

    Args:
        run: The run, as `open_run` returned it.
        reporter: Hears what happens.
        newest: The newest intact checkpoint, where the caller has looked already.
        profile_calls: Calls of the train body to trace for TensorBoard's profiler.

    Attributes:
        steps: Environment steps done, counting every environment.
        updates: Updates done.
        debt: The updates owed by the steps done and not yet paid.
        observations: How observations are laid out as rows.
        actions: How actions are.
        agent: The agent.
        buffer: The replay buffer.
        best: Step, score and weights of the best policy so far.
        checkpoint_seconds: Wall time that this process has spent in checkpoints.

    Raises:
        RunError: If the environment is not supported, the run cannot be continued, or its
            directory cannot be written.
    """

    def __init__(
        self,
        run: Run,
        reporter: Reporter | None = None,
        *,
        newest: Saved | None = None,
        profile_calls: int = 0,
    ) -> None:
        self.run, self.config, self.reporter = run, run.config, reporter or Reporter()
        self._opened, self._closed = ExitStack(), False
        self._opened.callback(run.unlock)
        self.checkpoint_seconds = 0.0
        self.steps, self.updates = 0, 0
        ratio = Fraction(str(self.config.replay_ratio))
        self.debt = Debt(ratio, self.config.updates_per_call)
        self.best: tuple[int, float, dict[str, np.ndarray]] | None = None
        try:
            self._build()
            self._begin(newest)
        except BaseException:
            self.close()
            raise
        self._profile = Profile(run.path, profile_calls)
        self._opened.callback(self._profile.close)

    def _build(self) -> None:
        watchdog = Watchdog(
            self.config.environment_timeout_seconds, lambda: f"after step {self.steps}"
        )
        self._opened.callback(watchdog.close)
        parts = assemble(self.run, watchdog, self._opened, self.reporter.say)
        self.observations, self.actions = parts.observations, parts.actions
        self.agent, self.buffer = parts.agent, parts.buffer
        self.environments, self._evaluation_env = parts.environments, parts.evaluation_env
        self._camera = parts.camera
        self.warmup = np.random.Generator(
            np.random.PCG64(seed_sequence(self.config.seed, Stream.WARMUP))
        )

    def _begin(self, newest: Saved | None) -> None:
        try:
            with single_blas_thread():
                self._continue(newest)
        except FloatingPointError as error:
            raise RunError(f"before step {self.steps + 1}: {error}") from error
        except (OSError, tf.errors.OpError) as error:
            raise RunError(f"{self.run.path} cannot be used: {error}") from error

    def _continue(self, saved: Saved | None) -> None:
        run, say = self.run, self.reporter.say
        for note in run.notes:
            say(note)
        if not run.is_new:
            run.lock()
            saved = saved or newest_intact(run.path, say)
        summaries = Summaries(run.path, self.config.num_envs)
        self.summaries = self._opened.enter_context(closing(summaries))
        if saved:
            checkpointing.restore(self, saved)
        else:
            if self.config.init_from:
                begin_with_policy_of(self, self.config.init_from)
            self.environments.start()
        # Until here nothing on disk was touched: what cannot be continued stays as it was.
        if note := run.write(self.steps):
            say(note)
        manifest = saved.manifest if saved else None
        self._checkpoints = Checkpoints(run.path, self.config.keep_checkpoints)
        self._checkpoints.cut_back(manifest, say)
        self.evaluations = EvaluationTable(run.evaluations_path)
        if not manifest:
            self.summaries.layout()
            self.summaries.graph(self.agent.graph())
        if not manifest or (manifest.config and manifest.config.get("history") != run.history):
            self.summaries.settings(run.agent, run.settings(), run.path.name, self.steps)

    def train(self) -> StopSignals:
        """Runs until the run has its steps, or a signal asks to stop; then saves.

        Returns:
            The signals, whose `received` says which one asked.

        Raises:
            RunError: If something is NaN or infinite, naming it and the step, cannot be written,
                or an environment in a process fails. The newest checkpoint stays the last one.
                Also if the trainer is closed: the directory may be another's by now.
        """
        self._check_open()
        self.summaries.begin(self.steps, self.updates)
        self._last_checkpoint = time.monotonic()
        with StopSignals() as signals, single_blas_thread():
            try:
                while not self.finished and not signals.received:
                    self._round(signals)
                self.checkpoint()
            except (
                FloatingPointError, ImportError, OSError, RunError, MemoryError, tf.errors.OpError
            ) as error:  # fmt: skip
                what = str(error).rstrip(".\n")
                what += "\n" if "\n" in what else ". "  # a traceback stands by itself
                raise RunError(
                    f"stopped after step {self.steps}: {what}No checkpoint was written from it."
                ) from error
        return signals

    @property
    def finished(self) -> bool:
        """Whether the run has its steps and the last round is complete."""
        return self.steps >= self.config.steps and not self.in_round

    @property
    def in_round(self) -> bool:
        """Whether a call of the train body is owed: inside a round, or where one was stopped."""
        return self.debt.is_call

    def _round(self, signals: StopSignals) -> None:
        """Steps every environment once, pays the updates owed, and does what is due."""
        if not self.in_round:  # else a round that was stopped is completed first
            self._collect()
        while self.in_round:
            if signals.received:
                return
            self._learn()
        if self._due(self.config.evaluate_every_steps):
            self._evaluate()
        if self._due(self.config.summarize_every_steps):
            self.run.check_lock()
            self.summaries.write(self.steps, self.updates)
            if self.config.histograms:
                networks = self.agent.networks
                self.summaries.histograms((networks.actor, networks.critic), self.steps)
        if self._due(self.config.video_every_steps):
            self._record()
        if self._due(self.config.checkpoint_every_steps) or self._waited_long():
            self._try_checkpoint()
        self.reporter.stepped(self.steps)

    def _collect(self) -> None:
        observations = self.environments.observations
        self.agent.observe(observations)
        if self.steps < self.config.warmup_steps:
            mask = self.observations.mask_of(observations)
            actions = self.actions.random(self.warmup, len(observations), mask)
        else:
            actions = self.agent.act(observations, explore=True)
        step = self.environments.step(self.actions.to_environment(actions))
        # Truncated episodes go on, as far as values are concerned: only termination is final.
        discounts = self.config.discount * ~step.terminated
        try:
            self.buffer.add(
                Transition(observations, actions, step.rewards, discounts, step.observations),
                step.ended,
            )
        except ValueError as error:  # images that are not stacked as they must be
            raise RunError(f"the replay buffer does not take the next step: {error}") from error
        self.agent.stepped(actions, step.rewards, step.ended)
        self.summaries.stepped(step.rewards, step.ended, step.infos)
        self.steps += len(self.environments)
        beyond = self.steps - self.config.warmup_steps
        if beyond > 0:
            self.debt.step(min(beyond, len(self.environments)))

    def _learn(self) -> None:
        """Pays updates in one call of the train body."""
        updates = self.config.updates_per_call
        with self._profile.call():
            metrics = self.agent.train(self.buffer, updates)
        self.summaries.learned(metrics)
        self.updates += updates
        self.debt.pay()

    def _due(self, every: int) -> bool:
        """Says whether a multiple of `every` steps was reached in this round; 0 is never."""
        return every > 0 and self.steps % every < len(self.environments)

    def _evaluate(self) -> None:
        seeds = evaluation_seeds(self.config.evaluation_seed, self.config.evaluation_episodes)
        try:
            evaluation = evaluate(self.policy, self._evaluation_env, seeds)
        except ValueError as error:  # of what the environment gave
            raise RunError(str(error)) from error
        figures = evaluation.summary()
        score = figures["return_mean"]
        best = self.best
        if best is None or score > best[1]:
            best = (self.steps, score, self.agent.networks.policy_weights())
        improved, self.best = best is not self.best, best
        row = {"steps": self.steps, "updates": self.updates, "episodes": len(seeds), **figures}
        self.run.check_lock()
        self.evaluations.append(row)
        self.summaries.evaluated(evaluation, best[1], self.steps)
        self.reporter.evaluated(self.steps, evaluation, improved)

    @property
    def policy(self) -> Policy:
        """The deterministic policy as it is now."""
        act = self.agent.networks.policy
        return Policy(act, self.observations, self.actions, self.steps)

    def _record(self) -> None:
        """Records the first evaluation episode as it would be played now."""
        (seed,) = evaluation_seeds(self.config.evaluation_seed, 1)
        assert self._camera is not None
        self.run.check_lock()
        try:
            RunFiles(self.run.path).make_folder("videos")
            video = self.run.path / "videos" / f"step-{self.steps:012d}.mp4"
            self._camera.record(self.policy, seed, video)
            self.summaries.video(preview(video), self.steps)
        except RunError as error:  # no reason to end a run
            self.reporter.say(f"no video of step {self.steps}: {error}")
        except OSError as error:
            self.reporter.say(f"no video of step {self.steps}: it cannot be written: {error}")

    def _waited_long(self) -> bool:
        minutes = self.config.checkpoint_every_minutes
        return minutes > 0 and time.monotonic() - self._last_checkpoint >= 60.0 * minutes

    def _try_checkpoint(self) -> None:
        """Saves everything, or says that there is no space for it and lets the run go on."""
        try:
            self.checkpoint()
        except OSError as error:
            if not is_full(error):
                raise
            self.reporter.say(
                f"NO CHECKPOINT at step {self.steps}: {error}. Make space: the next one tries "
                "again, and the run fails if the last one does."
            )

    def checkpoint(self) -> None:
        """Saves everything; what is not finite is reported and not saved.

        Raises:
            FloatingPointError: If a weight is not finite.
            OSError: If something cannot be written. The newest checkpoint stays the last one.
            RunError: If the trainer is closed.
        """
        self._check_open()
        began = time.monotonic()
        try:
            checkpointing.save(self, self._checkpoints)
        finally:
            self._last_checkpoint = time.monotonic()
            self.checkpoint_seconds += self._last_checkpoint - began

    def _check_open(self) -> None:
        if self._closed:
            raise RunError(
                f"this trainer of {self.run.path} is closed: make another one, with "
                f"Trainer(open_run({str(self.run.path)!r}, None, {{}}))"
            )

    def __enter__(self) -> Trainer:
        """Returns itself; it is closed where the block is left."""
        return self

    def __exit__(self, *error: object) -> None:
        """Closes it."""
        self.close()

    def close(self) -> None:
        """Closes environments, their processes, and the event file; frees the run directory."""
        self._closed = True
        self._opened.close()
