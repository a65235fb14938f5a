"""Small environments with predictable values."""

from __future__ import annotations

import ctypes
import fcntl
import multiprocessing
import os
import sys
import time
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np


class Counting(gymnasium.Env):
    """Returns observations (random number drawn per episode, step in the episode) and rewards of 1.

    Args:
        length: Steps in an episode.
        terminates: Whether an episode terminates after `length` steps. Otherwise, a TimeLimit must
            truncate it.
        noisy: Whether observations differ between runs regardless of the seed.
    """

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gymnasium.spaces.Box(
        np.array([-1.0, 0.0], np.float32), np.array([1.0, 4.0], np.float32)
    )

    def __init__(self, length: int = 3, terminates: bool = True, noisy: bool = False) -> None:
        self.length, self.terminates, self.noisy = length, terminates, noisy
        self.hidden = np.random.default_rng()

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.start = float(self.np_random.integers(1000))
        self.count = 0
        return self._observation(), {}

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict]:
        assert self.action_space.contains(action), action
        self.count += 1
        ended = self.terminates and self.count >= self.length
        return self._observation(), 1.0, ended, False, {}

    def _observation(self) -> np.ndarray:
        noise = self.hidden.normal() if self.noisy else 0.0
        return np.array([self.start, self.count + noise])


class Success(Counting):
    """Reports success, numbers and other values in `info`."""

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict]:
        observation, reward, terminated, truncated, _ = super().step(action)
        info = {"is_success": terminated, "distance": float(self.count), "count": self.count}
        return observation, reward, terminated, truncated, info | {"name": "x", "at": np.zeros(2)}


class Mixed(Counting):
    """Returns an int or a float under one key of `info`, and arrays of varying length."""

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict]:
        *rest, _ = super().step(action)
        info = {"distance": self.start / 7 if self.start % 2 else int(self.start)}
        return *rest, info | {"contacts": np.zeros(int(self.start) % 5)}


class Worker(Counting):
    """Reports its process id. Some actions make it exit, hang or block `close`."""

    def process(self) -> tuple[int, list[str]]:
        return os.getpid(), sorted(sys.modules)

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict]:
        if action[1] == 3:
            if path := os.environ.get("HELPERS"):  # processes that outlive the environment
                if not (helper := os.fork()):
                    time.sleep(20)
                    os._exit(0)
                with open(path, "a") as file:
                    file.write(f"{helper}\n")
            os._exit(7)
        if action[1] == 4:
            time.sleep(60)
        self.hangs = action[1] == 2
        return super().step(action)

    def close(self) -> None:
        if getattr(self, "hangs", False):
            time.sleep(60)


class Holding(Counting):
    """Holds the interpreter lock for ten minutes in the second step of the first process.

    Args:
        mark: A file that the first process creates in this step. Processes that find this file
            continue without holding the lock.
    """

    def __init__(self, mark: str) -> None:
        super().__init__(length=40)
        self.mark = Path(mark)

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict]:
        if self.count == 1 and not self.mark.exists():
            self.mark.touch()
            ctypes.PyDLL(None).sleep(600)
        return super().step(action)


class Device(Counting):
    """A device that only one environment at a time can open.

    Args:
        lock: The file that is locked while the device is open.
        length: Steps in an episode.

    Attributes:
        seeds: The seeds of all resets of all devices in this process.
    """

    seeds: ClassVar[list[int | None]] = []

    def __init__(self, lock: str, length: int = 40) -> None:
        super().__init__(length)
        self.lock = os.open(lock, os.O_CREAT | os.O_RDWR)
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self.lock)
            raise RuntimeError("device busy") from error

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        self.seeds.append(seed)
        return super().reset(seed=seed)

    def close(self) -> None:
        os.close(self.lock)  # fails if the device is closed already


def tell(group: Any, method: str) -> list[Any]:
    """Calls a method of each environment in a group, and returns the results."""
    return [env.get_wrapper_attr(method)() for env in group.envs]


def loaded(group: Any) -> tuple[int, set[str]]:
    """Returns the id of a group's process, and the modules loaded there."""
    return os.getpid(), set(sys.modules)


def interrupt(group: Any) -> None:
    """Raises an error that is not an `Exception`."""
    raise KeyboardInterrupt("enough")


class Regulator(gymnasium.Env):
    """A one-dimensional LQR problem of 10 steps: x' = x + u / 2, with reward -(x² + u² / 4)."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-2.0, 2.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.state = self.np_random.uniform(-1, 1, 1)
        return self.state.astype(np.float32), {}

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict]:
        reward = -float(self.state[0] ** 2 + action[0] ** 2 / 4)
        self.state = self.state + action.astype(np.float64) / 2
        return self.state.astype(np.float32), reward, False, False, {}


class Bandit(gymnasium.Env):
    """A one-step environment; the best action is (0.5, -0.25) for every observation."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        return self.np_random.uniform(-1, 1, 1).astype(np.float32), {}

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict]:
        reward = -float(((action - np.array([0.5, -0.25])) ** 2).sum())
        return np.zeros(1, np.float32), reward, True, False, {}


class Broken(Counting):
    """Returns a value that is not finite in its 145th step.

    Args:
        part: "reward" or "observation".
        value: The value that is not finite.
    """

    def __init__(self, part: str, value: float) -> None:
        super().__init__(length=10)
        self.part, self.value, self.total = part, value, 0

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict]:
        self.total += 1
        observation, reward, terminated, truncated, info = super().step(action)
        if self.total == 145:
            if self.part == "reward":
                reward = self.value
            else:
                observation[1] = self.value
        return observation, reward, terminated, truncated, info


class PanicError(BaseException):
    """Like the exception of PyO3 for a panic in Rust, which is not derived from `Exception`."""


class Faulty(Counting):
    """Violates the environment interface in its 145th step or in the reset after this step.

    Args:
        fault: The kind of violation.
    """

    def __init__(self, fault: str) -> None:
        super().__init__(length=10)
        self.fault, self.total = fault, 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        if self.fault == "spaces" and self.total >= 145:
            self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))
        if self.fault == "hangs in reset" and self.total >= 145:
            time.sleep(600)
        return super().reset(seed=seed)

    def step(self, action: np.ndarray) -> Any:
        self.total += 1
        observation, reward, *rest = super().step(action)
        if self.total != 145:
            return observation, reward, *rest
        if self.fault == "raises":
            raise OSError("the motor is on fire")
        if self.fault == "panics":
            raise PanicError("index out of bounds")
        if self.fault == "quits":
            raise SystemExit("window closed")
        if self.fault == "hangs":
            time.sleep(600)
        if self.fault == "dies":
            os._exit(7)
        wrong = {
            "shape": (np.zeros(3), reward, *rest),
            "dtype": (np.array(["up", "down"]), reward, *rest),
            "reward": (observation, np.array([1.0]), *rest),
            "no reward": (observation, None, *rest),
            "ended": (observation, reward, "no", *rest[1:]),
            "four": (observation, reward, *rest[1:]),
        }
        return wrong.get(self.fault, (observation, reward, *rest))


class Elsewhere(Counting):
    """Can be created only in the process `only_in`, as if other processes lacked a package."""

    def __init__(self, only_in: int) -> None:
        super().__init__()
        if os.getpid() != only_in:
            raise ImportError("no module 'simulator'")


class Slow(Counting):
    """Takes long to create in a worker process, as on a busy machine."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        if multiprocessing.parent_process():
            time.sleep(seconds)


class NanReset(Counting):
    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        observation, info = super().reset(seed=seed)
        return observation * np.nan, info


class Gears(gymnasium.Env):
    """Observations are a number and a gear. The best action repeats both, and has return 0.

    The mask in `info` marks the valid gears, which include the matching one. An invalid gear raises
    a `ValueError`.

    Args:
        says: "right" for a correct mask, "nothing valid" for a mask of zeros after step 7, or
            "nothing" for no mask.
    """

    observation_space = gymnasium.spaces.Dict(
        {
            "number": gymnasium.spaces.Box(-1, 1, (1,), np.float32),
            "gear": gymnasium.spaces.Discrete(4, start=1),
        }
    )
    action_space = gymnasium.spaces.Tuple(
        [gymnasium.spaces.Discrete(4, start=1), gymnasium.spaces.Box(-2.0, 2.0, (1,), np.float32)]
    )

    def __init__(self, says: str = "right") -> None:
        self.says, self.count, self.invalid = says, 0, 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.count = 0
        return self._shown()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        assert self.action_space.contains(action), action
        gear, (number,) = action
        if self.says != "nothing" and not self.valid[gear - 1]:
            raise ValueError(f"gear {gear} is not valid")
        reward = -abs(float(number) - float(self.number)) - (gear != self.gear)
        self.count += 1
        return *self._step_shown(reward), False, self.mask

    def _step_shown(self, reward: float) -> tuple[Any, float, bool]:
        shown, self.mask = self._shown()
        return shown, reward, self.count == 8

    def _shown(self) -> tuple[Any, dict]:
        draws = self.np_random
        self.number = draws.uniform(-1, 1, 1).astype(np.float32)[0]
        self.gear = int(draws.integers(1, 5))
        self.valid = draws.random(4) < 0.5
        self.valid[self.gear - 1] = True
        given = np.zeros(4, np.int8) if self._says_nothing_valid else self.valid.astype(np.int8)
        mask = {} if self.says == "nothing" else {"action_mask": (given, None)}
        return {"number": np.array([self.number]), "gear": self.gear}, mask

    @property
    def _says_nothing_valid(self) -> bool:
        # After the last of 8 steps, no action follows, so the mask may be all zeros.
        return self.count == 8 or (self.says == "nothing valid" and self.count == 7)


class Camera(gymnasium.Env):
    """Returns two frames of noise, the newest last, and the number of steps as observation."""

    observation_space = gymnasium.spaces.Dict(
        {
            "camera": gymnasium.spaces.Box(0, 255, (2, 31, 32), np.uint8),
            "count": gymnasium.spaces.Box(0, 100, (1,), np.float32),
        }
    )
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.count, self.frame = 0, self._frame()
        return self._shown(self.frame), {}

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict]:
        assert self.action_space.contains(action), action
        self.count += 1
        before, self.frame = self.frame, self._frame()
        return self._shown(before), -abs(float(action[0])), self.count == 9, False, {}

    def _frame(self) -> np.ndarray:
        return self.np_random.integers(0, 256, (31, 32), np.uint8)

    def _shown(self, before: np.ndarray) -> dict[str, np.ndarray]:
        camera = np.stack([before, self.frame])
        return {"camera": camera, "count": np.array([self.count], np.float32)}


class TextActions(Counting):
    action_space = gymnasium.spaces.Text(3)


class UnboundedActions(Counting):
    action_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,))


class TextObservations(Counting):
    observation_space = gymnasium.spaces.Text(3)


class Failing(Counting):
    """Raises an error of a given kind in a step, or when created outside the process `made_in`.

    It is defined in this module because workers import the module, and importing it is fast.
    """

    def __init__(self, error: str, made_in: int = 0) -> None:
        super().__init__()
        self.error = error
        if made_in and made_in != os.getpid():
            raise ValueError("no port is free")

    def step(self, action: np.ndarray) -> Any:
        class OwnError(Exception):
            def __init__(self, joint: int, heat: float) -> None:
                super().__init__(f"joint {joint} is at {heat} degrees")

        raise {
            "own": OwnError(3, 80.0),
            "connection": ConnectionResetError("the robot hung up"),
            "runtime": RuntimeError("the arm is stuck"),
        }[self.error]


_PLACE = gymnasium.spaces.Box(-10.0, 10.0, (2,), np.float64)


class Reach(gymnasium.Env):
    """Moves a point to a goal, with the methods of gymnasium_robotics.GoalEnv.

    Args:
        discrete: Whether actions are the four directions, valid only within the field.
    """

    observation_space = gymnasium.spaces.Dict(
        {"observation": _PLACE, "achieved_goal": _PLACE, "desired_goal": _PLACE}
    )
    action_space: gymnasium.Space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    _WAYS = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])

    def __init__(self, discrete: bool = False) -> None:
        self.discrete = discrete
        if discrete:
            self.action_space = gymnasium.spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.place, self.goal = self.np_random.uniform(-2, 2, (2, 2))
        return self._seen(), self._info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        moved = self.place + (self._WAYS[action] if self.discrete else action)
        self.place = np.clip(moved, -10, 10)
        info = self._info()
        reward = self.compute_reward(self.place, self.goal, info)
        over = self.compute_terminated(self.place, self.goal, info)
        return self._seen(), reward, over, False, info

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        return -(np.linalg.norm(achieved - desired, axis=-1) > 1).astype(np.float32)

    def compute_terminated(self, achieved: Any, desired: Any, info: Any) -> bool:
        return bool(np.linalg.norm(achieved - desired) < 0.5)

    def _seen(self) -> dict[str, np.ndarray]:
        place = self.place.copy()
        goal = self.goal.copy()
        return {"observation": place, "achieved_goal": place.copy(), "desired_goal": goal}

    def _info(self) -> dict[str, Any]:
        success = np.linalg.norm(self.place - self.goal) < 0.5
        info = {"is_success": success, "scale": 2.0, "unread": object()}
        if self.discrete:
            inside = (np.abs(self.place + self._WAYS) <= 10).all(axis=1)
            info["action_mask"] = inside.astype(np.int8)
        return info


class MixedReach(Reach):
    """Moves the point by the array in the action, but only if the action's discrete entry is 1."""

    action_space = gymnasium.spaces.Dict(
        {
            "go": gymnasium.spaces.Discrete(2),
            "way": gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32),
        }
    )

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        return super().step(action["way"] * int(action["go"]))


class ScaledReach(Reach):
    """Computes rewards that depend on `info`, and only for one transition at a time."""

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> float:
        return float(-info["scale"] * np.linalg.norm(achieved - desired))


class NeedsPackage(Counting):
    def __init__(self) -> None:
        raise ImportError("No module named 'robot_arm'")


class Undrawable(Counting):
    """Fails to render, although it accepts a render mode."""

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__()
        self.render_mode = render_mode

    def render(self) -> Any:
        raise RuntimeError("no context")


class Blank(Undrawable):
    """Renders None."""

    def render(self) -> Any:
        return None


class ChannelsFirst(Undrawable):
    """Renders images with channels first."""

    def render(self) -> Any:
        return np.zeros((3, 64, 64), np.uint8)


class Dark(Undrawable):
    """Renders black images. Episodes with an odd seed end with a gray square."""

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        self.seed = seed or 0
        return super().reset(seed=seed, options=options)

    def render(self) -> Any:
        image = np.zeros((32, 32, 3), np.uint8)
        image[:16, :16] = 128 * (self.seed % 2) * (self.count > 0)
        return image


class Growing(Undrawable):
    """Renders images of changing size."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def render(self) -> Any:
        side = 16 if self.count < 2 else 32
        return np.zeros((side, side, 3), np.uint8)


def register() -> None:
    """Registers the environments; can be called repeatedly."""
    for name, entry_point, kwargs in (
        ("Terminating-v0", Counting, {}),
        ("Truncated-v0", Counting, {"terminates": False}),
        ("Noisy-v0", Counting, {"length": 50, "noisy": True}),
        ("Long-v0", Counting, {"length": 40}),
        ("Success-v0", Success, {}),
        ("Mixed-v0", Mixed, {}),
        ("Worker-v0", Worker, {"length": 40}),
        ("Regulator-v0", Regulator, {}),
        ("Bandit-v0", Bandit, {}),
        ("NanReward-v0", Broken, {"part": "reward", "value": np.nan}),
        ("InfObservation-v0", Broken, {"part": "observation", "value": np.inf}),
        ("NanReset-v0", NanReset, {}),
        ("Gears-v0", Gears, {}),
        ("Camera-v0", Camera, {}),
        ("TextActions-v0", TextActions, {}),
        ("UnboundedActions-v0", UnboundedActions, {}),
        ("TextObservations-v0", TextObservations, {}),
        ("Reach-v0", Reach, {}),
        ("ReachScaled-v0", ScaledReach, {}),
        ("ReachMixed-v0", MixedReach, {}),
        ("ReachDiscrete-v0", Reach, {"discrete": True}),
        ("NeedsPackage-v0", NeedsPackage, {}),
        ("Faulty-v0", Faulty, {}),
        ("Device-v0", Device, {}),
    ):
        limit = {"Truncated-v0": 3, "Regulator-v0": 10}.get(name, 12 if "Reach" in name else None)
        if name not in gymnasium.registry:
            gymnasium.register(
                name, entry_point=entry_point, kwargs=kwargs, max_episode_steps=limit
            )


register()
