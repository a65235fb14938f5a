"""Shape checks that prevent accidental broadcasting, such as `[B]` against `[B, 1]`."""

from __future__ import annotations

import tensorflow as tf


def expect_rank(name: str, tensor: tf.Tensor, rank: int) -> None:
    """Raises a ValueError unless the tensor has the given rank."""
    if tensor.shape.rank != rank:
        shape = {1: "[B]", 2: "[C, B]" if "values" in name else "[B, A]"}[rank]
        remedy = "drop or add an axis" if tensor.shape.rank else "pass a batch"
        raise ValueError(f"{name} must have shape {shape}, got {tuple(tensor.shape)}: {remedy}")


def expect_same_shape(name: str, tensor: tf.Tensor, other: str, like: tf.Tensor) -> None:
    """Raises a ValueError unless both tensors have the same shape."""
    if tensor.shape != like.shape:
        raise ValueError(
            f"{name} must have the shape of {other}, {tuple(like.shape)}; got "
            f"{tuple(tensor.shape)}: it would broadcast"
        )


def expect_same_batch(name: str, tensor: tf.Tensor, other: str, like: tf.Tensor) -> None:
    """Raises a ValueError unless the last axes have the same length."""
    if tensor.shape[-1] != like.shape[-1]:
        raise ValueError(
            f"{name} must have the batch size of {other}, {like.shape[-1]}; got "
            f"{tuple(tensor.shape)}: it would broadcast"
        )
