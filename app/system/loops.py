"""Repetitions in a graph: loops with arrays of their results, and calls that are copied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

# The collection of a graph that has a dictionary for each copied call: the name of a copied
# operation -> the name of the original.
_ORIGINALS = "originals"


def loop(count: tf.Tensor, body: Callable, carried: Sequence) -> Sequence:
    """Return `carried` after `carried = body(index, *carried)` for each index below `count`.

    One index comes after the other, also where TensorFlow could run several at once.

    Args:
        count: The number of indices, an int32 scalar.
        body: Function from an index, an int32 scalar, and the values to the next values.
    """
    _, *carried = tf.while_loop(
        lambda index, *_: index < count,
        lambda index, *carried: (index + 1, *body(index, *carried)),
        (tf.constant(0), *carried),
        parallel_iterations=1,
    )
    return carried


def make_arrays(specs: Sequence[tf.TensorSpec], size: int | tf.Tensor) -> list[tf.TensorArray]:
    """Make an array of `size` empty places for each spec."""
    return [
        tf.TensorArray(spec.dtype, size, infer_shape=False, element_shape=spec.shape)
        for spec in specs
    ]


def write_arrays(
    arrays: Sequence[tf.TensorArray], index: tf.Tensor, values: Sequence[tf.Tensor]
) -> list[tf.TensorArray]:
    """Return the arrays with one value written to each, at the given index."""
    return [array.write(index, value) for array, value in zip(arrays, values, strict=True)]


def join(array: tf.TensorArray, spec: tf.TensorSpec) -> tf.Tensor:
    """Join the values of an array along their first dimension; no values make an empty tensor."""
    if tf.executing_eagerly() and not int(array.size()):  # eager TensorFlow cannot join no values
        return tf.zeros([0, *spec.shape[1:]], spec.dtype)
    return tf.cond(tf.equal(array.size(), 1), lambda: array.read(0), array.concat)  # or it copies


def combine(
    count: int | tf.Tensor,
    compute: Callable[[tf.Tensor], Sequence[tf.Tensor]],
    sums: Sequence[tf.Tensor],
    joined: Sequence[tf.TensorSpec] = (),
) -> list[tf.Tensor]:
    """Compute results for each index below `count`; add the first of them, and join the others.

    Args:
        compute: Function from an index, an int32 scalar, to the results.
        sums: The first terms of the sums, usually zeros.
        joined: The shape (None, ...) and the dtype of each further result.
    """
    added = len(sums)

    def body(index: tf.Tensor, *carried) -> Sequence:
        """Add some results, and write the others to arrays."""
        results = compute(index)
        arrays = write_arrays(carried[added:], index, results[added:])
        return [*map(tf.add, carried[:added], results), *arrays]

    carried = loop(count, body, [*sums, *make_arrays(joined, count)])
    return [*carried[:added], *map(join, carried[added:], joined)]


def unroll(function: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Call a function several times in the graph that is being traced, and return all results.

    Only the first call is traced. Its operations are copied for the other calls. The operations are
    the same as if each call was traced, and the graph is made in about half the time.

    Args:
        function: The function. It makes no variables, and returns a nest of tensors that it made.
        calls: The arguments of each call: nests of tensors, and of other values. All calls have
            tensors of the same shapes and dtypes, and the same other values.
    """
    graph = tf.compat.v1.get_default_graph()
    before = len(graph.get_operations())
    result = function(*calls[0])
    # A variable that is captured for the first time is an argument of the graph. Copies share it.
    captured = {tensor.op.name for _, tensor in graph.captures}
    made = [op for op in graph.get_operations()[before:] if op.name not in captured]
    definition = tf.compat.v1.GraphDef(
        node=[operation.node_def for operation in made], versions=graph.graph_def_versions
    )
    names = [operation.name for operation in made]
    inside = set(names)
    used = {tensor.name: tensor for operation in made for tensor in operation.inputs}
    outside = {name: tensor for name, tensor in used.items() if tensor.op.name not in inside}
    wanted = [*names, *(tensor.name for tensor in tf.nest.flatten(result))]
    first, results = tf.nest.flatten(calls[0]), [result]
    for call in calls[1:]:
        pairs = zip(first, tf.nest.flatten(call), strict=True)
        given = {a.name: b for a, b in pairs if tf.is_tensor(a) and a.name in outside}
        # Names that are taken get a number at their end.
        copies = tf.graph_util.import_graph_def(definition, outside | given, wanted, name="")
        originals = dict(zip((copy.name for copy in copies), names, strict=False))
        graph.add_to_collection(_ORIGINALS, originals)
        results.append(tf.nest.pack_sequence_as(result, copies[len(names) :]))
    return results


def creation_stack(operation: tf.Operation) -> list[Any]:
    """Return the Python call stack that made an operation.

    For an operation that `unroll` has copied, it is the call stack of the original.

    Returns:
        The frames, outermost first; none for an operation of a SavedModel.
    """
    for originals in operation.graph.get_collection(_ORIGINALS):
        if operation.name in originals:
            operation = operation.graph.get_operation_by_name(originals[operation.name])
    return list(operation.traceback or ())
