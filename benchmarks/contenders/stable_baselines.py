"""Times TD3 of Stable-Baselines3 or of SBX after the warm-up.

Run with the Python of a virtual environment in which both are installed:
`stable_baselines.py sb3|sbx ENV EVERY FROM TO` prints the time of the steps from FROM to TO as one
line of JSON. After every EVERY steps, TD3 performs EVERY updates; 1 is the default of both
packages. The other settings are those of eagerly's TD3: hidden layers 256-256, batch size 256,
learning rates 3e-4, exploration noise 0.1.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import sys
import time
import warnings
from typing import Any

import gymnasium
import mujoco
import numpy as np
import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.noise import NormalActionNoise


class PeerStopWatch(BaseCallback):
    """Records the time at which step `start` is reached."""

    def __init__(self, start: int) -> None:
        super().__init__()
        self.start, self.began = start, 0.0

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:  # all updates for earlier steps are done by now
        if self.num_timesteps == self.start:
            self.began = time.perf_counter()


def main() -> None:
    """Trains and prints the measurements."""
    parser = argparse.ArgumentParser()
    parser.add_argument("package", choices=("sb3", "sbx"))
    parser.add_argument("env")
    parser.add_argument("every", type=int)
    parser.add_argument("start", type=int)
    parser.add_argument("stop", type=int)
    given = parser.parse_args()
    mujoco.set_mju_user_warning(warnings.warn)  # by default, MuJoCo writes MUJOCO_LOG.TXT
    env: Any = gymnasium.make(given.env)
    size = env.action_space.shape[0]
    noise = NormalActionNoise(np.zeros(size), 0.1 * np.ones(size))
    package = "stable_baselines3" if given.package == "sb3" else "sbx"
    model = importlib.import_module(package).TD3(
        "MlpPolicy",
        env,
        learning_rate=3e-4,
        learning_starts=1000,
        batch_size=256,
        tau=0.005,
        gamma=0.99,
        train_freq=given.every,
        gradient_steps=given.every,
        action_noise=noise,
        policy_kwargs={"net_arch": [256, 256]},
        seed=0,
        device="cpu",
    )
    watch = PeerStopWatch(given.start)
    model.learn(given.stop, callback=watch)
    found = {
        "steps": given.stop - given.start,
        "seconds": time.perf_counter() - watch.began,
        "updates_in_all": int(model._n_updates),
        "threads": torch.get_num_threads(),
        "stable_baselines3": importlib.metadata.version("stable-baselines3"),
        "sbx": importlib.metadata.version("sbx-rl"),
        "jax": importlib.metadata.version("jax"),
    }
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
