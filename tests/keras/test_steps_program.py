"""`compile_steps` trains as Keras does, with all steps of a call in one program."""

import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from app.keras import LazyAdam, RowEmbedding, compile_steps
from app.keras.steps_program import _are_alike as are_alike
from app.keras.steps_program import _one_program as one_program
from tests.reference.gpu import LOOP

ROWS, COLUMNS, STEPS, BATCH = 29, 4, 3, 6
IDS = np.random.default_rng(2).integers(0, ROWS, (BATCH * 7, 5), np.int32)
TARGETS = np.random.default_rng(3).normal(size=(len(IDS), 1)).astype(np.float32)


def make_model(**compiled):
    keras.utils.set_random_seed(0)
    inputs = keras.Input((5,), dtype="int32")
    vectors = keras.layers.Flatten()(RowEmbedding(ROWS, COLUMNS)(inputs))
    outputs = keras.layers.Dense(1)(keras.layers.Dropout(0.3, seed=1)(vectors))
    model = keras.Model(inputs, outputs)
    options = {"steps_per_execution": STEPS, "jit_compile": True} | compiled
    model.compile(LazyAdam(0.05), "mse", metrics=["mae"], **options)
    return model


# Seven batches: two calls of three steps, and a step that runs by itself.
def test_fit_gives_the_numbers_of_keras():
    found = []
    for compiled in (False, True):
        model = make_model()
        if compiled:
            compile_steps(model)
        weights = np.linspace(0, 2, len(IDS))
        history = model.fit(IDS, TARGETS, BATCH, 2, sample_weight=weights, shuffle=False, verbose=0)
        variables = [*model.variables, *model.optimizer.variables]
        found.append([*history.history.values(), *(v.numpy() for v in variables)])
        assert int(model.optimizer.iterations) == 2 * 7
    for ours, expected in zip(*found, strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)


def test_only_the_batches_of_a_whole_call_that_are_alike_are_stacked():
    def optional(*shape):
        return tf.experimental.Optional.from_value((tf.zeros(shape), tf.zeros(shape[:1])))

    first = tf.zeros([6, 5]), tf.zeros([6])
    none = tf.experimental.Optional.empty(optional(6, 5).element_spec)
    assert are_alike(first, [optional(6, 5)] * 2)
    assert not are_alike(first, [optional(6, 5), optional(2, 5)])
    assert not are_alike(first, [optional(6, 5), none])


def test_a_call_is_one_loop_with_a_known_number_of_steps():
    model = make_model()
    model.train_on_batch(IDS[:BATCH], TARGETS[:BATCH])
    data = tf.zeros([STEPS, BATCH, 5], tf.int32), tf.zeros([STEPS, BATCH, 1])
    program = one_program(model.train_step).experimental_get_compiler_ir(data)
    lowered, optimized = program(stage="hlo"), program(stage="optimized_hlo")
    assert lowered.count(LOOP) == 1 and " sort(" not in lowered
    assert f'"known_trip_count":{{"n":"{STEPS - 1}"}}' in optimized
    assert not re.findall(rf"f32\[{ROWS},{COLUMNS}\]\S* (?:copy|transpose)\(", optimized)


@pytest.mark.parametrize("compiled", [{"steps_per_execution": 1}, {"jit_compile": False}])
def test_a_model_compiled_otherwise_is_refused(compiled):
    with pytest.raises(ValueError, match="compile_steps needs a model compiled with"):
        compile_steps(make_model(**compiled))


def test_a_strategy_is_refused():
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        model = make_model()
    with pytest.raises(ValueError, match="compile_steps trains on one device; leave it out under"):
        compile_steps(model)
