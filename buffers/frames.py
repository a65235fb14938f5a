"""Steps with images, packed into rows as bytes, and stacked frames that are stored once."""

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
    """An image in an observation.

    Attributes:
        start: The first of its columns there.
        count: K, how many frames are stacked in it, the newest last.
        size: Numbers in a frame, each from 0 to 255.
    """

    start: int
    count: int
    size: int

    @property
    def stop(self) -> int:
        """The column behind its last one."""
        return self.start + self.count * self.size


@dataclass(frozen=True)
class FrameLayout(StepLayout):
    """Where the parts of a step with images stand in a packed row of `width` floats.

    A row is what a step led to: action, reward, discount, what of the observation is no image, and
    the newest frame of each image, as bytes, four to a float. Its last number is how many rows
    before it the step before stands, 0 where an episode begins. Older frames of a stack are those
    of the rows before; where an episode begins its first frame stands in for them.

    Attributes:
        images: The images, in the order of their columns.
    """

    images: tuple[Frames, ...]

    @property
    def steps(self) -> int:
        """S, how many rows an observation may need."""
        return max(image.count for image in self.images)

    @property
    def plain_size(self) -> int:
        """P, numbers of an observation that are of no image."""
        return self.observation_size - sum(image.stop - image.start for image in self.images)

    @property
    def byte_count(self) -> int:
        """Bytes of the newest frames, a multiple of 4."""
        return 4 * math.ceil(sum(image.size for image in self.images) / 4)

    @property
    def width(self) -> int:
        """Floats in a row: A + P + 3, and a quarter of the bytes."""
        return self.action_size + self.plain_size + 3 + self.byte_count // 4

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Shape of a step with the rows that its two observations need."""
        return self.steps + 1, self.width

    def least_rows(self, environments: int) -> int:
        """Returns the least capacity of a buffer for N environments."""
        return 4 * environments * (self.steps + 1)

    def pack(self, observations: np.ndarray) -> np.ndarray:
        """Packs what a row holds of observations `[N, O]`: their newest frames."""
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
        """Splits samples `[..., S + 1, width]` into transitions; observations are copies.

        Args:
            rows: An array; or a tensor, with functions that take tensors.
            bytes_of: Turns packed columns `[..., n]` into the numbers of their bytes `[..., 4 n]`,
                of the dtype of the plain columns.
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
        """Puts observations `[..., O]` together of S rows that follow one another."""
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
