"""Run one side of the benchmark `language`, in a process of its own."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from app.assembly import learning
from app.keras import (
    AdaptiveSoftmax,
    ClassSoftmax,
    LazyAdam,
    RowEmbedding,
    SampledSoftmax,
    Softmax,
    output_as_loss,
)
from app.settings.words_config import LanguageModelConfig
from app.tables.device import DeviceTable
from app.tasks.language_model.language_model_job import make_model
from app.text.vocabulary import Vocabulary
from app.training.step import train_function
from tests.benchmarks import programs, steps

RATE = 0.004  # the speed of no side depends on the rate
_LAYERS = {
    "softmax": Softmax,
    "class_softmax": ClassSoftmax,
    "sampled_softmax": SampledSoftmax,
    "adaptive_softmax": AdaptiveSoftmax,
}
_CALL_STEPS = LanguageModelConfig().input.steps_per_call
_POOL = 64  # steps whose tokens are drawn, used in turn


def measure(job: Any) -> dict[str, Any]:
    """Train one side in this process.

    Args:
        job: Has `side`, `words`, `dim`, `streams`, `row_tokens`, `steps` and `seed`.

    Returns:
        The figures of `steps.measure_blocks`, `tokens_per_s` and `table_bytes`.

    Raises:
        RunError: A vector of the first batch did not change, or not to finite numbers.
    """
    keras.utils.set_random_seed(job.seed)
    random = np.random.default_rng(job.seed)
    tokens_SBL = programs.zipf_ids(random, job.words, (_POOL, job.streams, job.row_tokens + 1))
    counts_V = 10 * job.words // np.arange(1, job.words + 1)
    kind, _, name = job.side.rpartition(" ")
    is_trainer = not kind and name != "keras"
    figures = (_train if is_trainer else _fit)(job, name, tokens_SBL, counts_V)
    if is_trainer:
        figures["step_ms"] /= _CALL_STEPS
    tokens = job.streams * job.row_tokens
    return figures | {"tokens_per_s": 1000 * tokens / figures["step_ms"]}


def _train(job: Any, loss: str, tokens_SBL: np.ndarray, counts_V: np.ndarray) -> dict[str, Any]:
    """Return the figures of calls of the trainer, as of `--task=language_model --cell=lstm`."""
    config = LanguageModelConfig()
    config = dataclasses.replace(
        config,
        input=dataclasses.replace(
            config.input, batch_tokens=job.streams * job.row_tokens, row_tokens=job.row_tokens
        ),
        model=dataclasses.replace(config.model, loss=loss, cell="lstm", dim=job.dim),
    )
    words = Vocabulary([str(id) for id in range(job.words)], counts_V, int(counts_V.sum()))
    model, optimizer = make_model(config, words), learning.make_optimizer(config.optimizer)
    tables = {
        name: DeviceTable(
            *(spec.rows, spec.columns, spec.initial), slots=optimizer.slots if spec.trained else {}
        )
        for name, spec in model.tables().items()
    }
    on_gpu = bool(tf.config.list_logical_devices("GPU"))
    train = train_function(model, tables, optimizer, job.seed, by_xla=on_gpu)
    calls = itertools.cycle(map(tf.constant, np.split(tokens_SBL, _POOL // _CALL_STEPS)))
    numbers = itertools.count(0, _CALL_STEPS)

    def call() -> tf.Tensor:
        return train(next(calls), tf.constant(next(numbers), tf.int64), tf.constant(RATE))[0]

    ids_N = tf.constant(np.unique(tokens_SBL[0, :, :-1]))
    before = tables["input"].gather(ids_N).numpy()
    figures = steps.measure_blocks(functools.partial(steps.call_seconds, call), job.steps)
    steps.check_changed(job.side, before, tables["input"].gather(ids_N).numpy())
    return figures | {"table_bytes": sum(table.bytes() for table in tables.values())}


def _fit(job: Any, name: str, tokens_SBL: np.ndarray, counts_V: np.ndarray) -> dict[str, Any]:
    """Return the figures of keras.fit: of stock Keras, or with our layers."""
    inputs, targets = tokens_SBL[..., :-1], tokens_SBL[..., 1:]
    tokens = keras.Input((job.row_tokens,), dtype="int32")
    is_stock = name == "keras"
    embedding = (keras.layers.Embedding if is_stock else RowEmbedding)(job.words, job.dim)
    hidden = keras.layers.LSTM(job.dim, return_sequences=True)(embedding(tokens))
    if is_stock:
        model = keras.Model(tokens, keras.layers.Dense(job.words)(hidden))
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(RATE), loss)
        data: Any = (inputs, targets)
    else:
        words = keras.Input((job.row_tokens,), dtype="int32")
        output = _LAYERS[name](job.words, **({"counts": counts_V} if name != "softmax" else {}))
        model = keras.Model([tokens, words], output(hidden, words))
        model.compile(LazyAdam(RATE), output_as_loss)
        data = ((inputs, targets), targets)
    batches = tf.data.Dataset.from_tensor_slices(data).repeat().prefetch(tf.data.AUTOTUNE)
    before = np.array(embedding(inputs[0]))
    figures = steps.measure_blocks(
        lambda count, epochs: steps.fit_seconds(model, batches, epochs, count), job.steps
    )
    steps.check_changed(job.side, before, np.array(embedding(inputs[0])))
    state = [*model.variables, *model.optimizer.variables]
    return figures | {"table_bytes": steps.state_bytes(state)}
