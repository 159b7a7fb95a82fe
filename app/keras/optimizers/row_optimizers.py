"""The optimizers of Keras with row-sparse updates, for models with large tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import keras
import tensorflow as tf
from keras.src.optimizers import ALL_OBJECTS_DICT  # Keras has no public way to add a name

from ...optimizers import adagrad, adam, ftrl, sgd
from ...optimizers.base import Rule, State, touched
from .row_sparse import RowSparse, arguments_of


@keras.saving.register_keras_serializable(package="lexrow")
class SGD(RowSparse, keras.optimizers.SGD):
    """Drop-in replacement for `keras.optimizers.SGD` that updates only the rows of the batch.

    Momentum and weight decay of a table's row apply in the steps that use the row (see
    `optimizers.sgd`). Other variables are updated as in Keras.

    Example:
        >>> model.compile(lexrow.keras.SGD(0.1, momentum=0.9), loss="mse")

    Args:
        learning_rate: As for the optimizer of Keras, like every argument that is not listed here.
        rounding: How updated rows of a table in bfloat16 or float16 are rounded: "stochastic", up
            or down at random and right on average, or "nearest", as Keras does.
    """

    __init__ = arguments_of(keras.optimizers.SGD.__init__, RowSparse, rounding="stochastic")

    def row_rule(self, index: int, decay: float) -> Rule:
        """Return the rule for rows: SGD, or SGD with momentum, then weight decay."""
        lazy = sgd.momentum(self.momentum, self.nesterov) if self.momentum else sgd.sgd()
        return _decayed(lazy.rule, decay)

    def row_slots(self, index: int) -> dict[str, keras.Variable]:
        """Return the slots of variable number `index` by name: none without momentum."""
        return {"velocity": self.momentums[index]} if self.momentum else {}


@keras.saving.register_keras_serializable(package="lexrow")
class Adagrad(RowSparse, keras.optimizers.Adagrad):
    """Drop-in replacement for `keras.optimizers.Adagrad` that updates only the rows of the batch.

    The results are the same as with Keras (see `optimizers.adagrad`).

    Example:
        >>> model.compile(lexrow.keras.Adagrad(0.1), loss="mse")

    Args:
        learning_rate: As for the optimizer of Keras, like every argument that is not listed here.
        rounding: How updated rows of a table in bfloat16 or float16 are rounded: "stochastic", up
            or down at random and right on average, or "nearest", as Keras does.
    """

    __init__ = arguments_of(keras.optimizers.Adagrad.__init__, RowSparse, rounding="stochastic")

    def row_rule(self, index: int, decay: float) -> Rule:
        """Return the rule for rows: Adagrad, then weight decay."""
        return _decayed(adagrad.adagrad(epsilon=self.epsilon).rule, decay)

    def row_slots(self, index: int) -> dict[str, keras.Variable]:
        """Return the slots of variable number `index` by name."""
        return {"accumulator": self._accumulators[index]}


@keras.saving.register_keras_serializable(package="lexrow")
class RowwiseAdagrad(Adagrad):
    """Adagrad with one accumulator for each row of a table.

    The state of a `RowEmbedding` table or an output layer is one column instead of output_dim
    columns (see `optimizers.adagrad`), even if its gradient is dense, as with embeddings that are
    tied to the output. Any other variable, such as the table of a `keras.layers.Embedding`, is
    updated by Adagrad as in Keras. Arguments are those of `Adagrad`.

    Example:
        >>> model.compile(lexrow.keras.RowwiseAdagrad(0.1), loss="mse")
    """

    has_row_state = True

    def _slot_shape(self, table: keras.Variable, name: str | None) -> Sequence[int]:
        """Return the shape of a slot of a table: one column for the accumulator."""
        return (table.shape[0], 1) if name == "accumulator" else table.shape

    def row_rule(self, index: int, decay: float) -> Rule:
        """Return the rule for rows: row-wise where the accumulator has one column, else Adagrad."""
        columns = self._accumulators[index].shape[1:].num_elements()
        make = adagrad.rowwise_adagrad if columns == 1 else adagrad.adagrad
        return _decayed(make(epsilon=self.epsilon).rule, decay)


@keras.saving.register_keras_serializable(package="lexrow")
class Ftrl(RowSparse, keras.optimizers.Ftrl):
    """Drop-in replacement for `keras.optimizers.Ftrl` that updates only the rows of the batch.

    For rows that start at 0 and a constant learning rate, the results are the same as with Keras.
    Keras sets a row that starts elsewhere to almost 0 in the first step, even if the batch does not
    use it. Here it keeps its value (see `optimizers.ftrl`), and a table without
    `l1_regularization_strength` stores no `linear`. Other variables are updated as in Keras.

    Example:
        >>> model.compile(lexrow.keras.Ftrl(0.1, l1_regularization_strength=0.01), loss="mse")

    Args:
        learning_rate: As for the optimizer of Keras, like every argument that is not listed here.
        rounding: How updated rows of a table in bfloat16 or float16 are rounded: "stochastic", up
            or down at random and right on average, or "nearest", as Keras does.

    Raises:
        ValueError: An argument is given that the rule for rows does not have:
            `learning_rate_power`, `l2_shrinkage_regularization_strength`.
    """

    has_row_state = True

    __init__ = arguments_of(keras.optimizers.Ftrl.__init__, RowSparse, rounding="stochastic")

    def check_arguments(self) -> None:
        """Raise ValueError if an argument is out of range, or one that the rule does not have."""
        super().check_arguments()
        defaults = {"learning_rate_power": -0.5, "l2_shrinkage_regularization_strength": 0.0}
        for name, default in defaults.items():
            if getattr(self, name) != default:
                raise ValueError(
                    f"{name}={getattr(self, name)}: the rule for rows has no other value than "
                    f"{default}; leave it out"
                )

    def add_variable_from_reference(
        self, reference_variable: Any, name: str | None = None, initializer: Any = "zeros"
    ) -> keras.Variable | None:
        """Create a slot, or return None for the `linear` of a table that does not need it."""
        is_table = getattr(reference_variable, "is_table", False)
        if name == "linear" and is_table and not self.l1_regularization_strength:
            return None
        return super().add_variable_from_reference(reference_variable, name, initializer)

    def row_rule(self, index: int, decay: float) -> Rule:
        """Return the rule for rows: FTRL-Proximal, then weight decay."""
        # l2_regularization_strength is half of the paper's lambda_2.
        l1, l2 = self.l1_regularization_strength, 2 * self.l2_regularization_strength
        return _decayed(ftrl.ftrl(l1, l2, self.beta).rule, decay)

    def row_slots(self, index: int) -> dict[str, keras.Variable]:
        """Return the slots of variable number `index` by name, `linear` only if there is an L1."""
        slots = {"accumulator": self._accumulators[index]}
        if self.l1_regularization_strength:
            slots["linear"] = self._linears[index]
        return slots


class _LazyAdam(RowSparse):
    """The base of `LazyAdam` and `LazyAdamW`.

    Args:
        correct_skipped: Whether to decay the moments of a row by the steps that did not use it.
    """

    def __init__(self, *args: Any, correct_skipped: bool = False, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.correct_skipped = correct_skipped

    @property
    def has_row_state(self) -> bool:
        """Return `correct_skipped`: the state then has the last step of each row."""
        return self.correct_skipped

    def build(self, var_list: Iterable[keras.Variable]) -> None:
        """Create the moments, and for `correct_skipped` the last step of each row; once only."""
        if self.built:
            return
        var_list = list(var_list)
        super().build(var_list)
        if self.correct_skipped:
            self._last_steps = [
                self.add_slot(variable, (variable.shape[0], 1), "last_step", "zeros")
                if variable.shape.rank
                else None
                for variable in var_list
            ]

    def row_rule(self, index: int, decay: float) -> Rule:
        """Return the rule for rows: lazy Adam with weight decay."""
        return adam.lazy_adam(
            self.beta_1, self.beta_2, self.epsilon, self.correct_skipped, self.amsgrad, decay
        ).rule

    def row_slots(self, index: int) -> dict[str, keras.Variable]:
        """Return the slots of variable number `index` by name, in the terms of `lazy_adam`."""
        slots = {"velocity": self._velocities[index]}
        if self.beta_1:
            slots["momentum"] = self._momentums[index]
        if self.amsgrad:
            slots["greatest_velocity"] = self._velocity_hats[index]
        if self.correct_skipped:
            slots["last_step"] = self._last_steps[index]
        return slots

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the optimizer."""
        return super().get_config() | {"correct_skipped": self.correct_skipped}


@keras.saving.register_keras_serializable(package="lexrow")
class LazyAdam(_LazyAdam, keras.optimizers.Adam):
    """Drop-in replacement for `keras.optimizers.Adam` that updates only the rows of the batch.

    A row and its moments change only in steps in which the row has a gradient that is not zero.
    Dense Adam would decay the moments of all rows in every step. Other variables are updated as in
    Keras (see `optimizers.adam`).

    Example:
        >>> model.compile(lexrow.keras.LazyAdam(0.001), loss="mse")

    Args:
        learning_rate: As for the optimizer of Keras, like every argument that is not listed here.
        correct_skipped: Whether to decay the moments of a row, when it is used again, by the steps
            that did not use it.
        rounding: How updated rows of a table in bfloat16 or float16 are rounded: "stochastic", up
            or down at random and right on average, or "nearest", as Keras does.
    """

    __init__ = arguments_of(
        keras.optimizers.Adam.__init__, _LazyAdam, correct_skipped=False, rounding="stochastic"
    )


@keras.saving.register_keras_serializable(package="lexrow")
class LazyAdamW(_LazyAdam, keras.optimizers.AdamW):
    """Drop-in replacement for `keras.optimizers.AdamW` that updates only the rows of the batch.

    The weights of a row decay only in steps that use the row, so a rare row decays far less than
    with Keras. Otherwise as `LazyAdam`.

    Example:
        >>> model.compile(lexrow.keras.LazyAdamW(0.001, weight_decay=0.004), loss="mse")

    Args:
        learning_rate: As for the optimizer of Keras, like every argument that is not listed here.
        correct_skipped: Whether to decay the moments of a row, when it is used again, by the steps
            that did not use it. The row then also decays for the skipped steps.
        rounding: How updated rows of a table in bfloat16 or float16 are rounded: "stochastic", up
            or down at random and right on average, or "nearest", as Keras does.
    """

    __init__ = arguments_of(
        keras.optimizers.AdamW.__init__, _LazyAdam, correct_skipped=False, rounding="stochastic"
    )


# The names for `compile` and `keras.optimizers.get`. The names of the other optimizers are those
# of optimizers of Keras, so they are found as "lexrow>SGD", like every class of this package.
ALL_OBJECTS_DICT["lazyadam"] = ALL_OBJECTS_DICT["lazy_adam"] = LazyAdam
ALL_OBJECTS_DICT["lazyadamw"] = ALL_OBJECTS_DICT["lazy_adamw"] = LazyAdamW
ALL_OBJECTS_DICT["rowwiseadagrad"] = ALL_OBJECTS_DICT["rowwise_adagrad"] = RowwiseAdagrad


def _decayed(rule: Rule, decay: float) -> Rule:
    """Return a rule that also subtracts `rate * decay` of rows with a gradient; for 0, the rule."""
    if not decay:
        return rule

    def decayed(
        rows_UD: tf.Tensor, gradients_UD: tf.Tensor, state: State, rate: tf.Tensor, step: tf.Tensor
    ) -> tuple[tf.Tensor, State]:
        change_UD, state = rule(rows_UD, gradients_UD, state, rate, step)
        return change_UD - tf.where(touched(gradients_UD), rate * decay, 0.0) * rows_UD, state

    return decayed
