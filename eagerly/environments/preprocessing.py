"""Preprocessing of image observations in NumPy, in integers and so the same on every machine."""

from __future__ import annotations

import numpy as np


def resized(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """Resizes an image by averaging the area under each new pixel, rounded half up.

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

    A section may begin and end inside an element, of which it includes the corresponding share.
    """
    count = len(image)
    totals = np.zeros((count + 1, *image.shape[1:]), np.int64)
    np.cumsum(image, axis=0, out=totals[1:])
    whole, share = np.divmod(np.arange(size + 1) * count, size)
    inside = image[np.minimum(whole, count - 1)]  # the share of the last end is 0
    shares = share.reshape(-1, *[1] * (image.ndim - 1))
    return np.diff(size * totals[whole] + shares * inside, axis=0)
