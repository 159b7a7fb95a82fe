"""The memory plan of a Keras model: what its tables take, in which place, before they are made."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import keras

from ..tables.memory import Item, lines, representatives, totals
from .backend import require_model
from .layers.dynamic_embedding import DynamicEmbedding
from .layers.softmax_base import OutputLayer
from .step_parts import parts_of
from .steps_program import are_compiled
from .tables.table_memory import (
    device_place,
    memory_of,
    place_of,
    row_state,
    shape_of,
    table_items,
)


class MemoryPlan(tuple[Item, ...]):
    """The memory of the tables of a model, part by part, in the order of the layers. Print it."""

    @property
    def totals(self) -> dict[str, int]:
        """The bytes of all tables in each place: "host memory", "GPU memory", "disk"."""
        return totals(self)

    def __str__(self) -> str:
        return "\n".join(line.removeprefix("  ") for line in lines(self)) if self else "no table"


def memory_plan(
    model: keras.layers.Layer, optimizer: Any = None, hidden_size: int | None = None
) -> MemoryPlan:
    """Return the memory that the tables of a model take, with their optimizer state.

    Nothing is allocated: the layers need not be built. A functional model is built where a layer is
    called, so ask for its plan by a layer, before the call.

    A table of a `DynamicEmbedding` counts with all rows in use. Where XLA compiles the steps of a
    compiled model, 4 bytes of the device count for each row that can be looked up, from which the
    optimizer finds the rows of a batch, and after `compile_steps` 4 more for the map of a cache.
    The rest of the model, the batches and TensorFlow itself, about half a gigabyte, are not in the
    plan.

    Example:
        >>> layer = lexrow.keras.RowEmbedding(40_000_000, 128, table="host", name="words")
        >>> print(lexrow.keras.memory_plan(layer, lexrow.keras.LazyAdam()))
        words             40,000,000 x 128 float32  host memory  20.48 GB
        words: optimizer           40,000,000 rows  host memory  40.96 GB
        total                                       host memory  61.44 GB

    Args:
        model: A model, or a single layer.
        optimizer: An optimizer of Keras or of `lexrow.keras`, or its name. By default that of the
            compiled model; without one, no optimizer state is counted.
        hidden_size: The number of hidden units for output layers that are not built.

    Raises:
        ValueError: An output layer is not built, and `hidden_size` is not given.
    """
    require_model(model, keras.layers.Layer)
    optimizer = optimizer or getattr(model, "optimizer", None)
    if optimizer is not None:
        optimizer = keras.optimizers.get(optimizer)
    layers, by_xla = parts_of([model]).layers, are_compiled(model)
    return MemoryPlan(i for layer in layers for i in _memory(layer, optimizer, hidden_size, by_xla))


def _memory(
    layer: keras.layers.Layer, optimizer: Any, hidden_size: int | None, by_xla: bool
) -> Iterable[Item]:
    """Yield the memory of the tables of one layer, without layers inside it.

    Args:
        by_xla: Whether XLA compiles the steps.
    """
    is_output, is_dynamic = isinstance(layer, OutputLayer), isinstance(layer, DynamicEmbedding)
    if is_output:
        if hidden_size is None and not layer.built:
            raise ValueError(
                f"{layer.name} is not built, so that its columns are not known; give hidden_size=, "
                "the number of its hidden units, or ask for the plan of the model that calls it"
            )
        tables, dtype = layer.table_shapes(hidden_size), layer.variable_dtype
    elif isinstance(layer, keras.layers.Embedding) or is_dynamic:
        shape, dtype = shape_of(layer)
        tables = {"embeddings": shape}
    else:
        return
    for table, shape in tables.items():
        slots, is_by_row = 0, False
        if optimizer is not None and layer.trainable:
            # Keras makes the path when it builds the layer.
            path = f"{layer.path or layer.name}/{table}"
            slots, is_by_row = row_state(optimizer, shape[1], dtype, path)
        name = f"{layer.name}: {table}" if is_output else layer.name
        if is_output:
            yield from table_items(name, shape, dtype, slots, place_of(layer))
        else:
            yield from memory_of(layer, slots, by_xla)
        looks_up = layer.looks_up_rows if is_output else not is_dynamic
        if by_xla and is_by_row and looks_up:
            yield representatives(name, shape[0], device_place())
