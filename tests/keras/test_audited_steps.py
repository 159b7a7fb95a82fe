"""Audits of step functions, of look-ups in loops, and of tables outside of variables."""

from __future__ import annotations

import functools
import pathlib
import re

import keras
import pytest
import tensorflow as tf

from app import keras as ours
from app.keras import audit
from app.keras.optimizers import row_sparse
from tests.keras.audited import BATCH, COLUMNS, LEAST, LENGTH, ROWS, causes, tables


def parts(embedding=ours.RowEmbedding, optimizer=None):
    """A model that is not compiled, and an optimizer."""
    layers = [embedding(ROWS, COLUMNS, name="words"), keras.layers.Flatten(), keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input((LENGTH,), dtype="int32"), *layers], name="model")
    return model, optimizer or ours.LazyAdam(0.1)


def step_of(model, optimizer):
    """A step function that reaches the model through another function."""

    def differentiate(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
        return tape.gradient(loss, model.trainable_variables)

    def step(x, y):
        optimizer.apply_gradients(zip(differentiate(x, y), model.trainable_variables, strict=True))

    return step


@pytest.mark.slow
@pytest.mark.parametrize("compiled", [False, True])
def test_a_step_function_is_audited_like_a_model(compiled):
    step = tf.function(step_of(*parts()), jit_compile=compiled)
    assert audit(step, BATCH, LEAST) == ()
    traced = step.experimental_get_tracing_count()
    step(*(tf.constant(part) for part in BATCH))  # uses the trace of the audit
    assert step.experimental_get_tracing_count() == traced
    assert audit(step_of(*parts()), tf.data.Dataset.from_tensors(BATCH), LEAST) == ()

    findings = audit(
        step_of(*parts(keras.layers.Embedding, keras.optimizers.Adam(0.1))), BATCH, LEAST
    )
    assert tables(findings) == 30
    [(cause, instead)] = causes(findings).items()
    assert cause.startswith("Adam") and "LazyAdam" in instead and "RowEmbedding" in instead
    assert "model/words/embeddings" in {finding.variable for finding in findings}


@pytest.mark.slow
def test_the_parts_of_a_step_are_found_wherever_it_names_them():
    class Trainer:
        def __init__(self, model, optimizer):
            self.nets, self.inner = {"words": [model]}, step_of(model, optimizer)

        @tf.function
        def step(self, x, y):
            self.inner(x, y)

        def __call__(self, batch):
            self.inner(*batch)

    def with_parts(model, optimizer, x, y):
        step_of(model, optimizer)(x, y)

    def stock():
        return parts(keras.layers.Embedding, keras.optimizers.Adam(0.1))

    trainer = Trainer(*stock())
    steps = {
        "method": (trainer.step, BATCH),
        "object": (Trainer(*stock()), (BATCH,)),
        "arguments": (with_parts, (*stock(), *BATCH)),
        "partial": (functools.partial(with_parts, *stock()), BATCH),
    }
    for name, (step, arguments) in steps.items():
        found = causes(audit(step, arguments, LEAST))
        assert [cause.partition(" ")[0] for cause in found] == ["Adam"], name


def test_a_step_without_keras_is_told_by_its_lines():
    table = tf.Variable(tf.ones([ROWS, COLUMNS]), name="table")

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32)])
    def step(ids):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table, ids) ** 2)
        gradient = tape.gradient(loss, table)
        table.assign_sub(0.1 * tf.convert_to_tensor(gradient))

    for data in (None, tf.constant([1, 2])):
        findings = audit(step, data, LEAST)
        assert {f.variable for f in findings} == {"table"}
        assert all(re.search(r"test_audited_steps\.py:\d+ step$", f.cause) for f in findings)


def test_what_is_no_step_or_has_other_arguments_is_refused():
    with pytest.raises(ValueError, match="cannot audit a int; pass a model, or the function"):
        audit(3)
    with pytest.raises(ValueError, match="step: missing a required argument: 'x'; pass data"):
        audit(tf.function(step_of(*parts())))
    with pytest.raises(ValueError, match="step: too many positional arguments; pass data"):
        audit(step_of(*parts()), (*BATCH, *BATCH))


@pytest.mark.slow
def test_the_example_of_the_guide_runs(capsys):
    guide = (pathlib.Path(ours.__file__).parent / "README.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", guide, re.DOTALL | re.MULTILINE)
    (block,) = (block for block in blocks if "def step" in block)
    model, _ = parts()
    model.add(keras.layers.Activation("sigmoid"))
    names = {"keras": keras, "model": model, "ids": BATCH[0], "labels": BATCH[1]}
    exec(block.replace("lexrow.keras", "app.keras"), names)
    assert "no operation on a whole table" in capsys.readouterr().out
    names["step"](*BATCH)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["host", "file", "sharded", "dynamic"])
@pytest.mark.filterwarnings("error")
def test_tables_outside_of_variables_are_named_and_no_whole_read_is_found(
    kind, tmp_path, monkeypatch
):
    monkeypatch.setattr(row_sparse, "_LARGE", 1)  # a false alarm would show
    if kind == "dynamic":
        words = ours.DynamicEmbedding(COLUMNS, capacity=ROWS, name="words")
    else:
        file = {"table_file": str(tmp_path / "rows")} if kind == "file" else {}
        words = ours.RowEmbedding(ROWS, COLUMNS, table=kind, name="words", **file)
    layers = [keras.Input((LENGTH,), dtype="int64"), words, keras.layers.Flatten()]
    model = keras.Sequential([*layers, keras.layers.Dense(1)], name="model")
    model.compile(ours.LazyAdam(0.1), "mse")
    step = step_of(model, model.optimizer)
    for findings in (audit(model, None, LEAST), audit(step, (BATCH[0].astype("int64"), BATCH[1]))):
        assert findings == ()
        (note,) = findings.notes
        assert f"rows of {type(words).__name__} 'words' are not in a variable" in note
        assert note in str(findings)


class Cell(keras.layers.Layer):
    """A recurrent cell that looks up the rows of one position."""

    def __init__(self, words, **kwargs):
        super().__init__(**kwargs)
        self.words, self.state_size = words, COLUMNS

    def build(self, shape):
        self.words.build()
        self.built = True

    def call(self, ids, states):
        state = states[0] + self.words(tf.cast(ids[:, 0], tf.int32))
        return state, [state]


def recurrent(embedding, optimizer, **options):
    inputs = keras.Input((LENGTH, 1))
    cell = Cell(embedding(ROWS, COLUMNS, name="words"))
    hidden = keras.layers.RNN(cell, **options)(inputs)
    model = keras.Model(inputs, keras.layers.Dense(1)(hidden))
    model.compile(optimizer, "mse", jit_compile=False)
    return model


@pytest.mark.slow
def test_a_look_up_in_an_rnn_is_to_move_before_it():
    findings = audit(recurrent(ours.RowEmbedding, ours.LazyAdam(0.1)), least_bytes=LEAST)
    [(cause, instead)] = causes(findings).items()
    assert cause == "the look-up in RowEmbedding 'words' inside a loop"
    assert "before the loop or RNN" in instead and "RowEmbedding" not in str(instead)
    found = causes(
        audit(recurrent(keras.layers.Embedding, keras.optimizers.Adam(0.1)), least_bytes=LEAST)
    )
    adam = next(instead for cause, instead in found.items() if cause.startswith("Adam"))
    assert "LazyAdam" in adam and "before the loop" in adam
    # Without a loop there is nothing to move.
    unrolled = recurrent(ours.RowEmbedding, ours.LazyAdam(0.1), unroll=True)
    assert audit(unrolled, least_bytes=LEAST) == ()


@pytest.mark.slow
def test_a_look_up_in_an_rnn_of_a_table_without_dense_gradients_is_refused():
    model = recurrent(functools.partial(ours.RowEmbedding, table="host"), ours.LazyAdam(0.1))
    refused = "words/embeddings is looked up inside a loop or RNN.* before the loop"
    batch = BATCH[0][..., None], BATCH[1]
    for train in (audit, lambda model: model.train_on_batch(*batch)):
        with pytest.raises(ValueError, match=refused):
            train(model)
    assert model.predict_on_batch(batch[0]).shape == (3, 1)


@pytest.mark.slow
def test_a_look_up_and_its_update_in_one_loop_are_by_row():
    model, optimizer = parts(functools.partial(ours.RowEmbedding, table="host"))
    other, _ = parts(optimizer=optimizer)
    host, step = step_of(model, ours.LazyAdam(0.1)), step_of(other, optimizer)
    stock = step_of(*parts(keras.layers.Embedding, keras.optimizers.Adam(0.1)))

    def steps(step, x, y):
        for _ in tf.range(3):
            step(x, y)

    optimizer.build(other.trainable_variables)
    assert audit(steps, (step, *BATCH), LEAST) == ()
    assert audit(steps, (host, *BATCH), LEAST) == ()
    instead = causes(audit(steps, (stock, *BATCH), LEAST)).values()
    assert not any("before the loop" in text for text in instead)
