from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from app.models.language_model import gru, lstm, run_cell

STEPS, ROWS, INPUTS, UNITS = 5, 3, 4, 6
CELLS = {"gru": (gru, keras.layers.GRU), "lstm": (lstm, keras.layers.LSTM)}


def drawn(*shape):
    return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)


def test_a_cell_has_the_outputs_the_states_and_the_gradients_of_keras(name):
    make, layer_class = CELLS[name]
    cell = make()
    columns = cell.gates * UNITS
    layer = layer_class(UNITS, return_sequences=True, return_state=True)
    layer.build((ROWS, STEPS, INPUTS))
    bias = drawn(cell.biases, columns)
    weights = [drawn(INPUTS, columns), drawn(UNITS, columns) * 0.5, np.squeeze(bias)]
    shapes = [weight.shape for weight in layer.weights]
    layer.set_weights([w.reshape(shape) for w, shape in zip(weights, shapes, strict=True)])
    inputs_BTD, state_BS = drawn(ROWS, STEPS, INPUTS), drawn(ROWS, cell.states * UNITS)
    weights = [tf.constant(weight) for weight in (*weights[:2], bias)]
    kernel, recurrent_kernel, biases = weights

    with tf.GradientTape() as tape:
        tape.watch(weights)
        inputs_TBG = tf.einsum("btd,dg->tbg", inputs_BTD, kernel) + biases[0]
        outputs_TBH, last_BS = run_cell(
            cell, inputs_TBG, tf.constant(state_BS), recurrent_kernel, *tf.unstack(biases)[1:]
        )
        total = tf.reduce_sum(tf.square(outputs_TBH))
    found = tape.gradient(total, weights)

    with tf.GradientTape() as tape:
        states = [tf.constant(state) for state in np.split(state_BS, cell.states, axis=1)]
        expected_BTH, *expected_states = layer(
            inputs_BTD, initial_state=states if cell.states > 1 else states[0]
        )
        total = tf.reduce_sum(tf.square(expected_BTH))
    gradients = tape.gradient(total, layer.trainable_variables)

    np.testing.assert_allclose(outputs_TBH, tf.transpose(expected_BTH, [1, 0, 2]), atol=1e-5)
    np.testing.assert_allclose(last_BS, np.concatenate(expected_states, axis=1), atol=1e-5)
    for one, other in zip(found, gradients, strict=True):
        np.testing.assert_allclose(one, np.reshape(other, one.shape), rtol=1e-4, atol=1e-4)


@pytest.fixture(params=CELLS)
def name(request):
    return request.param


def test_biases_begin_as_those_of_keras(name):
    make, layer_class = CELLS[name]
    layer = layer_class(UNITS)
    layer.build((ROWS, STEPS, INPUTS))
    cell = make()
    bias = cell.bias(UNITS)
    assert bias.shape == (cell.biases, cell.gates * UNITS)
    np.testing.assert_array_equal(np.ravel(bias), np.ravel(layer.weights[2]))
