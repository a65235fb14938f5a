"""Known startup messages of TensorFlow are filtered out of stderr; other lines are kept."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from eagerly import noise, quiet
from eagerly.noise import copied, is_noise, remaining

ROOT = Path(__file__).parents[2]
_BEGIN = "I0000 00:00:1795445616.381428   12990 "
NOISE = [
    "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR",
    _BEGIN + "port.cc:153] oneDNN custom operations are on. You may see slightly different",
    _BEGIN + "cudart_stub.cc:31] Could not find cuda drivers on your machine, GPU will not be",
    _BEGIN + "cpu_feature_guard.cc:227] This TensorFlow binary is optimized to use available CPU i",
    "To enable the following instructions: AVX2 FMA, in other operations, rebuild TensorFlow with "
    "the appropriate compiler flags.",
    "E" + _BEGIN[1:] + "cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA error: Failed "
    "call to cuInit: UNKNOWN ERROR (303)",
    "E" + _BEGIN[1:] + "cuda_executor.cc:1743] Could not get CUDA version: INTERNAL: CUDA Runtime "
    "error: Failed call to cudaGetRuntimeVersion: Error loading CUDA libraries. GPU will not be "
    "used.",
    "E" + _BEGIN[1:] + "cuda_dnn.cc:8310] Unable to register cuDNN factory: Attempting to register "
    "factory for plugin cuDNN when one has already been registered",
    "W" + _BEGIN[1:] + "computation_placer.cc:177] computation placer already registered. Please",
    _BEGIN + "device_compiler.h:208] Compiled cluster using XLA!  This line is logged at most once",
]
SAID = [
    "E" + _BEGIN[1:] + "cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA error: Failed "
    "call to cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
    "W" + _BEGIN[1:] + "gpu_device.cc:2365] Cannot dlopen some GPU libraries.",
    "F" + _BEGIN[1:] + "port.cc:153] oneDNN custom operations are on.",
    "my program: oneDNN custom operations are on.",
    "  File a.py, line 3, To enable the following instructions: FMA",
    "",
    "Illegal instruction\r",
]


@pytest.mark.parametrize("line", NOISE)
def test_known_startup_messages_are_noise(line: str) -> None:
    assert is_noise(line.encode())


REASONS = [line for line in NOISE if re.search("cuda drivers|303|Error loading CUDA", line)]


@pytest.mark.parametrize("line", REASONS)
def test_reasons_for_an_unused_gpu_are_shown_on_a_machine_with_a_gpu(line: str) -> None:
    assert not is_noise(line.encode(), gpu=True)


def test_other_noise_is_filtered_on_a_machine_with_a_gpu() -> None:
    assert len(REASONS) == 3
    content = "".join(f"{line}\n" for line in NOISE).encode()
    shown = "".join(f"{line}\n" for line in REASONS).encode()
    assert remaining(content, gpu=True) == shown
    pieces = iter([content])
    written: list[bytes] = []
    assert not list(copied(lambda: next(pieces, b""), written.append, b"<end>", gpu=True))
    assert b"".join(written) == shown


def test_a_gpu_is_detected_by_its_device_or_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(noise, "_DEVICES", str(tmp_path / "dev"))
    monkeypatch.setattr(noise, "_DRIVER", str(tmp_path / "driver"))
    assert not noise.has_gpu()
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/null").touch()
    assert not noise.has_gpu()
    (tmp_path / "dev/nvidia0").touch()
    assert noise.has_gpu()
    (tmp_path / "dev/nvidia0").unlink()
    (tmp_path / "driver").mkdir()
    assert noise.has_gpu()


def test_other_lines_are_unchanged_and_in_order() -> None:
    mixed = [line for pair in zip(SAID, NOISE, strict=False) for line in pair]
    assert remaining("\n".join(mixed).encode()) == "".join(f"{line}\n" for line in SAID).encode()


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_lines_are_copied_for_any_chunk_size(size: int) -> None:
    content = "\n".join([*NOISE, *SAID, "unfinished"]).encode() + b"<end>" + b"of another"
    pieces: Iterator[bytes] = iter([content[i : i + size] for i in range(0, len(content), size)])
    shown: list[bytes] = []
    ends = [b"".join(shown) for _ in copied(lambda: next(pieces, b""), shown.append, b"<end>")]
    expected = "\n".join([*SAID, "unfinished"]).encode()
    assert ends == [expected]  # all earlier lines are shown before the end marker is reported
    assert b"".join(shown) == expected + b"of another"


FAKE = f"""
import os, sys
os.write(2, {NOISE[1].encode()!r} + b"\\nno such instruction")
"""
IMPORTING = """
import os, sys
import eagerly
print("before", file=sys.stderr)
import tensorflow
print("after", file=sys.stderr)
"""


def _said(
    folder: Path, end: str = "", program: str = IMPORTING, shell: str = "", **variables: str
) -> tuple[int, str]:
    """Returns exit code and stderr of a program that imports a fake, noisy TensorFlow."""
    (folder / "tensorflow.py").write_text(FAKE + end)
    environment = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
    path = {"PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}
    command = [sys.executable, "-c", program]
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {shell}', "sh", *command] if shell else command,
        cwd=folder,
        capture_output=True,
        text=True,
        env=environment | path | variables,
    )
    return done.returncode, done.stderr


def test_output_before_during_and_after_the_import_is_kept(tmp_path: Path) -> None:
    assert _said(tmp_path) == (0, "before\nno such instructionafter\n")


def test_an_import_that_fails_or_aborts_shows_its_last_output(tmp_path: Path) -> None:
    code, said = _said(tmp_path, "raise ImportError('broken build')")
    assert code == 1
    assert said.startswith("before\nno such instruction")
    assert said.endswith("ImportError: broken build\n")
    code, said = _said(tmp_path, "os.abort()")
    assert (code, said) == (-6, "before\nno such instruction")


def test_verbose_settings_disable_the_filter(tmp_path: Path) -> None:
    for asked in ({"TF_CPP_MIN_LOG_LEVEL": "0"}, {"TF_CPP_MAX_VLOG_LEVEL": "1"}):
        assert NOISE[1] in _said(tmp_path, **asked)[1]
    program = f"{IMPORTING}\nprint(os.environ['TF_CPP_MIN_LOG_LEVEL'], file=sys.stderr)"
    assert _said(tmp_path, program=program)[1].endswith("after\n1\n")
    assert _said(tmp_path, program=program, TF_CPP_MIN_LOG_LEVEL="3")[1].endswith("after\n3\n")


def test_with_stderr_closed_nothing_fails_and_descriptor_2_is_left_alone(
    tmp_path: Path,
) -> None:
    program = "held = open('held', 'w')\n" + IMPORTING.replace("print", "(lambda *a, **b: 0)")
    assert _said(tmp_path, program=f"{program}assert held.fileno() == 2", shell="2>&-")[0] == 0
    assert (tmp_path / "held").read_text() == f"{NOISE[1]}\nno such instruction"


def test_a_child_process_started_during_the_import_keeps_its_stderr(tmp_path: Path) -> None:
    started = "import subprocess\nsubprocess.Popen(['sh', '-c', 'sleep 0.5; echo late >&2'])"
    assert _said(tmp_path, started) == (0, "before\nno such instructionafter\nlate\n")


def test_a_killed_filter_loses_no_output(tmp_path: Path) -> None:
    end = "\nfrom eagerly.quiet import _filter"
    end += "\n_filter._process.kill()\n_filter._process.wait()\nos.write(2, b'told later\\n')"
    assert "told later\nafter\n" in _said(tmp_path, end)[1]


def test_the_filter_supports_more_open_files_than_select(tmp_path: Path) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 1200:
        pytest.skip(f"a process may open {hard} files here")
    opening = "import resource\nhard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
    opening += "resource.setrlimit(resource.RLIMIT_NOFILE, (1200, hard))\n"
    opening += "held = [open('/dev/null') for _ in range(1100)]\n"
    program = opening + IMPORTING + "assert len(os.listdir('/proc/self/fd')) < 1120\n"
    assert _said(tmp_path, program=program) == (0, "before\nno such instructionafter\n")


def test_the_filter_survives_a_search_a_failed_import_and_finders_without_find_spec(
    tmp_path: Path,
) -> None:
    program = """
import eagerly, importlib.util, sys
class Old:
    def find_module(self, *_):
        return None
sys.meta_path.insert(1, Old())
importlib.util.find_spec("tensorflow")
for _ in range(2):
    try:
        import tensorflow
    except ImportError:
        pass
"""
    said = _said(
        tmp_path,
        "if 'again' not in vars(sys):\n sys.again = raise_ = 1\n raise ImportError",
        program=program,
    )
    assert said[1].replace("no such instruction", "") == ""


COMMAND = """
import click
from eagerly.scripts.commands import Command, CommandGroup
@click.group(cls=CommandGroup)
def main(): pass
@main.command(cls=Command)
def load(): import tensorflow
main(["load"])
"""


def test_a_command_announces_tensorflow_and_ends_with_a_line_on_ctrl_c(tmp_path: Path) -> None:
    said = "loading TensorFlow ...\nno such instruction"
    assert _said(tmp_path, program=COMMAND) == (0, said)
    interrupted = "\nos.write(2, b'.\\n')\nos.kill(os.getpid(), 2)\nos.read(os.pipe()[0], 1)"
    ended = 130, f"{said}.\nstopped by SIGINT\n"
    assert _said(tmp_path, interrupted, program=COMMAND) == ended


def test_threads_can_enter_and_leave_the_filter_in_any_order(
    capfd: pytest.CaptureFixture[str],
) -> None:
    entered, leave = [threading.Event() for _ in range(2)], [threading.Event() for _ in range(2)]

    def inside(number: int) -> None:
        with quiet.quiet():
            entered[number].set()
            leave[number].wait(30)

    threads = [threading.Thread(target=inside, args=(number,)) for number in range(2)]
    for thread, event in zip(threads, entered, strict=True):
        thread.start()
        assert event.wait(30)
    os.write(2, NOISE[0].encode() + b"\nboth\n")
    for thread, event in zip(threads, leave, strict=True):
        event.set()
        thread.join()
        os.write(2, b"one less\n")
    os.write(2, NOISE[0].encode() + b"\n")
    assert capfd.readouterr().err == f"both\none less\none less\n{NOISE[0]}\n"
