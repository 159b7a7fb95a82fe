"""The mixin that gives a Keras optimizer row-sparse updates."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, ParamSpec

import keras
import tensorflow as tf

from ...optimizers.base import Rule, State, touched, update_rows
from ...system.xla import under_xla
from ...tables.base import Ids, Table, plain_ids
from ...tables.device import VariableRows
from ...tables.joined import JoinedTable, join_slots, kind
from ...tables.rounding import round_stochastically, round_under_xla
from ..backend import in_place, in_replica, owners_in_call, require_tensorflow, row_constraint
from ..saving import StateByPart
from ..tables.table_memory import require_room_for_slots
from ..tables.table_variable import TableVariable
from ..tables.table_warnings import (
    LARGE,
    log_missing_prefetch,
    variable_bytes,
    variable_name,
    warn_of_dense_gradient,
    warn_of_whole_table,
)
from .row_accumulation import (
    Merged,
    RowAccumulator,
    Streamed,
    check_accumulated,
    make_numbers,
    make_row_accumulator,
    merge_together,
)

_ROUNDINGS = ("stochastic", "nearest")
_HALF = (tf.bfloat16, tf.float16)
_CLIPS = ("clipnorm", "clipvalue", "global_clipnorm")
_NOT_NEGATIVE = (*_CLIPS, "weight_decay", "epsilon", "initial_accumulator_value", "beta")
# Arguments for which an optimizer needs whole gradients.
_NEEDS_WHOLE = (*_CLIPS, "gradient_accumulation_steps", "loss_scale_factor")
_BELOW_1 = ("beta_1", "beta_2")
_P = ParamSpec("_P")


def arguments_of(stock: Callable[_P, None], base: type, **own: Any) -> Callable[_P, None]:
    """Return a constructor that `help` and editors show with the arguments of one of Keras.

    Args:
        **own: Further arguments by name, with their defaults.
    """

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        base.__init__(self, *args, **kwargs)

    *first, last = inspect.signature(stock).parameters.values()  # the last is **kwargs
    kind = inspect.Parameter.KEYWORD_ONLY
    added = [inspect.Parameter(name, kind, default=default) for name, default in own.items()]
    vars(__init__)["__signature__"] = inspect.Signature([*first, *added, last])
    return __init__  # type: ignore[return-value]


class RowSparse(StateByPart):
    """Mixin for a Keras optimizer: a row-sparse gradient changes only its own rows.

    A gradient is row-sparse (`tf.IndexedSlices`) where rows were gathered, by `RowEmbedding`,
    `keras.layers.Embedding` or `tf.gather`. Gradients of a row that occurs several times in a batch
    are first added, so that clipping sees the norm of the dense gradient. Arithmetic is float32 for
    every dtype of the variable. Variables with a dense gradient are updated by the Keras optimizer.
    For `gradient_accumulation_steps` a table has a `RowAccumulator` in place of Keras' variable.

    A subclass defines two methods. `row_rule(index, decay)` returns the update rule for rows of the
    variable with this index, with the given weight decay. `row_slots(index)` returns the slots of
    this variable, by the names that the rule uses.

    Args:
        rounding: How updated rows of a `RowEmbedding` or output layer are rounded to bfloat16 or
            float16: "stochastic", the default (see `tables.rounding`), or "nearest", as Keras does.

    Attributes:
        has_row_state: Whether the slots of a table differ from those of the Keras optimizer. Every
            row of such a table is then updated by the rule, even if its gradient is dense.
        updates_by_xla: Whether XLA compiles the update of each device under a strategy of
            tf.distribute; set while `compile_steps` traces it.
    """

    has_row_state = False
    updates_by_xla = False

    row_rule: Callable[[int, float], Rule]
    row_slots: Callable[[int], dict[str, keras.Variable]]

    def __init__(self, *args: Any, rounding: str = "stochastic", **kwargs: Any):
        require_tensorflow()
        if rounding not in _ROUNDINGS:
            raise ValueError(f"rounding={rounding!r}; give one of {', '.join(_ROUNDINGS)}")
        super().__init__(*args, **kwargs)
        self.rounding = rounding
        self._numbers = functools.cache(make_numbers)  # a variable for each number of rows
        self.check_arguments()

    def check_arguments(self) -> None:
        """Raise ValueError if an argument that Keras does not check is out of range, or NaN."""
        rate = self._learning_rate
        # A MultiOptimizer can make an optimizer in the trace of a step, where no value is known.
        if isinstance(rate, keras.Variable) and tf.executing_eagerly() and not rate.numpy() > 0:
            raise ValueError(f"learning_rate={rate.numpy():g}: give a positive number")
        for name in (*_NOT_NEGATIVE, *_BELOW_1):
            value = getattr(self, name, None)
            if not isinstance(value, Real):  # None, or a tensor
                continue
            if not float(value) >= 0:
                raise ValueError(f"{name}={value}: give at least 0")
            if name in _BELOW_1 and not float(value) < 1:
                raise ValueError(f"{name}={value}: give less than 1")

    def build(self, var_list: Iterable[Any]) -> None:
        """Create the slots, and adapt the optimizers of Keras that are around this one.

        A MultiOptimizer tells tf.train.Checkpoint of its optimizers, so that their slots are saved.
        A LossScaleOptimizer then checks rows instead of whole gradients.

        Raises:
            ValueError: The slots of the tables need more memory, or disk, than is free.
        """
        var_list = list(var_list)
        if not self.built:
            require_room_for_slots(self, var_list)
            join_slots([v.table for v in var_list if isinstance(v, TableVariable)])
        super().build(var_list)
        sums = self._accumulated_gradients if self.gradient_accumulation_steps else ()
        # In an attribute of its own: tf.train.Checkpoint saves these.
        self._row_accumulators = [each for each in sums if isinstance(each, RowAccumulator)]
        scale = next(owners_in_call(keras.optimizers.LossScaleOptimizer), None)
        if type(scale) is keras.optimizers.LossScaleOptimizer:
            scale.__class__ = LossScaleOptimizer
        if outer := next(owners_in_call(keras.optimizers.MultiOptimizer), None):
            for number, optimizer in enumerate(outer.optimizers):
                outer._track_trackable(optimizer, f"optimizer_{number}", overwrite=True)

    def add_variable(
        self, shape: Any, initializer: Any = "zeros", *args: Any, **kwargs: Any
    ) -> keras.Variable:
        """Create a variable as Keras does, without a temporary copy of the initial value."""
        return super().add_variable(shape, in_place(initializer), *args, **kwargs)

    def add_variable_from_reference(
        self, reference_variable: Any, name: str | None = None, initializer: Any = "zeros"
    ) -> Any:
        """Create a slot as Keras does, but always in float32 if its variable is a table.

        In float16 the second moment of Adam underflows; in bfloat16 small additions to it are lost.
        The sum of gradients of a table is a `RowAccumulator`.
        """
        if not getattr(reference_variable, "is_table", False):
            return super().add_variable_from_reference(reference_variable, name, initializer)
        if name == "gradient_accumulator":
            return make_row_accumulator(self.name, reference_variable)
        shape = self._slot_shape(reference_variable, name)
        return self.add_slot(reference_variable, shape, name, initializer)

    def _slot_shape(self, table: keras.Variable, name: str | None) -> Sequence[int]:
        """Return the shape of the slot of this name of a table: by default that of the table."""
        return table.shape

    def add_slot(
        self, variable: Any, shape: Sequence[int], name: str | None, initializer: Any
    ) -> keras.Variable:
        """Create a float32 slot on the device of its variable, with the name Keras would give.

        Args:
            shape: The shape of the slot.
            name: The name of the slot, such as "accumulator"; None stands for "var".
        """
        if isinstance(variable, TableVariable):
            with tf.init_scope():  # the slots can be made within the trace of a step
                initial = float(keras.initializers.get(initializer)((), "float32"))
                columns = 0 if shape[1] == variable.shape[1] else shape[1]
                slot = variable.make_slot(name or "var", columns, initial)
            self._track_variable(slot)
            return slot
        values = variable.value if isinstance(variable, keras.Variable) else variable
        path = getattr(variable, "path", variable.name).replace("/", "_").replace(":", "_")
        with self._distribution_strategy.extended.colocate_vars_with(values):
            return self.add_variable(
                shape, initializer, dtype="float32", name=f"{path}_{name or 'var'}"
            )

    def apply(self, grads: Iterable[Any], trainable_variables: Iterable[Any] | None = None) -> None:
        """Update the variables; see `keras.optimizers.Optimizer.apply`.

        The first call creates the slots. Warns of parts of the step that read or write the whole
        of a table of 16 MiB or more, and logs which caches have no `prefetch_rows`.

        Raises:
            ValueError: A gradient is row-sparse, and an option would need a second whole table:
                use_ema, or gradient_accumulation_steps for a variable that is not a table. Or the
                gradient of a table that is not on the device is dense, and so has no rows.
        """
        grads = list(grads)
        if trainable_variables is not None:
            trainable_variables = list(trainable_variables)
        variables = trainable_variables or self._trainable_variables
        pairs = list(zip(grads, variables, strict=False))
        for gradient, variable in pairs:
            if isinstance(variable, TableVariable):
                variable.check_gradient(gradient)
        sparse = [v for g, v in pairs if isinstance(g, tf.IndexedSlices)]
        if sparse:
            self._refuse_whole_tables(sparse)
            log_missing_prefetch(sparse)
            for table in sparse:
                if variable_bytes(table) >= LARGE:
                    warn_of_whole_table(table)
        if variables and not self.built and not tf.distribute.has_strategy():
            # Keras creates slots in the trace of a step, where they take their memory twice.
            with tf.init_scope():
                self.build(variables)
        super().apply(grads, trainable_variables)

    def _refuse_whole_tables(self, tables: Sequence[Any]) -> None:
        """Raise ValueError if an option of the optimizer needs every row of the tables."""
        others = [table for table in tables if not getattr(table, "is_table", False)]
        for name, whole, remedy in (
            ("use_ema", tables, "leave it out"),
            ("gradient_accumulation_steps", others, "use RowEmbedding, or leave it out"),
        ):
            if getattr(self, name) and whole:
                names = ", ".join(variable_name(table) for table in whole)
                raise ValueError(
                    f"{self.name}: {name} would read and write every row of {names} at each step; "
                    f"{remedy}"
                )

    def _overwrite_variable_with_gradient(self, variable: Any) -> bool:
        """Return whether Keras replaces a variable by its gradient, as in float8; never a table."""
        return not getattr(variable, "is_table", False) and getattr(
            variable, "overwrite_with_gradient", False
        )

    def _filter_empty_gradients(
        self, grads: Sequence[Any], vars: Sequence[Any]
    ) -> tuple[list[Any], list[Any]]:
        """Drop variables without a gradient, and merge repeated rows of row-sparse gradients.

        A variable with a row-sparse gradient and a row constraint becomes its TensorFlow variable.
        """
        grads, variables = super()._filter_empty_gradients(grads, vars)
        if self.updates_by_xla:  # the program that made the gradients has merged them
            grads = [Merged.again(gradient) for gradient in grads]
        elif under_xla() and not tf.distribute.has_strategy():  # a program has the whole step
            grads = self.merge(grads, variables)
        else:
            grads = [Merged.of(g, v) for g, v in zip(grads, variables, strict=True)]
        pairs = list(zip(grads, variables, strict=True))
        for gradient, variable in pairs if self.gradient_accumulation_steps else ():
            total = self._accumulated_gradients[self._get_variable_index(variable)]
            if isinstance(total, RowAccumulator):
                check_accumulated(self.name, gradient, variable)
        by_row = [v for g, v in pairs if isinstance(g, tf.IndexedSlices)]
        self._by_row = {self._var_key(variable) for variable in by_row}
        # After the update, Keras applies the constraint of each Keras variable to the whole of it.
        # The TensorFlow variable inside has no constraint; `update_step` constrains its rows.
        constrained = {id(variable) for variable in by_row if row_constraint(variable)}
        return grads, [v.value if id(v) in constrained else v for v in variables]

    def merge(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """Return gradients as `Merged.of` does, under XLA, in few operations."""
        device = None
        if tf.distribute.has_strategy():  # that of this replica's copies
            device = in_replica(self.iterations.value).device
        return merge_together(gradients, variables, lambda rows: self._numbers(rows, device))

    def _clip_gradients(self, grads: Sequence[Any]) -> Sequence[Any]:
        """Clip as Keras does, with the rows of a table in place of the whole."""
        if not any(getattr(self, name) for name in _CLIPS):  # nothing reads a `Streamed`
            return grads
        dense = [g.values if isinstance(g, tf.IndexedSlices) else g for g in grads]
        clipped = super()._clip_gradients(dense)
        return [
            Merged(values, g.indices, g.dense_shape) if isinstance(g, tf.IndexedSlices) else values
            for g, values in zip(grads, clipped, strict=True)
        ]

    def _backend_update_step(
        self, grads: Sequence[Any], trainable_variables: Sequence[Any], learning_rate: Any
    ) -> None:
        """Update the variables as Keras does, with plain `tf.IndexedSlices` for tf.distribute.

        On one device, tables that are alike are updated together where that is faster.
        """
        pairs = list(zip(grads, trainable_variables, strict=True))
        if not tf.distribute.has_strategy():
            pairs = self._update_together(pairs, learning_rate)
        pairs = [(g.plain() if isinstance(g, Merged) else g, v) for g, v in pairs]
        if tf.distribute.has_strategy():
            shared = [pair for pair in pairs if self._shared_table(pair[1])]
            pairs = [pair for pair in pairs if not self._shared_table(pair[1])]
            if shared:
                replica = tf.distribute.get_replica_context()
                replica.merge_call(self._update_shared, args=(shared, learning_rate))
        super()._backend_update_step([g for g, _ in pairs], [v for _, v in pairs], learning_rate)

    def _distributed_tf_update_step(
        self, distribution: tf.distribute.Strategy, grads_and_vars: Any, learning_rate: Any
    ) -> None:
        """Update the variables on each device as Keras does, or all of them by one program."""
        if not self.updates_by_xla:
            super()._distributed_tf_update_step(distribution, grads_and_vars, learning_rate)
            return
        gradients, variables = zip(*grads_and_vars, strict=True)

        @tf.function(autograph=False, jit_compile=True)
        def update(gradients: Sequence[Any], rate: tf.Tensor) -> None:
            """Update the copies on the device that is current."""
            pairs = list(zip(self.merge(gradients, variables), variables, strict=True))
            for gradient, variable in self._update_together(pairs, rate):
                self.update_step(gradient, in_replica(variable), rate)

        distribution.extended.update(  # of any variable, for a call on each device
            self.iterations.value,
            lambda _, own, rate: update(own, tf.convert_to_tensor(rate)),
            (list(gradients), learning_rate),
            group=False,
        )

    def _shared_table(self, variable: Any) -> Table | None:
        """Return the table of a variable whose rows all replicas share, or None for others."""
        own = self._trainable_variables[self._get_variable_index(variable)]
        return own.table if isinstance(own, TableVariable) else None

    def _update_shared(
        self, strategy: tf.distribute.Strategy, pairs: Sequence[tuple[Any, Any]], rate: Any
    ) -> None:
        """Update tables that all replicas share, once, by the sums of the gradients of replicas.

        Args:
            pairs: Row-sparse gradients of each replica, and their variables.
            rate: The learning rate in each replica.
        """
        for gradient, variable in pairs:
            with tf.device(self._shared_table(variable).device):
                total = Merged.of(strategy.reduce("SUM", gradient, axis=None), variable)
                rate = strategy.experimental_local_results(rate)[0]
                self._update_rows([(total, variable)], rate)

    def _backend_increment_gradient_accumulators(
        self, grads: Sequence[Any], acc_grads: Sequence[Any]
    ) -> None:
        """Add each gradient to the accumulated one, in place."""
        if tf.distribute.has_strategy():  # no table then has a sum
            super()._backend_increment_gradient_accumulators(grads, acc_grads)
            return
        for gradient, total in zip(grads, acc_grads, strict=True):
            total.assign(gradient + total)

    def _apply_weight_decay(self, variables: Sequence[Any]) -> None:
        """Apply weight decay to variables that Keras updates; rules for rows have their own."""
        dense = [v for v in variables if self._var_key(v) not in self._by_row]
        super()._apply_weight_decay([v for v in dense if not self._is_always_by_row(v)])

    def update_step(self, gradient: Any, variable: tf.Variable, learning_rate: Any) -> None:
        """Update the rows of a row-sparse gradient by the rule, or a whole variable as Keras does.

        The rule includes weight decay, a constraint by row and rounding. With `has_row_state` it
        also takes dense gradients of tables. Warns of one for a table of 16 MiB or more.

        Args:
            gradient: The gradient, dense or row-sparse with unique rows.
        """
        index = self._get_variable_index(variable)
        own = self._trainable_variables[index]
        if not isinstance(gradient, tf.IndexedSlices):
            if variable_bytes(own) >= LARGE:
                warn_of_dense_gradient(own)
            if not self._is_always_by_row(variable):
                super().update_step(gradient, variable, learning_rate)
                return
            rows = tf.range(variable.shape[0], dtype=tf.int64)
            gradient = Merged(tf.cast(gradient, tf.float32), rows, variable.shape)
        if self._distribution_strategy.num_replicas_in_sync > 1:
            # Rows are unique in each replica, but can repeat between replicas.
            gradient = Merged.of(gradient, variable)
        self._update_rows([(gradient, variable)], learning_rate)

    def _update_together(
        self, pairs: Sequence[tuple[Any, Any]], rate: Any
    ) -> list[tuple[Any, Any]]:
        """Update the rows of tables that are alike at once: for XLA, or in one variable.

        Args:
            pairs: Gradients, the row-sparse ones with unique rows, and their variables.

        Returns:
            The other pairs, which update nothing here.
        """
        others, alike = [], dict[Any, list[tuple[Any, Any]]]()
        for number, (gradient, variable) in enumerate(pairs):
            index = self._get_variable_index(variable)
            table = self._table(variable) if isinstance(gradient, Merged) else None
            whole = table and getattr(table.table, "whole", None)
            if table is None or not (whole or under_xla()):
                others.append((gradient, variable))
                continue
            is_alone = (
                row_constraint(self._trainable_variables[index])
                or self._rounding_seed(index) is not None
                or isinstance(gradient, Streamed)
            )
            key = kind(table), whole, self._decay(variable), number if is_alone else None
            alike.setdefault(key, []).append((gradient, variable))
        for group in alike.values():
            self._update_rows(group, rate)
        return others

    def _update_rows(self, pairs: Sequence[tuple[Any, Any]], rate: Any) -> None:
        """Update the rows of tables that are alike, by the rule of the first.

        Args:
            pairs: Row-sparse gradients with unique rows, and their variables.
        """
        variable = pairs[0][1]
        index = self._get_variable_index(variable)
        rule = self.row_rule(index, self._decay(variable))
        if constraint := row_constraint(self._trainable_variables[index]):
            rule = _constrained(rule, constraint)
        rate, step = tf.cast(rate, tf.float32), tf.cast(self.iterations, tf.int64) + 1
        tables = [self._table(variable) for _, variable in pairs]
        if isinstance(pairs[0][0], Streamed):
            (table,) = tables
            table.draws_by_id = True  # else rows of two blocks would have the same draws
            pairs[0][0].visit(
                lambda ids_U, rows_UD, by_rows: update_rows(
                    rule, table, ids_U, by_rows, rate, step, rows_UD
                )
            )
            return
        columns = tables[0].columns
        values = [tf.reshape(gradient.values, (-1, columns)) for gradient, _ in pairs]
        ids = [gradient.indices for gradient, _ in pairs]
        if len(pairs) == 1:
            update_rows(rule, tables[0], ids[0], values[0], rate, step)
            return
        joined = JoinedTable([each.table for each in tables], [each.slots for each in tables])
        update_rows(rule, joined, ids, tf.concat(values, axis=0), rate, step)

    def needs_whole(self) -> str | None:
        """Return the argument for which this optimizer needs the whole gradient of a table."""
        if self._distribution_strategy.num_replicas_in_sync > 1:
            return "tf.distribute"
        return next((name for name in _NEEDS_WHOLE if getattr(self, name, None)), None)

    def _decay(self, variable: Any) -> float:
        """Return the weight decay of a variable, 0 for none."""
        return self.weight_decay if self.weight_decay and self._use_weight_decay(variable) else 0.0

    def _table(self, variable: Any) -> _Rows:
        """Return a variable with its slots as a table."""
        index = self._get_variable_index(variable)
        own = self._trainable_variables[index]
        stored = own if isinstance(own, TableVariable) else variable
        return _Rows(stored, self.row_slots(index), self._rounding_seed(index))

    def _rounding_seed(self, index: int) -> tf.Tensor | None:
        """Return the seed, (2,) int64, of this update's stochastic rounding, or None for nearest.

        It depends on the index of the variable and the number of the update. Replicas draw alike,
        and a run that is resumed draws as if it had never stopped.
        """
        own = self._trainable_variables[index]
        is_half_table = getattr(own, "is_table", False) and tf.as_dtype(own.dtype) in _HALF
        if self.rounding != "stochastic" or not is_half_table:
            return None
        return tf.stack([tf.constant(index, tf.int64), tf.cast(self.iterations, tf.int64)])

    def save_own_variables(self, store: Any) -> None:
        """Write the state of the optimizer, with the accumulated rows."""
        super().save_own_variables(store)
        for name, variable in self._accumulated_rows().items():
            store[name] = variable.numpy()

    def load_own_variables(self, store: Any) -> None:
        """Read the state of the optimizer, with the accumulated rows if the store has them."""
        super().load_own_variables(store)
        names = set(store.keys())
        for name, variable in self._accumulated_rows().items():
            if name in names:
                variable.assign(store[name][:])

    def _accumulated_rows(self) -> dict[str, tf.Variable]:
        """Return the variables of all sums of tables' gradients by name; none before `build`."""
        return {
            f"gradient_accumulator_{number}_{name}": getattr(each, name)
            for number, each in enumerate(getattr(self, "_row_accumulators", ()))
            for name in ("ids", "values")
        }

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the optimizer, `rounding` included."""
        return super().get_config() | {"rounding": self.rounding}

    def _is_always_by_row(self, variable: Any) -> bool:
        """Return whether the rule for rows updates this variable even by a dense gradient."""
        own = self._trainable_variables[self._get_variable_index(variable)]
        return self.has_row_state and getattr(own, "is_table", False)


@keras.saving.register_keras_serializable(package="lexrow")
class LossScaleOptimizer(StateByPart, keras.optimizers.LossScaleOptimizer):
    """Dynamic loss scaling for mixed_float16, around an optimizer of `lexrow.keras`.

    The loss scale optimizer of Keras makes the gradient of each table dense to see whether it is
    finite. This one checks the rows of the batch. Where Keras puts its own around an optimizer of
    `lexrow.keras`, as `compile` does with mixed_float16, it becomes one of this class. Arguments
    are those of Keras.

    Example:
        >>> optimizer = lexrow.keras.LossScaleOptimizer(lexrow.keras.LazyAdam(0.001))
        >>> model.compile(optimizer, loss="mse")
    """

    def build(self, var_list: Iterable[keras.Variable]) -> None:
        """Create the state of both optimizers."""
        super().build(list(var_list))

    def apply(self, grads: Iterable[Any], trainable_variables: Iterable[Any] | None = None) -> None:
        """Update the loss scale, and the variables if all gradients are finite."""
        if trainable_variables is not None:
            trainable_variables = list(trainable_variables)
        super().apply(list(grads), trainable_variables)

    _overwrite_variable_with_gradient = RowSparse._overwrite_variable_with_gradient

    def check_finite(self, grads: list[Any]) -> tf.Tensor:
        """Return whether all gradients are finite, a bool scalar."""
        return super().check_finite(
            [g.values if isinstance(g, tf.IndexedSlices) else g for g in grads]
        )


class _Matrix(VariableRows):
    """A variable of any rank as a table, with each row flattened to a vector."""

    def __init__(self, values: tf.Variable):
        super().__init__(values)
        self.columns = values.shape[1:].num_elements()
        self.slots: dict[str, Any] = {}

    def gather(self, ids_U: tf.Tensor) -> tf.Tensor:
        """Return rows, each flattened to a vector, (U, D) float32."""
        return tf.reshape(super().gather(ids_U), (-1, self.columns))

    def assign(self, ids_U: tf.Tensor, rows_UD: tf.Tensor) -> None:
        """Replace rows by flattened vectors (U, D), rounded to the nearest of the dtype."""
        super().assign(ids_U, tf.reshape(rows_UD, (-1, *self.values.shape[1:])))


class _Rows:
    """A variable as a table with slots, whose new rows are rounded by a seed, if one is given.

    Its slots have the names of an update rule, for `optimizers.base.update_rows`. A table stores
    rows that its dtype can represent as they are, so tables of all kinds hold the same rows.

    Attributes:
        table: The rows without the rounding.
        draws_by_id: Whether the draws of the rounding depend on the ids, as they do under XLA.
    """

    def __init__(self, variable: Any, slots: Mapping[str, keras.Variable], seed: tf.Tensor | None):
        self._dtype, self._seed = tf.as_dtype(variable.dtype), seed
        self.draws_by_id = under_xla()
        self.slots: dict[str, Any]
        if isinstance(variable, TableVariable):
            self.table: Any = variable.table
            self.slots = {name: slot.table for name, slot in slots.items()}
        else:
            self.table = _Matrix(variable)
            self.slots = {name: _Matrix(slot.value) for name, slot in slots.items()}
        self.columns = self.table.columns
        self.locate, self.gather = self.table.locate, self.table.gather

    def assign(self, ids_U: Ids, rows_UD: tf.Tensor) -> None:
        """Round rows (U, D) by the seed, and write them to the table; under XLA by other draws."""
        if self._seed is not None and self.draws_by_id:
            rows_UD = round_under_xla(rows_UD, self._dtype, self._seed, plain_ids(ids_U))
        elif self._seed is not None:
            rows_UD = round_stochastically(rows_UD, self._dtype, self._seed)
        self.table.assign(ids_U, rows_UD)


def _constrained(rule: Rule, constraint: keras.constraints.Constraint) -> Rule:
    """Return a rule that also applies a constraint to the rows that have a gradient.

    A row whose gradient is all zeros stays as it is, even if it violates the constraint.
    """

    def constrained(
        rows_UD: tf.Tensor, gradients_UD: tf.Tensor, state: State, rate: tf.Tensor, step: tf.Tensor
    ) -> tuple[tf.Tensor, State]:
        """Return the change to the constrained rows, 0 for idle rows, and the new state."""
        change_UD, state = rule(rows_UD, gradients_UD, state, rate, step)
        change_UD = constraint(rows_UD + change_UD) - rows_UD
        return tf.where(touched(gradients_UD), change_UD, 0.0), state

    return constrained
