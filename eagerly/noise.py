"""Filters harmless startup messages of TensorFlow; also runs as a program.

The program copies standard input to standard error without these messages. It is a separate process
because TensorFlow may abort the importing process, whose last messages must still appear. The
program needs neither site-packages nor this package.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator

# Source file and start of each message.
_MESSAGES = (
    # logged on every machine
    (r"port\.cc", r"oneDNN custom operations are on\."),
    (r"cpu_feature_guard\.cc", r"This TensorFlow binary is optimized to use available CPU"),
    # logged on machines with a GPU, because two TensorFlow libraries register the same plugins
    (r"cuda_(?:fft|dnn|blas)\.cc", r"Unable to register cu\w+ factory: Attempting to register"),
    (r"computation_placer\.cc", r"computation placer already registered\."),
    # logged by the XLA compiler, on every machine
    (r"service\.cc", r"XLA service 0x[0-9a-f]+ initialized for platform"),
    (r"service\.cc", r"  StreamExecutor (?:device \(|\[)\d"),
    (r"dump_mlir_util\.cc", r"disabling MLIR crash reproducer"),
    (r"device_compiler\.h", r"Compiled cluster using XLA!"),
)
# These messages are noise on a machine without a GPU. On a machine with a GPU, they explain why it
# is not used. Error 303 means that there is no driver; other numbers indicate driver problems.
_WITHOUT_GPU = (
    (r"cudart_stub\.cc", r"Could not find cuda drivers on your machine"),
    (r"cuda_\w+\.cc", r"failed call to cuInit: .*UNKNOWN ERROR \(303\)"),
    (
        r"cuda_\w+\.cc",
        r".*INTERNAL: CUDA Runtime error: Failed call to cudaGetRuntimeVersion: "
        r"Error loading CUDA libraries\. GPU will not be used\.",
    ),
)
# Where Linux exposes NVIDIA devices and their driver.
_DEVICES = "/dev"
_DRIVER = "/proc/driver/nvidia"


def _compiled(messages: tuple[tuple[str, str], ...]) -> re.Pattern[bytes]:
    logged = "|".join(rf"{file}:\d+\] {begin}" for file, begin in messages)
    lines = (
        r"WARNING: All log messages before absl::InitializeLog\(\) is called are written to ",
        r"To enable the following instructions: .* rebuild TensorFlow with the appropriate",
        rf"[IWE]\d{{4}} [\d:.]+ +\d+ (?:{logged})",
    )
    return re.compile("|".join(lines).encode())


_KNOWN = _compiled(_MESSAGES + _WITHOUT_GPU)
_KNOWN_WITH_GPU = _compiled(_MESSAGES)


def has_gpu() -> bool:
    """Returns whether this machine exposes an NVIDIA device or driver."""
    try:
        names = os.listdir(_DEVICES)
    except OSError:
        names = []
    return os.path.exists(_DRIVER) or any(name.startswith("nvidia") for name in names)


def is_noise(line: bytes, *, gpu: bool = False) -> bool:
    """Returns whether a line is a known, harmless startup message of TensorFlow.

    Args:
        line: The line.
        gpu: Whether the machine has a GPU. If so, messages about an unused GPU are not noise.
    """
    return (_KNOWN_WITH_GPU if gpu else _KNOWN).match(line) is not None


def remaining(content: bytes, *, gpu: bool = False) -> bytes:
    """Returns the lines that are not noise, unchanged. The last line may be incomplete."""
    lines = content.splitlines(keepends=True)
    return b"".join(line for line in lines if not is_noise(line, gpu=gpu))


def copied(
    read: Callable[[], bytes], write: Callable[[bytes], object], end: bytes, *, gpu: bool = False
) -> Iterator[None]:
    """Copies input to output line by line as it arrives, without noise.

    Args:
        read: Blocks until input is available; returns b"" at the end of the input.
        write: Receives the remaining lines.
        end: Marker in the input, which is not copied. The generator yields once it has written all
            input before the marker.
        gpu: Whether the machine has a GPU.
    """
    content = b""
    while more := read():
        content += more
        if end in content:
            before, _, content = content.partition(end)
            write(remaining(before, gpu=gpu))
            yield
        lines, newline, content = content.rpartition(b"\n")
        write(remaining(lines + newline, gpu=gpu))
    write(remaining(content, gpu=gpu))


def _main(end: bytes) -> None:
    def write(text: bytes) -> None:
        try:
            while text:
                text = text[os.write(2, text) :]
        except OSError:
            return  # the reader of standard error is gone

    for _ in copied(lambda: os.read(0, 65536), write, end, gpu=has_gpu()):
        os.write(1, b".")


if __name__ == "__main__":
    _main(sys.argv[1].encode())
