from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from app import keras as ours
from app.keras import audit
from tests.keras.audited import BATCH, COLUMNS, LEAST, LENGTH, ROWS, TABLE, causes, tables

STOCK = {
    "adam": lambda: keras.optimizers.Adam(0.1),
    "adagrad": lambda: keras.optimizers.Adagrad(0.1),
    "sgd": lambda: keras.optimizers.SGD(0.1),
}
OURS = {
    "sgd": lambda: ours.SGD(0.1),
    "momentum": lambda: ours.SGD(0.1, momentum=0.9, clipnorm=1.0),
    "adagrad": lambda: ours.Adagrad(0.1),
    "rowwise_adagrad": lambda: ours.RowwiseAdagrad(0.1, global_clipnorm=1.0),
    "ftrl": lambda: ours.Ftrl(0.1, l1_regularization_strength=0.1),
    "lazy_adam": lambda: ours.LazyAdam(0.1),
    "corrected_adam": lambda: ours.LazyAdam(0.1, correct_skipped=True, amsgrad=True),
    "lazy_adamw": lambda: ours.LazyAdamW(0.1),
    "scaled_adam": lambda: ours.LossScaleOptimizer(ours.LazyAdam(0.1)),
}


def make(optimizer, embedding=keras.layers.Embedding, compiled=False, **kwargs):
    """A model with a table, and a dense layer whose kernel is as large."""
    layers = [
        keras.Input((LENGTH,), dtype="int32"),
        embedding(ROWS, COLUMNS, name="words", **kwargs),
        keras.layers.GlobalAveragePooling1D(),
        keras.layers.Dense(ROWS),
        keras.layers.Dense(1),
    ]
    model = keras.Sequential(layers, name="model")
    model.compile(optimizer, "mse", jit_compile=compiled)
    return model


def weights(model):
    variables = [*model.variables, *model.optimizer.variables]
    return {variable.path: variable.numpy().copy() for variable in variables}


@pytest.mark.slow
def test_the_report_on_stock_adam_tells_every_pass_over_the_table_and_the_remedy():
    findings = audit(make(STOCK["adam"]()), least_bytes=LEAST)
    # Of Adam's lines: g and g^2 made dense (2), m += (g - m)(1 - b1) (8), v likewise (8), and
    # w -= m a / (sqrt(v) + e) (12).
    assert tables(findings) == 30
    by_operation = {}
    for finding in findings:
        found = by_operation.setdefault(finding.operation, [0, 0])
        found[0] += finding.count
        found[1] += finding.bytes / TABLE
    assert by_operation == {
        "UnsortedSegmentSum": [2, 2],
        "Sub": [2, 6],
        "Mul": [3, 6],
        "AssignAddVariableOp": [2, 6],
        "Sqrt": [1, 2],
        "AddV2": [1, 2],
        "RealDiv": [1, 3],
        "AssignSubVariableOp": [1, 3],
    }
    table = next(f for f in findings if f.operation == "AssignSubVariableOp")
    assert (table.variable, table.shape) == ("model/words/embeddings", (ROWS, COLUMNS))
    slots = {finding.variable for finding in findings if finding is not table}
    assert {name.rpartition("_")[2] for name in slots} == {"momentum", "velocity"}
    [(cause, instead)] = causes(findings).items()
    assert cause.startswith("Adam") and "LazyAdam" in instead and "RowEmbedding" in instead
    assert "30 x" not in str(findings) and "2 x  Sub" not in str(findings)
    assert "13 operations" in str(findings) and "lexrow.keras.LazyAdam" in str(findings)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", OURS)
def test_ours_touch_no_whole_table(optimizer):
    assert audit(make(OURS[optimizer](), ours.RowEmbedding), BATCH, LEAST) == ()


@pytest.mark.slow
def test_nor_do_they_under_xla():
    model = make(OURS["lazy_adam"](), ours.RowEmbedding, compiled=True)
    assert audit(model, BATCH, LEAST) == ()


@pytest.mark.slow
def test_a_stock_embedding_is_copied_once_rows_are_written():
    for optimizer in (STOCK["sgd"](), OURS["lazy_adam"]()):
        findings = audit(make(optimizer), least_bytes=LEAST)
        assert [(f.operation, f.cause) for f in findings] == [
            ("ReadVariableOp", "Embedding 'words'")
        ]
        assert tables(findings) == 2 and findings[0].instead == "lexrow.keras.RowEmbedding"


@pytest.mark.slow
def test_xla_spares_stock_sgd_the_copy_and_adam_nothing():
    assert audit(make(STOCK["sgd"](), compiled=True), least_bytes=LEAST) == ()
    assert tables(audit(make(STOCK["adam"](), compiled=True), least_bytes=LEAST)) == 30


def test_what_adagrad_of_keras_does_to_its_accumulator_is_found():
    findings = audit(make(STOCK["adagrad"]()), least_bytes=LEAST)
    whole = {f.operation for f in findings if f.variable.endswith("accumulator")}
    assert {"ReadVariableOp", "Sqrt", "IsNan", "LogicalOr"} <= whole
    assert "Embedding 'words'" in causes(findings)


def test_regularizers_and_constraints_are_named():
    model = make(
        STOCK["sgd"](),
        embeddings_regularizer="l2",
        embeddings_constraint=keras.constraints.MaxNorm(),
    )
    for data in (None, BATCH):
        found = causes(audit(model, data, LEAST))
        assert "LazyAdamW" in found.pop("the regularizer of Embedding 'words'")
        assert "RowEmbedding" in found.pop("the constraint of Embedding 'words'")
        assert [cause.partition(" ")[0] for cause in found] == ["SGD"]


@pytest.mark.slow
@pytest.mark.parametrize("clip", ["clipnorm", "global_clipnorm"])
def test_clipping_a_stock_optimizer_is_laid_to_it(clip):
    findings = audit(make(keras.optimizers.Adam(0.1, **{clip: 1.0})), least_bytes=LEAST)
    assert tables(findings) >= 30 and all(f.cause.startswith("Adam") for f in findings)


@pytest.mark.slow
def test_the_loss_scale_of_mixed_precision_is_found_and_so_is_what_it_wraps():
    model = make(keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.1)))
    found = causes(audit(model, least_bytes=LEAST))
    scaling = next(cause for cause in found if cause.startswith("LossScaleOptimizer"))
    assert found[scaling] == "lexrow.keras.LossScaleOptimizer"
    assert any(cause.startswith("Adam") for cause in found)


def test_our_optimizer_beside_a_use_of_the_whole_table():
    words = ours.RowEmbedding(ROWS, COLUMNS, name="words")

    class Tied(keras.layers.Layer):
        def call(self, x):
            return tf.matmul(x, words.embeddings.value, transpose_b=True)

    inputs = keras.Input((LENGTH,), dtype="int32")
    hidden = keras.layers.GlobalAveragePooling1D()(words(inputs))
    model = keras.Model(inputs, Tied(name="logits")(hidden))
    model.compile(OURS["sgd"](), "mse")
    found = causes(audit(model, least_bytes=LEAST))
    assert {"Tied 'logits'", "the gradient of RowEmbedding 'words'"} <= found.keys()


class Lookup(keras.layers.Layer):
    """Looks words up as people do by hand."""

    def __init__(self, take, **kwargs):
        super().__init__(**kwargs)
        self.take = take

    def build(self, shape):
        self.table = self.add_weight(shape=(ROWS, COLUMNS), name="table")

    def call(self, ids):
        return self.take(self.table, ids)


class Subclassed(keras.Model):
    """Two inputs that share one table."""

    def __init__(self, look_up):
        super().__init__(name="subclassed")
        self.look_up, self.dense = look_up, keras.layers.Dense(1)

    def build(self, shapes):
        self.look_up.build(shapes["a"])
        self.dense.build((None, COLUMNS))

    def call(self, inputs):
        both = self.look_up(inputs["a"]) + self.look_up(inputs["b"])
        return self.dense(tf.reduce_mean(both, axis=1))


@pytest.mark.slow
def test_a_subclassed_model_is_traced_on_data():
    ids = np.zeros((3, LENGTH), np.int64)
    batch = {"a": ids, "b": ids}, BATCH[1], np.ones(3, np.float32)
    by_hand = Subclassed(Lookup(lambda table, ids: tf.gather(table.value, ids)))
    by_hand.compile(OURS["lazy_adam"](), "mse")
    assert audit(by_hand, batch, LEAST) == ()
    assert audit(by_hand, tf.data.Dataset.from_tensors(batch), LEAST) == ()

    by_keras = Subclassed(
        Lookup(lambda table, ids: keras.ops.take(table, ids, axis=0), name="look")
    )
    by_keras.compile(OURS["lazy_adam"](), "mse")
    findings = audit(by_keras, batch, LEAST)
    assert [(f.operation, f.cause, f.count) for f in findings] == [
        ("ReadVariableOp", "Lookup 'look'", 2)
    ]
    assert "tf.gather" in findings[0].instead


@pytest.mark.slow
def test_nothing_is_trained_and_nothing_of_the_model_changes():
    model = make(STOCK["adam"]())
    model.train_on_batch(*BATCH)
    before, function = weights(model), model.train_function
    assert audit(model, BATCH, LEAST) and audit(model, None, LEAST)
    after = weights(model)
    assert before.keys() == after.keys() and model.train_function is function
    for name, values in before.items():
        assert values.tobytes() == after[name].tobytes(), name


@pytest.mark.slow
def test_smaller_tables_are_left_out():
    model = make(STOCK["adam"]())
    assert audit(model, least_bytes=TABLE + 1) == () == audit(model)
    assert "the largest variable has" in str(audit(model))
    assert "the largest variable has" not in str(audit(model, least_bytes=LEAST))


def test_sparse_and_ragged_inputs_are_traced_without_data():
    for kind in ("sparse", "ragged"):
        inputs = keras.Input((LENGTH,), dtype="int32", **{kind: True})
        rows = ours.RowEmbedding(ROWS, COLUMNS)(inputs)
        outputs = keras.layers.Lambda(lambda x: tf.reduce_mean(x, axis=1))(rows)
        model = keras.Model(inputs, outputs)
        model.compile(OURS["sgd"](), "mse")
        assert audit(model, least_bytes=LEAST) == ()


@pytest.mark.slow
def test_a_replica_is_searched():
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        model = make(STOCK["adam"]())
    assert tables(audit(model, BATCH, LEAST)) == 30


def test_what_cannot_be_audited_is_refused():
    with pytest.raises(ValueError, match="compile"):
        audit(keras.Sequential([keras.layers.Dense(1)], name="plain"))
    with pytest.raises(ValueError, match="subclassed has no known inputs; pass data"):
        model = Subclassed(Lookup(tf.gather))
        model.compile("sgd", "mse")
        audit(model)

    class Own(keras.Sequential):
        def train_step(self, data):
            raise AssertionError

    own = Own([keras.Input((1,)), keras.layers.Dense(1)])
    own.compile("sgd", "mse")
    with pytest.raises(ValueError, match="train_step of its own; pass data"):
        audit(own)
    with pytest.raises(ValueError, match="data has a generator; pass a batch"):
        audit(make(STOCK["sgd"]()), (batch for batch in [BATCH]))
