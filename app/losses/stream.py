"""Works off the parts of a loss: block by block, gather, differentiate, update."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

from .base import Gather, Part

# Called for each block with its table, ids (U,), rows (U, D) and their gradients (U, D).
Update = Callable[[str, tf.Tensor, tf.Tensor, tf.Tensor], None]
# Called for each block with its ids, what else is known of it, vectors, rows and what was measured.
_Visit = Callable[..., Sequence[tf.Tensor]]


def train(part: Part, gather: Gather, update: Update) -> tuple[tf.Tensor, tf.Tensor]:
    """The part's loss, a float32 scalar, and its gradient by the hidden vectors, (N, D).

    A block's rows are updated as soon as their gradient is known, and nothing of them is kept, so
    that memory holds one block, whatever the batch.
    """

    def visit(ids_U, known, hidden_MD, rows_UD, measured_M) -> Sequence[tf.Tensor]:
        value, by_hidden, by_rows = _differentiated(part, known, hidden_MD, rows_UD, measured_M)
        with tf.name_scope("update/"):
            update(part.table, ids_U, rows_UD, by_rows)
        return value, by_hidden

    value, by_hidden = _visited(part, gather, visit, [_scalar(), _vectors(part)])
    return value, tf.cast(_by_place(part, by_hidden), part.hidden_ND.dtype)


def gradients(part: Part, gather: Gather) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    """As `train`, without an update: also the ids of the rows that the part touches, (U,) int32,
    and the loss's gradients by these rows, (U, D), which all are in memory at once.
    """

    def visit(ids_U, known, hidden_MD, rows_UD, measured_M) -> Sequence[tf.Tensor]:
        value, by_hidden, by_rows = _differentiated(part, known, hidden_MD, rows_UD, measured_M)
        return value, by_hidden, ids_U, by_rows

    ids = tf.TensorSpec([None], tf.int32)
    value, by_hidden, ids_U, by_rows = _visited(
        part, gather, visit, [_scalar(), _vectors(part)], [ids, _vectors(part)]
    )
    return value, _by_place(part, by_hidden), ids_U, by_rows


def losses(part: Part, gather: Gather) -> tf.Tensor:
    """The part's loss for each of the hidden vectors, (N,) float32; changes nothing.

    For parts whose `loss` gives a number for each of a block's vectors.
    """

    def visit(ids_U, known, hidden_MD, rows_UD, measured_M) -> Sequence[tf.Tensor]:
        return [part.loss(known, hidden_MD, rows_UD, measured_M)]

    (found,) = _visited(part, gather, visit, [tf.TensorSpec([None], tf.float32)])
    return _by_place(part, found)


def _differentiated(part: Part, known, hidden_MD, rows_UD, measured_M) -> Sequence[tf.Tensor]:
    """A block's loss, and its gradients by the vectors and by the rows, all float32."""
    with tf.name_scope("loss/"), tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch((hidden_MD, rows_UD))
        value = tf.reduce_sum(part.loss(known, hidden_MD, rows_UD, measured_M))
    with tf.name_scope("gradient/"):
        found = tape.gradient(value, (hidden_MD, rows_UD), unconnected_gradients="zero")
        return value, *(tf.cast(tf.convert_to_tensor(gradient), tf.float32) for gradient in found)


def _visited(
    part: Part,
    gather: Gather,
    visit: _Visit,
    specs: Sequence[tf.TensorSpec],
    joined: Sequence[tf.TensorSpec] = (),
) -> Sequence[tf.Tensor]:
    """What `visit` gives: summed over a group's blocks; over groups scalars summed, others joined.

    specs: of what it gives; an unknown first dimension is that of a group's vectors. joined: of
    what it gives after that, of each block's rows, which is joined over a group's blocks, too.
    """

    def group(index: tf.Tensor) -> Sequence[tf.Tensor]:
        hidden_MD = part.hidden_ND
        if part.members is not None:
            hidden_MD = tf.gather(hidden_MD, part.members.of(index))
        count = tf.shape(hidden_MD)[0]

        def block(tile: tf.Tensor, run: Callable, measured_M: tf.Tensor | None):
            ids_U, known = part.block(index, tile)
            with tf.name_scope("gather/"):
                rows_UD = gather(part.table, ids_U)
            return run(ids_U, known, hidden_MD, rows_UD, measured_M)

        def measure(ids_U, known, hidden_MD, rows_UD, measured_M) -> Sequence[tf.Tensor]:
            return [part.measure(known, hidden_MD, rows_UD, measured_M)]

        if part.tiles is None:
            return block(tf.constant(0), visit, None)
        tiles, measured_M = part.tiles(index), None
        if part.measure is not None:
            (measured_M,) = _loop(
                tiles,
                lambda tile, last: block(tile, measure, last),
                [tf.fill([count], part.before)],
            )
        sums = [
            tf.zeros([count if size is None else size for size in spec.shape], spec.dtype)
            for spec in specs
        ]

        def body(tile: tf.Tensor, *carried) -> Sequence:
            found = block(tile, visit, measured_M)
            return [
                *map(tf.add, carried[: len(specs)], found),
                *_written(carried[len(specs) :], tile, found[len(specs) :]),
            ]

        found = _loop(tiles, body, [*sums, *_arrays(joined, tiles)])
        return [
            *found[: len(specs)],
            *(
                _joined(array, spec)
                for array, spec in zip(found[len(specs) :], joined, strict=True)
            ),
        ]

    if isinstance(part.groups, int) and part.groups == 1:
        return group(tf.constant(0))
    # Pieces are written side by side; adding each to a tensor of all vectors would copy that.
    every = [*specs, *joined]
    arrays = _loop(
        part.groups,
        lambda index, *arrays: _written(arrays, index, group(index)),
        _arrays(every, part.groups),
    )
    return [
        _joined(array, spec) if spec.shape.rank else tf.reduce_sum(array.stack())
        for array, spec in zip(arrays, every, strict=True)
    ]


def _arrays(specs: Sequence[tf.TensorSpec], size: int | tf.Tensor) -> list[tf.TensorArray]:
    return [
        tf.TensorArray(spec.dtype, size, infer_shape=False, element_shape=spec.shape)
        for spec in specs
    ]


def _written(
    arrays: Sequence[tf.TensorArray], index: tf.Tensor, values: Sequence[tf.Tensor]
) -> list[tf.TensorArray]:
    return [array.write(index, value) for array, value in zip(arrays, values, strict=True)]


def _joined(array: tf.TensorArray, spec: tf.TensorSpec) -> tf.Tensor:
    """The pieces one after the other."""
    if tf.executing_eagerly() and not int(array.size()):  # which TensorFlow cannot join there
        return tf.zeros([0, *spec.shape[1:]], spec.dtype)
    return array.concat()


def _loop(count: tf.Tensor, body: Callable, carried: Sequence) -> Sequence:
    """`carried` after `body(index, *carried)` for each index below `count`, one after the other."""
    _, *carried = tf.while_loop(
        lambda index, *_: index < count,
        lambda index, *carried: (index + 1, *body(index, *carried)),
        (tf.constant(0), *carried),
        parallel_iterations=1,
    )
    return carried


def _by_place(part: Part, found: tf.Tensor) -> tf.Tensor:
    """What was found for the vectors of one group after the other, summed at their places."""
    if part.members is None:
        return found
    count = tf.shape(part.hidden_ND)[0]
    return tf.math.unsorted_segment_sum(found, part.members.places_P, count)


def _scalar() -> tf.TensorSpec:
    return tf.TensorSpec([], tf.float32)


def _vectors(part: Part) -> tf.TensorSpec:
    return tf.TensorSpec([None, part.hidden_ND.shape[1]], tf.float32)
