"""Converts and checks a policy in child processes.

It publishes the export only if every check passes.
"""

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
from eagerly.environments.factory import EnvironmentMaker
from eagerly.errors import RunError
from eagerly.export.c_examples import write_examples_of
from eagerly.export.calibration import calibrated
from eagerly.export.children import in_child
from eagerly.export.description import (
    description_of,
    facts_of,
    model_card,
    versions_of,
    write_document,
)
from eagerly.export.examples import (
    COUNT,
    LEAST_STEPS,
    Steps,
    acted,
    example_arrays,
    first_episodes,
    most_seeds,
    opened,
    played,
    spread,
    write_arrays,
)
from eagerly.export.formats import Format, format_of
from eagerly.export.staging import publish, replay, run_examples, staged
from eagerly.export.ties import without_ties
from eagerly.export.verification import TOLERANCES, exported_acted, judged, loss, summary
from eagerly.policies.network import ActorNetwork
from eagerly.policies.numpy_actor import NumpyActor, NumpyMemoryActor, numpy_actor
from eagerly.policies.policy import Policy
from eagerly.spaces import Actions, Observations
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
    """An export that was checked.

    Attributes:
        path: Its directory.
        format, precision: What it is.
        which, steps: Which policy of the run, and after how many environment steps.
        files: Bytes of each file, by name.
        measured: What was measured, as in `policy.json`: differences and returns.
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
    trust: bool = False,
) -> Exported:
    """Writes the policy of a run as files that act without eagerly, and checks them.

    The directory appears when everything in it is written and checked. Whatever fails before, a
    signal included, leaves nothing behind. docs/export.md describes its contents.

    Args:
        run_dir: The run directory.
        format: One of `FORMATS`.
        precision: "float32", "float16" or "int8". Integers of a policy that was not trained with
            them are calibrated on observations of the replay buffer.
        which: "best" or "latest", as `load_policy` takes it.
        out: The directory to be made.
        episodes: How many are played with the policy and with the export, from the run's
            evaluation seeds; 0 for none, None for 20, or 5 in float32.
        trust: Whether to import what the run directory names, as `load_policy` takes it.

    Raises:
        RunError: If the run has no such policy, the format cannot hold it, a package is missing,
            the directory exists, or a check fails.
    """
    kind, out = format_of(format, precision), Path(out)
    if os.path.lexists(out):
        raise RunError(f"{out} exists already: choose another --out, or remove it")
    kind.check_installed()
    run = open_run(Path(run_dir), None, {}, trust=trust)
    _check_built_in(run)
    policy = policy_of(run, which)
    network = _network(policy, kind, format, precision)
    make = run.environment()
    if trust:
        run.trust()
    if episodes is None:
        episodes = EPISODES[precision]
    try:
        with terminated_by_signals():
            plan = _Plan(run, policy, network, make, kind, format, precision, episodes)
            # Nothing is on disk while environments are called here, which may end the process.
            examples, exported = plan.examples(), plan.quantized()
            with staged(out) as folder:
                return plan.carried_out(folder, out, exported, *examples)
    except OSError as error:
        raise RunError(f"{out} cannot be written: {error}") from error
    except (ValueError, FloatingPointError) as error:
        raise RunError(str(error)) from error


def _check_built_in(run: Run) -> None:
    config = run.agent_config
    if run.agent_module is not None or config.actor or config.models:
        raise RunError(
            "models and agents of your own act through TensorFlow and cannot be exported, only "
            "built-in actors: save yours with Keras, model.export(folder)"
        )


def _network(policy: Policy, kind: Format, format: str, precision: str) -> ActorNetwork:
    """Returns the network of a policy that can be exported.

    Raises:
        RunError: If it cannot, in a sentence.
    """
    if not isinstance(policy.actor, NumpyActor | NumpyMemoryActor):
        raise RunError(f"only built-in actors can be exported; this is a {type(policy.actor)}")
    network = policy.actor.network
    if reason := kind.refusal(network.architecture, precision):
        raise RunError(reason)
    return network


@dataclass(frozen=True)
class _Plan:
    """What is exported, and how."""

    run: Run
    policy: Policy
    network: ActorNetwork
    make: EnvironmentMaker
    kind: Format
    format: str
    precision: str
    episodes: int

    @property
    def layout(self) -> tuple[Observations, Actions]:
        spaces = self.policy.observation_space, self.policy.action_space
        layout: tuple[Observations, Actions] = self.run.agent_config.spaces(*spaces)
        return layout

    def carried_out(
        self,
        folder: Path,
        out: Path,
        network: ActorNetwork,
        steps: Steps,
        before: Evaluation | None,
    ) -> Exported:
        """Writes everything into a folder, checks it and gives it its name.

        Args:
            folder: The folder.
            out: What it is called in the end.
            network: What `quantized` returned.
            steps: What `examples` returned.
            before: The policy's own episodes.
        """
        about = self._written(folder, network, steps)
        _log.info("checking %s examples%s", len(steps), self._and_episodes())
        measured = self._checked(folder, network, before)
        about |= {"measured": measured}
        card = model_card(about, self.kind, out.name)
        (folder / "MODEL_CARD.md").write_text(card, encoding="utf-8")
        about = write_document(folder, about)
        replay(folder)
        if self.kind.compiles:
            run_examples(folder)
        files = {name: found["bytes"] for name, found in about["files"].items()}
        files["policy.json"] = (folder / "policy.json").stat().st_size
        publish(folder, out)
        return Exported(
            out, self.format, self.precision, self.policy.which, self.policy.steps, files, measured
        )

    def _and_episodes(self) -> str:
        return f" and playing {self.episodes} episodes" if self.episodes else ""

    def examples(self) -> tuple[Steps, Evaluation | None]:
        """Gathers observations, and plays the policy's own episodes."""
        _log.info("gathering observations%s", self._and_episodes())
        policy = self.policy
        replayed, least = None, LEAST_STEPS
        if not policy.remembers:
            replayed = replayed_rows(self.run, *self.layout, COUNT // 2)
            least = COUNT - len(replayed)
        seeds = evaluation_seeds(self.run.config.evaluation_seed, most_seeds(self.episodes))
        with opened(self.make, self.run, "the episodes of the policy") as env:
            steps, before = played(policy, env, seeds, self.episodes, least, self.layout)
        if replayed is None:
            return first_episodes(steps), before
        rows = np.concatenate([replayed, spread(steps.rows, COUNT - len(replayed))])
        count = len(rows)
        return Steps(rows, np.zeros(count, np.float32), np.zeros(count, bool)), before

    def quantized(self) -> ActorNetwork:
        """Returns the network that is exported: on integers, where these are asked for."""
        if self.precision != "int8":
            return self.network
        if self.network.architecture.quantized:
            return without_ties(self.network)
        rows = replayed_rows(self.run, *self.layout, CALIBRATION_ROWS)
        if not len(rows):
            raise RunError(
                "int8 is calibrated on observations of the replay buffer, and the checkpoint has "
                "none: train with --quantize int8, or export in float32"
            )
        return without_ties(calibrated(self.network, NumpyActor(self.network).scaled(rows)))

    def _written(self, folder: Path, network: ActorNetwork, steps: Steps) -> dict[str, Any]:
        """Writes the model, the examples, the runner and `policy.json`."""
        observations, actions = self.layout
        count = actions.continuous
        low, high = (end[:count].astype(np.float64) for end in (actions.low, actions.high))
        scores, memory = acted(numpy_actor(network.architecture, network.weights), actions, steps)
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
            **description_of(network, self.layout, model),
            "run": facts_of(self.run, self.policy),
            "tolerance": TOLERANCES[self.precision],
            "versions": versions_of(self.kind),
        }
        return write_document(folder, about)

    def _banner(self) -> str:
        text = (
            f"{self.run.agent} on {self.run.config.env}, the {self.policy.which} policy after "
            f"{self.policy.steps} steps, exported by eagerly {__version__}"
        )
        return re.sub(r"[^\w .,:+/-]|\*/|//", "?", text, flags=re.ASCII)

    def _checked(
        self,
        folder: Path,
        network: ActorNetwork,
        before: Evaluation | None,
    ) -> dict[str, Any]:
        """Lets the files that are there act, and compares.

        Raises:
            RunError: If a difference is larger than allowed.
        """
        seeds = evaluation_seeds(self.run.config.evaluation_seed, self.episodes)
        found, after = in_child(
            "the exported policy",
            exported_acted,
            folder,
            self.policy,
            self.make,
            self.run,
            seeds,
            # Environments may need a GPU; a SavedModel must not find one.
            processor_alone=self.format == "saved-model",
        )
        measured = judged(folder, found, self.layout, network, self.network, self.precision)
        returns = None
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
