"""The audit of training steps of Keras: of models, of functions, and with tables of every kind."""

import functools
import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from app import keras as ours
from app.keras import audit, prefetch_rows
from app.keras.optimizers import row_sparse

ROWS, COLUMNS, LENGTH = 60, 4, 5
TABLE = ROWS * COLUMNS * 4  # bytes
# A row-wise slot counts as well.
LEAST = ROWS * 4
BATCH = np.zeros((3, LENGTH), np.int32), np.zeros((3, 1), np.float32)


def causes(findings):
    return {finding.cause: finding.instead for finding in findings}


def tables(findings):
    """How many tables' bytes are read and written."""
    return findings.total / TABLE


STOCK = {
    "adam": lambda: keras.optimizers.Adam(0.1),
    "adagrad": lambda: keras.optimizers.Adagrad(0.1),
    "sgd": lambda: keras.optimizers.SGD(0.1),
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
    findings = audit(make(STOCK["adam"]()), BATCH, LEAST)
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
def test_a_stock_embedding_is_copied_once_rows_are_written():
    for optimizer in (STOCK["sgd"](), ours.LazyAdam(0.1)):
        findings = audit(make(optimizer), BATCH, LEAST)
        assert [(f.operation, f.cause) for f in findings] == [
            ("ReadVariableOp", "Embedding 'words'")
        ]
        assert tables(findings) == 2 and findings[0].instead == "lexrow.keras.RowEmbedding"


@pytest.mark.slow
def test_xla_spares_stock_sgd_the_copy_and_adam_nothing():
    assert audit(make(STOCK["sgd"](), compiled=True), BATCH, LEAST) == ()
    assert tables(audit(make(STOCK["adam"](), compiled=True), BATCH, LEAST)) == 30


def test_what_adagrad_of_keras_does_to_its_accumulator_is_found():
    findings = audit(make(STOCK["adagrad"]()), BATCH, LEAST)
    whole = {f.operation for f in findings if f.variable.endswith("accumulator")}
    assert {"ReadVariableOp", "Sqrt", "IsNan", "LogicalOr"} <= whole
    assert "Embedding 'words'" in causes(findings)


def test_regularizers_and_constraints_are_named():
    model = make(
        STOCK["sgd"](),
        embeddings_regularizer="l2",
        embeddings_constraint=keras.constraints.MaxNorm(),
    )
    found = causes(audit(model, BATCH, LEAST))
    assert "LazyAdamW" in found.pop("the regularizer of Embedding 'words'")
    assert "RowEmbedding" in found.pop("the constraint of Embedding 'words'")
    assert [cause.partition(" ")[0] for cause in found] == ["SGD"]


@pytest.mark.slow
def test_the_loss_scale_of_mixed_precision_is_found_and_so_is_what_it_wraps():
    model = make(keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.1)))
    found = causes(audit(model, BATCH, LEAST))
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
    model.compile(ours.SGD(0.1), "mse")
    found = causes(audit(model, BATCH, LEAST))
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
    by_hand.compile(ours.LazyAdam(0.1), "mse")
    assert audit(by_hand, batch, LEAST) == ()
    assert audit(by_hand, tf.data.Dataset.from_tensors(batch), LEAST) == ()

    by_keras = Subclassed(
        Lookup(lambda table, ids: keras.ops.take(table, ids, axis=0), name="look")
    )
    by_keras.compile(ours.LazyAdam(0.1), "mse")
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
    assert audit(model, BATCH, LEAST)
    after = weights(model)
    assert before.keys() == after.keys() and model.train_function is function
    for name, values in before.items():
        assert values.tobytes() == after[name].tobytes(), name


@pytest.mark.slow
def test_smaller_tables_are_left_out():
    model = make(STOCK["adam"]())
    assert audit(model, BATCH, TABLE + 1) == ()
    assert "the largest variable has" in str(audit(model, BATCH))
    assert "the largest variable has" not in str(audit(model, BATCH, LEAST))


@pytest.mark.slow
def test_a_replica_is_searched():
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        model = make(STOCK["adam"]())
    assert tables(audit(model, BATCH, LEAST)) == 30


def test_what_cannot_be_audited_is_refused():
    with pytest.raises(ValueError, match="compile"):
        audit(keras.Sequential([keras.layers.Dense(1)], name="plain"))
    with pytest.raises(
        ValueError, match=r"the step of model depends on data; pass a batch \(x, y\)"
    ):
        audit(make(STOCK["sgd"]()))
    with pytest.raises(ValueError, match="data has a generator; pass a batch"):
        audit(make(STOCK["sgd"]()), (batch for batch in [BATCH]))


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
        assert all(re.search(r"test_keras_audit\.py:\d+ step$", f.cause) for f in findings)


def test_what_is_no_step_or_has_other_arguments_is_refused():
    with pytest.raises(ValueError, match="cannot audit a int; pass a model, or the function"):
        audit(3)
    with pytest.raises(ValueError, match="step: missing a required argument: 'x'; pass data"):
        audit(tf.function(step_of(*parts())))
    with pytest.raises(ValueError, match="step: too many positional arguments; pass data"):
        audit(step_of(*parts()), (*BATCH, *BATCH))


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


STEPS = BATCH[0][..., None], BATCH[1]


@pytest.mark.slow
def test_a_look_up_in_an_rnn_is_to_move_before_it():
    findings = audit(recurrent(ours.RowEmbedding, ours.LazyAdam(0.1)), STEPS, LEAST)
    instead = next(text for cause, text in causes(findings).items() if "LazyAdam" in cause)
    assert "before a loop or an RNN: inside, the gradient of a look-up is dense" in instead
    # Without a loop there is nothing to move.
    unrolled = recurrent(ours.RowEmbedding, ours.LazyAdam(0.1), unroll=True)
    assert audit(unrolled, STEPS, LEAST) == ()


@pytest.mark.slow
def test_a_look_up_in_an_rnn_of_a_table_without_dense_gradients_is_refused():
    model = recurrent(functools.partial(ours.RowEmbedding, table="host"), ours.LazyAdam(0.1))
    refused = "words/embeddings is looked up inside a loop or RNN.* before the loop"
    for train in (lambda: audit(model, STEPS), lambda: model.train_on_batch(*STEPS)):
        with pytest.raises(ValueError, match=refused):
            train()
    assert model.predict_on_batch(STEPS[0]).shape == (3, 1)


@pytest.mark.slow
def test_a_look_up_and_its_update_in_one_loop_are_by_row():
    model, optimizer = parts(functools.partial(ours.RowEmbedding, table="host"))
    other, _ = parts(optimizer=optimizer)
    host, step = step_of(model, ours.LazyAdam(0.1)), step_of(other, optimizer)

    def steps(step, x, y):
        for _ in tf.range(3):
            step(x, y)

    optimizer.build(other.trainable_variables)
    assert audit(steps, (step, *BATCH), LEAST) == ()
    assert audit(steps, (host, *BATCH), LEAST) == ()


HOT = {"table": "host", "hot_rows": ROWS - 7}
LAYERS = {
    "device": (ours.RowEmbedding, {}),
    "host": (ours.RowEmbedding, {"table": "host"}),
    "half host": (ours.RowEmbedding, {"table": "host", "dtype": "bfloat16"}),
    "hot": (ours.RowEmbedding, HOT),
    "file": (ours.RowEmbedding, {"table": "file", "table_file": "rows.bin"}),
    "hot file": (ours.RowEmbedding, HOT | {"table": "file", "table_file": "rows.bin"}),
    "sharded": (ours.RowEmbedding, {"table": "sharded"}),
    "reduce": (ours.RowEmbeddingReduce, {"mask_zero": True}),
    "hot reduce": (ours.RowEmbeddingReduce, HOT),
    "dynamic": (ours.DynamicEmbedding, {}),
    "strings": (ours.DynamicEmbedding, {"key_dtype": "string", "min_count": 2}),
}
OPTIMIZERS = {
    "sgd": lambda: ours.SGD(0.1),
    "momentum": lambda: ours.SGD(0.1, momentum=0.9, clipnorm=1.0),
    "adagrad": lambda: ours.Adagrad(0.1),
    "rowwise_adagrad": lambda: ours.RowwiseAdagrad(0.1, global_clipnorm=1.0),
    "ftrl": lambda: ours.Ftrl(0.1, l1_regularization_strength=0.1),
    "adam": lambda: ours.LazyAdam(0.1),
    "adamw": lambda: ours.LazyAdamW(0.1),
    "corrected": lambda: ours.LazyAdam(0.1, correct_skipped=True, amsgrad=True),
    "clipped": lambda: ours.LazyAdam(0.1, global_clipnorm=1.0),
    "accumulating": lambda: ours.LazyAdam(0.1, gradient_accumulation_steps=2),
    "scaled": lambda: ours.LossScaleOptimizer(ours.LazyAdam(0.1)),
}
CASES = [
    *((layer, "adam", False) for layer in LAYERS),
    *((layer, "adam", True) for layer in ("device", "host", "hot", "reduce")),
    *(("device", optimizer, False) for optimizer in OPTIMIZERS if optimizer != "adam"),
    *((layer, name, False) for layer in ("host", "hot") for name in list(OPTIMIZERS)[-4:]),
]


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("name", "optimizer", "compiled"), CASES)
def test_ours_touch_no_whole_table_and_say_where_rows_are(
    name, optimizer, compiled, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(row_sparse, "LARGE", 1)  # a false alarm would show
    kind, options = LAYERS[name]
    if kind is ours.DynamicEmbedding:
        layer = kind(COLUMNS, capacity=ROWS, name="words", **options)
    else:
        layer = kind(ROWS, COLUMNS, name="words", **options)
    inputs = keras.Input((LENGTH,), dtype=options.get("key_dtype", "int32"))
    vectors = layer(inputs)
    if kind is not ours.RowEmbeddingReduce:
        vectors = keras.layers.GlobalAveragePooling1D()(vectors)
    model = keras.Model(inputs, keras.layers.Dense(1)(vectors))
    model.compile(OPTIMIZERS[optimizer](), "mse", jit_compile=compiled)
    ids = np.arange(8 * LENGTH, dtype=np.int32).reshape(8, LENGTH) % ROWS
    ids = ids.astype(str).astype(object) if name == "strings" else ids
    batches = tf.data.Dataset.from_tensor_slices((ids, np.ones((8, 1), np.float32))).batch(4)
    if "hot" in name:
        batches = prefetch_rows(batches, model)
        model.fit(batches, shuffle=False, verbose=0)
    step = step_of(model, model.optimizer)
    for audited in (model, *([step] if optimizer == "adam" and not compiled else ())):
        findings = audit(audited, batches, LEAST)
        assert findings == ()
        notes = [] if name in ("device", "reduce") else [f"the rows of {kind.__name__} 'words' are"]
        assert [note.split(" not in a variable")[0] for note in findings.notes] == notes
        assert all(note in str(findings) for note in findings.notes)
