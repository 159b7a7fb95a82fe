"""Bounds on the gradients of a step, over the rows that it touches."""

from __future__ import annotations

import tensorflow as tf

from .base import Gradients


def by_row_norm(gradients: Gradients, limit: float) -> Gradients:
    """No row's gradient is longer (L2) than `limit`; a longer one keeps its direction."""
    return {name: _within(rows_UD, _norm(rows_UD, 1), limit) for name, rows_UD in gradients.items()}


def by_global_norm(gradients: Gradients, limit: float) -> Gradients:
    """All gradients together are no longer (L2) than `limit` (Pascanu et al. 2013, algorithm 1).

    The rows that are not touched have no gradient, so the norm is that of the dense gradient.
    """
    norm = tf.norm(tf.stack([_norm(rows_UD) for rows_UD in gradients.values()]))
    return {name: _within(rows_UD, norm, limit) for name, rows_UD in gradients.items()}


def _norm(rows_UD: tf.Tensor, axis: int | None = None) -> tf.Tensor:
    return tf.sqrt(tf.reduce_sum(tf.square(rows_UD), axis=axis, keepdims=axis is not None))


def _within(rows_UD: tf.Tensor, norm: tf.Tensor, limit: float) -> tf.Tensor:
    return rows_UD * (limit / tf.maximum(norm, limit))
