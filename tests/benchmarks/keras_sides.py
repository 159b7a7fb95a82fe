"""Run one side of the benchmark `keras`, in a process of its own."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from app.keras import DynamicEmbedding, LazyAdam, RowEmbedding, prefetch_rows
from tests.benchmarks import programs, steps

RATE = 0.001  # of Adam; the speed of no side depends on it
_TABLES = ("users", "items")
_UNITS = (64, 32)  # of the layers of a tower
_PREFETCH_STEPS = 16  # batches whose rows `prefetch_rows` loads together


def measure(job: Any) -> dict[str, Any]:
    """Train one side in keras.fit in this process; a block is an epoch.

    Args:
        job: Has `side`, `users`, `items`, `dim`, `batch`, `steps`, `hot_share` (in percent),
            `folder` (for tables in files) and `seed`.

    Returns:
        The figures of `steps.measure_blocks`, `steps_per_s`, `table_bytes` (of all variables of the
        model and its optimizer, without caches), and `own_peak_bytes` (the peak memory without
        mapped files).

    Raises:
        RunError: A vector of the first batch did not change, or not to finite numbers.
    """
    if job.side == "sharded":
        steps.split_processor()
    with programs.peak_without_files() as peak:
        keras.utils.set_random_seed(job.seed)
        batches = make_batches(job, (1 + steps.TIMED_BLOCKS) * job.steps)
        model, vectors = _two_towers(job)
        optimizer = (keras.optimizers.Adam if job.side.startswith("keras") else LazyAdam)(RATE)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer, loss, jit_compile=job.side.endswith("_jit") or "auto")
        ids = next(iter(batches))[0]
        before = [np.array(vector_BD) for vector_BD in vectors(ids)]
        if job.side.endswith("_cache"):
            batches = prefetch_rows(batches, model, steps=_PREFETCH_STEPS)
        figures = steps.measure_blocks(
            lambda count, epochs: steps.fit_seconds(model, batches, epochs, count), job.steps
        )
        for old_BD, new_BD in zip(before, vectors(ids), strict=True):
            steps.check_changed(job.side, old_BD, np.array(new_BD))
    return figures | {
        "steps_per_s": 1000 / figures["step_ms"],
        "table_bytes": steps.state_bytes([*model.variables, *optimizer.variables]),
        "own_peak_bytes": peak(),
    }


def make_batches(job: Any, count: int) -> tf.data.Dataset:
    """Return batches in an endless dataset, `count` of which are drawn.

    The inputs are the ids of users and items, (B,) int32, by Zipf's law; the target is the position
    of the pair in its batch.
    """
    random, shape_SB = np.random.default_rng(job.seed), (count, job.batch)
    x = {name: programs.zipf_ids(random, getattr(job, name), shape_SB) for name in _TABLES}
    y_SB = np.broadcast_to(np.arange(job.batch, dtype=np.int32), shape_SB)
    return tf.data.Dataset.from_tensor_slices((x, y_SB)).repeat().prefetch(tf.data.AUTOTUNE)


def _two_towers(job: Any) -> tuple[keras.Model, keras.Model]:
    """Return a recommender, and a model of the same layers that returns the vectors of its tables.

    The score of a user and an item is the inner product of their codes; the loss is the softmax
    over the items of the batch, without a correction for frequent items.
    """
    ids = {name: keras.Input((), name=name, dtype="int32") for name in _TABLES}
    vectors = [_make_layer(job, name, getattr(job, name))(ids[name]) for name in _TABLES]
    towers = [
        keras.Sequential([keras.layers.Dense(_UNITS[0], "relu"), keras.layers.Dense(_UNITS[1])])
        for _ in _TABLES
    ]
    users_BE, items_BE = (tower(vector) for tower, vector in zip(towers, vectors, strict=True))
    scores_BB = keras.ops.matmul(users_BE, keras.ops.transpose(items_BE))
    return keras.Model(ids, scores_BB), keras.Model(ids, vectors)


def _make_layer(job: Any, name: str, rows: int) -> Any:
    """Return the embedding layer of a table.

    A cache has at least a row for each id of the batches whose rows are loaded together: rows of
    fewer batches would be loaded together otherwise.
    """
    kind = job.side.partition("_")[0]
    if job.side == "keras_rs":
        from keras_rs.layers import EmbedReduce  # optional

        return EmbedReduce(rows, job.dim, combiner="mean")
    if kind == "keras":
        return keras.layers.Embedding(rows, job.dim)
    if kind == "dynamic":
        return DynamicEmbedding(job.dim, capacity=rows)
    given: dict[str, Any] = {"table": kind}
    if kind == "file":  # a new file for each run
        given["table_file"] = str(Path(job.folder) / f"{name}-{uuid.uuid4().hex}")
    if job.side.endswith("_cache"):
        hot_rows = max(job.hot_share * rows // 100, _PREFETCH_STEPS * job.batch)
        given["hot_rows"] = min(hot_rows, rows)
    return RowEmbedding(rows, job.dim, **given)
