"""Streamed losses: gather, differentiate and update the rows of a `Part` block by block.

For each segment of a part there are up to two passes over its tiles:

1. measure(hidden, rows, carry) -> carry. It only reads. Parts without `measure` skip it.
2. gradients(labels, hidden, rows) -> losses and their gradients. The labels know the last carry of
   the first pass. Gradients by the rows go to `update`, those by the hidden vectors are summed.

So memory holds the rows of one block, however large the table and the batch are.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import tensorflow as tf

from ..system.loops import combine, join, loop, make_arrays, write_arrays
from .base import Gather, Part

# Writes rows: takes the name of a table, ids (U,), rows (U, D) and their gradients (U, D).
Update = Callable[[str, tf.Tensor, tf.Tensor, tf.Tensor], None]
# Called for each block as visit(ids_U, labels, hidden_MD, rows_UD).
_Visit = Callable[..., Sequence[tf.Tensor]]
_SCALAR, _LOSSES = tf.TensorSpec([], tf.float32), tf.TensorSpec([None], tf.float32)


def differentiate(
    part: Part,
    gather: Gather,
    update: Update | None = None,
    by_rows_alone: bool = False,
    by_vector: bool = False,
) -> tuple[tf.Tensor, tf.Tensor, Sequence[tf.Tensor]]:
    """Compute and differentiate a part.

    Args:
        by_rows_alone: Whether to leave out the gradient by the hidden vectors: zeros are returned.
        by_vector: Whether to return the loss of each hidden vector (see `losses`) for their sum.
        update: Writes the rows of a block, given their gradients, before the next block is read.
            By default no row changes, and all gradients are in memory at once.

    Returns:
        The loss, a float32 scalar or (N,); its gradient by the hidden vectors, (N, D) of their
        dtype; and without `update` the ids of all rows of the part, (U,) int32, and the gradients
        by these rows, (U, D) float32. Under XLA some of these ids are the largest int32, for no
        row.
    """
    if part.padded is not None:
        return part.padded.differentiate(gather, update, by_rows_alone, by_vector)

    def visit(ids_U, labels, hidden_MD, rows_UD) -> Sequence[tf.Tensor]:
        """Return a block's loss and its gradients, or update its rows."""
        value, by_hidden, by_rows = _differentiate(part, labels, hidden_MD, rows_UD, by_vector)
        if by_rows_alone:
            by_hidden = tf.zeros_like(by_hidden)
        if update is None:
            return value, by_hidden, ids_U, by_rows
        with tf.name_scope("update/"):
            update(part.table, ids_U, rows_UD, by_rows)
        return value, by_hidden

    joined = [] if update else [tf.TensorSpec([None], tf.int32), _vectors(part)]
    losses = _LOSSES if by_vector else _SCALAR
    value, by_hidden, *by_row = _visit_blocks(part, gather, visit, [losses, _vectors(part)], joined)
    if by_vector:
        value = _sum_by_vector(part, value)
    return value, tf.cast(_sum_by_vector(part, by_hidden), part.hidden_ND.dtype), by_row


def losses(part: Part, gather: Gather) -> tf.Tensor:
    """Return the loss of each hidden vector, (N,) float32, without gradients.

    Args:
        part: A part whose `loss` returns one number for each vector of a block. A vector in several
            segments gets the sum over them, a vector in no segment gets 0.
    """
    if part.padded is not None:
        return part.padded.losses(gather)

    def visit(ids_U, labels, hidden_MD, rows_UD) -> Sequence[tf.Tensor]:
        """Return the losses of a block, one for each vector."""
        return [part.loss(labels, hidden_MD, rows_UD)]

    (losses_P,) = _visit_blocks(part, gather, visit, [_LOSSES])
    return _sum_by_vector(part, losses_P)


def _differentiate(part: Part, labels, hidden_MD, rows_UD, by_vector: bool) -> Sequence[tf.Tensor]:
    """Return a block's loss and its gradients by the vectors and by the rows, all float32."""
    with tf.name_scope("loss/"):
        value, *by_both = part.gradients(labels, hidden_MD, rows_UD)
        by_both = [tf.cast(gradient, tf.float32) for gradient in by_both]
        for gradient, values in zip(by_both, (hidden_MD, rows_UD), strict=True):
            gradient.set_shape(values.shape)  # a gradient with a formula of its own may not know it
        return value if by_vector else tf.reduce_sum(value), *by_both


def _visit_blocks(
    part: Part,
    gather: Gather,
    visit: _Visit,
    summed: Sequence[tf.TensorSpec],
    joined: Sequence[tf.TensorSpec] = (),
) -> Sequence[tf.Tensor]:
    """Call `visit` for every block, one after the other, and combine its results."""
    visit_segment = functools.partial(_visit_segment, part, gather, visit, summed, joined)
    if isinstance(part.segments, int) and part.segments == 1:
        return visit_segment(tf.constant(0))
    # Pieces are written side by side; adding each to one tensor would copy it.
    specs = [*summed, *joined]
    arrays = loop(
        part.segments,
        lambda segment, *arrays: write_arrays(arrays, segment, visit_segment(segment)),
        make_arrays(specs, part.segments),
    )
    return [
        join(array, spec) if spec.shape.rank else tf.reduce_sum(array.stack())
        for array, spec in zip(arrays, specs, strict=True)
    ]


def _visit_segment(
    part: Part,
    gather: Gather,
    visit: _Visit,
    summed: Sequence[tf.TensorSpec],
    joined: Sequence[tf.TensorSpec],
    segment: tf.Tensor,
) -> Sequence[tf.Tensor]:
    """Visit the tiles of one segment, and combine the results of `visit` over them.

    If the part has `measure`, all tiles are read twice: first to compute the carry. Arguments and
    result are as in `_visit_blocks`, but the result has the values of this segment alone.
    """
    hidden_MD = part.hidden_ND
    if part.members is not None:
        members = part.members
        hidden_MD = tf.gather(hidden_MD, members.take(segment, members.vectors_P))
    vectors = tf.shape(hidden_MD)[0]

    def visit_tile(tile: tf.Tensor, visit: _Visit, measured_M: tf.Tensor | None = None):
        """Gather the rows of one tile, and return what `visit` returns for them."""
        with tf.name_scope("lookup/"):
            ids_U, labels = part.block(segment, tile, measured_M)
        with tf.name_scope("gather/"):
            rows_UD = gather(part.table, ids_U)
        return visit(ids_U, labels, hidden_MD, rows_UD)

    if part.tiles is None:
        return visit_tile(tf.constant(0), visit)
    tiles, measured_M = part.tiles(segment), None
    if (measure := part.measure) is not None:

        def measure_tile(tile: tf.Tensor, carry_M: tf.Tensor) -> Sequence[tf.Tensor]:
            """Return the next carry, in a list."""
            return visit_tile(
                tile, lambda _, __, hidden_MD, rows_UD: [measure(hidden_MD, rows_UD, carry_M)]
            )

        (measured_M,) = loop(tiles, measure_tile, [tf.fill([vectors], -math.inf)])
    zeros = [
        tf.zeros([vectors if size is None else size for size in spec.shape], spec.dtype)
        for spec in summed
    ]
    return combine(tiles, lambda tile: visit_tile(tile, visit, measured_M), zeros, joined)


def _sum_by_vector(part: Part, values: tf.Tensor) -> tf.Tensor:
    """Sum values of the members of all segments by hidden vector: one value for each vector.

    Without `part.members` the values are of the vectors in order, and are returned as they are.
    """
    if part.members is None:
        return values
    vectors = tf.shape(part.hidden_ND)[0]
    return tf.math.unsorted_segment_sum(values, part.members.vectors_P, vectors)


def _vectors(part: Part) -> tf.TensorSpec:
    """Return the spec of float32 rows with the columns of the part's hidden vectors."""
    return tf.TensorSpec([None, part.hidden_ND.shape[1]], tf.float32)
