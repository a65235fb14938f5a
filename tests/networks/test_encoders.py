"""Image encoders: convolutions for each image size, and features of symbolic images."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.spaces import Box

from eagerly.networks.encoders import ImageEncoder, convolutions
from eagerly.spaces import Observations


def _sides(height: int, width: int) -> list[tuple[int, int]]:
    """Returns the image sizes before, between and after the convolutions, which use no padding."""
    sides = [(height, width)]
    for (high, wide), (down, right) in convolutions(height, width):
        above = sides[-1]
        sides.append(((above[0] - high) // down + 1, (above[1] - wide) // right + 1))
    return sides


def test_images_get_the_convolutions_that_fit_their_size() -> None:
    assert _sides(7, 7) == [(7, 7), (5, 5), (3, 3)]
    assert _sides(10, 10) == [(10, 10), (8, 8), (6, 6), (4, 4)]
    assert _sides(3, 3) == [(3, 3), (1, 1)]
    assert _sides(4, 30) == [(4, 30), (2, 14), (1, 6), (1, 4)]
    for height in range(3, 100):
        for width in (3, 5, 30, 31, 84, height):
            sides = _sides(height, width)
            assert min(map(min, sides)) >= 1
            assert 2 <= len(sides) <= 5
            if min(height, width) >= 31:  # smaller images have other convolutions
                layers = convolutions(height, width)
                assert layers == [((3, 3), (by, by)) for by in (2, 2, 2, 1)]
    with pytest.raises(ValueError, match="at least 3 by 3; got 2 by 9"):
        convolutions(2, 9)


@pytest.mark.parametrize("shape", [(3, 3), (7, 7, 3), (10, 10, 4), (4, 30), (12, 11), (2, 9, 8)])
def test_features_of_small_images_distinguish_symbols(shape: tuple[int, ...]) -> None:
    (entry,) = Observations(Box(0, 255, shape, np.uint8)).entries
    encoder = ImageEncoder(
        entry, 16, initializer="glorot_uniform", seed=0, dtype="float32", name="image"
    )
    empty = np.ones((1, entry.stop), np.float32)  # MiniGrid encodes an empty cell as 1
    rows = np.tile(empty, (entry.stop + 1, 1))
    rows[np.arange(entry.stop), np.arange(entry.stop)] = 2.0  # each row has a wall in one cell
    features = encoder(rows).numpy()
    assert features.shape == (entry.stop + 1, 16)
    assert np.isfinite(features).all()
    # Each image with a wall has different features from the empty image and the other images.
    assert (np.abs(features[:-1] - features[-1]).max(axis=1) > 2e-3).all()
    assert len(np.unique(features.round(5), axis=0)) == len(features)
