from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from app.benchmarks.pipeline import pipeline_case, pipeline_classifier, pipeline_examples
from app.benchmarks.pipeline.pipeline_classifier import DIM, RATE, Bag, Trained
from app.build import threads
from app.optimizers.adam import lazy_adam
from app.tables.device import DeviceTable
from app.training.step import train_function


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    """A side sets the threads of its process, which a test cannot."""
    asked = []
    monkeypatch.setattr(threads, "use_machine", asked.append)
    return asked


def test_there_is_a_program_for_every_side():
    assert set(pipeline_classifier.SIDES) == set(pipeline_case.SIDES["classifier"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "side",
    ["prefetch"]
    + [pytest.param(side, marks=pytest.mark.slow) for side in ("ours", "naive", "parallel")],
)
def test_a_side_returns_its_figures(side):
    job = {"side": side, "examples": 300, "epochs": 3, "seed": 1}
    values = pipeline_classifier.measure(job)
    seconds = values["epoch_seconds"]
    assert len(seconds) == 2 and values["first_seconds"] > 0
    assert values["examples_per_second"] == pytest.approx(300 / np.median(seconds))
    assert 0 < values["waiting"] < 1 and 0 <= values["accuracy"] <= 1


@pytest.mark.slow
def test_ours_learns(machine):
    examples = pipeline_examples.make(1000, seed=2)
    trained = pipeline_classifier.SIDES["ours"](examples, 40, seed=2)
    assert len(trained.seconds) == 40 and len(machine) == 1
    assert pipeline_classifier.accuracy(trained, examples) > 0.9


def test_accuracy_is_the_share_that_gets_its_label():
    examples = pipeline_examples.make(1000, seed=2)
    vectors_VD = np.zeros((pipeline_examples.VOCABULARY, DIM), np.float32)
    for bias in (1.0, -1.0):
        trained = Trained([], 0.0, vectors_VD, np.zeros(DIM), bias)
        found = pipeline_classifier.accuracy(trained, examples)
        assert found == np.mean(examples.labels_N == (bias > 0))


@pytest.mark.slow
def test_ours_does_what_keras_does_where_every_word_comes_once_a_step():
    # Keras' Adam takes the gradients of a word that comes twice for those of two.
    random = np.random.default_rng(5)
    steps, size = 3, pipeline_examples.VOCABULARY // 20
    ids_SBT = np.stack([random.permutation(pipeline_examples.VOCABULARY) for _ in range(steps)])
    ids_SBT = ids_SBT.reshape(steps, size, 20)
    labels_SB = random.integers(0, 2, (steps, size))
    model = Bag(seed=1)
    tables = {
        name: DeviceTable(spec.rows, spec.columns, spec.initial, slots=lazy_adam().slots)
        for name, spec in model.tables().items()
    }
    layers = [
        keras.layers.Embedding(pipeline_examples.VOCABULARY, DIM),
        keras.layers.GlobalAveragePooling1D(),
        keras.layers.Dense(1, activation="sigmoid"),
    ]
    peer = keras.Sequential([keras.Input((20,), dtype="int32"), *layers])
    head_E = tables["head"].values.numpy()[0]
    assert np.ptp(head_E[:DIM]) > 0 and head_E[DIM] == 0
    peer.set_weights([tables["vectors"].values.numpy(), head_E[:DIM, None], head_E[DIM:]])
    peer.compile(keras.optimizers.Adam(RATE), "binary_crossentropy")

    rows_SBL = np.concatenate([labels_SB[..., None], ids_SBT], axis=2).astype(np.int32)
    missing = np.array([[[-1] + [0] * 20] * size], np.int32)
    train = train_function(model, tables, lazy_adam(), 1)
    filled = tf.constant(np.concatenate([rows_SBL, missing]))  # a batch without examples: no change
    loss, _ = train(filled, tf.constant(0, tf.int64), tf.constant(RATE))
    losses = [
        peer.train_on_batch(*batch) for batch in zip(ids_SBT, labels_SB[..., None], strict=True)
    ]
    assert float(loss) == pytest.approx(float(losses[0]), rel=1e-5)
    vectors_VD, weights_D1, bias = peer.get_weights()
    np.testing.assert_allclose(tables["vectors"].values.numpy(), vectors_VD, atol=2e-5)
    ours_E = tables["head"].values.numpy()[0]
    np.testing.assert_allclose(ours_E[:DIM], weights_D1[:, 0], atol=2e-5)
    np.testing.assert_allclose(ours_E[DIM:], bias, atol=2e-5)
