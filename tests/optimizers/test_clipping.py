import numpy as np
import pytest
import tensorflow as tf

from app.optimizers.base import clip_by_global_norm, clip_by_row_norm

# Norms 5, 1 and 0; 12.
GRADIENTS = {"a": [[3.0, 4.0], [0.6, -0.8], [0.0, 0.0]], "b": [[0.0, 12.0, 0.0]]}


def clipped(function, limit, gradients=GRADIENTS):
    given = {name: tf.constant(rows, tf.float32) for name, rows in gradients.items()}
    return {name: rows.numpy() for name, rows in function(given, limit).items()}


def test_no_row_is_longer_than_the_limit_and_shorter_ones_stay():
    found = clipped(clip_by_row_norm, 2.0)
    np.testing.assert_allclose(found["a"][0], [1.2, 1.6], rtol=1e-6)
    assert found["a"][1:].tobytes() == np.array(GRADIENTS["a"][1:], np.float32).tobytes()
    np.testing.assert_allclose(found["b"], [[0, 2, 0]], rtol=1e-6)


def test_all_tables_together_are_no_longer_than_the_limit():
    found = clipped(clip_by_global_norm, 1.0)
    norm = np.sqrt(5**2 + 1**2 + 12**2)
    for name, rows in GRADIENTS.items():
        np.testing.assert_allclose(found[name], np.array(rows) / norm, rtol=1e-6)
    expected, _ = tf.clip_by_global_norm([GRADIENTS["a"], GRADIENTS["b"]], 1.0)
    for rows, same in zip(found.values(), expected, strict=True):
        np.testing.assert_allclose(rows, same, rtol=1e-6)


@pytest.mark.parametrize("function", [clip_by_row_norm, clip_by_global_norm])
def test_gradients_within_the_limit_stay_as_they_are_bit_for_bit(function):
    found = clipped(function, 14.0)
    for name, rows in GRADIENTS.items():
        assert found[name].tobytes() == np.array(rows, np.float32).tobytes()


@pytest.mark.parametrize("function", [clip_by_row_norm, clip_by_global_norm])
def test_gradients_of_zeros_and_of_no_rows(function):
    found = clipped(function, 1e-3, {"a": [[0.0, 0.0]], "b": np.zeros([0, 3])})
    np.testing.assert_array_equal(found["a"], [[0, 0]])
    assert found["b"].shape == (0, 3)


@pytest.mark.parametrize("function", [clip_by_row_norm, clip_by_global_norm])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_is_not_hidden(function, value):
    found = clipped(function, 1.0, {"a": [[value, 1.0]]})
    assert not np.isfinite(found["a"]).all()
