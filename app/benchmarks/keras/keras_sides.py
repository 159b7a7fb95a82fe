"""Run one side of the benchmark `keras`, as a program of its own."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ...errors import RunError
from ...keras import (
    DynamicEmbedding,
    LazyAdam,
    RowEmbedding,
    RowEmbeddingReduce,
    prefetch_rows,
)
from ..harness import programs
from ..harness.measured_steps import (
    TIMED_BLOCKS,
    fit_seconds,
    gpu_peak_bytes,
    measure_blocks,
    split_processor,
)
from ..harness.peak_memory import peak_without_files
from .keras_batches import make_batches
from .keras_job import PEERS, PREFETCH_STEPS, Job, TableSize, read_job
from .keras_models import MODELS

RATE = 0.001  # of Adam; the speed of no side depends on it


def measure(values: dict[str, Any]) -> dict[str, Any]:
    """Train one side in keras.fit, and measure its steps in blocks, which are epochs.

    Args:
        values: The fields of a `keras_job.Job`, `seed`, and `folder` (for a table in a file).

    Returns:
        The figures of `measure_blocks`, `state_bytes` (of all variables of the model and of its
        optimizer, without caches), `own_peak_bytes` (the peak memory without mapped files) and
        `device_peak_bytes` (of a GPU, else None).

    Raises:
        RunError: A vector of the first batch did not change, or not to finite numbers.
    """
    job = read_job(values)
    if job.side == "sharded":
        split_processor()
    with peak_without_files() as peak:
        figures = _train(job, values["seed"], Path(values["folder"]))
    return figures | {"own_peak_bytes": peak(), "device_peak_bytes": gpu_peak_bytes()}


def _train(job: Job, seed: int, folder: Path) -> dict[str, Any]:
    """Train a side; return the figures of `measure_blocks`, and `state_bytes`."""
    keras.utils.set_random_seed(seed)
    batches = make_batches(job, (1 + TIMED_BLOCKS) * job.steps, seed)
    embed = functools.partial(LAYERS[job.side], job, folder)
    built = MODELS[job.model](job.tables, embed)
    optimizer = keras.optimizers.Adam if job.side in PEERS else LazyAdam
    jit_compile = True if job.side.endswith("_jit") else "auto"
    built.model.compile(optimizer(RATE), built.loss, jit_compile=jit_compile)
    first = next(iter(batches))[0]
    before = _read(built.vectors, first)
    if job.side.endswith("_cache"):
        batches = prefetch_rows(batches, built.model, steps=PREFETCH_STEPS)
    figures = measure_blocks(
        lambda steps, count: fit_seconds(built.model, batches, count, steps), job.steps
    )
    _check(job, before, _read(built.vectors, first))
    variables = [*built.model.variables, *built.model.optimizer.variables]
    state = sum(int(np.prod(v.shape)) * tf.as_dtype(v.dtype).size for v in variables)
    return figures | {"state_bytes": state}


def _read(vectors: keras.Model, inputs: dict[str, tf.Tensor]) -> list[np.ndarray]:
    """Return the vectors of the inputs, (B, D) of each table."""
    ids = {name: inputs[name] for name in vectors.input}
    return [np.array(vector_BD) for vector_BD in vectors(ids)]


def _check(job: Job, before: list[np.ndarray], after: list[np.ndarray]) -> None:
    """Raise RunError unless all vectors of a batch changed, and to finite numbers."""
    # The speed of a side that does not train means nothing.
    for table, old_BD, new_BD in zip(job.tables, before, after, strict=True):
        changed_B = (old_BD != new_BD).any(axis=1) & np.isfinite(new_BD).all(axis=1)
        if not changed_B.all():
            raise RunError(
                f"{job.model}, {job.title}: {changed_B.sum()} of {changed_B.size} vectors of "
                f"{table.name} changed to finite numbers; so its speed means nothing"
            )


# The layers, by side. Each is called with the job, a folder for files, a table and its ids; see
# `keras_models.Embed`.


def _rows(
    job: Job,
    folder: Path,
    table: TableSize,
    ids: keras.KerasTensor,
    kind: str = "device",
    is_cached: bool = False,
) -> keras.KerasTensor:
    """Return the vectors of a layer of Lexrow with a table of some kind."""
    options: dict[str, Any] = {"table": kind}
    if kind == "file":
        options["table_file"] = str(folder / table.name)
    if is_cached:
        options["hot_rows"] = job.hot_rows(table)
    layer = RowEmbedding if table.ids == 1 else RowEmbeddingReduce
    return layer(table.rows, table.columns, **options)(ids)


def _dynamic(job: Job, folder: Path, table: TableSize, ids: keras.KerasTensor) -> keras.KerasTensor:
    """Return the vectors of a layer that makes a row for each id (int64) when it first occurs."""
    return _mean(table, DynamicEmbedding(table.columns, capacity=table.rows)(ids))


def _stock(job: Job, folder: Path, table: TableSize, ids: keras.KerasTensor) -> keras.KerasTensor:
    """Return the vectors of a layer of Keras."""
    return _mean(table, keras.layers.Embedding(table.rows, table.columns)(ids))


def _keras_rs(
    job: Job, folder: Path, table: TableSize, ids: keras.KerasTensor
) -> keras.KerasTensor:
    """Return the vectors of a layer of keras-rs."""
    from keras_rs.layers import EmbedReduce  # optional

    return EmbedReduce(table.rows, table.columns, combiner="mean")(ids)


def _mean(table: TableSize, vectors: keras.KerasTensor) -> keras.KerasTensor:
    """Return the mean of the vectors of an example if it has several ids."""
    return vectors if table.ids == 1 else keras.layers.GlobalAveragePooling1D()(vectors)


LAYERS: dict[str, Callable[[Job, Path, TableSize, keras.KerasTensor], keras.KerasTensor]] = {
    "device": _rows,
    "device_jit": _rows,
    "host": functools.partial(_rows, kind="host"),
    "host_cache": functools.partial(_rows, kind="host", is_cached=True),
    "file": functools.partial(_rows, kind="file"),
    "file_cache": functools.partial(_rows, kind="file", is_cached=True),
    "sharded": functools.partial(_rows, kind="sharded"),
    "dynamic": _dynamic,
    "keras": _stock,
    "keras_jit": _stock,
    "keras_rs": _keras_rs,
}


if __name__ == "__main__":
    programs.answer(measure, (tf.errors.ResourceExhaustedError,))
