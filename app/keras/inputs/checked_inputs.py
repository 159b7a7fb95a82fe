"""A dataset that refuses batches with an id that has no row, before a model trains on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from ..tables.table_variable import record_ids
from .prefetched_rows import batch_spec, build_model, call_model


def check_inputs(
    dataset: tf.data.Dataset, model: keras.Model, inputs: Callable[[Any], Any] | None = None
) -> tf.data.Dataset:
    """Check the ids in each batch of a dataset, for a model that XLA compiles.

    A compiled step cannot raise an error: for an id out of range it reads the nearest row and
    trains none, or makes the loss NaN where TensorFlow sees a GPU. The result has the same batches
    as the dataset. For a batch with a wrong id its iterator raises
    `tf.errors.InvalidArgumentError`, which names the layer and the smallest and the largest wrong
    id. The check runs on the CPU as a part of the input pipeline. `prefetch_rows` checks the ids of
    layers with `hot_rows` by itself.

    Example:
        model.compile(lexrow.keras.LazyAdam(0.001), loss="mse", jit_compile=True)
        model.fit(lexrow.keras.check_inputs(dataset, model), epochs=3)

    Args:
        dataset: Batches x, (x, y) or (x, y, sample_weight).
        model: The model that is trained on the batches. It is called once, to see its look-ups, and
            built before if it is not built yet.
        inputs: A function from a batch to the inputs of the model, for batches of another form.

    Raises:
        ValueError: The model cannot be called on the batches.
    """
    spec = batch_spec(dataset)
    is_tuple = isinstance(spec, tuple)
    build_model(spec, model, inputs)

    def check(*parts: Any) -> Any:
        batch = parts if is_tuple else parts[0]
        with record_ids():  # TensorFlow runs the checks in the call, and no table is read
            call_model(model, batch, inputs)
        return batch

    return dataset.map(tf.autograph.experimental.do_not_convert(check))
