"""What makes an optimizer of Keras row-sparse: the part that those of app.keras share."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import keras
import tensorflow as tf

from .. import __name__ as PACKAGE
from ..optimizers import row_updates as writer
from ..optimizers.base import Rule
from ..tables.variable import VariableRows
from .backend import in_place, require_tensorflow
from .constraints import by_row, constrained
from .merged import Merged

# A dense gradient of a smaller table costs less than a millisecond.
_LARGE = 16 << 20


class RowSparse:
    """A mixin before an optimizer of Keras: row-sparse gradients change the rows that they name.

    All other variables get the rule of the Keras optimizer, by its own code. A gradient is
    row-sparse (tf.IndexedSlices) where rows were gathered, by RowEmbedding, keras.layers.Embedding
    or tf.gather. Rows that occur more than once in a batch have their gradients summed before
    anything else, so that clipping sees the dense gradient's norm. Arithmetic is float32 whatever
    the variable's dtype.

    A class gives row_rule, from a weight decay to the rule for rows, and row_slots, from the number
    of a variable to the variables that hold the rule's state for it. Where that state of a table is
    not what the Keras optimizer has, and has_row_state says so, a dense gradient of the table is
    taken as one of all its rows.
    """

    has_row_state = False

    row_rule: Callable[[float], Rule]
    row_slots: Callable[[int], dict[str, keras.Variable]]

    def __init__(self, *args: Any, **kwargs: Any):
        require_tensorflow()
        super().__init__(*args, **kwargs)
        rate = self._learning_rate
        if isinstance(rate, keras.Variable) and not rate.numpy() > 0:
            raise ValueError(f"learning_rate={rate.numpy():g}: give a positive number")

    def build(self, var_list: Iterable[keras.Variable]) -> None:
        """Make the state of these variables."""
        super().build(list(var_list))

    def add_variable(
        self, shape: Any, initializer: Any = "zeros", *args: Any, **kwargs: Any
    ) -> keras.Variable:
        """As Keras', with the initial value made in one buffer."""
        return super().add_variable(shape, in_place(initializer), *args, **kwargs)

    def add_variable_from_reference(
        self, reference_variable: Any, name: str | None = None, initializer: Any = "zeros"
    ) -> keras.Variable:
        """As Keras', but float32 for the table of a RowEmbedding, however narrow its numbers are.

        The second moment of Adam, for one, is too small for float16 and stands still in bfloat16.
        """
        if not getattr(reference_variable, "is_table", False):
            return super().add_variable_from_reference(reference_variable, name, initializer)
        return self.add_slot(reference_variable, reference_variable.shape, name, initializer)

    def add_slot(
        self, variable: Any, shape: Sequence[int], name: str | None, initializer: Any
    ) -> keras.Variable:
        """A float32 variable where another one is, named as Keras would."""
        values = variable.value if isinstance(variable, keras.Variable) else variable
        path = getattr(variable, "path", variable.name).replace("/", "_").replace(":", "_")
        with self._distribution_strategy.extended.colocate_vars_with(values):
            return self.add_variable(
                shape, initializer, dtype="float32", name=f"{path}_{name or 'var'}"
            )

    def apply(self, grads: Iterable[Any], trainable_variables: Iterable[Any] | None = None) -> None:
        """Changes the variables; see keras.optimizers.Optimizer.apply.

        ValueError for what would keep a second whole table: use_ema, gradient_accumulation_steps.
        """
        grads = list(grads)
        if trainable_variables is not None:
            trainable_variables = list(trainable_variables)
        variables = trainable_variables or self._trainable_variables
        sparse = [
            variable
            for gradient, variable in zip(grads, variables, strict=False)
            if isinstance(gradient, tf.IndexedSlices)
        ]
        if sparse:
            self._refuse_whole_tables(sparse)
            self._tell_whole_tables([table for table in sparse if _bytes(table) >= _LARGE])
        if variables and not self.built and not tf.distribute.has_strategy():
            # Made in the trace of a step, as Keras does, a slot takes its memory twice.
            with tf.init_scope():
                self.build(variables)
        super().apply(grads, trainable_variables)

    def _refuse_whole_tables(self, tables: Sequence[Any]) -> None:
        names = ", ".join(_name(table) for table in tables)
        for name in ("use_ema", "gradient_accumulation_steps"):
            if getattr(self, name):
                raise ValueError(
                    f"{self.name}: {name} would read and write every row of {names} at each step; "
                    "leave it out"
                )

    def _tell_whole_tables(self, tables: Sequence[Any]) -> None:
        """Warns of what reads or writes whole tables beside the update, which does not."""
        for table in tables:
            _tell_read_whole(table)
            if _scaled_by_keras():
                warnings.warn(
                    f"keras.optimizers.LossScaleOptimizer looks at every row of {_name(table)} at "
                    "each step; compile with "
                    f"{PACKAGE}.keras.LossScaleOptimizer({type(self).__name__}(...))",
                    stacklevel=2,
                )
            constraint = getattr(table, "constraint", None)
            if constraint is not None and not _constraint_by_row(table):
                warnings.warn(
                    f"the constraint {type(constraint).__name__} of {_name(table)} reads and "
                    f"writes every row at each step; {PACKAGE}.keras.RowEmbedding has those by row",
                    stacklevel=2,
                )

    def _filter_empty_gradients(
        self, grads: Sequence[Any], vars: Sequence[Any]
    ) -> tuple[list[Any], list[Any]]:
        grads, variables = super()._filter_empty_gradients(grads, vars)
        # After the update Keras constrains the whole of each variable of its own that it is given;
        # TensorFlow's variable below has no constraint. `update_step` constrains the rows.
        below = [
            v.value if isinstance(g, tf.IndexedSlices) and _constraint_by_row(v) else v
            for g, v in zip(grads, variables, strict=True)
        ]
        return [Merged.of(g, v) for g, v in zip(grads, variables, strict=True)], below

    def _clip_gradients(self, grads: Sequence[Any]) -> Sequence[Any]:
        """Clips as Keras does, with the rows of a table in place of the whole."""
        dense = [g.values if isinstance(g, tf.IndexedSlices) else g for g in grads]
        clipped = super()._clip_gradients(dense)
        return [
            Merged(values, g.indices, g.dense_shape) if isinstance(g, tf.IndexedSlices) else values
            for g, values in zip(grads, clipped, strict=True)
        ]

    def _backend_update_step(
        self, grads: Sequence[Any], trainable_variables: Sequence[Any], learning_rate: Any
    ) -> None:
        plain = [g.plain() if isinstance(g, Merged) else g for g in grads]
        super()._backend_update_step(plain, trainable_variables, learning_rate)

    def _backend_apply_gradients(
        self, grads: Sequence[Any], trainable_variables: Sequence[Any]
    ) -> None:
        pairs = zip(grads, trainable_variables, strict=True)
        self._tables = {self._var_key(v) for g, v in pairs if isinstance(g, tf.IndexedSlices)}
        super()._backend_apply_gradients(grads, trainable_variables)

    def _apply_weight_decay(self, variables: Sequence[Any]) -> None:
        """To the dense ones; the rule for rows has its own."""
        dense = [v for v in variables if self._var_key(v) not in self._tables]
        super()._apply_weight_decay([v for v in dense if not self._is_by_row(v)])

    def update_step(self, gradient: Any, variable: tf.Variable, learning_rate: Any) -> None:
        """Changes one variable, or the rows of it that the gradient names."""
        if not isinstance(gradient, tf.IndexedSlices):
            self._tell_dense(variable)
            if not self._is_by_row(variable):
                super().update_step(gradient, variable, learning_rate)
                return
            rows = tf.range(variable.shape[0], dtype=tf.int64)
            gradient = Merged(tf.cast(gradient, tf.float32), rows, variable.shape)
        if self._distribution_strategy.num_replicas_in_sync > 1:
            # The rows of each replica are distinct; those of all together need not be.
            gradient = Merged.of(gradient, variable)
        index = self._get_variable_index(variable)
        decay = self.weight_decay if self.weight_decay and self._use_weight_decay(variable) else 0.0
        rule = self.row_rule(decay)
        if constraint := _constraint_by_row(self._trainable_variables[index]):
            rule = constrained(rule, constraint)
        slots = self.row_slots(index)
        table = _Matrix(variable)
        writer.write(
            rule,
            table,
            {name: _Matrix(slot.value) for name, slot in slots.items()},
            gradient.indices,
            table.gather(gradient.indices),
            tf.reshape(gradient.values, (-1, table.columns)),
            tf.cast(learning_rate, tf.float32),
            tf.cast(self.iterations, tf.int64) + 1,
        )

    def _is_by_row(self, variable: Any) -> bool:
        """Return whether only the rule for rows has the state of this variable."""
        own = self._trainable_variables[self._get_variable_index(variable)]
        return self.has_row_state and getattr(own, "is_table", False)

    def _tell_dense(self, variable: tf.Variable) -> None:
        own = self._trainable_variables[self._get_variable_index(variable)]
        embeds = getattr(own, "is_table", False) or _name(own).endswith("/embeddings")
        if embeds and _bytes(own) >= _LARGE:
            warnings.warn(
                f"the gradient of {_name(own)} is dense: every one of its {own.shape[0]:,} rows is "
                f"read and written at each step; {PACKAGE}.keras.audit(model) finds out why",
                stacklevel=2,
            )


class _Matrix(VariableRows):
    """The rows of a variable of any rank, each as a vector."""

    def __init__(self, values: tf.Variable):
        super().__init__(values)
        self.columns = values.shape[1:].num_elements()

    def gather(self, ids_U: tf.Tensor) -> tf.Tensor:
        return tf.reshape(super().gather(ids_U), (-1, self.columns))

    def assign(self, ids_U: tf.Tensor, rows_UD: tf.Tensor) -> None:
        super().assign(ids_U, tf.reshape(rows_UD, (-1, *self.values.shape[1:])))


def _constraint_by_row(variable: Any) -> Any:
    """The constraint of a variable of Keras that single rows can be given alone, or None."""
    if not isinstance(variable, keras.Variable) or variable.shape.rank != 2:
        return None
    return variable.constraint if by_row(variable.constraint) else None


def _tell_read_whole(variable: Any) -> None:
    """Warns if the step that is being traced also reads the whole of a table that it writes."""
    if tf.executing_eagerly():
        return
    handle = (variable.value if isinstance(variable, keras.Variable) else variable).handle
    graph, readers = tf.compat.v1.get_default_graph(), set()
    while graph is not None:  # the update may be in a branch of the step
        if graph._get_control_flow_context() is not None:
            return  # XLA's, in which a read of the whole copies nothing
        if isinstance(graph, tf.__internal__.FuncGraph):
            readers |= {operation.type for operation in graph.capture(handle).consumers()}
        graph = getattr(graph, "outer_graph", None)
    if "ReadVariableOp" in readers:
        warnings.warn(
            f"{_name(variable)} ({_bytes(variable):,} bytes) is copied as a whole at each step: "
            f"keras.layers.Embedding and keras.ops.take read it so; {PACKAGE}.keras.RowEmbedding "
            f"reads the rows of the batch, and {PACKAGE}.keras.audit(model) tells more",
            stacklevel=2,
        )


def _scaled_by_keras() -> bool:
    """Whether the caller is a loss scale that looks at whole gradients, which only it can tell."""
    frame = inspect.currentframe()
    while frame := frame.f_back:
        owner = frame.f_locals.get("self")
        if isinstance(owner, keras.optimizers.LossScaleOptimizer):
            return not getattr(owner, "checks_rows", False)
    return False


def _name(variable: Any) -> str:
    return getattr(variable, "path", variable.name.removesuffix(":0"))


def _bytes(variable: Any) -> int:
    return variable.shape.num_elements() * tf.as_dtype(variable.dtype).size
