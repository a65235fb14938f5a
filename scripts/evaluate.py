"""Evaluates the policies of runs: `evaluate.py runs/cheetah --episodes 10`."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack, closing, nullcontext
from pathlib import Path
from typing import Any

import click
from tqdm import tqdm

from eagerly.errors import RunError, UsageError
from eagerly.scripts.commands import STEPS_LIMIT, WHICH, Command
from eagerly.scripts.flags import KEYWORDS
from eagerly.scripts.output import TRUST_HELP, Failure, echo, log_to_terminal, stdout_to_stderr
from eagerly.scripts.playing import check_kwargs, open_environment
from eagerly.storage.config import MOST_EPISODES
from eagerly.storage.evaluations import format_return
from eagerly.storage.files import RUNS
from eagerly.storage.run_document import runs_at
from eagerly.training.signals import terminated_by_signals


@click.command(cls=Command)
@click.argument("paths", metavar="[RUN_DIR]...", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--episodes",
    type=click.IntRange(min=1, max=MOST_EPISODES),
    help="Number of episodes. [default: --evaluation-episodes of the run]",
)
@WHICH
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    help="Seed of the episodes. [default: --evaluation-seed of the run, which repeats the episodes "
    "of its evaluations]",
)
@STEPS_LIMIT
@click.option(
    "--evaluation-env-kwargs",
    type=KEYWORDS,
    metavar="JSON",
    help="Keyword arguments of the environment, merged over --env-kwargs of the run. [default: "
    "--evaluation-env-kwargs of the run]",
)
@click.option(
    "--video",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also record the first episode to this .mp4 file; no display is needed.",
)
@click.option("--render", is_flag=True, help="Show the episodes in a window.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per run.")
@click.option("--trust", is_flag=True, help=TRUST_HELP)
def main(
    paths: tuple[Path, ...], video: Path | None, render: bool, as_json: bool, **more: Any
) -> None:
    """Evaluate the policies of runs over whole episodes, without exploration noise.

    RUN_DIR is a run directory, or a folder that contains run directories (default: runs/).
    """
    if video and video.suffix != ".mp4":
        raise click.BadParameter(f"--video must end in .mp4; got {video}")
    log_to_terminal()
    kwargs = more["evaluation_env_kwargs"]
    if kwargs is not None:
        check_kwargs("evaluation_env_kwargs", kwargs)
    runs = dict.fromkeys(run for path in paths or (RUNS,) for run in runs_at(path))
    if len(runs) > 1 and (video or render):
        raise click.UsageError(f"--video and --render require a single run; got {len(runs)} runs")
    failed: list[Exception] = []
    for run_dir in runs:
        try:
            _evaluate(run_dir, video=video, render=render, as_json=as_json, **more)
        except (RunError, ValueError, FloatingPointError, OSError) as error:
            if len(runs) == 1:
                raise Failure(error) from error
            echo(error if str(run_dir) in str(error) else f"{run_dir}: {error}", err=True)
            failed.append(error)
    if failed:
        kind = UsageError if all(isinstance(e, UsageError) for e in failed) else RunError
        raise kind(f"not evaluated: {len(failed)} of {len(runs)} runs")


def _evaluate(
    run_dir: Path,
    *,
    episodes: int | None,
    which: str | None,
    seed: int | None,
    steps_limit: int | None,
    evaluation_env_kwargs: Any,
    video: Path | None,
    render: bool,
    as_json: bool,
    trust: bool,
) -> None:
    from eagerly.environments.rendering import has_display
    from eagerly.storage.loading import policy_of
    from eagerly.storage.run import open_run
    from eagerly.training.evaluation import episodes_at_limit, evaluation_seeds, run_episodes
    from eagerly.training.video import Camera

    if render and not has_display():
        raise UsageError("--render requires a display: record the episode with --video instead")
    run = open_run(run_dir, None, {}, trust=trust)
    make = run.evaluation_environment(evaluation_env_kwargs)
    if trust:
        run.trust()
    policy = policy_of(run, which)
    seeds = evaluation_seeds(
        run.config.evaluation_seed if seed is None else seed,
        episodes or run.config.evaluation_episodes,
    )
    timeout = run.config.environment_timeout_seconds
    steps_limit = steps_limit or run.config.evaluation_steps_limit
    with stdout_to_stderr() if as_json else nullcontext(), ExitStack() as opened:
        # Signals unwind the stack, so that no partial video or child process remains.
        opened.enter_context(terminated_by_signals())
        camera = opened.enter_context(closing(Camera(make, timeout=timeout))) if video else None
        shown = {"render_mode": "human"} if render else {}
        env = opened.enter_context(
            open_environment(run, make, "the evaluation", "Nothing was evaluated.", **shown)
        )
        silent = as_json or not sys.stderr.isatty()
        with tqdm(unit=" steps", disable=silent, leave=False) as bar:

            def begin(episode: int) -> None:
                bar.set_description_str(f"episode {episode + 1} of {len(seeds)}")

            evaluation = run_episodes(
                policy, env, seeds, steps_limit=steps_limit, watch=bar.update, begin=begin
            )
        if evaluation.at_limit:
            echo(episodes_at_limit(evaluation, steps_limit), err=True)
        about = {"run_dir": str(run_dir), "env": run.config.env, "which": policy.which}
        if not as_json:
            _print(evaluation, policy.steps, about)
        if camera and video:
            # The video repeats the first episode, with the same seed. It also shows the
            # observation after the reset, which adds one frame.
            pictures = int(evaluation.lengths[0]) + 1
            with tqdm(
                desc="video", total=pictures, unit=" frames", disable=silent, leave=False
            ) as bar:
                filmed = camera.record(
                    policy, seeds[0], video, steps_limit=steps_limit, watch=bar.update
                )
            line = f"video of an episode with return {format_return(filmed.returns[0])}: {video}"
            echo(line, err=as_json)
    if as_json:
        _print_json(evaluation, policy.steps, about)


def _print_json(evaluation: Any, step: int, about: dict[str, Any]) -> None:
    more = {"step": step, "episodes": len(evaluation.returns), "info": evaluation.info_means()}
    returns = {"returns": evaluation.returns.tolist()}
    click.echo(json.dumps(about | more | evaluation.summary() | returns))


def _print(evaluation: Any, step: int, about: dict[str, Any]) -> None:
    figures, episodes = evaluation.summary(), len(evaluation.returns)
    noun = "episode" if episodes == 1 else "episodes"
    mean, deviation, least, most = (
        format_return(figures[f"return_{name}"]) for name in ("mean", "std", "min", "max")
    )
    echo(
        f"{about['which']} policy of {about['run_dir']} (step {step}): return {mean} ± {deviation} "
        f"over {episodes} {noun} of {about['env']}, min {least}, max {most}, mean length "
        f"{figures['length_mean']:.0f}"
    )
    for name, value in evaluation.info_means().items():
        reported = sum(name in info for info in evaluation.infos)
        which = "" if reported == episodes else f", in {reported} of {episodes} episodes"
        echo(f"  mean {name} at episode end: {value:.4g}{which}")


if __name__ == "__main__":
    main()
