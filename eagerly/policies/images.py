"""The convolutional image encoder in NumPy."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from eagerly.spaces import Entry

FILTERS = 32
# Strides of the 3x3 kernels for images of at least 31x31 pixels. They reduce 64x64 pixels to 5x5.
_STRIDES, _LARGE = (2, 2, 2, 1), 31
_SMALLEST, _NARROW, _STRIDED, _MOST_LAYERS = 3, 4, 11, 4
Window = tuple[int, int]


def convolutions(height: int, width: int) -> list[tuple[Window, Window]]:
    """Returns the kernel and strides of each unpadded convolution for an image of this size.

    Large images have four 3x3 convolutions, three with stride 2. If a side is below 31 pixels,
    layers are added until both sides are at most 4 pixels, up to four layers. Along a side, the
    stride is 2 while at least 11 pixels remain. Kernels are never larger than the remaining image.
    They are one pixel wider where stride 2 would miss the last pixel, which may be a wall.

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
    """Returns kernel size and stride along a side of a small image."""
    if side < _STRIDED:
        return min(3, side), 1
    return 3 + (side % 2 == 0), 2


def sides_after(sides: Window, kernel: Window, strides: Window) -> Window:
    """Returns the sides of an image after a convolution without padding."""
    height, width = ((s - k) // by + 1 for s, k, by in zip(sides, kernel, strides, strict=True))
    return height, width


def norm_epsilon(height: int, width: int) -> float:
    """Returns the epsilon of the layer normalization after the convolutions.

    Small images need less than the Keras default, 1e-3, which would dominate the variance of small
    values: MiniGrid's symbols, 0 to 10, are at most 0.04 after division by 255.
    """
    return 1e-3 if min(height, width) >= _LARGE else 1e-6


def image_features(
    entry: Entry, layer: str, weights: Mapping[str, np.ndarray], columns: np.ndarray
) -> np.ndarray:
    """Maps flattened images of K frames, `[N, K · H · W · C]`, 0 to 255, to features `[N, units]`.

    `networks.encoders.ImageEncoder` computes the same features.

    Args:
        entry: The observation entry of the images.
        layer: Prefix of the layer names.
        weights: Weights by name.
        columns: The flattened images.
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
    # Looping over images keeps each one in the CPU cache, which halves the time for four images.
    kernel, bias = weights[f"{layer}_linear/kernel"], weights[f"{layer}_linear/bias"]
    found = [_convolved(image, layers) for image in hidden]
    hidden = np.array(found, dtype).reshape(len(found), len(kernel))  # this shape also fits N = 0
    hidden = hidden @ kernel + bias
    hidden -= hidden.mean(axis=-1, keepdims=True)
    variance = np.square(hidden).mean(axis=-1, keepdims=True)
    epsilon = dtype.type(norm_epsilon(height, width))
    gamma, beta = weights[f"{layer}_norm/gamma"], weights[f"{layer}_norm/beta"]
    return np.tanh(hidden / np.sqrt(variance + epsilon) * gamma + beta)


def _convolved(
    image: np.ndarray, layers: list[tuple[np.ndarray, np.ndarray, Window]]
) -> np.ndarray:
    """Maps an image `[H, W, C]` through unpadded convolutions to `[h · w · filters]`."""
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
