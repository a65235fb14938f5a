"""Evaluates the policy of a run: `evaluate.py runs/cheetah --episodes 10`."""

from __future__ import annotations

import json
from pathlib import Path

import click

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
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def main(run_dir: Path, episodes: int | None, which: str, seed: int | None, as_json: bool) -> None:
    """Runs whole episodes with the deterministic policy of the run in RUN_DIR."""
    try:
        with quiet_tensorflow():
            from eagerly.training.environments import make_environment
            from eagerly.training.evaluation import evaluate, evaluation_seeds
            from eagerly.training.policies import load_actor
            from eagerly.training.run_directory import open_run
        run = open_run(run_dir, None, {})
        env = make_environment(run.config.env)
        policy, step = load_actor(
            run,
            which,
            env.observation_space,
            env.action_space,
            lambda line: click.echo(line, err=True),
        )
        seeds = evaluation_seeds(
            run.config.evaluation_seed if seed is None else seed,
            episodes or run.config.evaluation_episodes,
        )
        evaluation = evaluate(policy, env, seeds)
    except (RunError, FloatingPointError) as error:
        raise click.ClickException(str(error)) from error
    figures = evaluation.summary()
    if as_json:
        about = {"run_dir": str(run_dir), "env": run.config.env, "which": which, "step": step}
        returns = {"returns": evaluation.returns.tolist()}
        click.echo(json.dumps(about | {"episodes": len(seeds)} | figures | returns))
        return
    click.echo(
        f"{which} policy of {run_dir} (step {step}): return {figures['return_mean']:.1f} ± "
        f"{figures['return_std']:.1f} over {len(seeds)} episodes of {run.config.env}, from "
        f"{figures['return_min']:.1f} to {figures['return_max']:.1f}, mean length "
        f"{figures['length_mean']:.0f}"
    )


if __name__ == "__main__":
    main()
