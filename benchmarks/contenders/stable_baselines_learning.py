"""Trains TD3 or DDPG of Stable-Baselines3 or SBX for learning curves.

Run with the Python of a virtual environment in which Stable-Baselines3 is installed:
`stable_baselines_learning.py [--package sbx] td3|ddpg ENV STEPS SEED FOLDER EVALUATION_SEED...`.
FOLDER must exist.
There is one EVALUATION_SEED per evaluation episode. The script writes the evaluations to
FOLDER/evaluations.csv. On SIGTERM it saves the run and exits with code 143. The same command
resumes the run with a new episode and new random numbers, because a saved model contains neither
the state of the environment nor that of the random generators.

The settings are the same as in eagerly: hidden layers 256-256, batch size 256, learning rates 3e-4,
10,000 random steps, exploration noise 0.1, one update per step.
"""

from __future__ import annotations

import argparse
import csv
import fcntl
import importlib
import json
import os
import shutil
import signal
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import mujoco
import numpy as np
import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.noise import NormalActionNoise

EVALUATE_EVERY, WARMUP = 5000, 10_000
STOPPED = 143


class Evaluations(BaseCallback):
    """Evaluates every `EVALUATE_EVERY` steps, and stops training after a signal."""

    def __init__(
        self,
        env: Any,
        seeds: list[int],
        table: Path,
        rows: list[dict[str, float]],
        seconds: float,
    ) -> None:
        super().__init__()
        self.env, self.seeds, self.table, self.rows = env, seeds, table, rows
        self.before, self.began = seconds, time.monotonic()
        self.asked_to_stop = False

    @property
    def seconds(self) -> float:
        """Wall time of this run in seconds, summed over all its processes."""
        return self.before + time.monotonic() - self.began

    def _on_step(self) -> bool:
        if self.num_timesteps % EVALUATE_EVERY == 0:
            self.evaluate()
        return not self.asked_to_stop

    def evaluate(self) -> None:
        """Plays one episode per seed and writes the table of all evaluations."""
        returns, lengths = np.zeros(len(self.seeds)), np.zeros(len(self.seeds))
        for episode, seed in enumerate(self.seeds):
            observation, _ = self.env.reset(seed=seed)
            ended = False
            while not ended:
                action, _ = self.model.predict(observation, deterministic=True)
                observation, reward, terminated, truncated, _ = self.env.step(action)
                returns[episode] += float(reward)
                lengths[episode] += 1
                ended = terminated or truncated
        self.rows.append(
            {
                "steps": self.num_timesteps,
                "updates": self.model._n_updates,
                "episodes": len(self.seeds),
                "return_mean": float(returns.mean()),
                "return_std": float(returns.std()),
                "return_min": float(np.min(returns)),
                "return_max": float(np.max(returns)),
                "length_mean": float(lengths.mean()),
                "seconds": self.seconds,
            }
        )
        partial = self.table.with_suffix(".partial")
        with partial.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(self.rows[0]))
            writer.writeheader()
            writer.writerows(self.rows)
        os.replace(partial, self.table)


def main() -> None:
    """Trains from scratch, or resumes a saved run."""
    parser = argparse.ArgumentParser()
    packages = ("stable_baselines3", "sbx")
    parser.add_argument("--package", choices=packages, default=packages[0])
    parser.add_argument("algorithm", choices=("td3", "ddpg"))
    parser.add_argument("env")
    parser.add_argument("steps", type=int)
    parser.add_argument("seed", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("evaluation_seeds", type=int, nargs="+")
    given = parser.parse_args()
    lock = (given.folder / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        sys.exit(f"{given.folder} is being trained by another process")
    package = importlib.import_module(given.package)
    torch.set_num_threads(1)
    mujoco.set_mju_user_warning(warnings.warn)  # by default, MuJoCo writes MUJOCO_LOG.TXT
    env: Any = gymnasium.make(given.env)
    kind = getattr(package, given.algorithm.upper())
    saved, fresh, old = (given.folder / name for name in ("saved", "fresh", "old"))
    # A process killed between the two renames below leaves the previous save only as `old`.
    if old.exists() and not saved.exists():
        old.rename(saved)
    shutil.rmtree(old, ignore_errors=True)
    about = saved / "about.json"
    if about.exists():
        state = json.loads(about.read_text())
        model = kind.load(saved / "model.zip", env=env, device="cpu")
        model.load_replay_buffer(saved / "buffer.pkl")
        # Do not repeat the random numbers of earlier processes.
        model.set_random_seed(given.seed + 1_000_000 * (state["processes"] + 1))
    else:
        state = {"rows": [], "seconds": 0.0, "processes": 0}
        size = env.action_space.shape[0]
        model = kind(
            "MlpPolicy",
            env,
            learning_rate=3e-4,
            learning_starts=WARMUP,
            batch_size=256,
            tau=0.005,
            gamma=0.99,
            train_freq=1,
            gradient_steps=1,
            action_noise=NormalActionNoise(np.zeros(size), 0.1 * np.ones(size)),
            policy_kwargs={"net_arch": [256, 256]},
            seed=given.seed,
            device="cpu",
        )
    watch = Evaluations(
        gymnasium.make(given.env),
        given.evaluation_seeds,
        given.folder / "evaluations.csv",
        state["rows"],
        state["seconds"],
    )

    def stop(*_: Any) -> None:
        watch.asked_to_stop = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    model.learn(
        given.steps - model.num_timesteps, watch, reset_num_timesteps=not state["processes"]
    )
    seconds = watch.seconds  # without the time of saving
    if model.num_timesteps >= given.steps:
        return
    # Save to a new folder, then rename it: a crash in between keeps the previous save.
    fresh.mkdir(exist_ok=True)
    model.save(fresh / "model.zip")
    model.save_replay_buffer(fresh / "buffer.pkl")
    state |= {"rows": watch.rows, "seconds": seconds, "processes": state["processes"] + 1}
    (fresh / "about.json").write_text(json.dumps(state))
    if saved.exists():
        saved.rename(old)
    fresh.rename(saved)
    shutil.rmtree(old, ignore_errors=True)
    sys.exit(STOPPED)


if __name__ == "__main__":
    main()
