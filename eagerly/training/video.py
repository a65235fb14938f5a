"""Records videos of episodes, with or without a display."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cloudpickle
import imageio.v2 as imageio
import numpy as np

from eagerly.environments.factory import EnvironmentMaker
from eagerly.environments.remote import RemoteEnvironment
from eagerly.environments.rendering import (
    RenderedEnvironment,
    choose_renderer,
    rendering_problem,
    select_track_camera,
)
from eagerly.errors import RunError
from eagerly.policies.policy import Policy
from eagerly.storage.files import RunFiles
from eagerly.training.evaluation import Evaluation, PolicyLike, run_episodes

_log = logging.getLogger(__name__)

_INDEX = 1  # of the environment, see `EnvironmentMaker`; evaluations use index 0
_DEFAULT_RATE = 30  # frames per second, if the environment does not specify it
_PREVIEW_FRAMES, _PREVIEW_PIXELS, _PREVIEW_SECONDS = 100, 240, 20.0


@dataclass(frozen=True)
class _RenderedMaker:
    """Creates a rendering environment in the process that unpickles this object.

    Unpickling selects the renderer before the environment's package is imported. Some packages,
    such as dm_control, look for a renderer on import.
    """

    make: EnvironmentMaker

    def __call__(self) -> RenderedEnvironment:
        make = self.make
        try:
            env = make(_INDEX, render_mode="rgb_array")
        except Exception as error:  # importing MuJoCo can raise various exceptions
            reason = rendering_problem(error)
            if reason is None:
                raise
            raise RunError(f"environment {make.name!r} cannot be rendered: {reason}") from error
        if not {"camera_id", "camera_name", "default_camera_config"} & make.kwargs.keys():
            select_track_camera(env)
        return RenderedEnvironment(env)

    def __reduce__(self) -> Any:
        return _unpickled, (cloudpickle.dumps(self.make),)


def _unpickled(make: bytes) -> _RenderedMaker:
    choose_renderer()
    return _RenderedMaker(cloudpickle.loads(make))


def preview(video: Path, *, watch: Callable[[], object] = lambda: None) -> tuple[int, int, bytes]:
    """Creates a small animation from a recorded video.

    Args:
        video: The MP4 file.
        watch: Called after each frame is read.

    Returns:
        Width, height, and a GIF of at most 100 frames and 240 pixels per side, which lasts as long
        as the video, but at most 20 seconds.

    Raises:
        RunError: If the video cannot be read.
    """
    try:
        reader: Any
        # Without `closing`, the process of a reader or writer outlives exceptions in the block.
        with closing(imageio.get_reader(video)) as reader:
            rate = reader.get_meta_data()["fps"]
            every = max(1, math.ceil(reader.count_frames() / _PREVIEW_FRAMES))
            side = math.ceil(max(reader.get_meta_data()["size"]) / _PREVIEW_PIXELS)
            small = []
            for number, frame in enumerate(reader):
                if number % every == 0:
                    small.append(frame[::side, ::side])
                watch()
        if not small:
            raise ValueError("it has no frames")
        content = BytesIO()
        duration = 1000 * min(every / rate, _PREVIEW_SECONDS / len(small))
        imageio.mimsave(content, small, format="GIF", duration=duration, loop=0)
    except Exception as error:  # readers raise different exceptions
        raise RunError(f"cannot create a preview of {video}: {error}") from error
    height, width = small[0].shape[:2]
    return width, height, content.getvalue()


class Camera:
    """Records episodes in a separate environment.

    The environment runs in another process: Mesa's software renderer and TensorFlow each bundle
    LLVM, and a process that loads both crashes (Mesa 22.3 with TensorFlow 2.21, in either order).

    Args:
        make: Creates the environment.
        timeout: Seconds allowed for a step, reset or image; 0 waits forever.

    Raises:
        RunError: If the environment cannot be rendered, with the reason.
    """

    def __init__(self, make: EnvironmentMaker, *, timeout: float = 0.0) -> None:
        self._name = make.name
        self._env = RemoteEnvironment(_RenderedMaker(make), partial(make, _INDEX), timeout=timeout)
        self._rate = self._env.metadata.get("render_fps", _DEFAULT_RATE)
        try:
            self._env.reset(seed=0)
            self._image()  # fail early if rendering does not work
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
        """Records one episode as an MP4 (H.264) file, replacing an existing file.

        The video is recorded in a temporary folder, which is always removed, and then copied. If
        every image has a single color, a warning is logged.

        Args:
            policy: See `run_episodes`.
            seed: Reset seed of the episode.
            path: The video file, ending in `.mp4`.
            steps_limit: See `run_episodes`.
            watch: Called after each frame.

        Returns:
            The evaluation of the episode.

        Raises:
            RunError: If the video cannot be encoded or written.
        """
        blank = True
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with TemporaryDirectory(prefix="eagerly-") as folder:
                # Blocks of 2 pixels: H.264 needs even sides, and larger blocks distort the image.
                made = Path(folder, "video.mp4")
                writer: Any
                writing = imageio.get_writer(made, fps=self._rate, macro_block_size=2)
                with closing(writing) as writer:

                    def film() -> None:
                        nonlocal blank
                        image = self._image()
                        blank = blank and bool((image == image[0, 0]).all())
                        try:
                            writer.append_data(image)
                        except Exception as error:  # encoders may raise anything
                            raise RunError(
                                "the video cannot be encoded: the encoder rejected an image of "
                                f"shape {image.shape} and dtype {image.dtype}: {error}"
                            ) from error
                        watch()

                    evaluation = run_episodes(
                        policy, self._env, [seed], steps_limit=steps_limit, watch=film
                    )
                # An existing link is replaced, not followed.
                RunFiles(path.parent).write(path.name, [made.read_bytes()])
        except OSError as error:
            raise RunError(f"the video {path} cannot be written: {error}") from error
        if blank:
            driver = os.environ.get("SDL_VIDEODRIVER")
            _log.warning(
                f"the video {path} is blank: each image that environment {self._name!r} rendered "
                "has a single color. Check `render`"
                + (f" and SDL_VIDEODRIVER, which is {driver!r}" if driver else "")
            )
        return evaluation

    def _image(self) -> np.ndarray:
        image = self._env.call("image")
        if isinstance(image, str):
            raise RunError(f"environment {self._name!r} cannot be rendered: {image}")
        return np.asarray(image)

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
    """Records an episode in the `videos` folder of a run, and returns its `preview`.

    A failed recording never ends a run: a warning is logged and None is returned.

    Args:
        camera: The camera.
        policy: The policy to record.
        seed: Reset seed of the episode.
        path: The run directory.
        steps_limit: See `run_episodes`.
        watch: Called after each frame. Exceptions that it raises are passed on, such as
            `InterruptedEvaluationError`.
    """
    failed: list[Exception] = []  # exceptions of `watch`, which may write checkpoints

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
        watch()  # raises an exception if Ctrl-C ended the encoder's process
        what = f"it cannot be written: {error}" if isinstance(error, OSError) else error
        _log.warning("no video at step %s: %s", policy.steps, what)
    return None
