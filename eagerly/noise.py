"""Which start-up messages of TensorFlow are noise, and a program that leaves them out.

As a program it copies standard input to standard error, without site-packages and without this
package: TensorFlow's own process may abort while it is imported, and what it said last must still
be seen.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator

# Source file and beginning of the message, and from where they come:
_MESSAGES = (
    # every machine
    (r"port\.cc", r"oneDNN custom operations are on\."),
    (r"cpu_feature_guard\.cc", r"This TensorFlow binary is optimized to use available CPU"),
    # one with a GPU: two libraries of TensorFlow register the same plugins
    (r"cuda_(?:fft|dnn|blas)\.cc", r"Unable to register cu\w+ factory: Attempting to register"),
    (r"computation_placer\.cc", r"computation placer already registered\."),
    # everywhere: of the compiler
    (r"service\.cc", r"XLA service 0x[0-9a-f]+ initialized for platform"),
    (r"service\.cc", r"  StreamExecutor (?:device \(|\[)\d"),
    (r"dump_mlir_util\.cc", r"disabling MLIR crash reproducer"),
    (r"device_compiler\.h", r"Compiled cluster using XLA!"),
)
# Noise on a machine without a GPU; on one with a GPU these say why it is not used. 303 says that
# there is no driver, other numbers are problems of one.
_WITHOUT_GPU = (
    (r"cudart_stub\.cc", r"Could not find cuda drivers on your machine"),
    (r"cuda_\w+\.cc", r"failed call to cuInit: .*UNKNOWN ERROR \(303\)"),
    (
        r"cuda_\w+\.cc",
        r".*INTERNAL: CUDA Runtime error: Failed call to cudaGetRuntimeVersion: "
        r"Error loading CUDA libraries\. GPU will not be used\.",
    ),
)
# Where Linux shows an NVIDIA device, or the driver of one.
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
    """Says whether this machine shows an NVIDIA device, or the driver of one."""
    try:
        names = os.listdir(_DEVICES)
    except OSError:
        names = []
    return os.path.exists(_DRIVER) or any(name.startswith("nvidia") for name in names)


def is_noise(line: bytes, *, gpu: bool = False) -> bool:
    """Says whether a line is a start-up message of TensorFlow that is known, and means nothing.

    Args:
        line: The line.
        gpu: Whether the machine has a GPU, so that it matters why TensorFlow does not use it.
    """
    return (_KNOWN_WITH_GPU if gpu else _KNOWN).match(line) is not None


def remaining(content: bytes, *, gpu: bool = False) -> bytes:
    """Returns the lines that are not noise, as they are; the last one may be unfinished."""
    lines = content.splitlines(keepends=True)
    return b"".join(line for line in lines if not is_noise(line, gpu=gpu))


def copied(
    read: Callable[[], bytes],
    write: Callable[[bytes], object],
    end: bytes,
    *,
    gpu: bool = False,
) -> Iterator[None]:
    """Copies what is read, line by line as it comes, but for noise.

    Args:
        read: Waits for more; nothing more comes once it returns b"".
        write: Takes what is to be seen.
        end: Is left out, and yields: what was read before it has been written.
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
            return  # nobody reads it any more

    for _ in copied(lambda: os.read(0, 65536), write, end, gpu=has_gpu()):
        os.write(1, b".")


if __name__ == "__main__":
    _main(sys.argv[1].encode())
