import numpy as np
import tensorflow as tf

from app.optimizers.ftrl import ftrl


def moved(optimizer, row, gradients, rates):
    """The row after an update with each gradient and rate."""
    row_1D = tf.constant([row])
    state = {name: tf.fill(row_1D.shape, slot.initial) for name, slot in optimizer.slots.items()}
    step = tf.constant(1, tf.int64)
    for gradient, rate in zip(gradients, rates, strict=True):
        gradient_1D = tf.fill(row_1D.shape, gradient)
        change_1D, state = optimizer.rule(row_1D, gradient_1D, state, tf.constant(rate), step)
        row_1D += change_1D
    return row_1D.numpy()[0]


def test_a_first_gradient_that_is_small_moves_a_row_a_little():
    found = moved(ftrl(), [1.0, -2.0, 0.0], [1e-4], [0.1])
    move = 0.1 * 1e-4 / 0.1**0.5  # what Adagrad makes of it
    np.testing.assert_allclose(found, [1.0 - move, -2.0 - move, -move], rtol=1e-6)


def test_a_rate_that_falls_takes_no_row_along():
    found = moved(ftrl(l2=1e-3), [1.0, -2.0, 0.0], [1e-4] * 4, [0.1, 1e-2, 1e-3, 1e-5])
    np.testing.assert_allclose(found, [1.0, -2.0, 0.0], rtol=1e-3, atol=1e-4)


def test_gradients_add_up_while_l1_outweighs_them():
    # Their squares are nothing beside the accumulator's start.
    optimizer = ftrl(l1=1.05e-4)
    for steps, expected in ((10, 0.0), (12, -0.1 * 1.5e-5 / 0.1**0.5)):
        found = moved(optimizer, [0.0, 0.0], [1e-5] * steps, [0.1] * steps)
        np.testing.assert_allclose(found, [expected] * 2, rtol=1e-4)


def test_l1_holds_a_number_that_reaches_0():
    gradients, rates = [1e-3] * 8, [0.1] * 8
    assert moved(ftrl(), [1e-3, 1.0], gradients, rates)[0] < -1e-3
    found = moved(ftrl(l1=0.01), [1e-3, 1.0], gradients, rates)
    assert found[0] == 0.0 and found[1] > 0.99
