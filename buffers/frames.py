"""Packed rows for steps with images, in which each frame is stored once, as bytes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from eagerly.buffers.transition import StepLayout, Transition


def _bytes_of(columns: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(columns).view(np.uint8).astype(np.float32)


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(parts, axis=-1)


@dataclass(frozen=True)
class Frames:
    """An image, or a stack of frames, in a flat observation.

    Attributes:
        start: First column of the image in the observation.
        count: K, the number of stacked frames, newest last.
        size: Number of values per frame, each from 0 to 255.
    """

    start: int
    count: int
    size: int

    @property
    def stop(self) -> int:
        """The column after the last one of the image."""
        return self.start + self.count * self.size


@dataclass(frozen=True)
class FrameLayout(StepLayout):
    """The layout of a step with images in a packed row of `width` floats.

    A row holds the outcome of a step: action, reward, discount, the non-image values of the
    observation, and the newest frame of each image. Frames are stored as bytes, four per float.
    The last column is the distance in rows to the previous step, or 0 if an episode begins.

    The older frames of a stack are read from the previous rows. At the start of an episode, its
    first frame takes the place of missing older frames.

    Attributes:
        images: The images, in column order.
    """

    images: tuple[Frames, ...]

    @property
    def steps(self) -> int:
        """S, the number of rows needed to assemble an observation."""
        return max(image.count for image in self.images)

    @property
    def plain_size(self) -> int:
        """P, the number of non-image values in an observation."""
        return self.observation_size - sum(image.stop - image.start for image in self.images)

    @property
    def byte_count(self) -> int:
        """Bytes of the newest frames, rounded up to a multiple of 4."""
        return 4 * math.ceil(sum(image.size for image in self.images) / 4)

    @property
    def width(self) -> int:
        """Floats per row: A + P + 3 + `byte_count` / 4."""
        return self.action_size + self.plain_size + 3 + self.byte_count // 4

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Shape of a sample: all rows needed for both observations of a step."""
        return self.steps + 1, self.width

    def least_rows(self, environments: int) -> int:
        """Returns the minimum capacity of a buffer for N environments."""
        return 4 * environments * (self.steps + 1)

    def pack(self, observations: np.ndarray) -> np.ndarray:
        """Packs the non-image values and the newest frames of observations `[N, O]`."""
        plain, place = [], 0
        frames = np.zeros((len(observations), self.byte_count), np.uint8)
        filled = 0
        for image in self.images:
            plain.append(observations[:, place : image.start])
            newest = observations[:, image.stop - image.size : image.stop]
            frames[:, filled : filled + image.size] = newest
            filled, place = filled + image.size, image.stop
        plain.append(observations[:, place:])
        return np.concatenate([*plain, frames.view(np.float32)], axis=1)

    def unpack(
        self,
        rows: Any,
        bytes_of: Callable[[Any], Any] = _bytes_of,
        join: Callable[[list[Any]], Any] = _joined,
    ) -> Transition:
        """Unpacks samples `[..., S + 1, width]` into transitions, and copies their observations.

        Args:
            rows: An array, or a tensor if `bytes_of` and `join` accept tensors.
            bytes_of: Converts packed columns `[..., n]` to byte values `[..., 4 n]`, in the dtype
                of the non-image columns.
            join: Concatenates along the last axis.
        """
        last = self.split(rows[..., -1, :])
        return Transition(
            observation=self._observed(rows[..., :-1, :], bytes_of, join),
            action=last.action,
            reward=last.reward,
            discount=last.discount,
            next_observation=self._observed(rows[..., 1:, :], bytes_of, join),
        )

    def _observed(
        self, rows: Any, bytes_of: Callable[[Any], Any], join: Callable[[list[Any]], Any]
    ) -> Any:
        """Assembles observations `[..., O]` from S consecutive rows."""
        columns = self.split(rows).observation
        newest = columns[..., -1, : self.plain_size]
        frames = bytes_of(columns[..., self.plain_size :])
        parts, place, used, first = [], 0, 0, 0
        for image in self.images:
            between = image.start - place
            parts.append(newest[..., used : used + between])
            for step in range(self.steps - image.count, self.steps):
                parts.append(frames[..., step, first : first + image.size])
            used, first, place = used + between, first + image.size, image.stop
        parts.append(newest[..., used:])
        return join(parts)
