import numpy as np
import pytest
import tensorflow as tf

from app.optimizers.adam import lazy_adamw
from tests.reference import optimizers as reference


@pytest.mark.parametrize(
    ("first", "gap"),
    [(1, 300), (2**24 - 3, 500), (2**24 - 3, 3), (2**24 - 1, 1), (2**24 - 3, 2**24 - 1)],
)
def test_skipped_steps_are_counted_far_beyond_float32(first, gap):
    """An update of a row at step `first`, one `gap` later, and one in the step after that."""
    options = {"correct_skipped": True, "beta_1": 0.99, "weight_decay": 0.004}
    optimizer, rate = lazy_adamw(**options), 1e-5
    row, state = np.array([1.0, -2.0]), {}
    row_1D = tf.constant([row], tf.float32)
    state_1D = {
        name: tf.fill([1, slot.columns or 2], slot.initial)
        for name, slot in optimizer.slots.items()
    }
    for number, gradient in ((first, 1.0), (first + gap, -0.1), (first + gap + 1, 0.2)):
        change_1D, state_1D = optimizer.rule(
            row_1D,
            tf.fill([1, 2], gradient),
            state_1D,
            tf.constant(rate),
            tf.constant(number, tf.int64),
        )
        row_1D += change_1D
        row, state = reference.lazy_adamw(row, state, np.full(2, gradient), rate, number, **options)
        np.testing.assert_allclose(row_1D[0], row, rtol=1e-5)
        for name in ("momentum", "velocity"):
            np.testing.assert_allclose(state_1D[name][0], state[name], rtol=1e-4, atol=1e-30)


@pytest.mark.parametrize(("correct_skipped", "left"), [(False, -0.1), (True, 0.0)])
def test_a_decay_beyond_all_of_a_row(correct_skipped, left):
    """As Keras has it for one step; what is corrected for several can lose no more than all."""
    optimizer = lazy_adamw(weight_decay=11.0, correct_skipped=correct_skipped)
    state = {
        name: tf.fill((1, slot.columns or 2), slot.initial)
        for name, slot in optimizer.slots.items()
    }
    rows, gradients = tf.ones((1, 2)), tf.fill((1, 2), 1e-30)
    rate, step = tf.constant(0.1), tf.constant(1, tf.int64)
    change, _ = optimizer.rule(rows, gradients, state, rate, step)
    np.testing.assert_allclose(rows + change, [[left, left]], atol=1e-6)
