"""Prepares an export before files are written: quantizes the network and gathers examples."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from eagerly.buffers import Replay
from eagerly.environments.factory import EnvironmentMaker
from eagerly.errors import RunError, UsageError
from eagerly.export.calibration import calibrated
from eagerly.export.examples import (
    COUNT,
    IMAGE_COUNT,
    MIN_STEPS,
    Layout,
    Steps,
    spread,
    take_first_episodes,
)
from eagerly.export.formats import Format
from eagerly.export.played_episodes import layout_in, max_seeds, open_environment, play_episodes
from eagerly.export.raw_observations import Repeated, repeated
from eagerly.export.ties import without_ties
from eagerly.policies.network import ActorNetwork
from eagerly.policies.numpy_actor import NumpyActor
from eagerly.policies.policy import Policy
from eagerly.storage.replayed import actor_columns, replayed_rows
from eagerly.storage.run import Run
from eagerly.training.evaluation import Evaluation, evaluation_seeds

_log = logging.getLogger(__name__)
CALIBRATION_ROWS = 10_000
WITHOUT_ENVIRONMENT = "custom training loop"  # in place of the name of an environment
EPISODES = {"float32": 5, "float16": 20, "int8": 20}


@dataclass(frozen=True)
class Gathered:
    """The examples, and the evaluation of the policy.

    Attributes:
        steps: The examples.
        layout: The layout of observations and actions.
        evaluation: The policy's evaluation; None without episodes.
        make: The factory of environments with raw observations; None if no environment is needed.
    """

    steps: Steps
    layout: Layout
    evaluation: Evaluation | None = None
    make: EnvironmentMaker | None = None


@dataclass(frozen=True)
class ExportPlan:
    """A requested export.

    Attributes:
        run: The run.
        policy: The policy to export.
        network: The network of the policy.
        kind: The format.
        format: The name of the format.
        precision: The precision.
        episodes: Number of episodes to play with the policy, and again with the export.
        buffer: The replay buffer of an agent, if given.
    """

    run: Run
    policy: Policy
    network: ActorNetwork
    kind: Format
    format: str
    precision: str
    episodes: int
    buffer: Replay | None = None

    def read_replay(self) -> np.ndarray:
        """Reads observations `[n, O]` of the replay buffer, for examples and calibration.

        Returns no rows for images, an agent or run without a replay buffer, or a policy whose
        examples are whole episodes: a recurrent policy, or one whose preprocessing the runner
        repeats. A run's replay buffer that cannot be read also yields no rows, unless calibration
        needs it.

        Raises:
            RunError: If calibration needs the replay buffer and it cannot be read.
        """
        size = self.policy.observation_size
        if self.buffer is not None and not (self.policy.remembers or self._has_images):
            buffer, count = self.buffer, CALIBRATION_ROWS if self._calibrates else COUNT
            first = buffer.oldest if buffer.added > buffer.permanent else 0
            numbers = spread(np.arange(first, buffer.added), count)
            rows = np.concatenate([buffer.rows(number, number + 1) for number in numbers])
            return actor_columns(buffer.layout, rows, size)
        # Rows with images contain only the newest frames.
        is_unused = self._has_images or (self._in_episodes and not self._calibrates)
        if self.run.is_new or is_unused:
            return np.zeros((0, size), np.float32)
        if self._calibrates:
            return replayed_rows(self.run, *self._spaces(), CALIBRATION_ROWS)
        try:
            rows = replayed_rows(self.run, *self._spaces(), COUNT)
            why = f"{self.run.path} has no replay buffer"
        except RunError as error:  # the policy can be exported without a replay buffer
            rows, why = np.zeros((0, size), np.float32), str(error)
        if not len(rows):
            _log.warning("%s: all examples come from episodes of the policy", why)
        return rows

    def find_environment(self, replayed: np.ndarray) -> EnvironmentMaker | None:
        """Returns the environment factory, or None if no environment is needed.

        An environment is needed to play episodes, or if the replay buffer has too few examples.

        Args:
            replayed: The result of `read_replay`.

        Raises:
            RunError: If the run's environment does not exist, or its name refers to untrusted code.
                Also if a run with `hardware` needs its environment, but has no `episodes`.
        """
        has_none = self.run.config.env == WITHOUT_ENVIRONMENT
        if has_none or (not self.episodes and len(replayed) >= COUNT and not self._in_episodes):
            return None
        if self.run.config.hardware and not self.episodes:
            needed = (
                f"{COUNT:,} observations, of which its replay buffer provides {len(replayed):,}"
            )
            if self._in_episodes:
                needed = "whole episodes"
            raise UsageError(
                f"{self.run.path} was trained with --hardware, and the checks of this export need "
                f"{needed}: pass --episodes N, with N of at least 1, which moves the machine"
            )
        return self.run.evaluation_environment()

    def quantize(self, replayed: np.ndarray) -> ActorNetwork:
        """Returns the network to export: quantized without ties for int8, otherwise unchanged.

        Args:
            replayed: The result of `read_replay`.

        Raises:
            RunError: If there are no observations for int8 calibration.
            ValueError: If an observation is not finite.
        """
        if self.precision != "int8":
            return self.network
        if not self._calibrates:
            return without_ties(self.network)
        if not len(replayed):
            raise RunError(
                "int8 calibration requires observations from a replay buffer; got none: train with "
                "--quantize int8, or export in float32"
            )
        rows = NumpyActor(self.network).scaled(replayed)
        return without_ties(calibrated(self.network, rows))

    def gather(self, replayed: np.ndarray, make: EnvironmentMaker | None) -> Gathered:
        """Gathers the examples and evaluates the policy.

        Args:
            replayed: The result of `read_replay`.
            make: The result of `find_environment`.

        Raises:
            RunError: If the environment fails.
        """
        (observations, actions), policy = self._spaces(), self.policy
        layout: Layout = observations.actor, actions
        if make is None:
            return Gathered(_unordered(spread(replayed, COUNT)), layout)
        _log.info("gathering observations%s", self.and_episodes())
        rows = spread(replayed, COUNT // 2)
        min_steps = IMAGE_COUNT if self._has_images else COUNT - len(rows)
        if self._in_episodes:
            min_steps = MIN_STEPS
        seeds = evaluation_seeds(self.run.config.evaluation_seed, max_seeds(self.episodes))
        recorded = self.repeated.recorded(make)
        with open_environment(recorded, self.run, "while playing episodes with the policy") as env:
            layout = layout_in(env, self.run, layout)
            limit = self.run.config.evaluation_steps_limit
            steps, evaluation = play_episodes(
                policy, env, seeds, self.episodes, min_steps, layout, limit
            )
        if self._in_episodes:
            steps = take_first_episodes(steps)
        else:
            steps = _unordered(np.concatenate([rows, spread(steps.rows, min_steps)]))
        return Gathered(steps, layout, evaluation, self.repeated.raw(make))

    def and_episodes(self) -> str:
        """Returns a message suffix: " and playing 5 episodes", or an empty string."""
        return f" and playing {self.episodes} episodes" if self.episodes else ""

    @cached_property
    def repeated(self) -> Repeated:
        """The preprocessing of the run's wrappers that the runner repeats."""
        return repeated(self.run.settings()["wrapper"], self.policy.observation_space)

    @property
    def _in_episodes(self) -> bool:
        """Whether the policy acts in episodes, so that its examples are whole episodes."""
        return self.policy.remembers or bool(self.repeated.steps)

    @property
    def _has_images(self) -> bool:
        return bool(self.network.architecture.pixels.any())

    @property
    def _calibrates(self) -> bool:
        return self.precision == "int8" and not self.network.architecture.quantized

    def _spaces(self) -> Layout:
        """Returns the layouts of the run, also with entries that only critics see."""
        spaces = self.policy.observation_space, self.policy.action_space
        layout: Layout = self.run.agent_config.spaces(*spaces)
        return layout


def _unordered(rows: np.ndarray) -> Steps:
    """Wraps observations as steps without episodes, for a non-recurrent policy."""
    return Steps(rows, np.zeros(len(rows), np.float32), np.zeros(len(rows), bool))
