"""Run one side of the benchmark `keras`, in a process of its own."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from app.keras import DynamicEmbedding, LazyAdam, RowEmbedding, RowEmbeddingReduce, prefetch_rows
from tests.benchmarks import programs, steps

RATE = 0.001  # of Adam; the speed of no side depends on it
FEATURES = 13  # dense features of the DLRM, as many as in Criteo's data sets
DENSE = "dense_features"  # their input
_CODE = 32  # numbers of the codes that the models compare
_PREFETCH_STEPS = 16  # batches whose rows `prefetch_rows` loads together


class TableSize(NamedTuple):
    """The size of a table.

    Attributes:
        name: The name of its feature.
        rows: Rows of the table.
        columns: Columns of the table.
        ids: Ids of an example; the mean of their rows is its vector.
    """

    name: str
    rows: int
    columns: int
    ids: int


# Called with the ids of a feature, (B,) or (B, L), and its table. Returns the vectors (B, D).
Embed = Callable[[Any, TableSize], Any]


def measure(job: Any) -> dict[str, Any]:
    """Train one side in keras.fit in this process; a block is an epoch.

    Args:
        job: Has `model`, `side`, `tables` (the fields of each `TableSize`), `batch`, `steps`,
            `hot_share` (in percent), `folder` (for tables in files) and `seed`.

    Returns:
        The figures of `steps.measure_blocks`, `steps_per_s`, `table_bytes` (of all variables of the
        model and its optimizer, without caches), and `own_peak_bytes` (the peak memory without
        mapped files).

    Raises:
        RunError: A vector of the first batch did not change, or not to finite numbers.
    """
    if job.side == "sharded":
        steps.split_processor()
    job.tables = [TableSize(*table) for table in job.tables]
    with programs.peak_without_files() as peak:
        keras.utils.set_random_seed(job.seed)
        batches = make_batches(job, (1 + steps.TIMED_BLOCKS) * job.steps)
        model, vectors, loss = MODELS[job.model](job.tables, _embedder(job))
        optimizer = (keras.optimizers.Adam if job.side.startswith("keras") else LazyAdam)(RATE)
        model.compile(optimizer, loss, jit_compile=job.side.endswith("_jit") or "auto")
        first = next(iter(batches))[0]
        ids = {name: first[name] for name in vectors.input}
        before = [np.array(vector_BD) for vector_BD in vectors(ids)]
        if job.side.endswith("_cache"):
            batches = prefetch_rows(batches, model, steps=_PREFETCH_STEPS)
        figures = steps.measure_blocks(
            lambda count, epochs: steps.fit_seconds(model, batches, epochs, count), job.steps
        )
        for table, old_BD, new_BD in zip(job.tables, before, vectors(ids), strict=True):
            steps.check_changed(f"{job.model}, {job.side}, {table.name}", old_BD, np.array(new_BD))
    return figures | {
        "steps_per_s": 1000 / figures["step_ms"],
        "table_bytes": steps.state_bytes([*model.variables, *optimizer.variables]),
        "own_peak_bytes": peak(),
    }


def make_batches(job: Any, count: int) -> tf.data.Dataset:
    """Return batches in an endless dataset, `count` of which are drawn.

    The inputs are a dictionary: the ids of each table, (B,) or (B, L) int32, and for the DLRM dense
    features, (B, 13). The target of the two towers is the position of the pair in its batch; that
    of the DLRM is random, 0 or 1.
    """
    random, shape_SB = np.random.default_rng(job.seed), (count, job.batch)
    x: dict[str, np.ndarray] = {}
    for table in job.tables:
        shape = shape_SB if table.ids == 1 else (*shape_SB, table.ids)
        x[table.name] = programs.zipf_ids(random, table.rows, shape)
    if job.model == "dlrm":
        x[DENSE] = random.standard_normal((*shape_SB, FEATURES), dtype=np.float32)
        y_SB = random.integers(0, 2, shape_SB).astype(np.float32)
    else:
        y_SB = np.broadcast_to(np.arange(job.batch, dtype=np.int32), shape_SB)
    return tf.data.Dataset.from_tensor_slices((x, y_SB)).repeat().prefetch(tf.data.AUTOTUNE)


def _embedder(job: Any) -> Embed:
    """Return the embedding layers of a side.

    A cache has at least a row for each id of the batches whose rows are loaded together: rows of
    fewer batches would be loaded together otherwise, and a DLRM then took three times as long.
    """
    kind = job.side.partition("_")[0]

    def embed(ids: Any, table: TableSize) -> Any:
        if kind in ("keras", "dynamic") and job.side != "keras_rs":
            if kind == "dynamic":
                layer = DynamicEmbedding(table.columns, capacity=table.rows)
            else:
                layer = keras.layers.Embedding(table.rows, table.columns)
            vectors = layer(ids)
            return vectors if table.ids == 1 else keras.layers.GlobalAveragePooling1D()(vectors)
        given: dict[str, Any] = {"table": kind}
        if kind == "file":  # a new file for each run
            given["table_file"] = str(Path(job.folder) / f"{table.name}-{uuid.uuid4().hex}")
        if job.side.endswith("_cache"):
            hot = max(job.hot_share * table.rows // 100, _PREFETCH_STEPS * job.batch * table.ids)
            given["hot_rows"] = min(hot, table.rows)
        layer = RowEmbedding if table.ids == 1 else RowEmbeddingReduce
        if kind == "keras":
            from keras_rs.layers import EmbedReduce as layer  # optional

            given = {"combiner": "mean"}
        return layer(table.rows, table.columns, **given)(ids)

    return embed


def _two_tower(tables: Sequence[TableSize], embed: Embed) -> tuple[Any, Any, Any]:
    """Return the two towers: the model, one that returns the vectors of all tables, and the loss.

    The score of a user and an item is the inner product of their codes; the loss is the softmax
    over the items of the batch, without a correction for frequent items.
    """
    ids, vectors = _embed(tables, embed)
    users_BE, items_BE = (_dense(vector, 64, _CODE) for vector in vectors)
    scores_BB = keras.ops.matmul(users_BE, keras.ops.transpose(items_BE))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return keras.Model(ids, scores_BB), keras.Model(ids, vectors), loss


def _dlrm(tables: Sequence[TableSize], embed: Embed) -> tuple[Any, Any, Any]:
    """Return a ranking model like DLRM, as `_two_tower` returns its own.

    The vectors of all tables are mapped to one size. The inner products of each pair of them, and
    of each with the code of the dense features, are the input of the upper layers.
    """
    dense = keras.Input((FEATURES,), name=DENSE)
    ids, vectors = _embed(tables, embed)
    code_BE = _dense(dense, 64, _CODE)
    codes_BFE = keras.ops.stack([code_BE, *(_dense(vector, _CODE) for vector in vectors)], axis=1)
    products_BFF = keras.ops.matmul(codes_BFE, keras.ops.transpose(codes_BFE, (0, 2, 1)))
    size = 1 + len(vectors)
    pairs = np.ravel_multi_index(np.triu_indices(size, 1), (size, size)).astype(np.int32)
    products_BP = keras.ops.take(keras.ops.reshape(products_BFF, (-1, size**2)), pairs, axis=1)
    interactions = keras.ops.concatenate([code_BE, products_BP], axis=1)
    logits_B = keras.ops.squeeze(_dense(interactions, 64, 32, 1), 1)
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    return keras.Model({DENSE: dense, **ids}, logits_B), keras.Model(ids, vectors), loss


MODELS = {"two_tower": _two_tower, "dlrm": _dlrm}


def _embed(tables: Sequence[TableSize], embed: Embed) -> tuple[dict[str, Any], list[Any]]:
    """Return the inputs of all ids by the names of their tables, and the vectors."""
    shapes = {table.name: () if table.ids == 1 else (table.ids,) for table in tables}
    ids = {name: keras.Input(shape, name=name, dtype="int32") for name, shape in shapes.items()}
    return ids, [embed(ids[table.name], table) for table in tables]


def _dense(inputs: Any, *units: int) -> Any:
    """Return the output of dense layers with ReLU between them."""
    for number, width in enumerate(units, 1):
        inputs = keras.layers.Dense(width, "relu" if number < len(units) else None)(inputs)
    return inputs
