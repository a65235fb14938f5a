"""The image encoder in NumPy: which convolutions it has, and what it computes."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from eagerly.spaces import Entry

FILTERS = 32
# Of images of at least 31 by 31 pixels: 3 by 3 each, so that 64 by 64 becomes 5 by 5.
_STRIDES, _LARGE = (2, 2, 2, 1), 31
_SMALLEST, _NARROW, _STRIDED, _MOST_LAYERS = 3, 4, 11, 4
Window = tuple[int, int]


def convolutions(height: int, width: int) -> list[tuple[Window, Window]]:
    """Returns kernel and strides of each convolution over images of this size, without padding.

    Large images have four convolutions of 3 by 3, three of them with stride 2. If a side is below
    31, there are as many layers as bring both sides down to 4, but no more than four. A side has
    stride 2 as long as it has at least 11 pixels. Kernels are never larger than the remaining
    sides. They are one pixel wider where stride 2 would miss the last pixel, which may be a wall.

    Raises:
        ValueError: If a side is below 3.
    """
    if min(height, width) >= _LARGE:
        return [((3, 3), (stride, stride)) for stride in _STRIDES]
    if min(height, width) < _SMALLEST:
        raise ValueError(f"at least {_SMALLEST} by {_SMALLEST}; got {height} by {width}")
    layers: list[tuple[Window, Window]] = []
    sides = height, width
    while not layers or (max(sides) > _NARROW and len(layers) < _MOST_LAYERS):
        (high, down), (wide, right) = map(_window, sides)
        kernel, strides = (high, wide), (down, right)
        layers.append((kernel, strides))
        sides = sides_after(sides, kernel, strides)
    return layers


def _window(side: int) -> Window:
    """Returns the size of the kernel along a side of a small image, and its stride."""
    if side < _STRIDED:
        return min(3, side), 1
    return 3 + (side % 2 == 0), 2


def sides_after(sides: Window, kernel: Window, strides: Window) -> Window:
    """Returns the sides of an image after a convolution without padding."""
    height, width = ((s - k) // by + 1 for s, k, by in zip(sides, kernel, strides, strict=True))
    return height, width


def norm_epsilon(height: int, width: int) -> float:
    """Returns the epsilon of the layer normalisation behind the convolutions.

    Keras' default would swallow symbols: MiniGrid's numbers from 0 to 10 are at most 0.04 here.
    """
    return 1e-3 if min(height, width) >= _LARGE else 1e-6


def image_features(
    entry: Entry, layer: str, weights: Mapping[str, np.ndarray], columns: np.ndarray
) -> np.ndarray:
    """Maps the numbers of images, `[N, K · H · W · C]` from 0 to 255, to features `[N, units]`.

    `networks.encoders.ImageEncoder` computes the same.

    Args:
        entry: The image.
        layer: The prefix of the names of its layers.
        weights: Weights by name.
        columns: The numbers of the images.
    """
    count, height, width, channels = entry.frames
    dtype = weights[f"{layer}_linear/kernel"].dtype
    images = columns.astype(dtype).reshape(-1, *entry.frames).transpose(0, 2, 3, 1, 4)
    hidden = images.reshape(-1, height, width, count * channels) / dtype.type(255.0)
    hidden -= hidden.mean(axis=(1, 2, 3), keepdims=True)
    layers = []
    for index, (_, strides) in enumerate(convolutions(height, width)):
        name = f"{layer}_convolution_{index}"
        layers.append((weights[f"{name}/kernel"], weights[f"{name}/bias"], strides))
    # One image after the other stays in the processor's cache, which halves the time of four.
    kernel, bias = weights[f"{layer}_linear/kernel"], weights[f"{layer}_linear/bias"]
    found = [_convolved(image, layers) for image in hidden]
    hidden = np.array(found, dtype).reshape(len(found), len(kernel))  # also of none
    hidden = hidden @ kernel + bias
    hidden -= hidden.mean(axis=-1, keepdims=True)
    variance = np.square(hidden).mean(axis=-1, keepdims=True)
    epsilon = dtype.type(norm_epsilon(height, width))
    gamma, beta = weights[f"{layer}_norm/gamma"], weights[f"{layer}_norm/beta"]
    return np.tanh(hidden / np.sqrt(variance + epsilon) * gamma + beta)


def _convolved(
    image: np.ndarray, layers: list[tuple[np.ndarray, np.ndarray, Window]]
) -> np.ndarray:
    """Maps an image `[H, W, C]` through convolutions without padding to `[h · w · filters]`."""
    for kernel, bias, (down, right) in layers:
        *window, channels, filters = kernel.shape
        windows = np.lib.stride_tricks.sliding_window_view(image, window, axis=(0, 1))
        windows = windows[::down, ::right].transpose(0, 1, 3, 4, 2)
        rows = windows.reshape(-1, math.prod(window) * channels)
        found = rows @ kernel.reshape(-1, filters)
        found += bias
        np.maximum(found, 0.0, out=found)
        image = found.reshape(*windows.shape[:2], filters)
    return image.ravel()
