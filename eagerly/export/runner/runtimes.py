"""Runtimes: callables that map model inputs to outputs, both in the order of `policy.json`."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np


def to_integers(x: np.ndarray, spec: dict[str, Any]) -> np.ndarray:
    """Quantizes float32 inputs to int8."""
    q = np.rint(x / np.float32(spec["scale"])) + np.float32(spec["zero_point"])
    return np.minimum(np.maximum(q, -128), 127).astype(np.int8)


def to_numbers(q: np.ndarray, spec: dict[str, Any]) -> np.ndarray:
    """Dequantizes int8 outputs to float32."""
    steps = q.astype(np.float32) - np.float32(spec["zero_point"])
    return steps * np.float32(spec["scale"])


def _needs(runtime: str, package: str, error: ImportError) -> ImportError:
    """Returns an error with the command that installs a runtime."""
    return ImportError(f"this policy needs {runtime}: pip install {package} ({error})")


class _SavedModel:
    def __init__(self, folder: Path, model: dict[str, Any]) -> None:
        try:
            import tensorflow as tf
        except ImportError as error:
            raise _needs("TensorFlow", "tensorflow", error) from error
        self._loaded = tf.saved_model.load(str(folder / "saved_model"))  # keeps the function alive
        self._call, self._constant = self._loaded.signatures["serving_default"], tf.constant
        self._inputs = [spec["name"] for spec in model["inputs"]]
        self._outputs = [spec["name"] for spec in model["outputs"]]

    def __call__(self, given: list[np.ndarray]) -> list[np.ndarray]:
        named = {name: self._constant(x) for name, x in zip(self._inputs, given)}  # noqa: B905
        found = self._call(**named)
        return [found[name].numpy() for name in self._outputs]


class _LiteRT:
    def __init__(self, folder: Path, model: dict[str, Any]) -> None:
        try:
            from ai_edge_litert.interpreter import Interpreter
        except ImportError as error:
            raise _needs("LiteRT", "ai-edge-litert", error) from error
        # Pass the content instead of the path: in some locales, LiteRT cannot open non-ASCII paths.
        content = (folder / model["files"][0]).read_bytes()
        self._interpreter = Interpreter(model_content=content, num_threads=1)
        self._interpreter.allocate_tensors()
        self._inputs = [spec["index"] for spec in model["inputs"]]
        self._outputs = [spec["index"] for spec in model["outputs"]]
        self.run = self._one_to_one()

    def _one_to_one(self) -> Any:
        """Returns a fast function that maps the first input to the first output.

        It looks up the methods of the interpreter once instead of in each call.
        """
        write, invoke, read = (
            getattr(self._interpreter, name) for name in ("set_tensor", "invoke", "get_tensor")
        )
        source, target = self._inputs[0], self._outputs[0]

        def run(given: np.ndarray) -> np.ndarray:
            write(source, given)
            invoke()
            return read(target)

        return run

    def __call__(self, given: list[np.ndarray]) -> list[np.ndarray]:
        interpreter = self._interpreter
        for index, x in zip(self._inputs, given):  # noqa: B905
            interpreter.set_tensor(index, x)
        interpreter.invoke()
        return [interpreter.get_tensor(index) for index in self._outputs]


class _ONNX:
    def __init__(self, folder: Path, model: dict[str, Any]) -> None:
        try:
            import onnxruntime
        except ImportError as error:
            raise _needs("ONNX Runtime", "onnxruntime", error) from error
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        # Pass the content instead of the path, because in some locales ONNX Runtime cannot open
        # non-ASCII paths.
        content = (folder / model["files"][0]).read_bytes()
        self._session = onnxruntime.InferenceSession(
            content, options, providers=["CPUExecutionProvider"]
        )
        self._inputs = [spec["name"] for spec in model["inputs"]]
        self._outputs = [spec["name"] for spec in model["outputs"]]

    def __call__(self, given: list[np.ndarray]) -> list[np.ndarray]:
        return list(self._session.run(self._outputs, dict(zip(self._inputs, given))))  # noqa: B905


class _C:
    """Compiles `policy.c` on this machine and calls it. `$CC` selects another compiler."""

    def __init__(self, folder: Path, model: dict[str, Any]) -> None:
        import ctypes  # imported here because other formats do not need them
        import shlex
        import subprocess
        import tempfile

        words = shlex.split(os.environ.get("CC", "")) or ["cc"]
        with tempfile.TemporaryDirectory(prefix="eagerly-") as private:
            library = Path(private, "policy.so")
            flags = ["-std=c99", "-O2", "-shared", "-fPIC"]
            command = [*words, *flags, str(folder / "policy.c"), "-o", str(library), "-lm"]
            try:
                done = subprocess.run(command, capture_output=True, text=True)
            except FileNotFoundError as error:
                raise ImportError(
                    f"this policy needs a C compiler, and {words[0]} was not found: install one, "
                    "or set CC to its name"
                ) from error
            if done.returncode:
                raise ValueError(f"{shlex.join(command)} failed:\n{done.stderr.strip()}")
            self._call = ctypes.CDLL(str(library)).policy_network
        row, reward, given = ctypes.c_void_p, ctypes.c_float, model["inputs"][0]
        shapes = {spec["name"]: tuple(spec["shape"]) for spec in model["outputs"]}
        self._states = [shape for name, shape in shapes.items() if name.startswith("next_state_")]
        self._call.argtypes = [row, row, reward, row] if self._states else [row, row]
        self._call.restype = None
        sizes = [shape[1] for shape in list(shapes.values())[: len(shapes) - len(self._states)]]
        self._dtype, self._shape = np.dtype(given["dtype"]), (1, sum(sizes))
        self._ends = np.cumsum(sizes)[:-1]  # continuous actions and logits are one array

    def __call__(self, given: list[np.ndarray]) -> list[np.ndarray]:
        row, output = np.ascontiguousarray(given[0]), np.empty(self._shape, self._dtype)
        if not self._states:
            self._call(row.ctypes.data, output.ctypes.data)
            return np.split(output, self._ends, axis=1) if len(self._ends) else [output]
        # `policy_state` contains only floats, the previous action first.
        action, reward, *parts = given[1:]
        state = np.concatenate([action, *(part.reshape(1, -1) for part in parts)], axis=1)
        self._call(state.ctypes.data, row.ctypes.data, float(reward[0]), output.ctypes.data)
        states, at = [], action.shape[1]
        for shape in self._states:
            stop = at + math.prod(shape)
            states.append(state[0, at:stop].reshape(shape))
            at = stop
        return [*np.split(output, self._ends, axis=1), *states]


RUNTIMES: dict[str, Any] = {
    "saved-model": _SavedModel,
    "litert": _LiteRT,
    "onnx": _ONNX,
    "c": _C,
}
