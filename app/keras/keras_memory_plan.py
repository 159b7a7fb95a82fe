"""The memory plan of a Keras model: what its tables take, in which place, before they are made."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable
from typing import Any

import keras

from ..system.console import aligned, size_text
from .layers.dynamic_embedding import DynamicEmbedding
from .layers.softmax_base import OutputLayer
from .step_parts import parts_of
from .tables.table_memory import TableMemory, memory_of, slot_bytes

_HEADER = "layer", "table", "shape", "dtype", "rows", "optimizer", "cache", "maps", "where"


@dataclasses.dataclass(frozen=True)
class MemoryPlan:
    """The memory of the tables of a model. Print it.

    Attributes:
        tables: The memory of each table, in the order of the layers.
    """

    tables: tuple[TableMemory, ...]

    @property
    def totals(self) -> dict[str, int]:
        """The bytes of all tables in each place: "host memory", "GPU memory", "disk"."""
        total: collections.Counter[str] = collections.Counter()
        for table in self.tables:
            total.update(table.by_place)
        return dict(total)

    def __str__(self) -> str:
        if not self.tables:
            return "no table"
        rows = [
            (
                table.layer,
                table.kind,
                f"{table.rows:,} x {table.columns:,}",
                table.dtype,
                *map(_cell, (table.rows_bytes, table.slots_bytes)),
                *map(_cell, (table.cache_bytes, table.map_bytes)),
                table.place,
            )
            for table in self.tables
        ]
        totals = [f"total: {size_text(count)} of {place}" for place, count in self.totals.items()]
        return "\n".join([*aligned([_HEADER, *rows], "<<><>>>><"), *totals])


def memory_plan(
    model: keras.layers.Layer, optimizer: Any = None, hidden_size: int | None = None
) -> MemoryPlan:
    """Return the memory that the tables of a model take, with their optimizer state.

    Nothing is allocated: the layers need not be built. A functional model is built where a layer is
    called, so ask for its plan by a layer, before the call.

    A table of a `DynamicEmbedding` counts with all rows in use. The rest of the model, the batches
    and TensorFlow itself, about half a gigabyte, are not in the plan.

    Example:
        layer = lexrow.keras.RowEmbedding(40_000_000, 128, table="host")
        print(lexrow.keras.memory_plan(layer, lexrow.keras.LazyAdam()))

    Args:
        model: A model, or a single layer.
        optimizer: An optimizer of Keras or of `lexrow.keras`, or its name. By default that of the
            compiled model; without one, no optimizer state is counted.
        hidden_size: The number of hidden units for output layers that are not built.

    Raises:
        ValueError: An output layer is not built, and `hidden_size` is not given.
    """
    optimizer = optimizer or getattr(model, "optimizer", None)
    if optimizer is not None:
        optimizer = keras.optimizers.get(optimizer)
    tables: list[TableMemory] = []
    for layer in parts_of([model]).layers:
        tables += _memory(layer, optimizer, hidden_size)
    return MemoryPlan(tuple(tables))


def _memory(
    layer: keras.layers.Layer, optimizer: Any, hidden_size: int | None
) -> Iterable[TableMemory]:
    """Return the memory of the tables of one layer, without layers inside it."""

    def state(columns: int, dtype: str, path: str) -> int:
        if optimizer is None or not layer.trainable:
            return 0
        return slot_bytes(optimizer, columns, dtype, path)

    if isinstance(layer, keras.layers.Embedding | DynamicEmbedding):
        dtype = "float32" if isinstance(layer, DynamicEmbedding) else layer.variable_dtype
        # Keras makes the path when it builds the layer.
        path = f"{layer.path or layer.name}/embeddings"
        return [memory_of(layer, state(layer.output_dim, dtype, path))]
    if not isinstance(layer, OutputLayer):
        return []
    if hidden_size is None and not layer.built:
        raise ValueError(
            f"{layer.name} is not built, so that its columns are not known; give hidden_size=, the "
            "number of its hidden units, or ask for the plan of the model that calls it"
        )
    dtype, path = layer.variable_dtype, layer.path or layer.name
    return [
        TableMemory(
            f"{layer.name}: {name}",
            "device",
            *shape,
            dtype,
            state(shape[1], dtype, f"{path}/{name}"),
        )
        for name, shape in layer.table_shapes(hidden_size).items()
        for slots in [state(shape[1], dtype, f"{path}/{name}")]
    ]


def _cell(count: int) -> str:
    return size_text(count) if count else "-"
