"""Row-sparse gradients: without repeated rows, and their sums over several steps."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ...system.xla import under_xla
from ...tables.dynamic.dynamic import DynamicTable
from ...tables.dynamic.keys import STRING
from ...tables.row_reads import sum_rows, unique, unique_by_representative
from ..backend import one_copy
from ..tables.table_variable import TableVariable
from ..tables.table_warnings import variable_name

# Takes ids (U,), rows (U, D) and their gradients (U, D).
RowUpdate = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], None]


class Merged(tf.IndexedSlices):
    """A row-sparse gradient with each row once: float32 values (U, D) at U unique indices."""

    @classmethod
    def of(cls, gradient: Any, variable: Any) -> Any:
        """Return a row-sparse gradient as `Merged`, with the values of repeated rows added.

        Args:
            gradient: A gradient. A dense one, None or a `Merged` is returned unchanged.
            variable: Its variable. Rows of more than one axis are flattened to vectors.
        """
        if not isinstance(gradient, tf.IndexedSlices) or isinstance(gradient, Merged):
            return gradient
        ids_U, inverse_N = unique(gradient.indices)
        values_UD = sum_rows(_matrix(gradient, variable), inverse_N, tf.size(ids_U))
        return cls(values_UD, ids_U, gradient.dense_shape)

    @classmethod
    def again(cls, gradient: Any) -> Any:
        """Return a `Merged` that a `tf.function` made plain as one; any other gradient as it is."""
        if not isinstance(gradient, tf.IndexedSlices):
            return gradient
        return cls(gradient.values, gradient.indices, gradient.dense_shape)

    def plain(self) -> tf.IndexedSlices:
        """Return the gradient as `tf.IndexedSlices`, the type that tf.distribute accepts."""
        return tf.IndexedSlices(self.values, self.indices, self.dense_shape)

    def __truediv__(self, divisor: Any) -> Merged:
        """Return the gradient divided by a number, as Keras does to undo its loss scale."""
        return Merged(self.values / divisor, self.indices, self.dense_shape)


class Streamed(Merged):
    """The gradient of a table that is made block by block, where an optimizer applies it.

    Whoever reads its values makes all of them at once, in memory. It is made from rows as they are
    when it is applied or read, so it is only for a step that does not change them before.

    Args:
        visit: Gives blocks of rows to a function, one after the other: ids (U,), rows (U, D) and
            their gradients (U, D), float32. The function may write the rows.
        read: Returns the whole gradient.
    """

    def __init__(
        self, visit: Callable[[RowUpdate], None], read: Callable[[], Merged], shape: tf.Tensor
    ):
        nothing = tf.zeros((0, tf.get_static_value(shape)[1]))
        super().__init__(nothing, tf.zeros([0], tf.int32), shape)
        self.visit, self._read = visit, read
        self._whole: Merged | None = None

    @property
    def values(self) -> tf.Tensor:
        """The gradients of all rows that have one, (U, D)."""
        return self._merged().values

    @property
    def indices(self) -> tf.Tensor:
        """The ids of these rows, (U,)."""
        return self._merged().indices

    @property
    def dtype(self) -> tf.DType:
        """The dtype of the values."""
        return tf.float32

    def plain(self) -> Streamed:
        """Return the gradient itself: it is not for tf.distribute."""
        return self

    def _merged(self) -> Merged:
        """Return the whole gradient, which is made once."""
        if self._whole is None:
            self._whole = self._read()
        return self._whole


def _matrix(gradient: tf.IndexedSlices, variable: Any) -> tf.Tensor:
    """Return the values of a gradient, (N, D), with each row flattened to a vector."""
    # Not from the values: tf.distribute drops their static shape.
    columns = variable.shape[1:].num_elements()
    values_ND = tf.reshape(gradient.values, (-1, columns))
    return tf.ensure_shape(values_ND, (gradient.values.shape[0], columns))


def merge_together(
    gradients: Sequence[Any], variables: Sequence[Any], numbers: Callable[[int], tf.Variable]
) -> list[Any]:
    """Return what `Merged.of` does for each gradient, in few operations for XLA.

    Args:
        numbers: Returns a variable of so many numbers, for `unique_by_representative`.
    """
    merged = list(gradients)
    sparse = [
        index
        for index, gradient in enumerate(gradients)
        if isinstance(gradient, tf.IndexedSlices) and not isinstance(gradient, Merged)
    ]
    if not sparse:
        return merged
    ends = [*itertools.accumulate(variables[index].shape[0] for index in sparse)]
    places = [range(*bounds) for bounds in itertools.pairwise([0, *ends])]
    ids = [gradients[index].indices for index in sparse]
    found = unique_by_representative(ids, places, numbers(ends[-1]))
    by_columns: dict[int, list[tuple[int, tf.Tensor, tf.Tensor, tf.Tensor]]] = {}
    for index, (ids_U, inverse_N) in zip(sparse, found, strict=True):
        values_ND = tf.cast(_matrix(gradients[index], variables[index]), tf.float32)
        by_columns.setdefault(values_ND.shape[1], []).append((index, ids_U, inverse_N, values_ND))
    for alike in by_columns.values():
        sizes = [tf.size(ids_U) for _, ids_U, *_ in alike]
        starts = tf.cumsum(sizes, exclusive=True)
        inverses = [inverse_N + starts[n] for n, (_, _, inverse_N, _) in enumerate(alike)]
        values_MD = tf.concat([values_ND for *_, values_ND in alike], 0)
        sums_MD = sum_rows(values_MD, tf.concat(inverses, 0), tf.reduce_sum(sizes))
        for (index, ids_U, *_), sums_UD in zip(alike, tf.split(sums_MD, sizes), strict=True):
            merged[index] = Merged(sums_UD, ids_U, gradients[index].dense_shape)
    return merged


def make_numbers(count: int, device: str | None) -> tf.Variable:
    """Make a variable of numbers to work with, by default on the device on which a step is called.

    Keras and TensorFlow do not see it, so no checkpoint has it.
    """
    place = tf.device(device) if device else contextlib.nullcontext()  # None would be any device
    with tf.init_scope(), place, one_copy("a step by XLA"):
        # A function that creates a variable of the usual kind is traced twice. A GPU has no kernels
        # for variables of int32.
        return tf.Variable(
            tf.zeros([count], tf.uint32),
            trainable=False,
            experimental_enable_variable_lifting=False,
        )


def add_gradients(first: Any, second: Any) -> Any:
    """Return the sum of two gradients of a variable, row-sparse if both are.

    It is for a training loop of your own that adds the gradients of several batches. The rows of
    both are put one after the other; an optimizer of `lexrow.keras` adds those of a repeated row.

    Example:
        >>> gradients = first_gradients, second_gradients  # each as of `tape.gradient`
        >>> sums = [lexrow.keras.add_gradients(a, b) for a, b in zip(*gradients, strict=True)]

    Args:
        first: A dense gradient, `tf.IndexedSlices` or None.
        second: As `first`.

    Returns:
        The sum; if one of them is None, the other unchanged.
    """
    if first is None or second is None:
        return second if first is None else first
    if not isinstance(first, tf.IndexedSlices) or not isinstance(second, tf.IndexedSlices):
        return tf.convert_to_tensor(first) + tf.convert_to_tensor(second)
    indices = [first.indices, second.indices]
    if first.indices.dtype != second.indices.dtype:  # int32 and int64
        indices = [tf.cast(each, tf.int64) for each in indices]
    return tf.IndexedSlices(
        tf.concat([first.values, second.values], axis=0),
        tf.concat(indices, axis=0),
        first.dense_shape,
    )


class RowAccumulator(tf.Module):
    """The sum of row-sparse gradients of a table. It stores the rows that had a gradient.

    It takes the place of the variable, as large as the table, in which Keras adds gradients.

    Attributes:
        shape: The shape (0, D) of a sum without rows, which Keras assigns after each update.
    """

    dtype = "float32"

    def __init__(self, columns: int):
        super().__init__()
        self.shape = 0, columns
        with tf.init_scope():
            self.ids = tf.Variable(
                tf.zeros([0], tf.int64), shape=[None], trainable=False, name="ids"
            )
            self.values = tf.Variable(
                tf.zeros([0, columns]), shape=[None, columns], trainable=False, name="values"
            )

    def __radd__(self, gradient: Merged) -> Merged:
        """Return the sum of a gradient and the accumulated ones; nothing is stored."""
        ids_N = tf.concat([self.ids, tf.cast(gradient.indices, tf.int64)], axis=0)
        ids_U, inverse_N = unique(ids_N)
        values_ND = tf.concat([self.values, gradient.values], axis=0)
        # Not tf.size: TensorFlow's constant folding replaces it by 0 here.
        values_UD = sum_rows(values_ND, inverse_N, tf.shape(ids_U)[0])
        return Merged(values_UD, ids_U, gradient.dense_shape)

    def assign(self, total: Any) -> None:
        """Replace the sum by a gradient, or by no rows if a tensor of the shape (0, D) is given."""
        has_rows = isinstance(total, Merged)
        self.ids.assign(total.indices if has_rows else tf.zeros([0], tf.int64))
        self.values.assign(total.values if has_rows else total)


def make_row_accumulator(optimizer: str, table: Any) -> RowAccumulator:
    """Return a new sum of gradients of a table, for the optimizer of this name.

    Raises:
        ValueError: The variable is distributed, or its ids are strings.
    """
    name = variable_name(table)
    if tf.distribute.has_strategy():
        strategy = type(tf.distribute.get_strategy()).__name__
        raise ValueError(
            f"{optimizer}: gradient_accumulation_steps adds the gradients of {name} in one "
            f"process, and not under {strategy}; leave it out"
        )
    rows = table.table if isinstance(table, TableVariable) else None
    if isinstance(rows, DynamicTable) and rows.key_map.kind == STRING:
        raise ValueError(
            f"{optimizer}: gradient_accumulation_steps needs integers as ids, and {name} has "
            "strings; leave it out"
        )
    return RowAccumulator(table.shape[1])


def check_accumulated(optimizer: str, gradient: Any, table: Any) -> None:
    """Raise ValueError if a gradient of a table cannot be added to a `RowAccumulator`.

    It cannot if XLA compiles the step, or if the gradient is dense.
    """
    start, name = f"{optimizer}: gradient_accumulation_steps stores", variable_name(table)
    if under_xla():
        raise ValueError(
            f"{start} a changing number of rows of {name}, which XLA cannot compile; use "
            "compile(jit_compile=False)"
        )
    if not isinstance(gradient, Merged):
        raise ValueError(
            f"{start} the rows of {name} that have a gradient, and its gradient is dense: "
            "every row has one; leave it out"
        )
