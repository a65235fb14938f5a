"""Videos of episodes, also on a machine without a display."""

from __future__ import annotations

import ctypes.util
import logging
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cloudpickle
import gymnasium
import imageio.v2 as imageio
import numpy as np

from eagerly.environments import choose_renderer
from eagerly.environments.factory import EnvironmentMaker
from eagerly.environments.remote import RemoteEnvironment
from eagerly.errors import RunError
from eagerly.policies.policy import Policy
from eagerly.storage.files import RunFiles
from eagerly.training.evaluation import Evaluation, PolicyLike, run_episodes

_log = logging.getLogger(__name__)

_DEFAULT_RATE = 30  # frames per second, where the environment does not say
_PREVIEW_FRAMES, _PREVIEW_PIXELS, _PREVIEW_SECONDS = 100, 240, 20.0


class Drawing(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment that says why it cannot draw itself."""

    def picture(self) -> np.ndarray | str:
        """Returns a picture `[height, width, 3]`, or the reason why there is none."""
        try:
            frame: Any = self.env.render()
        except Exception as error:  # every renderer fails in a way of its own
            why = f"{type(error).__name__}: {error}".removesuffix(": ")
            return missing_library() or f"{why}; a video needs its render mode rgb_array"
        if not isinstance(frame, np.ndarray) or frame.ndim != 3:
            modes = self.env.metadata.get("render_modes")
            return f"it gives no picture in render mode rgb_array; it declares {modes}"
        if frame.shape[2] not in (1, 3, 4) or frame.dtype != np.uint8:
            return (
                "an image must have shape [height, width, 3] and dtype uint8, got "
                f"{list(frame.shape)} and {frame.dtype}: let `render` return such an array"
            )
        return frame


def missing_library() -> str | None:
    """Names the system package that MuJoCo lacks for drawing without a display, if it does."""
    if os.environ.get("MUJOCO_GL") != "egl" or ctypes.util.find_library("EGL"):
        return None
    return (
        "libEGL is missing, with which MuJoCo draws without a display: install it, on Debian and "
        "Ubuntu with `apt install libegl1`"
    )


@dataclass(frozen=True)
class _DrawnMaker:
    """Makes an environment that draws itself, in the process that it is sent to.

    The renderer is chosen there before the environment's package is imported, because some
    packages, dm_control among them, look for a renderer while they are imported.
    """

    make: EnvironmentMaker

    def __call__(self) -> gymnasium.Env[Any, Any]:
        return _drawing(self.make)

    def __reduce__(self) -> Any:
        return _unpickled, (cloudpickle.dumps(self.make),)


def _unpickled(make: bytes) -> _DrawnMaker:
    choose_renderer()
    return _DrawnMaker(cloudpickle.loads(make))


def _drawing(make: EnvironmentMaker) -> gymnasium.Env[Any, Any]:
    choose_renderer()
    try:
        env = make(render_mode="rgb_array")
    except Exception as error:  # importing MuJoCo fails already, and not with an ImportError
        reason = missing_library()
        if reason is None:
            raise
        raise RunError(f"environment {make.name!r} cannot be drawn: {reason}") from error
    if not {"camera_id", "camera_name", "default_camera_config"} & make.kwargs.keys():
        _let_camera_follow(env)
    return Drawing(env)


def _let_camera_follow(env: gymnasium.Env[Any, Any]) -> None:
    """Takes the camera "track" of a MuJoCo model that has one: what runs would leave the picture.

    Gymnasium's own choice of it is overruled by the distance that its environments set.
    """
    renderer = getattr(env.unwrapped, "mujoco_renderer", None)
    if renderer is None:
        return
    import mujoco

    camera = mujoco.mj_name2id(renderer.model, mujoco.mjtObj.mjOBJ_CAMERA, "track")
    if camera != -1:
        renderer.camera_id = camera


def preview(video: Path, *, watch: Callable[[], object] = lambda: None) -> tuple[int, int, bytes]:
    """Creates a small animation of a video that was recorded.

    Args:
        video: The MP4.
        watch: Called after every image that was read.

    Returns:
        Width, height, and a GIF of at most 100 frames that lasts as long as the video, or 20
        seconds.

    Raises:
        RunError: If the video cannot be read.
    """
    try:
        reader: Any
        with imageio.get_reader(video) as reader:
            rate = reader.get_meta_data()["fps"]
            every = max(1, math.ceil(reader.count_frames() / _PREVIEW_FRAMES))
            side = math.ceil(max(reader.get_meta_data()["size"]) / _PREVIEW_PIXELS)
            small = []
            for number, frame in enumerate(reader):
                if number % every == 0:
                    small.append(frame[::side, ::side])
                watch()
        if not small:
            raise ValueError("it has no pictures")
        content = BytesIO()
        duration = 1000 * min(every / rate, _PREVIEW_SECONDS / len(small))
        imageio.mimsave(content, small, format="GIF", duration=duration, loop=0)
    except Exception as error:  # readers fail in ways of their own
        raise RunError(f"no preview can be made of {video}: {error}") from error
    height, width = small[0].shape[:2]
    return width, height, content.getvalue()


class Camera:
    """Records episodes in an environment of its own.

    It is drawn in another process: Mesa's software renderer and TensorFlow bring an LLVM each, and
    a process that holds both crashes (Mesa 22.3 with TensorFlow 2.21, in either order).

    Args:
        make: Makes the environment.
        timeout: Seconds that a step, reset or picture may take; 0 waits for ever.

    Raises:
        RunError: If the environment cannot draw itself, saying what is missing.
    """

    def __init__(self, make: EnvironmentMaker, *, timeout: float = 0.0) -> None:
        self._name = make.name
        self._env = RemoteEnvironment(_DrawnMaker(make), make, timeout=timeout)
        self._rate = self._env.metadata.get("render_fps", _DEFAULT_RATE)
        try:
            self._env.reset(seed=0)
            self._picture()  # what cannot be drawn is said before anything else is done
        except RunError:
            self._env.close()
            raise

    def record(
        self,
        policy: PolicyLike,
        seed: int,
        path: Path,
        *,
        steps_limit: int | None = None,
        watch: Callable[[], object] = lambda: None,
    ) -> Evaluation:
        """Records one episode as an MP4 (H.264), replacing what stands there.

        Until it is complete it is written in a temporary folder, which is removed in any case.

        Args:
            policy: As `evaluate` takes it.
            seed: Reset seed of the episode.
            path: The video, ending in `.mp4`.
            steps_limit: As `evaluate` takes it.
            watch: Called after every image.

        Raises:
            RunError: If the path has another ending, or the video cannot be encoded or written.
        """
        if path.suffix != ".mp4":
            raise RunError(f"a video must end in .mp4; got {path}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with TemporaryDirectory(prefix="eagerly-") as folder:
                # Blocks of 2 pixels: H.264 needs even sides, larger ones would stretch the picture.
                made = Path(folder, "video.mp4")
                writer: Any
                with imageio.get_writer(made, fps=self._rate, macro_block_size=2) as writer:

                    def film() -> None:
                        picture = self._picture()
                        try:
                            writer.append_data(picture)
                        except Exception as error:  # an encoder may raise anything
                            raise RunError(
                                f"the video cannot be encoded: an image of shape {picture.shape} "
                                f"and {picture.dtype} was not accepted: {error}"
                            ) from error
                        watch()

                    evaluation = run_episodes(
                        policy, self._env, [seed], steps_limit=steps_limit, watch=film
                    )
                # Whatever stands there, a link for example, is replaced and not written through.
                RunFiles(path.parent).write(path.name, [made.read_bytes()])
        except OSError as error:
            raise RunError(f"the video {path} cannot be written: {error}") from error
        return evaluation

    def _picture(self) -> np.ndarray:
        picture = self._env.call("picture")
        if isinstance(picture, str):
            raise RunError(f"environment {self._name!r} cannot be drawn: {picture}")
        return np.asarray(picture)

    def close(self) -> None:
        """Closes the environment."""
        self._env.close()


def record_in_run(
    camera: Camera,
    policy: Policy,
    seed: int,
    path: Path,
    *,
    steps_limit: int | None = None,
    watch: Callable[[], object] = lambda: None,
) -> tuple[int, int, bytes] | None:
    """Records an episode into the `videos` folder of a run, and returns its `preview`.

    A video never ends a run: where it cannot be recorded, a warning is logged.

    Args:
        camera: Records it.
        policy: The policy to record.
        seed: Reset seed of the episode.
        path: The run directory.
        steps_limit: As `evaluate` takes it.
        watch: Called after every image; may raise `InterruptedEvaluationError`.
    """
    failed: list[Exception] = []  # `watch`, which writes checkpoints

    def watching() -> None:
        try:
            watch()
        except Exception as error:
            failed.append(error)
            raise

    try:
        RunFiles(path).make_folder("videos")
        video = path / "videos" / f"step-{policy.steps:012d}.mp4"
        camera.record(policy, seed, video, steps_limit=steps_limit, watch=watching)
        return preview(video, watch=watching)
    except Exception as error:  # an environment or encoder may raise anything
        if failed:
            raise failed[0] from None
        watch()  # Ctrl-C reaches the encoder's process, too: then the video is interrupted
        what = f"it cannot be written: {error}" if isinstance(error, OSError) else error
        _log.warning("no video of step %s: %s", policy.steps, what)
    return None
