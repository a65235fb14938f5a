"""Trains an agent or resumes a run: `train.py td3 --env HalfCheetah-v5 --run-dir runs/x`."""

from __future__ import annotations

import os
import signal

_ENDS = signal.getsignal(signal.SIGINT) is signal.default_int_handler


def _end(number: int, frame: object) -> None:
    os.write(2, b"stopped by SIGINT\n")
    os._exit(128 + number)


if __name__ == "__main__" and _ENDS:
    # Ctrl-C during the imports below, which take a second, ends the process without a traceback.
    signal.signal(signal.SIGINT, _end)

import faulthandler
import json
import shlex
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from eagerly.agents import agent_names
from eagerly.agents.agent_settings import NO_HINDSIGHT, NOT_QUANTIZED, UNIFORM
from eagerly.errors import NonFiniteError, RunError
from eagerly.sanitizing import sanitize
from eagerly.scripts.agent_commands import AgentCommands
from eagerly.scripts.batch import train_batch
from eagerly.scripts.flags import (
    Option,
    SettingsCommand,
    command,
    format_config,
    interpreter,
    options_of,
    resumable_options,
)
from eagerly.scripts.output import TRUST_HELP, echo, log_to_terminal, tell
from eagerly.scripts.seeds import batch_of_seeds, seed_options
from eagerly.settings import flag_name
from eagerly.storage.config import NO_EVALUATIONS, SEPARATE, RunConfig
from eagerly.storage.evaluations import Results
from eagerly.storage.presets import (
    DEFAULTS,
    OF_THE_ENVIRONMENT,
    presets,
    read_settings_file,
)
from eagerly.storage.run import open_run
from eagerly.storage.run_settings import declared_settings, flag_words, format_setting
from eagerly.training.signals import StopSignals


class _Preset(click.Choice[str]):
    """The name of a preset, which the shell can complete, or a TOML file; `open_run` checks it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return str(value)


class _Commands(AgentCommands):
    def agent_command(self, agent: str, config: Any) -> click.Command:
        names = [OF_THE_ENVIRONMENT, *presets(agent)]
        options = [
            click.Option(["--run-dir"], type=click.Path(path_type=Path), help=_RUN_DIR_HELP),
            Option(["--override"], is_flag=True, help=_OVERRIDE_HELP),
            *seed_options(),
            Option(["--config"], type=_FILE, help=_CONFIG_HELP, brief=_CONFIG_HELP),
            Option(["--print-config"], is_flag=True, help=_PRINT_CONFIG_HELP),
            *_process_options(),
            Option(
                ["--preset"],
                type=_Preset(names),
                metavar="NAME|FILE",
                help=_PRESET_HELP.format(", ".join(names[1:])),
                brief=_PRESET_BRIEF.format(", ".join([DEFAULTS, *config.PRESETS])),
            ),
            *options_of(RunConfig, config.RUN_DEFAULTS),
            *options_of(config, {}),
        ]
        return SettingsCommand(
            agent,
            context_settings={"allow_extra_args": True},  # `_train` reports them
            params=list(options),
            callback=lambda **values: _train(agent, **values),
            help=f"Train {agent.upper()}. With --run-dir, the same command resumes the run.",
            short_help=f"Train {agent.upper()}.",
            examples=[f"{command('train.py', agent)} {words}" for words in config.EXAMPLES],
        )


_FILE = click.Path(path_type=Path, dir_okay=False)
_CONFIG_HELP = "TOML file with settings; options take precedence."
_PRINT_CONFIG_HELP = "Print the settings as TOML and exit."
_RUN_DIR_HELP = "Run directory; an existing run in it is resumed. [default: a new one in runs/]"
_PRESET_HELP = (
    "Named set of settings, or a TOML file with settings by name; options take precedence. "
    "Presets: {}. --print-config shows their values. "
    f"[default {OF_THE_ENVIRONMENT}: the preset of the environment, if it has one]"
)
_PRESET_BRIEF = (
    "Named set of settings: {}, or an environment such as Hopper-v5 [that of --env]. "
    "--print-config shows its values."
)
_OVERRIDE_HELP = "Resume even if settings differ from the saved ones."


def _process_options() -> list[click.Option]:
    """Returns options that affect only this process and are not saved with the run."""
    return [
        Option(["--progress/--no-progress"], default=True, help="Show a progress bar."),
        Option(["--trust"], is_flag=True, help=TRUST_HELP),
        Option(
            ["--profile-calls"],
            type=click.IntRange(min=0),
            default=0,
            help="Number of train body calls to trace for TensorBoard's profiler.",
        ),
    ]


@click.group(cls=_Commands)
def main() -> None:
    """Train agents for continuous control and resume their runs.

    Name a custom agent as module:Class, importable from the working directory
    (documentation: Your algorithm).
    """


class _Resume(SettingsCommand):
    """The command `resume`, which accepts only settings that do not change the result."""

    def suggestion(self, name: str, options: Mapping[str, str]) -> str:
        known = [d[name] for d in map(declared_settings, agent_names()) if name in d]
        if not known:
            return super().suggestion(name, options)
        if any(setting.immutable is True for setting in known):
            words = "which cannot change: start a new run, with --init-from RUN_DIR if it fits"
            return f"Resuming keeps this setting, {words}."
        words = f"train AGENT --run-dir RUN_DIR --override {flag_name(name)} ..."
        return f"Resuming keeps this setting. Change it with {words}"


@main.command(
    cls=_Resume,
    params=[
        click.Argument(["run_dir"], type=click.Path(path_type=Path)),
        *_process_options(),
        *resumable_options(),
    ],
)
def resume(run_dir: Path, **given: Any) -> None:
    """Resume the run in RUN_DIR with its saved settings."""
    _train(None, run_dir=run_dir, override=False, **given)


def _train(
    agent: str | None,
    *,
    run_dir: Path | None,
    override: bool,
    progress: bool,
    trust: bool,
    profile_calls: int,
    seeds: tuple[int, ...] | None = None,
    jobs: int | None = None,
    report_to: int | None = None,
    config: Path | None = None,
    print_config: bool = False,
    **given: Any,
) -> None:
    if sys.__stderr__ is not None:
        faulthandler.enable(sys.__stderr__)  # prints the Python stack on a crash in native code
    context = click.get_current_context()
    if words := context.args:
        hint = f"if {words[0]} is the environment, use --env {words[0]}"
        raise click.UsageError(f"expected options only; got {' '.join(words)}: {hint}")
    source, default = context.get_parameter_source, ParameterSource.DEFAULT
    typed = {name: value for name, value in given.items() if source(name) != default}
    if jobs and seeds is None:
        raise click.UsageError("--jobs requires --seeds, for example --seeds 0..4")
    if print_config and seeds is not None:
        raise click.UsageError("--print-config prints the settings of a single run: omit --seeds")
    log_to_terminal()
    if agent and config:
        of_file = read_settings_file(config, "--config", declared_settings(agent))
        if seeds is not None:
            of_file.pop("seed", None)  # options take precedence
        typed = of_file | typed
    if print_config:
        run = open_run(run_dir, agent, typed, override=override, trust=trust)
        echo(format_config(run.config, run.agent_config))
        return
    if agent and seeds is not None:
        options = {"override": override, "trust": trust, "profile_calls": profile_calls}
        batch = batch_of_seeds(agent, seeds, jobs or 1, run_dir, typed, **options)
        train_batch(batch, progress=progress)
        return
    # Ctrl-C aborts startup at once. SIGTERM, as sent by a cluster, takes effect only after the
    # run has advanced.
    with StopSignals(signal.SIGTERM, signal.SIGHUP) as signals:
        # Invalid settings are reported before TensorFlow is imported.
        run = open_run(run_dir, agent, typed, override=override, trust=trust)
        try:
            _train_run(run, signals, progress, profile_calls, report_to)
        finally:
            run.unlock()


def _train_run(
    run: Any, signals: StopSignals, progress: bool, profile_calls: int, report_to: int | None
) -> None:
    from eagerly.storage.checkpoint_reader import resumable_checkpoint
    from eagerly.training.callbacks import Callback, ProgressBar, ProgressReports
    from eagerly.training.progress_lines import ProgressLines
    from eagerly.training.trainer import Trainer

    newest, reached = resumable_checkpoint(run)
    if newest and reached:
        steps = newest.manifest.steps
        tell(f"{run.path} is already finished: {steps} steps{_early(run.config, reached)}")
        _print_end(run, _extension(run.config, steps, reached))
        return
    begin = f"resumes at step {newest.manifest.steps}" if newest else "new"
    if not newest and not run.is_new:
        begin = "starts again at step 0, because it has no checkpoint"
    bar = ProgressBar(disable=None if progress else True, say=tell)
    callbacks: list[Callback] = [bar]
    if run.config.evaluations == NO_EVALUATIONS and not (progress and sys.stderr.isatty()):
        callbacks.append(ProgressLines(tell))
    if report_to is not None:
        callbacks.append(ProgressReports(report_to))
    with Trainer(run, callbacks, newest=newest, profile_calls=profile_calls) as trainer:
        _print_start(trainer, begin)
        started = time.monotonic()
        try:
            signals.listen(signal.SIGINT)
            with closing(bar):
                trainer.train(signals)
        except RunError as error:
            first = "Correct the cause first. " if isinstance(error, NonFiniteError) else ""
            raise type(error)(f"{error}\n{first}{_how_it_goes_on(run)}") from error
        except KeyboardInterrupt:  # raised by a second signal
            raise KeyboardInterrupt(f"stopped immediately. {_how_it_goes_on(run)}") from None
        share = trainer.checkpoints.seconds / (time.monotonic() - started)
    minutes, seconds = divmod(int(time.monotonic() - started), 60)
    elapsed = f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02}"
    if trainer.summaries.timing:
        tell(f"actions   {trainer.summaries.timing}")
    if not trainer.finished:
        by = f"by {signals.received.name} " if signals.received else ""
        why = f": {trainer.stop_reason}" if trainer.stop_reason else ""
        tell(f"stopped {by}at step {trainer.steps} after {elapsed}{why}")
        tell(f"resume    {command('train.py', 'resume', str(run.path))}")
        _print_end(run)
        sys.exit(128 + signals.received if signals.received else 0)
    reached = run.config.limits_reached(trainer.steps, trainer.best_return)
    tell(
        f"finished: {trainer.steps} steps{_early(run.config, reached)}, {trainer.updates} updates, "
        f"this session took {elapsed}, {share:.1%} of it for checkpoints"
    )
    _print_end(run, _extension(run.config, trainer.steps, reached))


def _early(config: RunConfig, reached: list[str]) -> str:
    """Returns why a finished run ended before its last step, as text; "" if it did not."""
    if "steps" in reached:
        return ""
    return f" (of {config.steps}: an evaluation reached --stop-at-return {config.stop_at_return:g})"


def _extension(config: RunConfig, steps: int, reached: list[str]) -> dict[str, Any]:
    """Returns the settings that extend a finished run beyond the limits that it reached."""
    more = {"steps": 2 * steps if "steps" in reached else config.steps}
    return more | ({"stop_at_return": None} if "stop_at_return" in reached else {})


def _how_it_goes_on(run: Any) -> str:
    from eagerly.storage.manifest import published

    manifests = published(run.path)
    again = command("train.py", "resume", str(run.path))
    if not manifests:
        return f"Nothing was saved yet. Start again with {again}"
    return f"Resume from step {manifests[-1].steps} with {again}"


def _print_start(trainer: Any, begin: str) -> None:
    from eagerly.networks.models import count_parameters
    from eagerly.spaces import text_of
    from eagerly.training.hardware import continuation_note, device_name

    run, config, agent = trainer.run, trainer.config, trainer.agent
    modules = agent.modules.items()
    counts = ", ".join(f"{name} {count_parameters(module.network)}" for name, module in modules)
    environment = f"{config.num_envs} x {config.env}"
    if kwargs := trainer.env_kwargs:
        environment += f" {json.dumps(kwargs)}"
    if kwargs != config.env_kwargs:
        environment += " (changed by a callback; this command calls none, so they stay)"
    if config.wrapper:
        environment += f", wrapped in {', '.join(run.settings()['wrapper'])}"
    if config.evaluations != SEPARATE:
        environment += f", evaluations {config.evaluations}"
    if config.evaluation_env_kwargs:
        environment += f", evaluated with {json.dumps(config.evaluation_env_kwargs)}"
    if config.group_size:
        environment += f", in groups of {config.group_size}"
    if config.rollout_steps > 1:
        environment += f", {config.rollout_steps} steps per round"
    if config.policy_lag:
        environment += ", collected during updates"
    if config.collectors != "here":
        count = trainer.collector.environments.num_collectors
        environment += f", {count} collectors ({config.collectors})"
    threads = f"{config.intra_op_threads} x {config.inter_op_threads} threads"
    preset = {"preset": run.preset} if run.preset else {}
    overrides = {"overrides": _overrides(run.history)} if run.history else {}
    observations = text_of(trainer.observations.space)
    if ignored := agent.config.ignore_entries:
        observations += f", without {ignored}"
    if of_critics := agent.config.critic_entries:
        observations += f", actor without {of_critics}"
    numbers = agent.config.precision
    if agent.config.quantize != NOT_QUANTIZED:
        numbers += f", actor quantized to {agent.config.quantize}"
    if agent.config.replicas > 1:
        threads += f", {agent.config.replicas} replicas"
    replay = {"replay": text} if (text := _replay(agent.config)) else {}
    for name, value in {
        "run": f"{run.path}, {begin}, up to step {config.steps}",
        "agent": f"{run.agent}, {agent.config.mode}, {numbers}, seed {config.seed}",
        **preset,
        **overrides,
        **replay,
        "device": f"{device_name()}, {threads}",
        "resuming": continuation_note(
            restores=config.restore_episodes == "yes",
            repeats=trainer.collector.environments.repeats,
        ),
        "environment": environment,
        **({"hardware": _hardware(config)} if config.hardware else {}),
        "observations": observations,
        "actions": text_of(trainer.actions.space),
        "parameters": counts,
        "resume with": command("train.py", "resume", str(run.path)),
    }.items():
        tell(f"{name:<14}{value}")


def _overrides(history: Iterable[Mapping[str, Any]]) -> str:
    """Returns the overrides of a run as text, such as "tau 0.005 → 0.1 at step 400"."""
    entries = (
        ", ".join(
            f"{name} {format_setting(old)} → {format_setting(new)}"
            for name, (old, new) in entry["overridden"].items()
        )
        + f" at step {entry['steps']}"
        for entry in history
    )
    return sanitize("; ".join(entries), lines=False)


def _hardware(config: RunConfig) -> str:
    """Returns the implications of the setting `hardware` for this run, as text."""
    waits = "collected during" if config.policy_lag else "alternating with"
    return (
        "1 instance, never checked, no time limit for reset, compiled first; rounds of "
        f"{config.rollout_steps} steps, {waits} updates ({config.updates_per_call} per call); "
        "a resumed run starts a new episode"
    )


def _replay(config: Any) -> str:
    """Returns the replay options in use as text, or "" if there are only defaults."""
    parts = [f"{config.n_step}-step returns"] if config.n_step > 1 else []
    parts += [f"sampling {config.sampling}"] if config.sampling != UNIFORM else []
    if config.hindsight != NO_HINDSIGHT:
        parts.append(f"hindsight {config.hindsight}, {config.rows_per_step - 1} per step")
    return ", ".join(parts)


def _print_end(run: Any, extension: Mapping[str, Any] | None = None) -> None:
    """Prints the commands for the next steps and, of a finished run, the result.

    Args:
        run: The run.
        extension: Settings that extend a finished run; None if the run is not finished.
    """
    if extension is not None:
        found: Results | str = "never evaluated (--evaluations none)"
        try:
            if run.config.evaluations != NO_EVALUATIONS:
                found = run.results()
        except RunError:  # a damaged table must not fail the run
            found = "evaluations.csv is damaged and cannot be read"
        tell(f"result    {found}")
        more = flag_words(extension)
        tell(f"extend    {command('train.py', 'resume', str(run.path), *more)}")
    moves = "  # moves the robot" if run.config.hardware else ""
    tell(f"evaluate  {command('evaluate.py', str(run.path))}{moves}")
    # TensorBoard tries to import optional packages. -P keeps it from finding them in the working
    # directory.
    words = ["-P", "-m", "tensorboard.main", "--logdir", str(run.path.parent)]
    tell(f"curves    {shlex.join([interpreter(), *words])}")


if __name__ == "__main__":
    if _ENDS:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    main()
