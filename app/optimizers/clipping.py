"""Gradient clipping, over the rows that a step touches."""

from __future__ import annotations

import tensorflow as tf

from .base import Gradients


def by_row_norm(gradients: Gradients, limit: float) -> Gradients:
    """Return the gradients, with each row of a greater L2 norm scaled down to the norm `limit`.

    Args:
        gradients: Gradients of rows, (U, D) float32, by name of the table.
        limit: The largest norm.
    """
    return {name: _scale(rows_UD, _norm(rows_UD, 1), limit) for name, rows_UD in gradients.items()}


def by_global_norm(gradients: Gradients, limit: float) -> Gradients:
    """Return the gradients, all scaled down by one factor if their joint L2 norm exceeds `limit`.

    Pascanu et al. 2013, algorithm 1. All other rows of the tables have a gradient of 0, so the
    joint norm equals the norm of the dense gradient.

    Args:
        gradients: Gradients of rows, (U, D) float32, by name of the table.
        limit: The largest norm.
    """
    norm = tf.norm(tf.stack([_norm(rows_UD) for rows_UD in gradients.values()]))
    return {name: _scale(rows_UD, norm, limit) for name, rows_UD in gradients.items()}


def _norm(rows_UD: tf.Tensor, axis: int | None = None) -> tf.Tensor:
    """Return the L2 norm of all numbers, a scalar, or of each row if `axis` is 1, (U, 1)."""
    return tf.sqrt(tf.reduce_sum(tf.square(rows_UD), axis=axis, keepdims=axis is not None))


def _scale(rows_UD: tf.Tensor, norm: tf.Tensor, limit: float) -> tf.Tensor:
    """Return the rows times limit / norm, or unchanged where the norm is at most `limit`."""
    return rows_UD * (limit / tf.maximum(norm, limit))
