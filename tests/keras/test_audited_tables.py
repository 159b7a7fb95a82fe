"""The audit of a model with any of our layers finds no operation on a whole table."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from app import keras as ours
from app.keras import audit, prefetch_rows
from app.keras.optimizers import row_sparse
from tests.keras.audited import COLUMNS, LEAST, LENGTH, ROWS

HOT = {"table": "host", "hot_rows": ROWS - 7}
MODELS = {
    "host": (ours.RowEmbedding, {"table": "host"}, {}),
    "compiled host": (ours.RowEmbedding, {"table": "host"}, {"jit_compile": True}),
    "half host": (ours.RowEmbedding, {"table": "host", "dtype": "bfloat16"}, {}),
    "hot": (ours.RowEmbedding, HOT, {}),
    "compiled hot": (ours.RowEmbedding, HOT, {"jit_compile": True}),
    "hot file": (ours.RowEmbedding, HOT | {"table": "file", "table_file": "rows.bin"}, {}),
    "reduce": (ours.RowEmbeddingReduce, {"mask_zero": True}, {}),
    "compiled reduce": (ours.RowEmbeddingReduce, {"mask_zero": True}, {"jit_compile": True}),
    "hot reduce": (ours.RowEmbeddingReduce, HOT, {}),
    "strings": (ours.DynamicEmbedding, {"key_dtype": "string", "min_count": 2}, {}),
}
OPTIMIZERS = {
    "corrected": lambda: ours.LazyAdam(0.1, correct_skipped=True, amsgrad=True),
    "clipped": lambda: ours.LazyAdam(0.1, global_clipnorm=1.0),
    "accumulating": lambda: ours.LazyAdam(0.1, gradient_accumulation_steps=2),
    "scaled": lambda: ours.LossScaleOptimizer(ours.LazyAdam(0.1)),
}


def make_model(kind, options, compiled, optimizer=ours.LazyAdam):
    if kind is ours.DynamicEmbedding:
        layer = kind(COLUMNS, capacity=ROWS, name="words", **options)
    else:
        layer = kind(ROWS, COLUMNS, name="words", **options)
    inputs = keras.Input((LENGTH,), dtype=options.get("key_dtype", "int32"))
    vectors = layer(inputs)
    if kind is not ours.RowEmbeddingReduce:
        vectors = keras.layers.GlobalAveragePooling1D()(vectors)
    model = keras.Model(inputs, keras.layers.Dense(1)(vectors))
    model.compile(optimizer(), "mse", **compiled)
    return model


def reported(findings):
    """The layers that the report names, after it found nothing."""
    assert findings == ()
    return [note.split(" are not in a variable")[0] for note in findings.notes]


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("case", MODELS)
def test_no_whole_table_is_found(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(row_sparse, "_LARGE", 1)  # a false alarm would show
    kind, options, compiled = MODELS[case]
    model = make_model(kind, options, compiled)
    words = [f"the rows of {kind.__name__} 'words'"]
    expected = [] if "reduce" in case and "hot" not in case else words
    assert reported(audit(model, None, LEAST)) == expected
    if "hot" in case:
        ids = np.arange(8 * LENGTH, dtype=np.int32).reshape(8, LENGTH) % ROWS
        batches = tf.data.Dataset.from_tensor_slices((ids, np.ones((8, 1)))).batch(4)
        batches = prefetch_rows(batches, model)
        model.fit(batches, shuffle=False, verbose=0)
        assert reported(audit(model, batches, LEAST)) == words


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("options", [{}, {"table": "host"}, HOT])
def test_no_option_of_the_optimizer_is_taken_for_a_whole_table(optimizer, options):
    compiled = {"jit_compile": False}
    model = make_model(ours.RowEmbedding, options, compiled, OPTIMIZERS[optimizer])
    expected = ["the rows of RowEmbedding 'words'"] if options else []
    assert reported(audit(model, None, LEAST)) == expected
