"""Models with output layers: fit, row-sparse updates, files, precision, replicas."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from app.keras import LazyAdam, LossScaleOptimizer, RowwiseAdagrad, output_as_loss
from app.losses import sampling
from tests.keras.models import dtype_policy
from tests.keras.softmax_models import (
    DIM,
    LAYERS,
    SAMPLED,
    WORDS,
    built,
    draw_again,
    make_model,
    planted,
    vectors,
    words,
)


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYERS)
def test_fit_learns_a_planted_problem_and_the_mask_is_left_out(name):
    model, predictor, layer = make_model(name, LazyAdam(0.1))
    x, y = planted()
    epochs, most, right = (25, 0.2, 0.9) if name != "noise" else (150, 1.0, 0.7)
    model.fit([x, y], y, epochs=epochs, batch_size=20, verbose=0)  # the last batch is shorter
    loss = model.evaluate([x, y], y, verbose=0)
    losses = model([x, y]).numpy()
    real = x != 0
    assert (losses[~real] == 0).all()
    assert loss == pytest.approx(losses[real].mean(), rel=1e-5)
    assert loss < most
    ids, _ = layer.top_k(predictor(x), 1)
    assert (ids[real][:, 0] == y[real]).mean() > right
    log_p = layer.log_probability(predictor(x), np.maximum(y, 0))
    np.testing.assert_allclose(log_p[real], -losses[real], atol=1e-5)


@pytest.mark.parametrize(
    "name", ["samples", *(pytest.param(n, marks=pytest.mark.slow) for n in ("noise", "softmax"))]
)
def test_xla_computes_the_same_loss_and_gradients_of_rows(name, monkeypatch):
    # Otherwise XLA would draw other samples. Some of these are words to predict.
    monkeypatch.setattr(
        sampling,
        "draw_strata",
        lambda parts, seed: (tf.range(parts, dtype=tf.float64) + 0.5) / parts,
    )
    layer = LAYERS[name](name="out")
    layer.build((None, DIM))
    found = {}
    for jit in (False, True):

        @tf.function(jit_compile=jit, autograph=False)
        def run():
            with tf.GradientTape() as tape:
                losses = layer(vectors(), words(), training=True)
            return losses, tape.gradient(losses, layer.trainable_variables)

        losses, gradients = run()
        for gradient in gradients:
            assert min(gradient.indices.numpy()) >= 0 and max(gradient.indices.numpy()) < WORDS
        found[jit] = [losses, *map(tf.convert_to_tensor, gradients)]
    for one, other in zip(found[True], found[False], strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_only_rows_of_touched_classes_change():
    model, _, layer = make_model("classes", RowwiseAdagrad(0.1), run_eagerly=True)
    x, y = planted()
    x, y = x[:2, :3], np.zeros_like(y[:2, :3])
    before = layer.get_weights()
    model.train_on_batch([x, y], y)
    output, classes = (
        (now != was).any(axis=1) for now, was in zip(layer.get_weights(), before, strict=True)
    )
    assert classes.all() and 0 < output.sum() < WORDS / 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["classes", "tree", "adaptive", "samples"])
def test_a_saved_model_goes_on_as_if_it_had_never_stopped(name, tmp_path):
    model, _, _ = make_model(name, LazyAdam(0.1), run_eagerly=True)
    x, y = planted()
    model.train_on_batch([x, y], y)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    loaded.run_eagerly = True
    for one in (model, loaded):
        draw_again(one.get_layer("out"))  # Keras saves no state of random numbers
        one.train_on_batch([x, y], y)
    for ours, theirs in zip(model.weights, loaded.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert loaded.get_layer("out").get_config() == model.get_layer("out").get_config()


@pytest.mark.slow
def test_checkpoints_have_what_the_layer_needs(tmp_path):
    models = [make_model("classes", LazyAdam(0.1))[0] for _ in range(2)]
    models[1].set_weights([weight + 1 for weight in models[1].get_weights()])
    path = tf.train.Checkpoint(model=models[0]).save(tmp_path / "at")
    tf.train.Checkpoint(model=models[1]).restore(path).assert_consumed()
    for saved, restored in zip(*(model.get_weights() for model in models), strict=True):
        np.testing.assert_array_equal(restored, saved)
    x, y = planted()
    np.testing.assert_array_equal(*(model([x, y]) for model in models))


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYERS)
def test_exports_have_what_the_layer_needs(name, tmp_path):
    model, _, _ = make_model(name, LazyAdam(0.1), mask=False)
    x, y = planted()
    y %= WORDS
    model.export(tmp_path / "exported", verbose=False)
    loaded = tf.saved_model.load(tmp_path / "exported")
    np.testing.assert_allclose(loaded.serve([x, y]), model([x, y]), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "policy", ["mixed_float16", pytest.param("bfloat16", marks=pytest.mark.slow)]
)
def test_narrow_precision_trains_nearly_the_same(policy):
    x, y = planted()
    found = []
    for each in ("float32", policy):
        optimizer = LazyAdam(0.1)
        if each == "mixed_float16":
            optimizer = LossScaleOptimizer(optimizer)
        with dtype_policy(each):
            model, _, layer = make_model("classes", optimizer, run_eagerly=True)
            losses = [model.train_on_batch([x, y], y) for _ in range(4)]
        assert model.output.dtype == "float32"
        assert layer.weights[0].dtype == ("bfloat16" if each == "bfloat16" else "float32")
        found.append(losses)
    assert found[0][-1] < found[0][0] - 0.3
    np.testing.assert_allclose(*found, rtol=0.2 if policy == "bfloat16" else 3e-2)


def test_xla_is_declined_in_one_line():
    with pytest.warns(UserWarning, match="Proceeding with `jit_compile=False`") as told:
        model, _, _ = make_model("classes", LazyAdam(0.1), jit_compile=True)
    assert len(told) == 1 and not model.jit_compile
    model, _, _ = make_model("classes", LazyAdam(0.1))
    assert not model.jit_compile


def compiled(name, **options):
    """A model with an output layer that is made with some options, and its data."""
    model, _, layer = make_model(name, LazyAdam(0.01), mask=False)
    config = layer.get_config() | options
    tokens, following = model.inputs
    again = type(layer).from_config(config)(model.get_layer("hidden").output, following)
    model = keras.Model([tokens, following], again)
    model.compile(LazyAdam(0.01), loss=output_as_loss)
    x, y = planted()
    return model, x, np.maximum(y, 0)


@pytest.mark.parametrize("name", ["classes", "samples"])
def test_the_layer_measures_perplexity_and_accuracy(name):
    model, x, y = compiled(name, metrics=["perplexity", "accuracy"])
    shown = model.fit([x, y], y, validation_data=([x, y], y), epochs=1, batch_size=20, verbose=0)
    logs = {key: values[-1] for key, values in shown.history.items()}
    layer = model.layers[-1]
    hidden = keras.Model(model.inputs[0], layer.input[0])(x)
    hits = layer.top_k(hidden, 1)[0][..., 0] == y
    assert logs["val_accuracy"] == pytest.approx(hits.mean()) and np.isnan(logs["accuracy"])
    losses = model([x, y]).numpy()
    assert logs["val_perplexity"] == pytest.approx(np.exp(losses.mean()), rel=1e-4)
    if name == "samples":
        assert np.isnan(logs["perplexity"])  # its loss is an estimate
    else:
        assert logs["perplexity"] == pytest.approx(np.exp(logs["loss"]), rel=0.05)


@pytest.mark.parametrize("name", SAMPLED)
def test_a_sampled_loss_of_evaluation_is_that_of_training(name):
    model, x, y = compiled(name, evaluation="sampled", metrics=["sampled_loss"])
    layer = model.layers[-1]
    found = [model.evaluate([x, y], y, batch_size=30, verbose=0) for _ in range(2)]
    assert found[0] == found[1] and found[0][0] == pytest.approx(found[0][1], rel=1e-5)
    assert layer._seeds.state.numpy().tolist() == [layer.seed, 0]  # evaluation draws on its own
    trained = np.mean([model([x, y], training=True).numpy().mean() for _ in range(20)])
    assert found[0][0] == pytest.approx(trained, rel=0.1)
    hidden = vectors()
    exact = built(name)
    exact.set_weights([np.ones_like(w) for w in exact.get_weights()])
    config = exact.get_config() | {"evaluation": "sampled"}
    other = type(exact).from_config(config)
    other.build((None, DIM))
    other.set_weights(exact.get_weights())
    np.testing.assert_array_equal(
        other.log_probability(hidden, words()), exact.log_probability(hidden, words())
    )
    model, x, y = compiled(name, metrics=["sampled_loss", "perplexity"])
    loss, sampled, perplexity = model.evaluate([x, y], y, batch_size=30, verbose=0)
    assert perplexity == pytest.approx(np.exp(loss), rel=1e-4)
    assert sampled == pytest.approx(found[0][0], rel=1e-4)


def own(targets, output):
    return output


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"metrics": ["accuracy"]}, r"out: metrics=\['accuracy'\] compares"),
        ({"weighted_metrics": ["acc"]}, r"out: metrics=\['acc'\] compares"),
        ({"metrics": {"out": keras.metrics.TopKCategoricalAccuracy()}}, "out: metrics=.* compares"),
        ({"metrics": [keras.metrics.sparse_categorical_accuracy]}, "out: metrics=.* compares"),
        ({"loss": "sparse_categorical_crossentropy"}, "out: loss='sparse_.* compares .*as_loss"),
        ({"loss": keras.losses.MeanSquaredError()}, "out: loss=.* compares .*output_as_loss"),
        ({"metrics": [own, keras.metrics.MeanMetricWrapper(own, name="mean")]}, None),
    ],
)
def test_what_compares_the_output_with_classes_is_refused_by_name(given, message):
    model, x, y = compiled("classes")
    model.compile(LazyAdam(0.01), **{"loss": output_as_loss} | given)
    for run in (model.fit, model.evaluate, model.train_on_batch, model.test_on_batch):
        options = {"verbose": 0} if run in (model.fit, model.evaluate) else {}
        if message is None:
            model.evaluate([x, y], y, verbose=0)
            return
        with pytest.raises(ValueError, match=message):
            run([x, y], y, **options)
