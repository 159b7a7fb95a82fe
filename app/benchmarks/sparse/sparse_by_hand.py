"""Steps of a table in plain TensorFlow, without Lexrow: by rows, and with a dense gradient.

Formulas and constants are those of keras.optimizers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

# Called with ids of any shape, the rate, and the number of the step, 1 for the first. Returns the
# loss before the update.
Step = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]


class Formula(NamedTuple):
    """An update rule of rows.

    Attributes:
        slots: The columns and the initial value of each slot; 0 columns stands for those of the
            table.
        update: Called as `update(rows, gradients, *slots, rate, number)`; returns the new rows and
            slots.
    """

    slots: tuple[tuple[int, float], ...]
    update: Callable[..., tuple[tf.Tensor, ...]]


def step(
    values: tf.Variable, slots: list[tf.Variable], formula: Formula, target: tf.Tensor
) -> Step:
    """Return a compiled step that updates only the rows of its ids, in place.

    Its loss is the mean squared error of the vectors of the ids.

    Args:
        values: The table.
        slots: The slots of the formula.
        formula: The update rule.
        target: The wanted vectors of the ids in each step, (N, D) float32.
    """

    @tf.function(autograph=False)
    def train(ids: tf.Tensor, rate: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        """Update the rows and slots of the ids, and return the loss before; see `Step`."""
        ids_U, inverse_N = tf.unique(tf.reshape(ids, [-1]))
        rows_UD = _gather(values, ids_U)
        vectors_ND = tf.gather(rows_UD, inverse_N)
        with tf.GradientTape() as tape:
            tape.watch(vectors_ND)
            loss = tf.reduce_mean(tf.square(vectors_ND - target))
        gradients_UD = tf.math.unsorted_segment_sum(
            tape.gradient(loss, vectors_ND), inverse_N, tf.size(ids_U)
        )
        before = [_gather(slot, ids_U) for slot in slots]
        after = formula.update(rows_UD, gradients_UD, *before, rate, tf.cast(number, tf.float32))
        for variable, rows in zip([values, *slots], after, strict=True):
            tf.raw_ops.ResourceScatterUpdate(resource=variable.handle, indices=ids_U, updates=rows)
        return loss

    return train


def dense_step(
    values: tf.Variable, slots: list[tf.Variable], formula: Formula, target: tf.Tensor
) -> Step:
    """Return a compiled step of Adam whose gradient and update are as large as the table.

    It updates all rows in place. Its loss is that of `step`.

    Args:
        values: The table.
        slots: The two moments, of the shape of the table.
        formula: Not used: the step is always Adam.
        target: The wanted vectors of the ids in each step, (N, D) float32.
    """

    @tf.function(autograph=False)
    def train(ids: tf.Tensor, rate: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        """Update all rows and both moments, and return the loss before; see `Step`."""
        with tf.GradientTape() as tape:
            tape.watch(values)
            loss = tf.reduce_mean(tf.square(tf.gather(values, tf.reshape(ids, [-1])) - target))
        gradient = tape.gradient(loss, values)
        power = tf.cast(number, tf.float32)
        tf.raw_ops.ResourceApplyAdam(
            var=values.handle,
            m=slots[0].handle,
            v=slots[1].handle,
            beta1_power=tf.pow(0.9, power),
            beta2_power=tf.pow(0.999, power),
            lr=rate,
            beta1=0.9,
            beta2=0.999,
            epsilon=1e-7,
            grad=tf.math.unsorted_segment_sum(gradient.values, gradient.indices, values.shape[0]),
        )
        return loss

    return train


def filled(shape: tuple[int, int], value: float) -> tf.Variable:
    """Return a new variable whose numbers are all the same, float32.

    Args:
        shape: The shape.
        value: The number.
    """
    return tf.Variable(lambda: tf.fill(shape, tf.constant(value)), trainable=False)


def _gather(variable: tf.Variable, ids_U: tf.Tensor) -> tf.Tensor:
    """Return the rows (U, D) of a float32 variable."""
    return tf.raw_ops.ResourceGather(resource=variable.handle, indices=ids_U, dtype=tf.float32)


# The formulas, in the letters of papers: x the rows, g their gradients, then the slots. `number` is
# the number of the step as float32. Each returns the new rows, then the new slots.


def _sgd(x, g, rate, number):
    """Return the rows of plain SGD, in a tuple."""
    return (x - rate * g,)


def _momentum(x, g, m, rate, number):
    """Return rows and velocity of SGD with momentum 0.9; the velocity includes the rate."""
    m = 0.9 * m - rate * g
    return x + m, m


def _adagrad(x, g, a, rate, number):
    """Return rows and accumulator of Adagrad, which adds 1e-7 to the accumulator in the root."""
    a += tf.square(g)
    return x - rate * g * tf.math.rsqrt(a + 1e-7), a


def _rowwise_adagrad(x, g, a, rate, number):
    """Return rows and accumulator of Adagrad with one number for each row, without an epsilon.

    The mean of the squared gradients of a row is added to its number.
    """
    a += tf.reduce_mean(tf.square(g), axis=1, keepdims=True)
    return x - rate * tf.math.rsqrt(a) * g, a


def _ftrl(x, g, n, z, rate, number):
    """Return rows, sums of squared gradients and linear terms of FTRL without regularization."""
    new = n + tf.square(g)
    root = tf.sqrt(new)
    z += g - (root - tf.sqrt(n)) / rate * x
    return -z * rate / root, new, z


def _adam(x, g, m, v, rate, number):
    """Return rows and moments of Adam with Keras's constants and bias correction."""
    m += 0.1 * (g - m)
    v += 0.001 * (tf.square(g) - v)
    rate *= tf.sqrt(1 - tf.pow(0.999, number)) / (1 - tf.pow(0.9, number))
    return x - rate * m / (tf.sqrt(v) + 1e-7), m, v


def _adamw(x, g, m, v, rate, number):
    """Return rows and moments of Adam; before it, the rows decay by the factor 1 - 0.004 x rate."""
    return _adam(x - 0.004 * rate * x, g, m, v, rate, number)


FORMULAS = {
    "sgd": Formula((), _sgd),
    "momentum": Formula(((0, 0.0),), _momentum),
    "adagrad": Formula(((0, 0.1),), _adagrad),
    "rowwise_adagrad": Formula(((1, 0.1),), _rowwise_adagrad),
    "ftrl": Formula(((0, 0.1), (0, 0.0)), _ftrl),
    "lazy_adam": Formula(((0, 0.0), (0, 0.0)), _adam),
    "lazy_adamw": Formula(((0, 0.0), (0, 0.0)), _adamw),
}
