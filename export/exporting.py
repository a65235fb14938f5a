"""Converts and checks a policy in child processes, and publishes it only if every check passes."""

from __future__ import annotations

import importlib
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from eagerly import __version__
from eagerly.environments.factory import EnvironmentMaker, environment_name
from eagerly.errors import RunError
from eagerly.export.c_examples import write_examples_of
from eagerly.export.calibration import calibrated
from eagerly.export.children import in_child
from eagerly.export.description import (
    CARD,
    description_of,
    facts_of,
    model_card,
    versions_of,
    write_document,
)
from eagerly.export.episodes import layout_in, max_seeds, open_environment, play_episodes
from eagerly.export.examples import (
    COUNT,
    MIN_STEPS,
    Layout,
    Steps,
    example_arrays,
    score_steps,
    spread,
    take_first_episodes,
    write_arrays,
)
from eagerly.export.formats import Format, format_of
from eagerly.export.staging import check_writable, publish, replay, run_examples, staged
from eagerly.export.ties import without_ties
from eagerly.export.verification import TOLERANCES, compare, loss, run_export, summary
from eagerly.policies.network import ActorNetwork
from eagerly.policies.numpy_actor import NumpyActor, NumpyMemoryActor, numpy_actor
from eagerly.policies.policy import Policy
from eagerly.storage.loading import policy_of
from eagerly.storage.replayed import replayed_rows
from eagerly.storage.run import Run, open_run
from eagerly.training.evaluation import Evaluation, evaluation_seeds
from eagerly.training.signals import terminated_by_signals

_log = logging.getLogger(__name__)
CALIBRATION_ROWS = 10_000
EPISODES = {"float32": 5, "float16": 20, "int8": 20}


@dataclass(frozen=True)
class Exported:
    """A checked export.

    Attributes:
        path: Its directory.
        format, precision: Its format and precision.
        which, steps: Which policy of the run it is, and after how many environment steps.
        files: Bytes of each file, by name.
        measured: The differences and returns, as in `policy.json`.
    """

    path: Path
    format: str
    precision: str
    which: str
    steps: int
    files: dict[str, int]
    measured: dict[str, Any]


def export_policy(
    run_dir: str | Path,
    *,
    format: str,
    precision: str = "float32",
    which: str | None = None,
    out: str | Path,
    episodes: int | None = None,
    settings: Mapping[str, Any] | None = None,
    trust: bool = False,
) -> Exported:
    """Writes the policy of a run as files that act without eagerly, and checks them.

    The directory appears once everything in it is written and checked. If anything fails before, or
    a signal arrives, nothing is left behind. docs/export.md describes its contents.

    The environment of the run is played to gather examples and to compare returns. With
    `episodes=0`, and 1000 observations in the replay buffer, it is not needed unless the policy has
    a memory.

    Args:
        run_dir: The run directory.
        format: One of `FORMATS`.
        precision: "float32", "float16" or "int8". A policy that was not trained with `quantize` is
            calibrated for int8 on observations of the replay buffer.
        which: "best" or "latest", as in `load_policy`.
        out: The directory to create.
        episodes: How many episodes are played with the policy and with the export, from the run's
            evaluation seeds; 0 for none, None for 20, or 5 in float32.
        settings: The environment's factory, if that was given in Python, as `{"env": factory}`.
        trust: Whether to import what the run directory names, as in `load_policy`.

    Raises:
        RunError: If the run has no such policy, the format does not support it, a package is
            missing, the directory exists or cannot be written, the environment fails, or a check
            fails.
    """
    kind, out = format_of(format, precision), Path(out)
    if os.path.lexists(out):
        raise RunError(f"{out} exists already: choose another --out, or remove it")
    kind.check_installed()
    run = open_run(Path(run_dir), None, settings or {}, trust=trust)
    _check_built_in(run)
    policy = policy_of(run, which)
    network = _network(policy, kind, format, precision)
    if episodes is None:
        episodes = EPISODES[precision]
    plan = _Plan(run, policy, network, kind, format, precision, episodes, trust)
    try:
        with terminated_by_signals():
            check_writable(out)
            # The watchdog of an environment may end the process: nothing is on disk until then.
            replayed = plan.read_replay()
            exported = plan.quantize(replayed)
            gathered = plan.gather(replayed)
            with staged(out) as folder:
                return plan.write(folder, out, exported, gathered)
    except OSError as error:
        raise RunError(f"{out} cannot be written: {error}") from error
    except (ValueError, FloatingPointError) as error:
        raise RunError(str(error)) from error


def _check_built_in(run: Run) -> None:
    config = run.agent_config
    if run.agent_module is not None or config.actor or config.models:
        raise RunError(
            "only built-in actors can be exported; models and agents of your own act through "
            "TensorFlow: export yours with Keras, model.export(folder)"
        )


def _network(policy: Policy, kind: Format, format: str, precision: str) -> ActorNetwork:
    """Returns the network of a policy.

    Raises:
        RunError: If the format does not support it.
    """
    if not isinstance(policy.actor, NumpyActor | NumpyMemoryActor):
        raise RunError(f"only built-in actors can be exported; this is a {type(policy.actor)}")
    network = policy.actor.network
    if reason := kind.load().refusal(network.architecture, precision):
        raise RunError(reason)
    return network


@dataclass(frozen=True)
class _Gathered:
    """The examples, and the policy's own episodes.

    Attributes:
        steps: The examples.
        layout: The layout of observations and actions.
        evaluation: The episodes of the policy; None if there are none.
        make: Makes the environment; None if none was needed.
    """

    steps: Steps
    layout: Layout
    evaluation: Evaluation | None = None
    make: EnvironmentMaker | None = None


@dataclass(frozen=True)
class _Plan:
    """An export as it was asked for; each method is a stage of it."""

    run: Run
    policy: Policy
    network: ActorNetwork
    kind: Format
    format: str
    precision: str
    episodes: int
    trust: bool

    def read_replay(self) -> np.ndarray:
        """Reads observations `[n, O]` of the replay buffer, for examples and for calibration."""
        if self.policy.remembers:  # its examples are whole episodes
            return np.zeros((0, self.policy.observation_size), np.float32)
        count = CALIBRATION_ROWS if self._calibrates else COUNT
        return replayed_rows(self.run, *self._layout(), count)

    def quantize(self, replayed: np.ndarray) -> ActorNetwork:
        """Returns the network to export: of integers for int8, the policy's own otherwise.

        Args:
            replayed: The result of `read_replay`.
        """
        if self.precision != "int8":
            return self.network
        if not self._calibrates:
            return without_ties(self.network)
        if not len(replayed):
            raise RunError(
                "int8 is calibrated on observations of the replay buffer, and the checkpoint has "
                "none: train with --quantize int8, or export in float32"
            )
        rows = NumpyActor(self.network).scaled(replayed)
        return without_ties(calibrated(self.network, rows))

    def gather(self, replayed: np.ndarray) -> _Gathered:
        """Gathers the examples, and plays the policy's own episodes.

        Args:
            replayed: The result of `read_replay`.
        """
        layout, rows, min_steps = self._layout(), None, MIN_STEPS
        if not self.policy.remembers:
            all_of_them = not self.episodes and len(replayed) >= COUNT
            rows = spread(replayed, COUNT if all_of_them else COUNT // 2)
            min_steps = COUNT - len(rows)
            if not len(rows):
                _log.warning(
                    "%s has no replay buffer: all examples are observations of the policy's own "
                    "episodes",
                    self.run.path,
                )
        steps = evaluation = make = None
        if self.episodes or min_steps:
            make = self.run.environment()
            _log.info("gathering observations%s", self._and_episodes())
            seeds = evaluation_seeds(self.run.config.evaluation_seed, max_seeds(self.episodes))
            with open_environment(make, self.run, "the episodes of the policy") as env:
                layout = layout_in(env, self.run, layout)
                steps, evaluation = play_episodes(
                    self.policy, env, seeds, self.episodes, min_steps, layout
                )
        if self.trust:
            self.run.trust()
        if rows is None:
            assert steps is not None
            return _Gathered(take_first_episodes(steps), layout, evaluation, make)
        if steps is not None:
            rows = np.concatenate([rows, spread(steps.rows, min_steps)])
        count = len(rows)
        examples = Steps(rows, np.zeros(count, np.float32), np.zeros(count, bool))
        return _Gathered(examples, layout, evaluation, make)

    def write(
        self, folder: Path, out: Path, network: ActorNetwork, gathered: _Gathered
    ) -> Exported:
        """Writes everything into a folder, checks it and renames it.

        Args:
            folder: The folder.
            out: Its final name.
            network: The result of `quantize`.
            gathered: The result of `gather`.
        """
        about = self._write_files(folder, network, gathered)
        _log.info("checking %s examples%s", len(gathered.steps), self._and_episodes())
        measured = self._check(folder, network, gathered)
        about |= {"measured": measured}
        card = model_card(about, self.kind, out.name)
        (folder / CARD).write_text(card, encoding="utf-8")
        write_document(folder, about)
        replay(folder)
        if self.kind.compiles:
            run_examples(folder)
        files = {
            path.relative_to(folder).as_posix(): path.stat().st_size
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }
        publish(folder, out)
        return Exported(
            out, self.format, self.precision, self.policy.which, self.policy.steps, files, measured
        )

    @property
    def _calibrates(self) -> bool:
        return self.precision == "int8" and not self.network.architecture.quantized

    def _layout(self) -> Layout:
        spaces = self.policy.observation_space, self.policy.action_space
        layout: Layout = self.run.agent_config.spaces(*spaces)
        return layout

    def _and_episodes(self) -> str:
        return f" and playing {self.episodes} episodes" if self.episodes else ""

    def _write_files(
        self, folder: Path, network: ActorNetwork, gathered: _Gathered
    ) -> dict[str, Any]:
        """Writes the model, the examples, the runner and `policy.json`."""
        steps, (observations, actions) = gathered.steps, gathered.layout
        count = actions.continuous
        low, high = (end[:count].astype(np.float64) for end in (actions.low, actions.high))
        actor = numpy_actor(network.architecture, network.weights)
        scores, memory = score_steps(actor, actions, steps)
        arrays = example_arrays(steps, scores, memory, observations, actions)
        more = {"low": low, "high": high, "banner": self._banner()}
        _log.info("converting to %s, %s", self.kind.title, self.precision)
        asked = (self.kind.module, network, self.precision, folder, more)
        model = in_child("the conversion", _convert, *asked, processor_alone=True)
        model = {"format": self.format, "precision": self.precision, **model}
        write_arrays(folder / "examples.npz", arrays)
        if self.kind.compiles:
            write_examples_of(network, folder, steps.rows, arrays["action"], low, high)
        code = resources.files("eagerly.export").joinpath("runner.py").read_bytes()
        (folder / "runner.py").write_bytes(code)
        about = {
            **description_of(network, gathered.layout, model),
            "run": facts_of(self.run, self.policy),
            "tolerance": TOLERANCES[self.precision],
            "versions": versions_of(self.kind),
        }
        return write_document(folder, about)

    def _banner(self) -> str:
        text = (
            f"{self.run.agent} on {environment_name(self.run.config.env)}, the "
            f"{self.policy.which} policy after {self.policy.steps} steps, exported by eagerly "
            f"{__version__}"
        )
        return re.sub(r"[^\w .,:+/-]|\*/|//", "?", text, flags=re.ASCII)

    def _check(self, folder: Path, network: ActorNetwork, gathered: _Gathered) -> dict[str, Any]:
        """Runs the files of the export in a child process, and compares.

        Raises:
            RunError: If a difference is larger than allowed.
        """
        seeds = evaluation_seeds(self.run.config.evaluation_seed, self.episodes)
        found, after = in_child(
            "the exported policy",
            run_export,
            folder,
            self.policy,
            gathered.make,
            self.run,
            seeds,
            # Environments may need a GPU; a SavedModel must not find one.
            processor_alone=self.format == "saved-model",
        )
        measured = compare(folder, found, gathered.layout, network, self.network, self.precision)
        returns, before = None, gathered.evaluation
        if before is not None:
            returns = {"policy": summary(before), "exported": summary(after)}
            if (lost := loss(before, after)) is not None:
                _log.warning("%s", lost)
        return measured | {"returns": returns}


def _convert(
    module: str, network: ActorNetwork, precision: str, folder: Path, more: Mapping[str, Any]
) -> dict[str, Any]:
    convert = importlib.import_module(module).convert
    found: dict[str, Any] = convert(network, precision, folder, **more)
    return found
