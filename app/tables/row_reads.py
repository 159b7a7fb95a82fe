"""Functions to read each row of a batch once and to sum the gradients of repeated ids."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf
from tensorflow.compiler.tf2xla.python import xla  # no public way to remove a dynamic size

from ..system.python_functions import custom_gradient
from ..system.xla import under_xla
from ..types import HOST, Rows, UniqueIds


def unique(ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the unique ids and, for each id, its index among them.

    Both results are in host memory, whatever the device. Every later shape depends on U, so a step
    would have to wait for a GPU that counted the ids.

    Under XLA the results are on the device of the step, and U equals N: the unique ids ascend, and
    are followed by the largest number of their dtype, which is not the id of a row. XLA drops a row
    that is written to it. So under XLA these ids are only for writing in the same compiled
    function; for reading see `rows_to_read`.

    Args:
        ids: Integers or strings of any shape, N in all.

    Returns:
        unique_ids: (U,), dtype of the ids, in order of first appearance, but see above.
        inverse: (N,) int32, such that `unique_ids[inverse]` are the flat ids.
    """
    ids_N = tf.reshape(ids, [-1])
    if under_xla():
        return _unique_by_sorting(ids_N)
    with tf.device(HOST):
        ids_U, inverse_N = tf.unique(ids_N)
        return ids_U, inverse_N


def _unique_by_sorting(ids_N: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the unique ids and the inverse by a sort, for XLA (see `unique`).

    XLA compiles `tf.unique` to a loop over the ids. An iteration took 17 microseconds on a GPU
    (NVIDIA H100). This function has no loop.
    """
    count = tf.size(ids_N)
    ids_N = _of_static_size(ids_N)
    no_row = tf.constant(ids_N.dtype.max, ids_N.dtype)
    order_N = tf.argsort(ids_N)
    sorted_N = tf.gather(ids_N, order_N)
    is_first_N = tf.concat(
        [tf.ones_like(sorted_N[:1], tf.bool), sorted_N[1:] != sorted_N[:-1]], axis=0
    )
    index_N = tf.cumsum(tf.cast(is_first_N, tf.int32)) - 1
    inverse_N = tf.tensor_scatter_nd_update(index_N, order_N[:, tf.newaxis], index_N)
    ids_U = tf.fill(tf.shape(ids_N), no_row)
    ids_U = tf.tensor_scatter_nd_min(ids_U, index_N[:, tf.newaxis], sorted_N)
    return ids_U, inverse_N[:count]


def _of_static_size(ids_N: tf.Tensor) -> tf.Tensor:
    """Return ids, with the largest number of their dtype after those of a size XLA cannot know."""
    if ids_N.dtype.size < tf.int32.size:
        ids_N = tf.cast(ids_N, tf.int32)  # whose largest number is not the id of a row
    count, shape = tf.size(ids_N), ids_N.shape
    ids_N = tf.ensure_shape(xla.remove_dynamic_dimension_size(ids_N, 0), shape)
    return tf.where(tf.range(tf.size(ids_N)) < count, ids_N, ids_N.dtype.max)


def unique_by_representative(
    ids: Sequence[tf.Tensor], places: Sequence[range], indices_V: tf.Variable
) -> list[tuple[tf.Tensor, tf.Tensor]]:
    """Return the same as `unique` does under XLA for several tables; the ids are in no order.

    Any occurrence of an id represents it: it has the id among the results, and the others have the
    largest number of the dtype. That takes three operations instead of a sort. Each id out of range
    is a row of its own, which XLA drops.

    Args:
        places: For each of `ids`, the places of the rows of its table among the numbers of
            `indices_V`. Ids of one table must differ if they are given separately.
        indices_V: A variable to work with, one number for each row; its values do not matter.

    Returns:
        For each of `ids`, the unique ids and the inverse.
    """
    counts = [tf.size(ids_N) for ids_N in ids]
    ids = [_of_static_size(ids_N) for ids_N in ids]
    sizes = [*map(tf.size, ids)]

    def spread(values: Sequence[int]) -> tf.Tensor:
        """Return a value of each table for each of its ids, int64."""
        pairs = zip(sizes, values, strict=True)
        return tf.concat([tf.fill([size], tf.constant(each, tf.int64)) for size, each in pairs], 0)

    # For all tables at once: a GPU would have kernels for each.
    ids_M = tf.concat([tf.cast(ids_N, tf.int64) for ids_N in ids], axis=0)
    index_M = tf.concat([tf.range(size) for size in sizes], axis=0)
    is_row_M = (ids_M >= 0) & (ids_M < spread([len(own) for own in places]))
    places_M = ids_M + spread([own.start for own in places])
    places_M = tf.where(is_row_M, places_M, tf.constant(indices_V.shape[0], tf.int64))  # nowhere
    indices_V.scatter_update(tf.IndexedSlices(tf.cast(index_M, indices_V.dtype), places_M))
    found_M = tf.cast(indices_V.sparse_read(places_M), tf.int32)
    inverse_M = tf.where(is_row_M, found_M, index_M)
    are_first = tf.split(is_row_M & (inverse_M == index_M), sizes)
    results = []
    for ids_N, is_first_N, inverse_N, count in zip(
        ids, are_first, tf.split(inverse_M, sizes), counts, strict=True
    ):
        results.append((tf.where(is_first_N, ids_N, ids_N.dtype.max), inverse_N[:count]))
    return results


def rows_to_read(ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the ids of the rows to read and, for each given id, its index among them.

    They are the result of `unique`, but all are ids of rows: under XLA, the first id is repeated
    after the unique ones. No index refers to the repetitions, so their gradients are 0.
    """
    ids_U, inverse_N = unique(ids)
    if under_xla():
        ids_U = tf.where(ids_U == ids_U.dtype.max, ids_U[:1], ids_U)
    return ids_U, inverse_N


def split_partitions(
    ids: tf.Tensor | UniqueIds | list[tf.Tensor],
) -> Sequence[tf.Tensor | UniqueIds]:
    """Return the ids of each partition (see `Model.lookups`); ids without partitions are one."""
    if isinstance(ids, list):
        return ids
    if not isinstance(ids, UniqueIds) or ids.counts_P.shape[0] == 1 or under_xla():
        return [ids]  # XLA needs static sizes; its programs use all cores anyway
    with tf.device(HOST):
        ends_P = tf.unstack(tf.cumsum(ids.counts_P))
        starts = [0, *ends_P[:-1]]
        return [
            UniqueIds(ids.ids_N[start:end], tf.expand_dims(end - start, 0))
            for start, end in zip(starts, ends_P, strict=True)
        ]


def join_partitions(ids: tf.Tensor | UniqueIds | list[tf.Tensor]) -> tf.Tensor | UniqueIds:
    """Return the ids of all partitions as one partition; ids without partitions as they are."""
    with tf.device(HOST):
        if isinstance(ids, UniqueIds):
            return ids._replace(counts_P=tf.expand_dims(tf.add_n(tf.unstack(ids.counts_P)), 0))
        if isinstance(ids, list):
            return tf.concat([tf.reshape(partition, [-1]) for partition in ids], axis=0)
        return ids


def without_padding(ids: UniqueIds, values_N: tf.Tensor) -> tf.Tensor:
    """Return the values of known unique ids, one for each, without those of the padding.

    Under XLA the others become the largest number of their dtype, as `unique` has them.

    Args:
        ids: Unique ids in one partition.
        values_N: The ids themselves, or the numbers of their rows.
    """
    (count,) = tf.unstack(ids.counts_P)
    if under_xla():
        return tf.where(tf.range(values_N.shape[0]) < count, values_N, values_N.dtype.max)
    return values_N[:count]


def gather_unique(
    lookups: Mapping[str, tf.Tensor], gather: Callable[[str, tf.Tensor], tf.Tensor]
) -> dict[str, Rows]:
    """Read each row of the given ids once, and return the rows by the name of the table.

    Under XLA the first row is read more than once (see `rows_to_read`).

    Args:
        lookups: Ids of any shape, by the name of the table.
        gather: Reads rows: takes the name of a table and ids (U,), returns rows (U, D) float32.

    Returns:
        `Rows` with the rows, the index of each id among them, and their ids (see `rows_to_read`).
        Equal ids have equal indices.
    """
    rows = {}
    for name, ids in lookups.items():
        ids_U, inverse_N = rows_to_read(ids)
        rows[name] = Rows(gather(name, ids_U), inverse_N, ids_U)
    return rows


def take(rows: Rows, dtype: tf.DType) -> tf.Tensor:
    """Return one row for each id of the batch, repeated ids included.

    The gradient sums over the ids that share a row, in float32 whatever the dtype.
    """
    return take_parts(rows, [], dtype)[0]


def take_parts(rows: Rows, sizes: Sequence[int], dtype: tf.DType) -> list[tf.Tensor]:
    """Return one row for each id of the batch as `take` does, in parts; no row is copied twice.

    Args:
        sizes: The number of ids of each part but the last, which has all others.
    """
    inverses = tf.split(rows.inverse_N, [*sizes, -1]) if sizes else [rows.inverse_N]
    ids = rows.ids or rows.inverse_N.shape[0]

    @custom_gradient
    def taken(values_UD: tf.Tensor):
        """Return a row of `dtype` for each id, by part, with a gradient by the unique rows."""

        def gradient(*upstream: tf.Tensor) -> tf.Tensor:
            return _sum_parts(upstream, inverses, tf.shape(values_UD)[0], ids)

        cast_UD = tf.cast(values_UD, dtype)
        return [tf.gather(cast_UD, inverse_N) for inverse_N in inverses], gradient

    return taken(rows.values_UD)


def sum_rows(values_ND: tf.Tensor, inverse_N: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Return the sum of the values of each unique id, added in float32.

    Args:
        inverse_N: The index of each id among the unique ids, (N,) int32 (see `unique`).

    Returns:
        Sums (U, D), float32.
    """
    return _sum_parts([values_ND], [inverse_N], count, values_ND.shape[0])


def _sum_parts(
    parts: Sequence[tf.Tensor], inverses: Sequence[tf.Tensor], count: tf.Tensor, most: int | None
) -> tf.Tensor:
    """Return the sum of the values of each unique id, (U, D) float32, as `sum_rows` does.

    U is at most `most`; None if that is not known.
    """
    if most is not None and all(values_ND.shape.is_fully_defined() for values_ND in parts):
        return _static_sums(most)(*parts, *inverses)[:count]
    values_ND = tf.concat([tf.cast(values_ND, tf.float32) for values_ND in parts], axis=0)
    return tf.math.unsorted_segment_sum(values_ND, tf.concat(inverses, axis=0), count)


@functools.cache
def _static_sums(rows: int) -> Callable[..., tf.Tensor]:
    """Return the compiled function that returns sums by unique id, (rows, D).

    XLA's loop takes 20 ns for a row of 100 columns, tf.math.unsorted_segment_sum 130 ns on a CPU.
    XLA compiles for static shapes, so the caller cuts the result to U rows; zeros follow these.
    """

    @tf.function(autograph=False, jit_compile=True)
    def sum_static(*parts_and_inverses: tf.Tensor) -> tf.Tensor:
        """Return the sums, given the values of all parts, then their inverses."""
        half = len(parts_and_inverses) // 2
        parts, inverses = parts_and_inverses[:half], parts_and_inverses[half:]
        sums_ND = tf.zeros((rows, parts[0].shape[1]))
        for values_ND, inverse_N in zip(parts, inverses, strict=True):  # a loop each, in place
            values_ND = tf.cast(values_ND, tf.float32)
            sums_ND = tf.tensor_scatter_nd_add(sums_ND, inverse_N[:, tf.newaxis], values_ND)
        return sums_ND

    return sum_static
