"""Records episodes of a policy: `record.py runs/cheetah --episodes 10 -o data.hdf5`."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from tqdm import tqdm

from eagerly.errors import UsageError
from eagerly.scripts.commands import STEPS_LIMIT, WHICH, Command
from eagerly.scripts.flags import KEYWORDS
from eagerly.scripts.output import TRUST_HELP, Failure, echo, log_to_terminal
from eagerly.scripts.playing import check_kwargs, open_environment
from eagerly.storage.config import MOST_EPISODES
from eagerly.storage.evaluations import format_return
from eagerly.storage.files import RunFiles

if TYPE_CHECKING:
    import gymnasium

_FILES = (".hdf5", ".h5")


@click.command(cls=Command)
@click.argument("run_dir", type=click.Path(path_type=Path))
@click.option(
    "--episodes",
    type=click.IntRange(min=1, max=MOST_EPISODES),
    required=True,
    help="Number of episodes.",
)
@click.option(
    "--noise",
    type=click.FloatRange(min=0.0, max=10.0),
    default=0.0,
    help="Standard deviation of Gaussian noise on actions, in units of [-1, 1].",
)
@WHICH
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, help="Seed of the episodes and the noise."
)
@STEPS_LIMIT
@click.option(
    "--env-kwargs",
    type=KEYWORDS,
    metavar="JSON",
    default="{}",
    help="Keyword arguments of the environment, merged over --env-kwargs of the run.",
)
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    help="What to create: a file if the name ends in .hdf5 or .h5, a folder for Minari if it has "
    "no suffix. It must not exist.",
)
@click.option("--trust", is_flag=True, help=TRUST_HELP)
def main(**given: Any) -> None:
    """Record episodes of the policy of the run in RUN_DIR, in Minari's HDF5 layout.

    The same command records the same data. The file or folder appears when it is complete.
    """
    log_to_terminal()
    try:
        _record(**given)
    except (ValueError, FloatingPointError, OSError) as error:
        raise Failure(error) from error


def _record(
    *,
    run_dir: Path,
    episodes: int,
    noise: float,
    which: str | None,
    seed: int,
    steps_limit: int | None,
    env_kwargs: Any,
    out: Path,
    trust: bool,
) -> None:
    check_kwargs("env_kwargs", env_kwargs)
    from eagerly.datasets.minari import MAIN_FILE, METADATA_FILE, minari_writer
    from eagerly.export.staging import check_writable, publish, staged
    from eagerly.storage.loading import policy_of
    from eagerly.storage.run import open_run
    from eagerly.training.recording import NoisyPolicy, RecordingEnvironment, record_episodes
    from eagerly.training.signals import terminated_by_signals

    if not math.isfinite(noise):  # NaN is within every range
        raise UsageError(f"--noise must be in [0, 10]; got {noise}")
    if out.suffix not in ("", *_FILES):
        raise UsageError(
            f"-o must end in {' or '.join(_FILES)} for a file, or have no suffix for a folder in "
            f"Minari's layout; got {out}"
        )
    if os.path.lexists(out):
        raise UsageError(
            f"{out} must not exist, because recordings are never overwritten: choose another -o"
        )
    check_writable(out)
    run = open_run(run_dir, None, {}, trust=trust)
    make = run.environment()
    make = replace(make, kwargs={**make.kwargs, **env_kwargs})
    if trust:
        run.trust()
    policy = policy_of(run, which)
    steps_limit = steps_limit or run.config.evaluation_steps_limit
    with ExitStack() as opened:
        # Signals unwind the stack, so that no partial file or child process remains.
        opened.enter_context(terminated_by_signals())
        env = opened.enter_context(
            open_environment(run, make, "the recording", "Nothing was recorded.")
        )
        observations, actions = run.agent_config.spaces(env.observation_space, env.action_space)
        noisy = NoisyPolicy(policy, actions, noise, seed)
        folder = opened.enter_context(staged(out))
        spaces = observations.kept_space, env.action_space
        with (
            minari_writer(folder / MAIN_FILE, *spaces) as writer,
            tqdm(unit=" steps", disable=not sys.stderr.isatty(), leave=False) as bar,
        ):
            recorded = record_episodes(
                noisy,
                RecordingEnvironment(env, observations, actions),
                writer,
                episodes=episodes,
                seed=seed,
                steps_limit=steps_limit,
                watch=bar.update,
            )
        if out.suffix in _FILES:
            RunFiles(folder).sync(MAIN_FILE)
            _link(folder / MAIN_FILE, out)
            shutil.rmtree(folder)
        else:
            size = (folder / MAIN_FILE).stat().st_size
            metadata = writer.metadata(size, **_origin(run_dir, run.agent, env))
            RunFiles(folder).write(METADATA_FILE, [json.dumps(metadata, indent=2).encode()])
            publish(folder, out)
    if recorded.at_limit:
        echo(
            f"{recorded.at_limit} of {episodes} episodes were cut after {steps_limit} steps and "
            "recorded as truncated",
            err=True,
        )
    figures = recorded.summary()
    mean, deviation = (format_return(figures[f"return_{name}"]) for name in ("mean", "std"))
    noun = "episode" if writer.episodes == 1 else "episodes"
    echo(
        f"{policy.which} policy of {run_dir} (step {policy.steps}), noise {noise:g}: "
        f"{writer.episodes} {noun} of {run.config.env} with {writer.steps:,} steps, return "
        f"{mean} ± {deviation}: {out}"
    )


def _link(recording: Path, out: Path) -> None:
    """Gives a recording its name, which must not exist."""
    try:
        os.link(recording, out)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        out.touch(exist_ok=False)
        os.replace(recording, out)


def _origin(run_dir: Path, agent: str, env: gymnasium.Env[Any, Any]) -> dict[str, Any]:
    """Returns the metadata of Minari that describe where data comes from."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", run_dir.resolve().name).strip("-") or "run"
    origin = {"dataset_id": f"eagerly/{name}-v0", "algorithm_name": agent}
    import gymnasium

    inner: Any = env
    # Minari should not need this package's internal layers, which do not record their arguments.
    while type(inner).__module__.startswith("eagerly.") and not isinstance(
        inner, gymnasium.utils.RecordConstructorArgs
    ):
        inner = inner.env
    spec = inner.spec
    try:
        return origin | ({} if spec is None else {"env_spec": spec.to_json()})
    except (TypeError, ValueError):  # arguments that JSON cannot represent
        return origin


if __name__ == "__main__":
    main()
