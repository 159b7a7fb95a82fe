import numpy as np
import pytest
import tensorflow as tf

from app.losses.negative_sampling import logistic
from tests.reference.graphs import executed

both = pytest.mark.parametrize("observed", [True, False])


def draw(shape, seed=0):
    return tf.constant(3 * np.random.default_rng(seed).normal(size=shape), tf.float32)


def plain(scores, weights, observed):
    sign = 1.0 if observed else -1.0
    return tf.reduce_sum(-weights * tf.math.log(tf.sigmoid(sign * scores)))


def value_and_gradient(loss, scores, *arguments):
    with tf.GradientTape() as tape:
        tape.watch(scores)
        value = 2.5 * loss(scores, *arguments)
    return value, tape.gradient(value, scores)


@both
@pytest.mark.parametrize("shape", [(), (1,), (3, 4, 1), (1, 4, 5), (3, 4, 5)])
def test_value_and_gradient_are_those_of_the_plain_formula(observed, shape):
    scores, weights = draw((3, 4, 5)), tf.abs(draw(shape, seed=1))
    value, gradient = value_and_gradient(logistic, scores, weights, observed)
    expected, expected_gradient = value_and_gradient(plain, scores, weights, observed)
    assert value.shape == () and value.dtype == tf.float32
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-4, atol=1e-6)


@both
def test_bfloat16_scores_are_summed_in_float32(observed):
    scores, weights = tf.cast(draw((64, 64)), tf.bfloat16), tf.abs(draw((64, 1), seed=1))
    value, gradient = value_and_gradient(logistic, scores, weights, observed)
    wide = tf.cast(scores, tf.float32)
    expected, expected_gradient = value_and_gradient(logistic, wide, weights, observed)
    assert value.dtype == tf.float32 and gradient.dtype == tf.bfloat16
    np.testing.assert_array_equal(value, expected)
    np.testing.assert_array_equal(gradient, tf.cast(expected_gradient, tf.bfloat16))


@both
def test_extreme_scores_stay_finite(observed):
    scores = tf.constant([-80.0, 80.0])
    value, gradient = value_and_gradient(logistic, scores, tf.ones([]), observed)
    np.testing.assert_allclose(value, 2.5 * 80)
    np.testing.assert_allclose(gradient, [-2.5, 0] if observed else [0, 2.5], atol=1e-30)


def test_no_gradient_flows_to_the_weights():
    scores, weights = draw((3,)), tf.ones([3])
    with tf.GradientTape() as tape:
        tape.watch([scores, weights])
        value = logistic(scores, weights, True)
    assert tape.gradient(value, weights) is None


@both
def test_the_gradient_alone_never_computes_the_loss(observed):
    def both_of(scores):
        with tf.GradientTape() as tape:
            tape.watch(scores)
            value = logistic(scores, tf.ones([]), observed)
        return value, tape.gradient(value, scores)

    spec = tf.TensorSpec([3, 4])
    assert executed(tf.function(both_of).get_concrete_function(spec)).count("Softplus") == 1
    gradient = tf.function(lambda scores: both_of(scores)[1]).get_concrete_function(spec)
    assert executed(gradient).count("Sigmoid") == 1
    assert not {"Softplus", "Log", "Log1p", "Exp"} & set(executed(gradient))
