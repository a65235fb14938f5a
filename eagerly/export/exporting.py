"""Converts and checks a policy in child processes, and publishes it only if every check passes."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eagerly.agents import agent_name
from eagerly.buffers import Replay
from eagerly.environments.factory import environment_name
from eagerly.errors import RunError, UsageError
from eagerly.export import runner
from eagerly.export.c_examples import write_examples_of
from eagerly.export.c_source import plain
from eagerly.export.children import in_child
from eagerly.export.examples import example_arrays, score_steps, write_arrays
from eagerly.export.formats import Format, format_of
from eagerly.export.model_card import CARD, after, model_card
from eagerly.export.plan import EPISODES, WITHOUT_ENVIRONMENT, ExportPlan, Gathered
from eagerly.export.policy_document import (
    description_of,
    facts_of,
    preprocessing_of,
    versions_of,
    write_document,
)
from eagerly.export.staging import check_writable, publish, replay, run_examples, staged
from eagerly.export.verification import TOLERANCES, verify
from eagerly.policies.network import ActorNetwork
from eagerly.policies.numpy_actor import NumpyActor, NumpyMemoryActor
from eagerly.policies.policy import Policy
from eagerly.settings import with_tuples
from eagerly.storage.config import RunConfig
from eagerly.storage.loading import open_policy_run, policy_of
from eagerly.storage.run import Run
from eagerly.training.signals import terminated_by_signals
from eagerly.version import __version__

if TYPE_CHECKING:
    from eagerly.agents.agent import Agent

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Exported:
    """A checked export.

    Attributes:
        path: Its directory.
        format, precision: Its format and precision.
        which, steps: Which policy of the run was exported, and after how many environment steps.
        files: Size of each file in bytes, by name.
        measured: Differences and returns, as in `policy.json`.
    """

    path: Path
    format: str
    precision: str
    which: str
    steps: int
    files: dict[str, int]
    measured: dict[str, Any]


def export_policy(
    source: str | Path | Agent,
    *,
    format: str,
    precision: str = "float32",
    which: str | None = None,
    out: str | Path,
    episodes: int | None = None,
    buffer: Replay | None = None,
    trust: bool = False,
    **settings: Any,
) -> Exported:
    """Exports the policy of a run or an agent to files that run without eagerly, and checks them.

    The directory appears only after all of its files are written and checked. If anything fails
    before, or a signal arrives, no files remain. For the contents of the directory, see "Deploy a
    policy: LiteRT, ONNX or C" in the documentation.

    The environment is played to gather examples and to compare returns. It is not needed if
    `episodes` is 0, the run's replay buffer has 1,000 observations, and the policy is not
    recurrent. An agent from a custom loop needs no environment if its `buffer` is given.

    Args:
        source: The run directory, or an agent; an agent requires `env=` or `buffer=`.
        format: One of `FORMATS`.
        precision: "float32", "float16" or "int8". For int8, a policy that was trained without
            `quantize` is calibrated on observations of the replay buffer.
        which: "best" or "latest", as in `load_policy`.
        out: The directory to create.
        episodes: Number of episodes to play with the policy and again with the export, from the
            run's evaluation seeds. 0 skips this comparison; None means 20, or 5 in float32, or 0
            for an agent without `env` or a run with `hardware`, which never moves without
            `episodes`.
        buffer: The replay buffer of an agent, for examples and calibration.
        trust: Whether to import code that the run directory names, as in `load_policy`.
        **settings: For an agent, the environment as `env=...`, and optionally `env_kwargs=...`
            and `wrapper=[...]`. For a run that a Python program started with an environment factory
            or a function as wrapper, these objects.

    Raises:
        RunError: If the run has no such policy, the format does not support it, a package is
            missing, the directory exists or cannot be written, the environment fails, or a check
            fails.
    """
    kind, out = format_of(format, precision), Path(out)
    if os.path.lexists(out):
        raise UsageError(f"{out} already exists: choose another --out, or remove it")
    kind.check_installed()
    if which and not isinstance(source, str | Path):
        raise UsageError(
            f"which selects a policy of a run and must be None for an agent; got {which!r}"
        )
    if isinstance(source, str | Path):
        if buffer is not None:
            raise UsageError("buffer requires an agent: a run has its own replay buffer")
        run, saved = open_policy_run(Path(source), settings, trust=trust)
        policy = policy_of(run, which, saved)
    else:
        run, policy = _run_of(source, settings, buffer), source.as_policy()
        if not settings.get("env"):
            if episodes:
                raise UsageError(f"episodes requires env=...; got {episodes} without env")
            episodes = 0
    network = _network(policy, kind, precision)
    if episodes is None:
        episodes = 0 if run.config.hardware else EPISODES[precision]
    plan = ExportPlan(run, policy, network, kind, format, precision, episodes, buffer)
    try:
        with terminated_by_signals():
            check_writable(out)
            # Write nothing until the environment is closed: its watchdog may end this process.
            replayed = plan.read_replay()
            make = plan.find_environment(replayed)
            if trust and not run.is_new:
                run.trust()
            network = plan.quantize(replayed)
            gathered = plan.gather(replayed, make)
            with staged(out) as folder:
                return _write(plan, folder, out, network, gathered)
    except OSError as error:
        raise RunError(f"{out} cannot be written: {error}") from error
    except (ValueError, FloatingPointError) as error:
        raise RunError(str(error)) from error


def _run_of(agent: Agent, settings: Mapping[str, Any], buffer: Replay | None) -> Run:
    """Returns a run without a directory, with an agent's settings.

    Raises:
        RunError: If both environment and buffer are missing, the buffer cannot replace the
            environment, or a setting is unknown or invalid.
    """
    if buffer is not None and (buffer.layout != agent.layout or not buffer.added):
        raise UsageError("buffer must be a replay buffer of this agent with at least one row")
    if not settings.get("env"):
        in_episodes = agent.config.remembers or agent.observations.actor.images
        if buffer is None or in_episodes:
            what, instead = "agent", ", or pass buffer=... instead"
            if in_episodes:
                what, instead = "agent, which is recurrent or sees images,", ""
            raise UsageError(
                f"exporting this {what} requires its environment, which is played to collect "
                "examples: call export_policy(agent, env=..., ...) with an id, a class or a "
                f"function{instead}"
            )
        if settings.get("wrapper"):  # without an environment, the raw observations are unknown
            raise UsageError(f"wrapper requires env=...; got {settings['wrapper']} without env")
        settings = {**settings, "env": WITHOUT_ENVIRONMENT}
    try:
        config = RunConfig(**with_tuples({"seed": agent.seed, **settings}))
    except (TypeError, ValueError) as error:
        raise RunError(str(error)) from error
    kind = type(agent)
    try:
        name = agent_name(kind)
    except RunError:  # a class of a script or a function; an export does not import it by name
        name = kind.__name__
    return Run(Path(), name, config, agent.config, is_new=True)


def _network(policy: Policy, kind: Format, precision: str) -> ActorNetwork:
    """Returns the network of a policy.

    Raises:
        RunError: If the actor is not built in, or the format does not support it.
    """
    if not isinstance(policy.actor, NumpyActor | NumpyMemoryActor):
        raise UsageError(
            "only built-in actors can be exported, and this policy runs in TensorFlow: export its "
            "Keras model with eagerly.load_policy(run_dir).actor.model.export(folder), or see "
            '"Custom networks" in the documentation'
        )
    network: ActorNetwork = policy.actor.network
    if reason := kind.refusal(network.architecture, precision):
        raise UsageError(reason)
    return network


def _write(
    plan: ExportPlan, folder: Path, out: Path, network: ActorNetwork, gathered: Gathered
) -> Exported:
    """Writes all files to a staging folder, checks them and renames the folder to `out`.

    `network` and `gathered` are the results of `ExportPlan.quantize` and `ExportPlan.gather`.
    """
    about = _write_files(plan, folder, network, gathered)
    _log.info("checking %s examples%s", len(gathered.steps), plan.and_episodes())
    measured = about["measured"] = verify(plan, folder, network, gathered)
    (folder / CARD).write_text(model_card(about, plan.kind, out.name), encoding="utf-8")
    write_document(folder, about)
    replay(folder)
    if plan.kind.compiles:
        run_examples(folder)
    files = {
        path.relative_to(folder).as_posix(): path.stat().st_size
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    publish(folder, out)
    return Exported(
        out, plan.format, plan.precision, plan.policy.which, plan.policy.steps, files, measured
    )


def _write_files(
    plan: ExportPlan, folder: Path, network: ActorNetwork, gathered: Gathered
) -> dict[str, Any]:
    """Writes the model, the examples, the runner and `policy.json`."""
    steps, (observations, actions) = gathered.steps, gathered.layout
    low, high = (end.astype(np.float64) for end in (actions.low, actions.high))
    scores, memory = score_steps(network, actions, steps)
    arrays = example_arrays(steps, scores, memory, observations, actions)
    more = {"low": low, "high": high, "banner": _banner(plan), "entries": observations.entries}
    convert = partial(plan.kind.load().convert, **more)
    _log.info("converting to %s in %s", plan.kind.title, plan.precision)
    asked = network, plan.precision, folder
    model = in_child("the conversion", convert, *asked, cpu_only=True)
    model = {"format": plan.format, "precision": plan.precision, **model}
    write_arrays(folder / "examples.npz", arrays)
    if plan.kind.compiles:
        write_examples_of(network, folder, steps, arrays["action"], scores, low, high)
    (folder / "runner").mkdir()
    for module in Path(runner.__file__).parent.glob("*.py"):
        (folder / "runner" / module.name).write_bytes(module.read_bytes())
    about = {
        **description_of(network, gathered.layout, model),
        "run": facts_of(plan.run, plan.policy),
        "tolerance": TOLERANCES[plan.precision],
        "versions": versions_of(plan.kind),
    }
    if steps.raw is not None:
        about["preprocessing"] = preprocessing_of(plan.repeated.steps, steps.raw)
    return write_document(folder, about)


def _banner(plan: ExportPlan) -> str:
    """Returns the text at the top of generated code."""
    return plain(
        f"{plan.run.agent} on {environment_name(plan.run.config.env)}, the "
        f"{plan.policy.which} policy{after(plan.policy.steps)}, exported by eagerly "
        f"{__version__}"
    )
