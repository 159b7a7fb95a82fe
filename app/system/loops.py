"""Loops in a graph whose iterations come one after the other, and arrays of their results."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import tensorflow as tf


def loop(count: tf.Tensor, body: Callable, carried: Sequence) -> Sequence:
    """Return `carried` after `carried = body(index, *carried)` for each index below `count`.

    One index comes after the other, also where TensorFlow could run several at once.

    Args:
        count: The number of indices, an int32 scalar.
        body: Function from an index, an int32 scalar, and the values to the next values.
        carried: The values before the first index.
    """
    _, *carried = tf.while_loop(
        lambda index, *_: index < count,
        lambda index, *carried: (index + 1, *body(index, *carried)),
        (tf.constant(0), *carried),
        parallel_iterations=1,
    )
    return carried


def make_arrays(specs: Sequence[tf.TensorSpec], size: int | tf.Tensor) -> list[tf.TensorArray]:
    """Make an array of `size` empty places for each spec.

    Args:
        specs: The shape and the dtype of a value of each array.
        size: The number of places.
    """
    return [
        tf.TensorArray(spec.dtype, size, infer_shape=False, element_shape=spec.shape)
        for spec in specs
    ]


def write_arrays(
    arrays: Sequence[tf.TensorArray], index: tf.Tensor, values: Sequence[tf.Tensor]
) -> list[tf.TensorArray]:
    """Return the arrays with one value written to each, at the given index.

    Args:
        arrays: The arrays.
        index: The index of the place.
        values: A value for each array.
    """
    return [array.write(index, value) for array, value in zip(arrays, values, strict=True)]


def join(array: tf.TensorArray, spec: tf.TensorSpec) -> tf.Tensor:
    """Join the values of an array along their first dimension; no values make an empty tensor.

    Args:
        array: The array.
        spec: The shape and the dtype of a value.
    """
    if tf.executing_eagerly() and not int(array.size()):  # eager TensorFlow cannot join no values
        return tf.zeros([0, *spec.shape[1:]], spec.dtype)
    return array.concat()


def map_parts(
    stages: Sequence[tuple[Callable[..., Sequence[tf.Tensor]], Sequence[tf.Tensor]]],
    specs: Sequence[tf.TensorSpec],
    rows: int,
) -> list[tf.Tensor]:
    """Return the joined results of `function(*inputs)`, computed for some rows at a time.

    Args:
        stages: Functions with their inputs, one after the other. The inputs of a function are
            tensors (N, ...). It takes the same rows of each, and returns a row of each result for
            each of them.
        specs: The shape (None, ...) and the dtype of each result, the same for all functions.
        rows: The number of rows of a part; the last part of a function may have fewer.

    Returns:
        The results of the first function, then those of the next: tensors (N_1 + N_2 + ..., ...).
    """

    def part(
        function: Callable, inputs: Sequence[tf.Tensor], done: tf.Tensor, index: tf.Tensor, *arrays
    ) -> Sequence[tf.TensorArray]:
        """Compute the results of one part, and write them to the arrays after those `done`."""
        start = index * rows
        results = function(*(values[start : start + rows] for values in inputs))
        return write_arrays(arrays, done + index, results)

    counts = [-(-tf.shape(inputs[0])[0] // rows) for _, inputs in stages]
    arrays: Sequence[tf.TensorArray] = make_arrays(specs, tf.add_n(counts))
    done = tf.constant(0)
    for (function, inputs), count in zip(stages, counts, strict=True):
        arrays = loop(count, functools.partial(part, function, inputs, done), arrays)
        done += count
    return list(map(join, arrays, specs))
