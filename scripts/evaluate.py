"""Evaluates the policy of a run: `evaluate.py runs/cheetah --episodes 10`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from eagerly.scripts.flags import find_packages_here
from eagerly.scripts.quiet import quiet_tensorflow
from eagerly.training.errors import RunError


@click.command(context_settings={"max_content_width": 100})
@click.argument("run_dir", type=click.Path(path_type=Path))
@click.option("--episodes", type=click.IntRange(min=1), help="[default: as in training]")
@click.option(
    "--which",
    type=click.Choice(["best", "latest"]),
    default="best",
    show_default=True,
    help="The policy with the best evaluation so far, or the newest one.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    help="Seed of the episodes. [default: as in training, which repeats its evaluation]",
)
@click.option(
    "--video",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also record the first episode in this .mp4; no display is needed.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def main(
    run_dir: Path,
    episodes: int | None,
    which: str,
    seed: int | None,
    video: Path | None,
    as_json: bool,
) -> None:
    """Runs whole episodes with the deterministic policy of the run in RUN_DIR."""
    find_packages_here()
    try:
        with quiet_tensorflow():
            from eagerly.training.evaluation import evaluate, evaluation_seeds
            from eagerly.training.making import environment_maker
            from eagerly.training.policies import load_policy
            from eagerly.training.run_directory import open_run
            from eagerly.training.video import Camera
        run = open_run(run_dir, None, {})
        policy = load_policy(run_dir, which, say=lambda line: click.echo(line, err=True))
        make = environment_maker(run.config.env, run.config.env_kwargs)
        camera = Camera(make) if video else None
        seeds = evaluation_seeds(
            run.config.evaluation_seed if seed is None else seed,
            episodes or run.config.evaluation_episodes,
        )
        evaluation = evaluate(policy, make(), seeds)
        if camera and video:
            filmed = camera.record(policy, seeds[0], video)
            camera.close()
    except (RunError, ValueError, FloatingPointError) as error:
        raise click.ClickException(str(error)) from error
    figures, infos = evaluation.summary(), evaluation.info_means()
    if as_json:
        about = {"run_dir": str(run_dir), "env": run.config.env, "which": which}
        more = {"step": policy.steps, "episodes": len(seeds), "info": infos}
        returns = {"returns": evaluation.returns.tolist()}
        click.echo(json.dumps(about | more | figures | returns))
        return
    click.echo(
        f"{which} policy of {run_dir} (step {policy.steps}): return {figures['return_mean']:.1f} ± "
        f"{figures['return_std']:.1f} over {len(seeds)} episodes of {run.config.env}, from "
        f"{figures['return_min']:.1f} to {figures['return_max']:.1f}, mean length "
        f"{figures['length_mean']:.0f}"
    )
    for name, value in infos.items():
        click.echo(f"  {name} at the end: mean {value:.4g}")
    if video:
        click.echo(f"video of an episode with return {filmed.returns[0]:.1f}: {video}")


if __name__ == "__main__":
    main()
