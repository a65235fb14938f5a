"""The convolutional image encoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from eagerly.policies.operations import Operations, Window
from eagerly.spaces import Entry

FILTERS = 32
# Strides of the 3x3 kernels for images of at least 31x31 pixels. They reduce 64x64 pixels to 5x5.
_STRIDES, _LARGE = (2, 2, 2, 1), 31
_SMALLEST, _NARROW, _STRIDED, _MOST_LAYERS = 3, 4, 11, 4


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
    ops: Operations, entry: Entry, layer: str, weights: Mapping[str, np.ndarray], columns: Any
) -> Any:
    """Maps flattened images of K frames, `[N, K · H · W · C]`, 0 to 255, to features `[N, units]`.

    `networks.encoders.ImageEncoder` computes the same features.

    Args:
        ops: The operations to compute with.
        entry: The observation entry of the images.
        layer: Prefix of the layer names.
        weights: Weights by name.
        columns: The flattened images.
    """
    count, height, width, channels = entry.frames
    images = columns
    if count > 1:  # frames become channels
        images = ops.reshape(images, (-1, count, height * width, channels))
        images = ops.transpose(images, (0, 2, 1, 3))
    images = ops.reshape(images, (-1, height, width, count * channels))
    layers = []
    for index, (_, strides) in enumerate(convolutions(height, width)):
        name = f"{layer}_convolution_{index}"
        layers.append((weights[f"{name}/kernel"], weights[f"{name}/bias"], strides))
    kernel, bias = weights[f"{layer}_linear/kernel"], weights[f"{layer}_linear/bias"]
    hidden = ops.convolved(ops.centered(images / 255.0), layers)
    hidden = ops.linear(ops.reshape(hidden, (-1, len(kernel))), kernel, bias)
    gamma, beta = weights[f"{layer}_norm/gamma"], weights[f"{layer}_norm/beta"]
    epsilon = norm_epsilon(height, width)
    return ops.tanh(ops.layer_norm(hidden, gamma, beta, epsilon=epsilon))
