"""Row-sparse gradients: without repeated rows, and their sums over several steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from ...system.xla import under_xla
from ...tables.dynamic.dynamic import DynamicTable
from ...tables.dynamic.keys import STRING
from ...tables.row_reads import sum_rows, unique
from ..saving import StateByPart
from ..tables.table_memory import require_room_for_slots
from ..tables.table_variable import TableVariable
from ..tables.table_warnings import variable_name

_SAVED = "gradient_accumulator_{}_{}"


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
        # Not from the values: tf.distribute drops their static shape.
        columns = variable.shape[1:].num_elements()
        ids_U, inverse_N = unique(gradient.indices)
        values_ND = tf.reshape(gradient.values, (-1, columns))
        values_ND = tf.ensure_shape(values_ND, (gradient.values.shape[0], columns))
        values_UD = sum_rows(values_ND, inverse_N, tf.size(ids_U))
        return cls(values_UD, ids_U, gradient.dense_shape)

    def plain(self) -> tf.IndexedSlices:
        """Return the gradient as `tf.IndexedSlices`, the type that tf.distribute accepts."""
        return tf.IndexedSlices(self.values, self.indices, self.dense_shape)

    def __truediv__(self, divisor: Any) -> Merged:
        """Return the gradient divided by a number, as Keras does to undo its loss scale."""
        return Merged(self.values / divisor, self.indices, self.dense_shape)


def add_gradients(first: Any, second: Any) -> Any:
    """Return the sum of two gradients of a variable, row-sparse if both are.

    It is for a training loop of your own that adds the gradients of several batches. The rows of
    both are put one after the other; an optimizer of `lexrow.keras` adds those of a repeated row.

    Example:
        sums = [lexrow.keras.add_gradients(a, b) for a, b in zip(sums, gradients, strict=True)]

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
    """The sum of row-sparse gradients of a table. It stores the rows that had a gradient."""

    def __init__(self, columns: int):
        super().__init__()
        self.columns = columns
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

    def assign(self, ids_U: Any, values_UD: Any) -> None:
        """Replace the sum.

        Args:
            ids_U: Unique ids, (U,) int64.
            values_UD: The sums of their gradients, (U, D) float32.
        """
        self.ids.assign(ids_U)
        self.values.assign(values_UD)

    def reset(self) -> None:
        """Remove all rows."""
        self.assign(tf.zeros([0], tf.int64), tf.zeros([0, self.columns]))


class RowAccumulation(StateByPart):
    """Mixin for a Keras optimizer: `gradient_accumulation_steps` for row-sparse gradients.

    Keras stores the sum of the gradients of a variable in a slot as large as the variable. A table
    (a variable marked by `is_table`) has a `RowAccumulator` in its place.
    """

    def build(self, var_list: Iterable[Any]) -> None:
        """Create the state of the optimizer as Keras does, with the sums of tables' gradients."""
        var_list = list(var_list)
        if not self.built:
            require_room_for_slots(self, var_list)
        super().build(var_list)
        # In an attribute of its own: tf.train.Checkpoint saves these.
        self._row_accumulators = [
            each for each in self._accumulators_of_gradients() if isinstance(each, RowAccumulator)
        ]

    def make_row_accumulator(self, table: Any) -> RowAccumulator:
        """Return a new sum of gradients of a table.

        Raises:
            ValueError: The variable is distributed, or its ids are strings.
        """
        name = variable_name(table)
        if tf.distribute.has_strategy():
            strategy = type(tf.distribute.get_strategy()).__name__
            raise ValueError(
                f"{self.name}: gradient_accumulation_steps adds the gradients of {name} in one "
                f"process, and not under {strategy}; leave it out"
            )
        rows = table.table if isinstance(table, TableVariable) else None
        if isinstance(rows, DynamicTable) and rows.key_map.kind == STRING:
            raise ValueError(
                f"{self.name}: gradient_accumulation_steps needs integers as ids, and {name} has "
                "strings; leave it out"
            )
        return RowAccumulator(table.shape[1])

    def save_own_variables(self, store: Any) -> None:
        """Write the state of the optimizer, with the accumulated rows."""
        super().save_own_variables(store)
        for number, accumulator in enumerate(self._saved_accumulators()):
            store[_SAVED.format(number, "ids")] = accumulator.ids.numpy()
            store[_SAVED.format(number, "values")] = accumulator.values.numpy()

    def load_own_variables(self, store: Any) -> None:
        """Read the state of the optimizer, with the accumulated rows if the store has them."""
        super().load_own_variables(store)
        names = set(store.keys())
        for number, accumulator in enumerate(self._saved_accumulators()):
            ids, values = (_SAVED.format(number, part) for part in ("ids", "values"))
            if ids in names:
                accumulator.assign(store[ids][:], store[values][:])

    def _saved_accumulators(self) -> Sequence[RowAccumulator]:
        """Return the sums of the tables' gradients in a fixed order; none before `build`."""
        return getattr(self, "_row_accumulators", ())

    def _accumulators_of_gradients(self) -> Sequence[Any]:
        """Return the sums of gradients of all variables; none without accumulation."""
        return self._accumulated_gradients if self.gradient_accumulation_steps else ()

    def _backend_apply_gradients(
        self, grads: Sequence[Any], trainable_variables: Sequence[Any]
    ) -> None:
        """Apply the gradients as Keras does, or accumulate them, after a check of the tables.

        Raises ValueError if they are accumulated, and XLA compiles the step or the gradient of a
        table is dense.
        """
        for gradient, variable in zip(grads, trainable_variables, strict=True):
            if not self._row_accumulators:
                break
            accumulator = self._accumulated_gradients[self._get_variable_index(variable)]
            if not isinstance(accumulator, RowAccumulator):
                continue
            start = f"{self.name}: gradient_accumulation_steps stores"
            name = variable_name(variable)
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
        super()._backend_apply_gradients(grads, trainable_variables)

    def _backend_reset_gradient_accumulators(self) -> None:
        """Set all accumulated gradients to zero."""
        for accumulator in self._accumulated_gradients:
            if isinstance(accumulator, RowAccumulator):
                accumulator.reset()
            elif accumulator is not None:
                accumulator.assign(tf.zeros_like(accumulator))

    def _backend_increment_gradient_accumulators(
        self, grads: Sequence[Any], acc_grads: Sequence[Any]
    ) -> None:
        """Add each gradient to the accumulated one, in place."""
        dense = []
        for gradient, accumulator in zip(grads, acc_grads, strict=True):
            if isinstance(accumulator, RowAccumulator):
                total = gradient + accumulator
                accumulator.assign(total.indices, total.values)
            else:
                dense.append((gradient, accumulator))
        super()._backend_increment_gradient_accumulators(
            [gradient for gradient, _ in dense], [accumulator for _, accumulator in dense]
        )
