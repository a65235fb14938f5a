"""Videos: rendered without a display, complete, and without effect on training."""

from __future__ import annotations

import ctypes.util
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cloudpickle
import gymnasium
import imageio.v2 as imageio
import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from eagerly.environments import choose_renderer
from eagerly.environments.factory import EnvironmentMaker, environment_maker
from eagerly.errors import RunError
from eagerly.training import video
from eagerly.training.evaluation import evaluation_seeds
from eagerly.training.video import Camera
from tests import toys
from tests.helpers import ROOT
from tests.small_runs import TrainRun, logged

toys.register()

SHORT = {"max_episode_steps": 30}


def pictures(path: Path) -> np.ndarray:
    with imageio.get_reader(path) as reader:
        return np.array([frame for frame in reader])  # noqa: C416  the reader's length is infinite


def test_a_video_shows_every_step_of_the_episode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    camera = Camera(environment_maker("Pendulum-v1", {"max_episode_steps": 120}))
    policy = lambda observation: np.ones(1, np.float32)  # noqa: E731
    count: list[int] = []
    evaluation = camera.record(policy, 0, tmp_path / "a/b.mp4", watch=lambda: count.append(1))
    assert len(count) == evaluation.lengths[0] + 1

    def stop() -> None:
        assert len(list((tmp_path / "temporary").iterdir())) == 1
        raise KeyboardInterrupt

    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    with pytest.raises(KeyboardInterrupt):
        camera.record(policy, 0, tmp_path / "a/c.mp4", watch=stop)
    assert list((tmp_path / "temporary").iterdir()) == []
    camera.close()
    shown = pictures(tmp_path / "a" / "b.mp4")
    assert shown.shape == (evaluation.lengths[0] + 1, 500, 500, 3)
    assert len({frame.tobytes() for frame in shown[::20]}) > 5  # the image changes
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b.mp4"]
    width, height, content = video.preview(tmp_path / "a" / "b.mp4")
    small = imageio.mimread(content, format="GIF")
    assert len(small) == 61  # the preview has every second of the 121 images
    assert small[0].shape[:2] == (height, width) == (167, 167)
    with pytest.raises(RunError, match=r"cannot create a preview of .*missing\.mp4"):
        video.preview(tmp_path / "missing.mp4")
    (tmp_path / "broken.mp4").write_bytes(b"no film" * 100)
    with pytest.raises(RunError, match=r"cannot create a preview of .*broken\.mp4"):
        video.preview(tmp_path / "broken.mp4")


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_recording_leaves_nothing_behind(
    train: TrainRun, tmp_path: Path, number: signal.Signals
) -> None:
    train(steps=200, warmup_steps=100, env_kwargs={"max_episode_steps": 5000})
    temporary, video_path = tmp_path / "temporary", tmp_path / "x.mp4"
    temporary.mkdir()
    words = [sys.executable, ROOT / "scripts" / "evaluate.py", tmp_path / "run"]
    process = subprocess.Popen(
        [*map(str, words), "--which", "latest", "--episodes", "1", "--video", str(video_path)],
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    deadline = time.monotonic() + 120
    while not list(temporary.glob("eagerly-*/*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # like a terminal, also signals the encoder process
    else:
        process.send_signal(number)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert b"Traceback" not in told
    assert list(temporary.glob("eagerly-*")) == []
    assert not list(tmp_path.glob("x.mp4*"))


@pytest.mark.skipif(not ctypes.util.find_library("EGL"), reason="needs libEGL")
@pytest.mark.long
def test_mujoco_is_rendered_without_a_display(tmp_path: Path) -> None:
    # Rendering must work in a process that has loaded TensorFlow, like this one.
    make = environment_maker("HalfCheetah-v5", {"max_episode_steps": 60})
    camera = Camera(make)
    camera.record(lambda observation: np.ones(6, np.float32), 0, tmp_path / "cheetah.mp4")
    camera.close()
    shown = pictures(tmp_path / "cheetah.mp4")
    assert shown.std() > 10  # the images have several colors


@pytest.mark.skipif(not ctypes.util.find_library("EGL"), reason="needs libEGL")
def test_the_camera_tracks_the_robot_unless_another_one_is_selected() -> None:
    makers = [environment_maker("HalfCheetah-v5", kwargs) for kwargs in ({}, {"camera_id": -1})]
    envs = [video._RenderedMaker(make)().unwrapped for make in makers]
    # Camera 0 of this model is called "track".
    assert [env.mujoco_renderer.camera_id for env in envs] == [0, -1]


def test_renderers_are_selected_only_without_a_display(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL", "SDL_VIDEODRIVER"):
        monkeypatch.setenv(name, "x")  # monkeypatch restores it after the test
        monkeypatch.delenv(name)
    monkeypatch.setenv("DISPLAY", ":0")
    choose_renderer()
    assert "MUJOCO_GL" not in os.environ
    monkeypatch.delenv("DISPLAY")
    choose_renderer()
    assert os.environ["MUJOCO_GL"] == "egl"
    # highway-env draws nothing if this is "dummy".
    assert os.environ["SDL_VIDEODRIVER"] == "offscreen"
    os.environ["MUJOCO_GL"] = "osmesa"
    choose_renderer()
    assert os.environ["MUJOCO_GL"] == "osmesa"


_WHILE_IMPORTED: list[str | None] = []


def _imported() -> object:
    _WHILE_IMPORTED.append(os.environ.get("MUJOCO_GL"))
    return toys.Undrawable


class LooksForARenderer:
    """Records MUJOCO_GL when unpickled, because dm_control reads it when imported."""

    def __reduce__(self) -> object:
        return _imported, ()


def test_the_renderer_is_selected_before_the_environments_package_is_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL", "SDL_VIDEODRIVER"):
        monkeypatch.setenv(name, "x")  # monkeypatch restores it after the test
        monkeypatch.delenv(name)
    sent = cloudpickle.dumps(video._RenderedMaker(EnvironmentMaker("any", LooksForARenderer())))
    assert _WHILE_IMPORTED == []
    cloudpickle.loads(sent)
    assert _WHILE_IMPORTED == ["egl"]


def test_a_renderers_exception_is_reported() -> None:
    with pytest.raises(RunError, match="cannot be rendered: RuntimeError: no context"):
        Camera(environment_maker(toys.Undrawable))


WITHOUT_EGL = """
import ctypes, ctypes.util
find, load = ctypes.util.find_library, ctypes.CDLL.__init__
ctypes.util.find_library = lambda name: None if name == "EGL" else find(name)
def refuse(self, name, *arguments, **more):
    if name and "EGL" in str(name):
        raise OSError(f"{name}: cannot open shared object file")
    load(self, name, *arguments, **more)
ctypes.CDLL.__init__ = refuse
"""


@pytest.mark.parametrize("drawn_before", [False, True], ids=["fresh", "MuJoCo imported"])
def test_a_missing_libegl_is_reported_with_its_package(tmp_path: Path, drawn_before: bool) -> None:
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_EGL)
    code = """
from eagerly.errors import RunError
from eagerly.environments.factory import EnvironmentMaker, environment_maker
from eagerly.training.video import Camera
make = environment_maker("HalfCheetah-v5")
MAKE
try:
    Camera(make)
except RunError as error:
    print(error)
"""
    bare = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "MUJOCO_GL")}
    done = subprocess.run(
        [sys.executable, "-c", code.replace("MAKE", "make()" if drawn_before else "")],
        env=bare | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    (line,) = done.stdout.splitlines()
    assert "'HalfCheetah-v5' cannot be rendered: libEGL is missing" in line
    assert "`apt install libegl1`" in line
    assert "Traceback" not in done.stderr


def test_a_failing_encoder_does_not_end_a_run(train: TrainRun, tmp_path: Path) -> None:
    trainer = train(env=toys.Growing, video_every_steps=150, steps=160)
    assert trainer.finished
    (line,) = [line for line in trainer.lines if "no video" in line]
    assert line.startswith(
        "no video at step 150: the video cannot be encoded: the encoder rejected an image of shape "
        "(32, 32, 3) and dtype uint8"
    )
    assert list((tmp_path / "run" / "videos").iterdir()) == []


def test_an_error_of_a_checkpoint_during_a_video_is_raised(
    tmp_path: Path,
) -> None:
    camera = Camera(environment_maker("Pendulum-v1"))
    policy: Any = SimpleNamespace(steps=7, start_episode=lambda: lambda *_: np.zeros(1))
    (tmp_path / "run").mkdir()

    def fails() -> None:
        raise OSError("read-only file system")

    with pytest.raises(OSError, match="read-only"):
        video.record_in_run(camera, policy, 0, tmp_path / "run", watch=fails)
    camera.close()


def test_an_environment_that_cannot_be_rendered_is_rejected_before_a_run(
    train: TrainRun, tmp_path: Path
) -> None:
    with pytest.raises(RunError, match=r"an image must have shape .* got \[3, 64, 64\] and uint8"):
        Camera(environment_maker(toys.ChannelsFirst))
    with pytest.raises(RunError, match="returned no image in render mode rgb_array"):
        Camera(environment_maker(toys.Blank))
    with pytest.raises(RunError, match=r"'Long-v0' cannot be rendered: .* must accept render_mode"):
        train(env="Long-v0", video_every_steps=100)  # this environment takes no render_mode
    assert not (tmp_path / "run").exists()


def test_unwritable_paths_are_rejected(tmp_path: Path) -> None:
    camera = Camera(environment_maker("Pendulum-v1"))
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be written"):
        camera.record(lambda observation: np.zeros(1), 0, tmp_path / "file" / "a.mp4")


def test_a_video_of_one_color_causes_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    camera = Camera(environment_maker(toys.Dark))
    for seed, warnings in ((0, 1), (1, 0)):
        with logged() as lines:
            camera.record(lambda observation: np.ones(2, np.float32), seed, tmp_path / "a.mp4")
        assert len(lines) == warnings, lines
        for line in lines:
            assert "a.mp4 is blank: each image that environment 'factory tests.toys:Dark'" in line
            assert line.endswith("Check `render` and SDL_VIDEODRIVER, which is 'dummy'")
    camera.close()


def test_a_video_that_cannot_be_written_does_not_end_a_run(train: TrainRun, tmp_path: Path) -> None:
    train(steps=40, video_every_steps=50, env_kwargs=SHORT)
    (tmp_path / "run" / "videos").write_text("")
    trainer = train(steps=120)
    assert trainer.steps == 120
    told = [line for line in trainer.lines if "no video at step" in line]
    assert len(told) == 2
    assert "cannot be written" in told[0]


def test_training_videos_are_written_at_their_steps(train: TrainRun, tmp_path: Path) -> None:
    settings = {"evaluation_seed": 3, "evaluation_steps_limit": 20, "env_kwargs": SHORT}
    train(steps=120, video_every_steps=60, **settings)
    names = sorted(path.name for path in (tmp_path / "run" / "videos").iterdir())
    assert names == ["step-000000000060.mp4", "step-000000000120.mp4"]
    first, *rest = pictures(tmp_path / "run" / "videos" / names[1])
    assert len(rest) == 20
    env, apart = gymnasium.make("Pendulum-v1", render_mode="rgb_array"), []
    for seed in (*evaluation_seeds(3, 2), evaluation_seeds(4, 1)[0]):
        env.reset(seed=seed)
        apart.append(np.abs(env.render() - first.astype(float)).mean())
    assert apart[0] < 0.5 * min(apart[1:])
    events = EventAccumulator(str(tmp_path / "run"), size_guidance={"tensors": 0}).Reload()
    shown = events.Tensors("evaluation/video")
    assert [event.step for event in shown] == [60, 120]
    width, height, content = shown[0].tensor_proto.string_val
    assert imageio.mimread(content, format="GIF")[0].shape[:2] == (int(height), int(width))
    plugin = events.SummaryMetadata("evaluation/video").plugin_data.plugin_name
    assert plugin == "images"
