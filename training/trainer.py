"""The loop around an agent: act, step, store, learn; evaluate, summarise, checkpoint."""

from __future__ import annotations

import csv
from fractions import Fraction

import numpy as np

from eagerly.agents import agent_class
from eagerly.buffers import ReplayBuffer, Stream, Transition, seed_sequence
from eagerly.networks import ActionBounds, observation_size
from eagerly.training.checkpoints import Checkpoints, Manifest
from eagerly.training.conditions import conditions, differing, set_threads
from eagerly.training.environments import Environments, make_environment
from eagerly.training.errors import RunError
from eagerly.training.evaluation import (
    evaluate,
    evaluation_seeds,
    single_blas_thread,
)
from eagerly.training.interruption import StopSignals
from eagerly.training.reporting import Reporter
from eagerly.training.run_directory import Run
from eagerly.training.summaries import Summaries


class Trainer:
    """Trains the agent of a run, from its beginning or from its newest checkpoint.

    Args:
        run: The run, as `open_run` returned it.
        reporter: Hears what happens.

    Attributes:
        steps: Environment steps done, counting every environment.
        agent: The agent.
        buffer: The replay buffer.

    Raises:
        RunError: If the environment is not supported or the run cannot be continued.
    """

    def __init__(self, run: Run, reporter: Reporter | None = None) -> None:
        self.run = run
        self.config = config = run.config
        self.reporter = reporter or Reporter()
        set_threads(config.intra_op_threads, config.inter_op_threads, self.reporter.say)
        self.environments = Environments(config.env, config.num_envs, config.seed)
        self._evaluation_env = make_environment(config.env)
        spaces = self.environments.observation_space, self.environments.action_space
        try:
            self.bounds = ActionBounds(spaces[1])
            sizes = observation_size(spaces[0]), self.bounds.size
        except ValueError as error:
            raise RunError(f"environment {config.env!r} is not supported: {error}") from error
        self.agent = agent_class(run.agent)(*spaces, run.agent_config, seed=config.seed)
        self.buffer = ReplayBuffer(
            config.replay_capacity, *sizes, seed=seed_sequence(config.seed, Stream.SAMPLING)
        )
        self._warmup = np.random.Generator(
            np.random.PCG64(seed_sequence(config.seed, Stream.WARMUP))
        )
        self._ratio = Fraction(str(config.replay_ratio)).as_integer_ratio()
        self.steps = 0
        self.updates = 0
        self.best: tuple[int, float, dict[str, np.ndarray]] | None = None
        self._checkpoints = Checkpoints(run.path, config.keep_checkpoints)
        manifest = None if run.is_new else self._checkpoints.newest_intact(self.reporter.say)
        if manifest:
            lost = self._restore(manifest)
        else:
            self.environments.start()
        # Until here nothing on disk was touched: what cannot be continued stays as it was.
        run.write()
        self._checkpoints.cut_back(manifest)
        self.summaries = Summaries(run.path, config.num_envs)
        if manifest:
            self.summaries.restore(manifest.state["summaries"], lost)
        else:
            self.summaries.describe(run.settings(), self.agent.graph())

    def train(self) -> StopSignals:
        """Runs until the run has its steps, or a signal asks to stop; then saves.

        Returns:
            The signals, whose `received` says which one asked.

        Raises:
            RunError: If something is NaN or infinite, naming it and the step. The newest
                checkpoint stays the last one before it.
        """
        self.summaries.begin(self.steps, self.updates)
        with StopSignals() as signals, single_blas_thread():
            try:
                while self.steps < self.config.steps and not signals.received:
                    self._round()
                self.checkpoint()
            except FloatingPointError as error:
                raise RunError(
                    f"stopped after step {self.steps}: {error}. No checkpoint was written from it."
                ) from error
        return signals

    def _round(self) -> None:
        """Steps every environment once, pays the updates owed, and does what is due."""
        self._collect()
        self._learn()
        if self._due(self.config.evaluate_every_steps):
            self._evaluate()
        if self._due(self.config.summarize_every_steps):
            self.summaries.write(self.steps, self.updates)
        if self._due(self.config.checkpoint_every_steps):
            self.checkpoint()
        self.reporter.stepped(self.steps)

    def _collect(self) -> None:
        observations = self.environments.observations
        if self.steps < self.config.warmup_steps:
            shape = len(self.environments), self.bounds.size
            actions = self._warmup.uniform(-1.0, 1.0, shape).astype(np.float32)
        else:
            actions = self.agent.act(observations, explore=True)
        step = self.environments.step(self.bounds.to_environment(actions))
        # Truncated episodes go on, as far as values are concerned: only termination is final.
        discounts = self.config.discount * ~step.terminated
        self.buffer.add(
            Transition(observations, actions, step.rewards, discounts, step.observations)
        )
        self.summaries.stepped(step.rewards, step.terminated | step.truncated)
        self.steps += len(self.environments)

    def _learn(self) -> None:
        """Pays the updates owed, `replay_ratio` per step since the warm-up, in calls of K."""
        numerator, denominator = self._ratio
        earned = numerator * max(0, self.steps - self.config.warmup_steps) // denominator
        owed = earned - self.updates
        while owed >= self.config.updates_per_call:
            self.summaries.learned(self.agent.train(self.buffer, self.config.updates_per_call))
            self.updates += self.config.updates_per_call
            owed -= self.config.updates_per_call

    def _due(self, every: int) -> bool:
        """Says whether a multiple of `every` steps was reached in this round."""
        return self.steps // every > (self.steps - len(self.environments)) // every

    def _evaluate(self) -> None:
        seeds = evaluation_seeds(self.config.evaluation_seed, self.config.evaluation_episodes)
        evaluation = evaluate(
            lambda observations: self.agent.act(observations, explore=False),
            self._evaluation_env,
            seeds,
        )
        figures = evaluation.summary()
        best = self.best is None or figures["return_mean"] > self.best[1]
        if best:
            self.best = (self.steps, figures["return_mean"], self.agent.policy_weights())
        row = {"steps": self.steps, "updates": self.updates, "episodes": len(seeds), **figures}
        path = self.run.evaluations_path
        with path.open("a", newline="", encoding="utf-8") as file:
            table = csv.DictWriter(file, row)
            if not file.tell():
                table.writeheader()
            table.writerow(row)
        self.summaries.evaluated(evaluation, self.steps)
        self.reporter.evaluated(self.steps, evaluation, best)

    def checkpoint(self) -> None:
        """Saves everything; what is not finite is reported and not saved."""
        episodes = self.environments.state()
        arrays = {f"actions_{i}": actions for i, actions in enumerate(episodes["actions"])}
        growing = self.summaries.flush()
        if self.run.evaluations_path.exists():
            growing.append(self.run.evaluations_path)
        self._checkpoints.save(
            steps=self.steps,
            write_networks=self.agent.save,
            policy=self.agent.policy_weights(),
            best=(self.best[0], self.best[2]) if self.best else None,
            buffer=self.buffer,
            episodes={"observations": episodes["observations"], **arrays},
            growing=growing,
            state={
                "episodes": episodes["episodes"],
                "best": self.best[:2] if self.best else None,
                "summaries": self.summaries.state(),
                "random": {
                    "exploration": self.agent.random_state,
                    "sampling": self.buffer.random_state,
                    "warmup": dict(self._warmup.bit_generator.state),
                },
            },
            conditions=conditions(),
        )

    def close(self) -> None:
        """Closes environments and event file."""
        self.environments.close()
        self._evaluation_env.close()
        self.summaries.close()

    def _restore(self, manifest: Manifest) -> list[int]:
        """Takes over a checkpoint; returns the environments that had to begin a fresh episode."""
        state = manifest.state
        arrays = self._checkpoints.arrays(manifest, "episodes")
        episodes = {
            "episodes": state["episodes"],
            "actions": [arrays[f"actions_{i}"] for i in range(len(state["episodes"]))],
            "observations": arrays["observations"],
        }
        try:
            self.agent.restore(self._checkpoints.networks_prefix(manifest))
            self._checkpoints.restore_buffer(manifest, self.buffer)
            lost = self.environments.restore(episodes)
        except ValueError as error:
            raise RunError(f"what was saved does not fit the settings: {error}") from error
        self.steps, self.updates = manifest.steps, self.agent.updates
        self.agent.random_state = state["random"]["exploration"]
        self.buffer.random_state = state["random"]["sampling"]
        self._warmup.bit_generator.state = state["random"]["warmup"]
        if state["best"]:
            self.best = (*state["best"], self._checkpoints.best_policy(manifest))
        changed = differing(manifest.conditions, conditions())
        if changed:
            self.reporter.say(
                "continued, but the last bits may differ from a run that never stopped: "
                + "; ".join(changed)
            )
        if lost:
            self.reporter.say(
                f"environments {lost} did not come back to where they were: they began a fresh "
                "episode, and the run differs from one that never stopped"
            )
        return lost
