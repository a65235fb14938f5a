"""Preprocessing of observations in NumPy, the same in environments and in exports.

Exports contain a copy of this file in their package `runner`, so it imports nothing but NumPy.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_LUMA = (0.2125, 0.7154, 0.0721)  # weights of Gymnasium's `GrayscaleObservation`


class Preprocessing:
    """Preprocesses the observations of one episode, in the order of its steps.

    Args:
        steps: The preprocessing steps in `policy.json`: `kind` and arguments of each.
    """

    def __init__(self, steps: list[dict[str, Any]]) -> None:
        self._steps = steps
        self._frames: dict[int, list[np.ndarray]] = {}  # of the stack with this index

    def __call__(self, observation: np.ndarray) -> np.ndarray:
        """Returns the next observation as the policy reads it."""
        for index, step in enumerate(self._steps):
            if step["kind"] == "grayscale":
                observation = grayscale(observation, step["keep_dim"])
            elif step["kind"] == "resize":
                observation = resized(observation, step["height"], step["width"])
            else:
                observation = self._stacked(index, step, observation)
        return observation

    def _stacked(self, index: int, step: dict[str, Any], observation: np.ndarray) -> np.ndarray:
        """Appends an observation to the last ones, which are padded at the start of an episode."""
        frames = self._frames.get(index)
        if frames is None:
            is_copy = step["padding"] == "reset"
            frames = [observation if is_copy else np.zeros_like(observation)] * step["size"]
        frames = [*frames[1:], observation]
        self._frames = {**self._frames, index: frames}  # shallow copies of `self` keep the old ones
        return np.stack(frames)


def grayscale(image: np.ndarray, keep_dim: bool) -> np.ndarray:
    """Converts an image `[H, W, 3]` to grayscale `[H, W]` or `[H, W, 1]`, uint8."""
    gray = np.sum(np.multiply(image, np.array(_LUMA)), axis=-1).astype(np.uint8)
    return gray[..., np.newaxis] if keep_dim else gray


def resized(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """Resizes an image by averaging the area under each new pixel, rounded half up.

    It computes with integers, so that the result is the same on every machine.

    Args:
        image: uint8, `[H, W]` or `[H, W, C]`.
        height: The new height in pixels.
        width: The new width in pixels.

    Returns:
        The image, uint8, `[height, width]` or `[height, width, C]`.
    """
    area = image.shape[0] * image.shape[1]
    sums = _area_sums(_area_sums(image, height).swapaxes(0, 1), width).swapaxes(0, 1)
    return ((2 * sums + area) // (2 * area)).astype(np.uint8)


def _area_sums(image: np.ndarray, size: int) -> np.ndarray:
    """Returns `size` sums over equal sections of the first axis, times `size`.

    A section may begin and end inside an element; it then includes a share of this element.
    """
    count = len(image)
    totals = np.zeros((count + 1, *image.shape[1:]), np.int64)
    np.cumsum(image, axis=0, out=totals[1:])
    whole, share = np.divmod(np.arange(size + 1) * count, size)
    inside = image[np.minimum(whole, count - 1)]  # the share of the last end is 0
    shares = share.reshape(-1, *[1] * (image.ndim - 1))
    return np.diff(size * totals[whole] + shares * inside, axis=0)
