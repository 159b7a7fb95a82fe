"""Keras' optimizers with row-sparse updates: drop-ins for models that have large tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import keras
import tensorflow as tf

from ..optimizers import adagrad, adam, sgd
from ..optimizers.base import Rule, State, touched
from .row_sparse import RowSparse


@keras.saving.register_keras_serializable(package="lexrow")
class SGD(RowSparse, keras.optimizers.SGD):
    """keras.optimizers.SGD; momentum and weight decay are lazy on tables (`app.optimizers.sgd`)."""

    def row_rule(self, decay: float) -> Rule:
        """See `RowSparse`."""
        lazy = sgd.momentum(self.momentum, self.nesterov) if self.momentum else sgd.sgd()
        return _decayed(lazy.rule, decay)

    def row_slots(self, index: int) -> dict[str, keras.Variable]:
        """See `RowSparse`."""
        return {"velocity": self.momentums[index]} if self.momentum else {}


@keras.saving.register_keras_serializable(package="lexrow")
class Adagrad(RowSparse, keras.optimizers.Adagrad):
    """keras.optimizers.Adagrad: the same numbers, row by row (see `app.optimizers.adagrad`)."""

    def row_rule(self, decay: float) -> Rule:
        """See `RowSparse`."""
        return _decayed(adagrad.adagrad(epsilon=self.epsilon).rule, decay)

    def row_slots(self, index: int) -> dict[str, keras.Variable]:
        """See `RowSparse`."""
        return {"accumulator": self._accumulators[index]}


@keras.saving.register_keras_serializable(package="lexrow")
class RowwiseAdagrad(Adagrad):
    """Adagrad with one accumulator for each row of a RowEmbedding, and a number's own elsewhere.

    The state of a table is one column instead of output_dim (see `app.optimizers.adagrad`), also
    where its gradient is dense, as of embeddings that are tied to the output. Any
    other variable, the table of a keras.layers.Embedding included, gets Keras' Adagrad.
    """

    has_row_state = True

    def build(self, var_list: Iterable[keras.Variable]) -> None:
        """Makes the accumulators."""
        if self.built:
            return
        var_list = list(var_list)
        super(keras.optimizers.Adagrad, self).build(var_list)
        initial = keras.initializers.Constant(self.initial_accumulator_value)
        self._accumulators = [
            self.add_slot(variable, (variable.shape[0], 1), "accumulator", initial)
            if getattr(variable, "is_table", False)
            else self.add_variable_from_reference(variable, "accumulator", initial)
            for variable in var_list
        ]

    def row_rule(self, decay: float) -> Rule:
        """See `RowSparse`."""
        by_row = adagrad.rowwise_adagrad(epsilon=self.epsilon).rule
        by_number = adagrad.adagrad(epsilon=self.epsilon).rule

        def rule(
            rows_UD: tf.Tensor,
            gradients_UD: tf.Tensor,
            state: State,
            rate: tf.Tensor,
            step: tf.Tensor,
        ) -> tuple[tf.Tensor, State]:
            chosen = by_row if state["accumulator"].shape[1] == 1 else by_number
            return chosen(rows_UD, gradients_UD, state, rate, step)

        return _decayed(rule, decay)


class _LazyAdam(RowSparse):
    """What LazyAdam and LazyAdamW share.

    correct_skipped: decay the moments of a row by the steps in which it was not touched.
    """

    def __init__(self, *args: Any, correct_skipped: bool = False, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.correct_skipped = correct_skipped

    @property
    def has_row_state(self) -> bool:
        """Return whether a row's moments are decayed by the steps that the row missed."""
        return self.correct_skipped

    def build(self, var_list: Iterable[keras.Variable]) -> None:
        """Makes the moments."""
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

    def row_rule(self, decay: float) -> Rule:
        """See `RowSparse`."""
        return adam.lazy_adam(
            self.beta_1, self.beta_2, self.epsilon, self.correct_skipped, self.amsgrad, decay
        ).rule

    def row_slots(self, index: int) -> dict[str, keras.Variable]:
        """See `RowSparse`."""
        slots = {"momentum": self._momentums[index], "velocity": self._velocities[index]}
        if self.amsgrad:
            slots["greatest_velocity"] = self._velocity_hats[index]
        if self.correct_skipped:
            slots["last_step"] = self._last_steps[index]
        return slots

    def get_config(self) -> dict[str, Any]:
        """The arguments."""
        return super().get_config() | {"correct_skipped": self.correct_skipped}


@keras.saving.register_keras_serializable(package="lexrow")
class LazyAdam(_LazyAdam, keras.optimizers.Adam):
    """keras.optimizers.Adam that leaves rows which are not touched, and their moments, alone.

    A row is touched when its gradient in the batch is not all zeros; masked ids are not.
    Arguments are those of Keras' Adam, and `correct_skipped`, which brings the moments of a row
    back to those of dense Adam when it is touched again (see `app.optimizers.adam`).
    """


@keras.saving.register_keras_serializable(package="lexrow")
class LazyAdamW(_LazyAdam, keras.optimizers.AdamW):
    """keras.optimizers.AdamW in the same way; the weights of a row decay when it is touched.

    A rare row so decays far less than Keras' AdamW would have it, unless `correct_skipped`.
    """


@keras.saving.register_keras_serializable(package="lexrow")
class LossScaleOptimizer(keras.optimizers.LossScaleOptimizer):
    """Keras' dynamic loss scale for mixed_float16, around an optimizer of app.keras.

    Keras' own, into which `compile` puts any other optimizer, makes a dense gradient of each table
    to see whether it is finite; this one looks at the rows of the batch.
    """

    checks_rows = True

    def build(self, var_list: Iterable[keras.Variable]) -> None:
        """Make the state of both optimizers."""
        super().build(list(var_list))

    def apply(self, grads: Iterable[Any], trainable_variables: Iterable[Any] | None = None) -> None:
        """Change the variables if all gradients are finite."""
        if trainable_variables is not None:
            trainable_variables = list(trainable_variables)
        super().apply(list(grads), trainable_variables)

    def check_finite(self, grads: list[Any]) -> tf.Tensor:
        """Whether all gradients are finite: a bool scalar."""
        return super().check_finite(
            [g.values if isinstance(g, tf.IndexedSlices) else g for g in grads]
        )


def _decayed(rule: Rule, decay: float) -> Rule:
    """The rule, with a share of rate x decay taken off the rows that are touched."""
    if not decay:
        return rule

    def decayed(
        rows_UD: tf.Tensor, gradients_UD: tf.Tensor, state: State, rate: tf.Tensor, step: tf.Tensor
    ) -> tuple[tf.Tensor, State]:
        change_UD, state = rule(rows_UD, gradients_UD, state, rate, step)
        return change_UD - tf.where(touched(gradients_UD), rate * decay, 0.0) * rows_UD, state

    return decayed
