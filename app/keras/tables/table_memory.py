"""The memory that the table of a layer takes in each place, and the check that it is free."""

from __future__ import annotations

import collections
import contextlib
import math
import operator
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from ...system.console import apart, size_text
from ...system.devices import gpu_bytes
from ...system.machine import free_bytes
from ...tables.cached import CachedTable
from ...tables.disk.file import FileTable
from ...tables.dynamic.keys import key_bytes
from ...tables.memory import SHARE, Item, totals
from ...tables.sharded import ShardedTable, local_devices
from ..backend import is_ours, trains_in_step
from .table_kinds import has_cache
from .table_variable import TableVariable
from .table_warnings import LARGE

# The places of tables. Without a GPU, the memory of the device is that of the host.
DEVICE, HOST, FILE = "GPU memory", "host memory", "disk"
# In host memory, a cache takes two positions (int32) for each id of the table, and for each of its
# rows two ids and the last chunk that needed it (int64); see `tables.cached`.
_MAP_BYTES, _CACHED_ID_BYTES = 2 * 4, 3 * 8
_DISK_REMEDY = "free the disk, or name a table_file on another one"
_DYNAMIC_REMEDY = "give a smaller capacity, or a smaller output_dim"
_GPU_REMEDY = "give it table='host' with hot_rows, table='sharded' over more GPUs, or fewer rows"
_ROWS = 3  # of the table for which the slots are made to see their size
_LESS_STATE = "use an optimizer with less state, such as SGD or RowwiseAdagrad, or a table='file'"
_REMEDY = "give it table='file' with a table_file, fewer rows, or dtype='bfloat16'"


def memory_of(layer: Any, slot_bytes: int = 0, reads_cache_by_xla: bool = False) -> list[Item]:
    """Return the memory of the table of an embedding layer, which may not be built yet.

    Args:
        layer: A `RowEmbedding`, a `keras.layers.Embedding`, or a `DynamicEmbedding`, whose table
            counts with all rows in use, and strings as 12 bytes long.
        slot_bytes: The bytes of the optimizer state of a row.
        reads_cache_by_xla: Whether XLA compiles steps on the cache of the table, if it has one.
    """
    name, (shape, dtype) = layer.name, shape_of(layer)
    items = table_items(name, shape, dtype, slot_bytes, place_of(layer))
    if not isinstance(layer, keras.layers.Embedding):
        keys = layer.capacity * key_bytes(layer.key_dtype, layer.min_count)
        items.append(Item(f"{name}: keys", f"{layer.capacity:,} keys", HOST, keys))
    elif has_cache(layer):
        cached = min(layer.hot_rows, layer.input_dim)
        row = sum(item.bytes for item in items) // layer.input_dim
        maps = layer.input_dim * _MAP_BYTES + cached * _CACHED_ID_BYTES
        items += [
            Item(f"{name}: cached rows", f"{cached:,} rows", device_place(), cached * row),
            Item(f"{name}: cache maps", f"{layer.input_dim:,} ids", HOST, maps),
        ]
        if reads_cache_by_xla:  # a copy of the positions; see `tables.device.PreparedValues`
            size = layer.input_dim * tf.uint32.size
            shape_text = f"{layer.input_dim:,} ids"
            items.append(Item(f"{name}: device map", shape_text, device_place(), size))
    return items


def shape_of(layer: Any) -> tuple[tuple[int, int], str]:
    """Return the shape of the table of an embedding layer, and the dtype of its rows."""
    if isinstance(layer, keras.layers.Embedding):
        return (layer.input_dim, layer.output_dim), layer.variable_dtype
    return (layer.capacity, layer.output_dim), "float32"


def table_items(
    name: str, shape: tuple[int, int], dtype: str, slot_bytes: int, place: str
) -> list[Item]:
    """Return the memory of all rows of a table, and of their optimizer state if it takes any.

    Args:
        place: `DEVICE`, `HOST` or `FILE`.
    """
    rows, columns = shape
    size = rows * columns * tf.as_dtype(dtype).size
    items = [
        Item(name, f"{rows:,} x {columns:,} {dtype}", place, size),
        Item(f"{name}: optimizer", f"{rows:,} rows", place, rows * slot_bytes),
    ]
    return items if slot_bytes else items[:1]


def place_of(layer: Any) -> str:
    """Return the place of the tables of a layer: `DEVICE`, `HOST` or `FILE`."""
    return {"host": HOST, "file": FILE}.get(getattr(layer, "table", "device")) or device_place()


def device_place() -> str:
    """Return the place of tables of the device: `DEVICE` if there is a GPU, else `HOST`."""
    return DEVICE if tf.config.list_physical_devices("GPU") else HOST


def require_room(
    layer: Any, needed: Mapping[str, int] | None = None, name: str = "its table", remedy: str = ""
) -> None:
    """Check that the tables of a layer fit before they are made.

    Of tables that replicas mirror, one copy is counted. Tables of kind "device" under a strategy
    whose replicas do not train in step are not checked.

    Args:
        needed: The bytes to take in each place; by default those of the table of an embedding.
        name: What takes them, for the message.
        remedy: What to do if memory lacks; by default that of an embedding.

    Raises:
        ValueError: A GPU, host memory or the disk has less free.
    """
    kind = getattr(layer, "table", "dynamic")
    if kind == "device" and not trains_in_step():
        return  # the rows may be on other machines
    path = Path(layer.table_file) if kind == "file" else None
    needed = totals(memory_of(layer)) if needed is None else dict(needed)
    if path and path.is_file():  # which would be replaced
        needed[FILE] -= path.stat().st_size
    if not remedy:
        is_on_gpu = kind == "device" and DEVICE in needed
        remedy = _DYNAMIC_REMEDY if kind == "dynamic" else _GPU_REMEDY if is_on_gpu else _REMEDY
    require_free(needed, f"{layer.name}: {name}", remedy, path, is_sharded=kind == "sharded")


def require_free(
    needed: Mapping[str, int],
    taker: str,
    remedy: str,
    table_file: Path | None = None,
    is_sharded: bool = False,
) -> None:
    """Check that memory is free.

    Args:
        needed: The bytes to take in each place.
        taker: The table that would take them, with its layer or optimizer, for the message.
        table_file: The file of the table, if `needed` has bytes on the disk.
        is_sharded: Whether the GPUs share the bytes; otherwise they must fit into one.

    Raises:
        ValueError: A GPU, host memory or the disk has less free.
    """
    for place, count in needed.items():
        where, free = place, int(SHARE * free_bytes())
        if place == DEVICE:
            # The bytes of a GPU start its devices: not for a small table.
            if count < LARGE or not (on_gpus := free_on_gpus()):
                continue
            # Shards are of one size, so the smallest GPU limits all.
            free = len(on_gpus) * min(on_gpus) if is_sharded else max(on_gpus)
        if place == FILE:
            folder = next(folder for folder in table_file.absolute().parents if folder.exists())
            where, free = f"{place} in {folder}", shutil.disk_usage(folder).free
            remedy = _DISK_REMEDY
        if count > free:
            raise ValueError(
                f"{taker} takes {size_text(count)} ({count:,} bytes) of {where}, where "
                f"{apart(free, count)} are free; {remedy}"
            )


def free_on_gpus() -> list[int]:
    """Return the bytes that TensorFlow may still take of each GPU."""
    names = [name.rpartition("device:")[2] for name in local_devices() if "GPU" in name]
    taken = [tf.config.experimental.get_memory_info(name)["current"] for name in names]
    return [int(SHARE * gpu_bytes(n)) - used for n, used in zip(names, taken, strict=True)]


def row_state(optimizer: Any, columns: int, dtype: str, path: str) -> tuple[int, bool]:
    """Return the bytes of the slots of a row of a table, and whether rows are updated alone.

    A new optimizer of the same configuration makes the slots of a table of three rows. The sum of
    gradients for `gradient_accumulation_steps` does not count: its rows depend on the batches.

    Args:
        optimizer: An optimizer of Keras or of `lexrow.keras`, built or not. A `MultiOptimizer` is
            asked for the optimizer of this table.
    """
    *scopes, name = path.split("/")
    with contextlib.ExitStack() as stack, tf.init_scope():
        for scope in scopes:
            stack.enter_context(keras.name_scope(scope))
        table = keras.Variable("zeros", (_ROWS, columns), dtype, name=name)
        table.is_table = True  # read by the optimizers of lexrow.keras
        while inner := _inner(optimizer, table):
            optimizer = inner
        copy = type(optimizer).from_config(optimizer.get_config())
        copy.build([table])
    slots = [v for v in copy.variables if len(v.shape) == 2 and v.shape[0] == _ROWS]
    size = sum(math.prod(v.shape[1:]) * tf.as_dtype(v.dtype).size for v in slots)
    return size, hasattr(optimizer, "row_rule")


def require_room_for_slots(optimizer: Any, variables: Iterable[Any]) -> None:
    """Check that the slots of all tables fit, before one is made.

    Tables of less than 16 MiB together are not checked, nor those of `require_room`, those of which
    a replica makes the slots, and an optimizer of another package, whose configuration need not
    make it again.

    Raises:
        ValueError: A GPU, host memory or the disk has less free.
    """
    tables = [variable for variable in variables if getattr(variable, "is_table", False)]
    is_replica = tf.distribute.has_strategy() and not tf.distribute.in_cross_replica_context()
    if not is_ours(type(optimizer)) or is_replica or not trains_in_step():
        return
    # Those of a dynamic table that it has room for.
    rows = [v.table.rows if isinstance(v, TableVariable) else v.shape[0] for v in tables]
    sizes = [tf.as_dtype(v.dtype).size * v.shape[1] for v in tables]
    if sum(map(operator.mul, rows, sizes)) < LARGE:
        return
    needed: collections.Counter[tuple[str, Path | None]] = collections.Counter()
    is_sharded = False
    for variable, count in zip(tables, rows, strict=True):
        row, _ = row_state(optimizer, variable.shape[1], variable.dtype, variable.path)
        table: Any = variable.table if isinstance(variable, TableVariable) else variable.value
        if isinstance(table, CachedTable):
            needed[_place(table), None] += table.cache_map.unpinned * row
            table = table.backing
        is_sharded |= isinstance(table, ShardedTable)
        is_file = isinstance(table, FileTable)
        needed[(FILE, table.path) if is_file else (_place(table), None)] += count * row
    names = ", ".join(variable.path for variable in tables)
    for (place, path), count in needed.items():
        taker = f"{names}: the optimizer state of {type(optimizer).__name__}"
        require_free({place: count}, taker, _LESS_STATE, path, is_sharded)


def _inner(optimizer: Any, table: keras.Variable) -> Any:
    """Return the optimizer of a table that this optimizer wraps, or None if it wraps none."""
    if isinstance(optimizer, keras.optimizers.MultiOptimizer):
        return optimizer._optimizer_map(table)
    return getattr(optimizer, "inner_optimizer", None)


def _place(stored: Any) -> str:
    """Return whose memory a table or a variable takes, `DEVICE` or `HOST`."""
    return DEVICE if "GPU" in getattr(stored, "device", "") else HOST
