"""Models, weights and optimizers go to files and come back, also between Keras' layer and ours."""

import re

import keras
import numpy as np
import pytest
import tensorflow as tf

import app.keras
from app.keras import (
    SGD,
    Adagrad,
    Ftrl,
    LazyAdam,
    LazyAdamW,
    LossScaleOptimizer,
    RowEmbedding,
    RowwiseAdagrad,
)
from tests.keras import table_models as models
from tests.keras.models import BATCH, WORDS, make_data, make_model

SCHEDULE = {"initial_learning_rate": 0.1, "decay_steps": 2, "decay_rate": 0.5}
OPTIMIZERS = {
    "sgd": lambda: SGD(0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adagrad": lambda: Adagrad(0.1, initial_accumulator_value=0.2, clipnorm=1.0),
    "rowwise": lambda: RowwiseAdagrad(0.1, epsilon=1e-3),
    "adam": lambda: LazyAdam(0.1, beta_1=0.8, correct_skipped=True, amsgrad=True),
    "ftrl": lambda: Ftrl(0.1),
    "ftrl, l1": lambda: Ftrl(0.1, l1_regularization_strength=0.01),
    "adamw": lambda: LazyAdamW(
        keras.optimizers.schedules.ExponentialDecay(**SCHEDULE), correct_skipped=True
    ),
    "scaled": lambda: LossScaleOptimizer(LazyAdam(0.1, correct_skipped=True), initial_scale=8.0),
}
every = pytest.mark.parametrize("name", OPTIMIZERS)


def steps(model, batches):
    (left, right), y = make_data()
    for number in batches:
        part = slice(number * BATCH, number * BATCH + BATCH - number)  # not every row in each
        model.train_on_batch((left[part], right[part]), y[part])


def held(model):
    return [v.numpy().tobytes() for v in (*model.variables, *model.optimizer.variables)]


@pytest.mark.slow
@every
def test_a_saved_model_goes_on_as_if_it_had_never_stopped(name, tmp_path):
    model = make_model(OPTIMIZERS[name](), run_eagerly=True)
    steps(model, [0, 1])
    before = held(model)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    loaded.run_eagerly = True
    assert type(loaded.get_layer("words")) is RowEmbedding
    assert type(loaded.optimizer) is type(model.optimizer)
    assert loaded.optimizer.get_config() == model.optimizer.get_config()
    x, _ = make_data()
    np.testing.assert_array_equal(loaded(list(x)), model(list(x)))
    assert held(loaded) == held(model)
    for one in (model, loaded):
        steps(one, [2, 0])
    assert held(loaded) == held(model)
    assert held(model) != before


@every
def test_optimizers_are_made_again_from_their_config(name):
    config = OPTIMIZERS[name]().get_config()
    made = keras.optimizers.deserialize(keras.optimizers.serialize(OPTIMIZERS[name]()))
    assert made.get_config() | {"name": ""} == config | {"name": ""} or name == "scaled"
    assert type(made) is type(OPTIMIZERS[name]())


@pytest.mark.slow
@every
def test_checkpoints_hold_every_slot(name, tmp_path):
    model = make_model(OPTIMIZERS[name](), run_eagerly=True)
    steps(model, [0, 1])
    path = tf.train.Checkpoint(model=model, optimizer=model.optimizer).save(tmp_path / "at")
    other = make_model(OPTIMIZERS[name](), run_eagerly=True)
    steps(other, [2])
    status = tf.train.Checkpoint(model=other, optimizer=other.optimizer).restore(path)
    status.assert_consumed()
    assert held(other) == held(model)


def test_weights_and_checkpoints_serve_keras_layer_and_ours(tmp_path):
    ours, theirs = make_model(LazyAdam(0.1)), make_model("adam", keras.layers.Embedding)
    assert [v.path for v in ours.weights] == [v.path for v in theirs.weights]
    for number, (source, target) in enumerate(((ours, theirs), (theirs, ours))):
        target.set_weights([weight + number for weight in source.get_weights()])
        path = tf.train.Checkpoint(model=target).save(tmp_path / str(number))
        tf.train.Checkpoint(model=source).restore(path).assert_consumed()
        for weight, other in zip(source.get_weights(), target.get_weights(), strict=True):
            np.testing.assert_array_equal(weight, other)


@pytest.mark.filterwarnings("ignore:Skipping nested container")  # before it says what is wrong
def test_a_weights_file_of_keras_is_read_once_its_layers_are_renamed(tmp_path):
    """Keras calls them by their class, so that it cannot know them before."""
    ours, theirs = make_model(SGD(0.1)), make_model("sgd", keras.layers.Embedding)
    theirs.set_weights([weight + 1 for weight in theirs.get_weights()])
    theirs.save_weights(tmp_path / "theirs.weights.h5")
    with pytest.raises(ValueError, match="2 objects could not be loaded"):
        ours.load_weights(tmp_path / "theirs.weights.h5")
    editor = keras.saving.KerasFileEditor(str(tmp_path / "theirs.weights.h5"))
    for number in ("", "_1"):
        editor.rename_object(f"layers/embedding{number}", f"row_embedding{number}")
    editor.save(tmp_path / "ours.weights.h5")
    ours.load_weights(tmp_path / "ours.weights.h5")
    for weight, other in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_array_equal(weight, other)


def test_state_of_keras_adam_serves_lazy_adam():
    theirs, ours = make_model(keras.optimizers.Adam(0.1)), make_model(LazyAdam(0.1))
    for model in (theirs, ours):
        model.run_eagerly = True
        steps(model, [0])
    store = {}
    theirs.optimizer.save_own_variables(store)
    ours.optimizer.load_own_variables(store)
    pairs = zip(ours.optimizer.variables, theirs.optimizer.variables, strict=True)
    assert all(a.numpy().tobytes() == b.numpy().tobytes() for a, b in pairs)


@pytest.mark.parametrize("way", ["own variables", "checkpoint"])
@pytest.mark.parametrize("kind", [LazyAdam, RowwiseAdagrad])
def test_slots_of_a_table_of_another_shape_are_refused_with_both_shapes(kind, way, tmp_path):
    optimizers = []
    for words in (WORDS, WORDS + 7):
        model = make_model(kind(0.1), words=words, run_eagerly=True)
        steps(model, [0])
        optimizers.append(model.optimizer)
    with pytest.raises(ValueError) as raised:
        if way == "checkpoint":
            path = tf.train.Checkpoint(optimizer=optimizers[0]).save(tmp_path / "at")
            tf.train.Checkpoint(optimizer=optimizers[1]).restore(path)
        else:
            store = {}
            optimizers[0].save_own_variables(store)
            optimizers[1].load_own_variables({k: np.array(v) for k, v in store.items()})
    # A checkpoint of Keras' optimizers has the variables, too, and may name these first.
    columns = "4" if kind is LazyAdam else "1" if way == "own variables" else "[14]"
    for words in (WORDS, WORDS + 7):
        assert re.search(rf"\({words}, {columns}\)", str(raised.value))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"mask_zero": True, "name": "a", "dtype": "mixed_float16", "trainable": False},
        {
            "embeddings_initializer": keras.initializers.RandomNormal(seed=3),
            "embeddings_constraint": keras.constraints.UnitNorm(axis=1),
            "activity_regularizer": "l2",
        },
        {"lora_rank": 2, "lora_alpha": 3.0},
    ],
    ids=["plain", "masked", "functions", "adapted"],
)
def test_the_layer_is_made_again_from_its_config(options):
    layer = RowEmbedding(9, 2, **options)
    config = layer.get_config()
    stock = keras.layers.Embedding(9, 2, **options).get_config()
    assert {k: v for k, v in config.items() if k != "name"} == {
        k: v for k, v in stock.items() if k != "name"
    }
    assert RowEmbedding.from_config(config).get_config() == config
    made = keras.layers.deserialize(keras.layers.serialize(layer))
    assert type(made) is RowEmbedding and made.get_config() == config
    made.build()
    assert made.embeddings_constraint is None or made.embeddings.constraint is not None


def test_an_exported_model_serves_and_checks_its_ids(tmp_path):
    model = make_model(LazyAdam(0.1, correct_skipped=True), run_eagerly=True)
    steps(model, [0])
    model.export(tmp_path / "exported", verbose=False)
    loaded = tf.saved_model.load(tmp_path / "exported")
    x, _ = make_data()
    np.testing.assert_allclose(loaded.serve(list(x)), model.predict(x, verbose=0), atol=1e-6)
    with pytest.raises(tf.errors.InvalidArgumentError, match="from 0 to 12"):
        loaded.serve([x[0] + WORDS, x[1]])


# Keras finds the optimizers, layers and the loss of this package by their names.


NAMED = {
    **dict.fromkeys(("lazy_adam", "LazyAdam", "lazyadam"), LazyAdam),
    **dict.fromkeys(("lazy_adamw", "LazyAdamW"), LazyAdamW),
    **dict.fromkeys(("rowwise_adagrad", "RowwiseAdagrad"), RowwiseAdagrad),
    **{f"lexrow>{kind}": getattr(app.keras, kind) for kind in ("SGD", "Adagrad", "Ftrl")},
    "sgd": keras.optimizers.SGD,
    "Adagrad": keras.optimizers.Adagrad,  # as ever
}


@pytest.mark.parametrize("name", NAMED)
def test_an_optimizer_by_name(name):
    assert type(keras.optimizers.get(name)) is NAMED[name]
    config = {"learning_rate": 0.25}
    found = keras.optimizers.get({"class_name": name, "config": config})
    assert type(found) is NAMED[name] and float(found.learning_rate.numpy()) == 0.25
    again = keras.optimizers.deserialize(keras.optimizers.serialize(found))
    assert type(again) is NAMED[name]


def test_a_model_that_is_compiled_by_names_trains_and_is_saved(tmp_path):
    tokens, words = keras.Input((3,), dtype="int32"), keras.Input((3,), dtype="int32")
    hidden = RowEmbedding(20, 4)(tokens)
    model = keras.Model([tokens, words], app.keras.Softmax(20)(hidden, words))
    model.compile("lazy_adam", "output_as_loss", run_eagerly=True)
    ids = np.arange(12).reshape(4, 3)
    model.fit([ids, ids], ids, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded.optimizer) is LazyAdam
    assert loaded.evaluate([ids, ids], ids, verbose=0) == model.evaluate([ids, ids], ids, verbose=0)


@pytest.mark.parametrize("start", ["", "lexrow>"])
@pytest.mark.parametrize("name", ["RowEmbedding", "RowEmbeddingReduce"])
def test_a_layer_by_name(name, start):
    config = {"input_dim": 7, "output_dim": 2}
    layer = keras.layers.deserialize({"class_name": f"{start}{name}", "config": config})
    assert type(layer) is getattr(app.keras, name) and layer.input_dim == 7


class Softmax(keras.layers.Layer):
    """A class of somebody else, with the name of one of this package."""


def test_a_class_of_the_user_keeps_its_name(tmp_path):
    model = keras.Sequential([keras.Input((2,)), Softmax()])
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras", {"Softmax": Softmax})
    assert type(loaded.layers[0]) is Softmax


@pytest.mark.parametrize("kind", ["device", "host"])
def test_names_in_a_file_are_those_of_the_installed_package(kind, tmp_path):
    model = models.make_model(models.make_layer(kind, tmp_path))
    config = keras.saving.serialize_keras_object(model)
    names = [layer["registered_name"] for layer in config["config"]["layers"]]
    assert "lexrow>RowEmbedding" in names
