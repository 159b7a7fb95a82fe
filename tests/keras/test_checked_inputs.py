"""`check_inputs` refuses ids that have no row where XLA would train another row."""

from __future__ import annotations

import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from app.keras import LazyAdam, RowEmbedding, RowEmbeddingReduce, check_inputs, prefetch_rows
from tests.keras import table_models as models

pytestmark = pytest.mark.usefixtures("far_host")
WRONG = models.IDS.copy()
WRONG[1, 2], WRONG[3, 0] = models.ROWS, -7  # in the first batch


def make_model(kind, folder, **options):
    layer = models.make_layer(kind, folder, name="words", **options)
    return models.make_model(layer, jit_compile=kind in ("device", "host") or None)


def state(model):
    """All but the number of steps, which TensorFlow may count before it takes the batch."""
    variables = [*model.variables, *model.optimizer.variables]
    return [v.numpy().tobytes() for v in variables if v.name != "iteration"]


def refuse(model, batches):
    """Nothing is trained, and the error names the layer and the wrong ids."""
    before = state(model)
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        models.fit(model, batches)
    text = " ".join(re.sub(r"[\[\]']", "", str(raised.value)).split())
    message = "words: ids must be from 0 to 49; the smallest id out of range is -7 and the largest"
    assert f"{message} {models.ROWS}" in text
    assert state(model) == before


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["device", *models.KINDS])
def test_wrong_ids_are_refused_before_a_step(kind, tmp_path):
    model = make_model(kind, tmp_path)
    model.optimizer.build(model.trainable_variables)
    refuse(model, check_inputs(models.data(WRONG), model))
    models.fit(model, check_inputs(models.data(), model))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["host", "file"])
def test_prefetched_batches_are_checked_as_well(kind, tmp_path):
    model = make_model(kind, tmp_path, hot_rows=40)
    model.optimizer.build(model.trainable_variables)
    refuse(model, prefetch_rows(models.data(WRONG), model))
    models.fit(model, prefetch_rows(models.data(), model))


@pytest.mark.slow
@pytest.mark.parametrize(("wrong", "nearest"), [(models.ROWS, models.ROWS - 1), (-3, 0)])
def test_without_the_check_xla_reads_another_row_and_trains_none(wrong, nearest, tmp_path):
    """The reason for the check."""
    model = make_model("device", tmp_path)
    wrong, nearest = (np.full((8, models.LENGTH), i) for i in (wrong, nearest))
    np.testing.assert_array_equal(model.predict(wrong), model.predict(nearest))
    dense = model.layers[-1].get_weights()[0]
    model.train_on_batch(wrong, models.TARGETS[:8])
    assert (model.layers[-1].get_weights()[0] != dense).all()
    np.testing.assert_array_equal(model.layers[0].get_weights()[0], models.WEIGHTS)


@pytest.mark.parametrize("dress", [check_inputs, prefetch_rows])
@pytest.mark.parametrize("form", ["pair", "alone", "named", "weighted"])
def test_batches_are_those_of_the_dataset(form, dress, tmp_path):
    forms = {
        "pair": lambda x, y: (x, y),
        "alone": lambda x, y: x,
        "named": lambda x, y: {"ids": x},
        "weighted": lambda x, y: ({"ids": x}, y, y),
    }
    inputs = keras.Input((models.LENGTH,), dtype="int64", name="ids")
    layer = models.make_layer("host", tmp_path, hot_rows=40)
    model = keras.Model({"ids": inputs}, layer(inputs))
    model.compile(LazyAdam(0.1), "mse")
    dataset = models.data().map(forms[form])
    names_inputs = {"pair": lambda batch: {"ids": batch[0]}, "alone": lambda x: {"ids": x}}
    dressed = dress(dataset, model, inputs=names_inputs.get(form))
    assert dressed.element_spec == dataset.element_spec
    assert dressed.cardinality() == dataset.cardinality()
    for ours, theirs in zip(dressed, dataset, strict=True):
        tf.nest.map_structure(np.testing.assert_array_equal, ours, theirs)


@pytest.mark.slow
def test_every_input_and_layer_is_checked():
    left, right = (keras.Input((3,), dtype="int32", name=name) for name in ("left", "right"))
    words = RowEmbedding(5, 2, name="words")
    bag = RowEmbeddingReduce(9, 2, name="bag")(right)
    model = keras.Model([left, right], [words(left), words(right), bag])
    model.compile(LazyAdam(0.1), "mse")
    for name, wrong in (("words", ([[0, 5, 1]], [[0, 1, 2]])), ("bag", ([[0, 1, 2]], [[0, 9, 1]]))):
        dataset = tf.data.Dataset.from_tensors((tuple(map(tf.constant, wrong)),))
        with pytest.raises(tf.errors.InvalidArgumentError, match="ids must be from 0 to") as raised:
            list(check_inputs(dataset, model))
        assert name in str(raised.value)


def test_a_model_that_is_not_built_is_built_by_the_check():
    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.words = RowEmbedding(models.ROWS, 2, name="words")

        def call(self, ids):
            return self.words(ids)

    model = Model()
    assert len(list(check_inputs(models.data(), model))) == models.STEPS
    assert model.words.built


@pytest.mark.parametrize("dress", [check_inputs, prefetch_rows])
def test_batches_of_another_form_are_refused(dress, tmp_path):
    model = models.make_model(models.make_layer("host", tmp_path, hot_rows=9))
    named = models.data().map(lambda x, y: ({"left": x, "right": x}, y))
    for dataset in (named, models.data().unbatch(), models.data(models.strings())):
        with pytest.raises(ValueError, match=r"inputs of sequential\w* are .*; give inputs=, a"):
            dress(dataset, model)
    with pytest.raises(ValueError, match=r"dataset is a tuple; make it a tf\.data\.Dataset"):
        dress((models.IDS, models.TARGETS), model)
