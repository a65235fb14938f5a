"""The loop around an agent: act, step, store, learn; evaluate, summarise, checkpoint."""

from __future__ import annotations

from contextlib import ExitStack, closing
from fractions import Fraction
from functools import partial

import numpy as np

from eagerly.agents import agent_class
from eagerly.buffers import ReplayBuffer, Stream, Transition, seed_sequence
from eagerly.networks import ActionBounds, observation_size
from eagerly.training import continuation
from eagerly.training.checkpoints import Checkpoints
from eagerly.training.conditions import set_threads
from eagerly.training.environments import Environments
from eagerly.training.errors import RunError
from eagerly.training.evaluation import evaluate, evaluation_seeds, single_blas_thread
from eagerly.training.interruption import StopSignals
from eagerly.training.making import check_environment, environment_maker
from eagerly.training.manifest import Manifest
from eagerly.training.policies import Policy
from eagerly.training.profiling import Profile
from eagerly.training.reporting import Reporter
from eagerly.training.results import append_row
from eagerly.training.run_directory import Run
from eagerly.training.summaries import Summaries
from eagerly.training.video import Camera


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
        owed: Updates owed by the steps done, not yet paid; a fraction where `replay_ratio` is.
        agent: The agent.
        buffer: The replay buffer.
        best: Step, score and weights of the best policy so far.

    Raises:
        RunError: If the environment is not supported, the run cannot be continued, or its
            directory cannot be written.
    """

    def __init__(
        self,
        run: Run,
        reporter: Reporter | None = None,
        *,
        newest: Manifest | None = None,
        profile_calls: int = 0,
    ) -> None:
        self.run, self.config, self.reporter = run, run.config, reporter or Reporter()
        self._opened = ExitStack()
        self.steps, self.updates, self.owed = 0, 0, Fraction(0)
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
        run, config = self.run, self.config
        set_threads(config.intra_op_threads, config.inter_op_threads, self.reporter.say)
        make = environment_maker(config.env, config.env_kwargs, run_dir=run.path)
        self._evaluation_env = self._opened.enter_context(closing(make()))
        spaces = self._evaluation_env.observation_space, self._evaluation_env.action_space
        try:
            self.bounds = ActionBounds(spaces[1])
            sizes = observation_size(spaces[0]), self.bounds.size
        except ValueError as error:
            raise RunError(f"environment {make.name!r} is not supported: {error}") from error
        if run.is_new and config.check_env:
            check_environment(self._evaluation_env, make.name, self.reporter.say)
        if config.video_every_steps:
            self._camera = self._opened.enter_context(closing(Camera(make)))
        self.agent = agent_class(run.agent)(*spaces, run.agent_config, seed=config.seed)
        try:
            sampling = seed_sequence(config.seed, Stream.SAMPLING)
            self.buffer = ReplayBuffer(config.replay_capacity, *sizes, seed=sampling)
        except MemoryError as error:
            raise RunError(f"replay_capacity {config.replay_capacity} needs: {error}") from error
        self.warmup = np.random.Generator(
            np.random.PCG64(seed_sequence(config.seed, Stream.WARMUP))
        )
        self._ratio = Fraction(str(config.replay_ratio))
        environments = Environments(make, config.num_envs, config.seed, config.vectorization)
        self.environments = self._opened.enter_context(closing(environments))

    def _begin(self, newest: Manifest | None) -> None:
        try:
            with single_blas_thread():
                self._continue(newest)
        except FloatingPointError as error:
            raise RunError(f"before step {self.steps + 1}: {error}") from error
        except OSError as error:
            raise RunError(f"{self.run.path} cannot be used: {error}") from error

    def _continue(self, manifest: Manifest | None) -> None:
        run, say, lost = self.run, self.reporter.say, []
        checkpoints = Checkpoints(run.path, self.config.keep_checkpoints)
        if not run.is_new:
            manifest = manifest or checkpoints.newest_intact(say)
        if manifest:
            lost = continuation.restore(self, checkpoints, manifest)
        else:
            self.environments.start()
        # Until here nothing on disk was touched: what cannot be continued stays as it was.
        run.write(self.steps)
        self._checkpoints = Checkpoints(run.path, self.config.keep_checkpoints)
        self._checkpoints.cut_back(manifest, say)
        summaries = Summaries(run.path, self.config.num_envs)
        self.summaries = self._opened.enter_context(closing(summaries))
        if manifest:
            self.summaries.restore(manifest.state["summaries"], lost)
        else:
            self.summaries.graph(self.agent.graph())
        if run.overridden or not manifest:
            self.summaries.settings(run.agent, run.settings(), run.path.name, self.steps)

    def train(self) -> StopSignals:
        """Runs until the run has its steps, or a signal asks to stop; then saves.

        Returns:
            The signals, whose `received` says which one asked.

        Raises:
            RunError: If something is NaN or infinite, naming it and the step, cannot be written,
                or an environment in a process fails. The newest checkpoint stays the last one.
        """
        self.summaries.begin(self.steps, self.updates)
        with StopSignals() as signals, single_blas_thread():
            try:
                while not self.finished and not signals.received:
                    self._round(signals)
                self.checkpoint()
            except (FloatingPointError, OSError, RunError) as error:
                raise RunError(
                    f"stopped after step {self.steps}: {error}. No checkpoint was written from it."
                ) from error
        return signals

    @property
    def finished(self) -> bool:
        """Whether the run has its steps and the last round is complete."""
        return self.steps >= self.config.steps and not self.in_round

    @property
    def in_round(self) -> bool:
        """Whether a call of the train body is owed: inside a round, or where one was stopped."""
        return self.owed >= self.config.updates_per_call

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
            self.summaries.write(self.steps, self.updates)
            if self.config.histograms:
                networks = self.agent.networks
                self.summaries.histograms((networks.actor, networks.critic), self.steps)
        if self._due(self.config.video_every_steps):
            self._record()
        if self._due(self.config.checkpoint_every_steps):
            self.checkpoint()
        self.reporter.stepped(self.steps)

    def _collect(self) -> None:
        observations = self.environments.observations
        if self.steps < self.config.warmup_steps:
            shape = len(self.environments), self.bounds.size
            actions = self.warmup.uniform(-1.0, 1.0, shape).astype(np.float32)
        else:
            actions = self.agent.act(observations, explore=True)
        step = self.environments.step(self.bounds.to_environment(actions))
        # Truncated episodes go on, as far as values are concerned: only termination is final.
        discounts = self.config.discount * ~step.terminated
        self.buffer.add(
            Transition(observations, actions, step.rewards, discounts, step.observations)
        )
        self.agent.begin_episodes(step.ended)
        self.summaries.stepped(step.rewards, step.ended, step.infos)
        self.steps += len(self.environments)
        beyond = self.steps - self.config.warmup_steps
        if beyond > 0:
            self.owed += self._ratio * min(beyond, len(self.environments))

    def _learn(self) -> None:
        """Pays updates in one call of the train body."""
        updates = self.config.updates_per_call
        with self._profile.call():
            metrics = self.agent.train(self.buffer, updates)
        self.summaries.learned(metrics)
        self.updates += updates
        self.owed -= updates

    def _due(self, every: int) -> bool:
        """Says whether a multiple of `every` steps was reached in this round; 0 is never."""
        return every > 0 and self.steps // every > (self.steps - len(self.environments)) // every

    def _evaluate(self) -> None:
        seeds = evaluation_seeds(self.config.evaluation_seed, self.config.evaluation_episodes)
        evaluation = evaluate(self.policy, self._evaluation_env, seeds)
        figures = evaluation.summary()
        score = figures["return_mean"]
        best = self.best
        if best is None or score > best[1]:
            best = (self.steps, score, self.agent.networks.policy_weights())
        improved, self.best = best is not self.best, best
        row = {"steps": self.steps, "updates": self.updates, "episodes": len(seeds), **figures}
        append_row(self.run.evaluations_path, row)
        self.summaries.evaluated(evaluation, best[1], self.steps)
        self.reporter.evaluated(self.steps, evaluation, improved)

    @property
    def policy(self) -> Policy:
        """The deterministic policy as it is now."""
        act = partial(self.agent.act, explore=False)
        return Policy(act, self.buffer.layout.observation_size, self.bounds, self.steps)

    def _record(self) -> None:
        """Records the first evaluation episode as it would be played now."""
        (seed,) = evaluation_seeds(self.config.evaluation_seed, 1)
        video = self.run.path / "videos" / f"step-{self.steps:012d}.mp4"
        try:
            self._camera.record(self.policy, seed, video)
        except RunError as error:  # no reason to end a run
            self.reporter.say(f"no video of step {self.steps}: {error}")

    def checkpoint(self) -> None:
        """Saves everything; what is not finite is reported and not saved."""
        continuation.save(self, self._checkpoints)

    def close(self) -> None:
        """Closes environments, their processes, and the event file."""
        self._opened.close()
