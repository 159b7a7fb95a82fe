"""The number of rows that dynamic tables get within --table_gb, and their map of words."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from ..config import Config
from ..errors import UsageError
from ..models.base import Model
from ..optimizers.base import Optimizer
from ..tables.base import TableSpec
from ..tables.dynamic import key_memory
from ..tables.dynamic.keys import INT64, STRING, KeyMap
from ..training import memory_plan
from .storage import dtypes

# Bytes of a word of --table=dynamic in the distribution of negatives, and while that is computed.
_WEIGHT_BYTES = 4 * 8
# Bytes of an id of --table=dynamic that has a row.
ID_BYTES = key_memory.key_bytes(INT64, 1)


def rows_for_ids(
    specs: Mapping[str, TableSpec], optimizer: Optimizer, config: Config
) -> dict[str, int]:
    """Divide the memory of --table_gb over the tables that grow.

    All of them get the same number of rows. A table with fewer ids than that leaves the rest of its
    share to the others.

    Args:
        specs: The tables, by name.
        optimizer: The optimizer, whose slots take memory as well.
        config: The settings of the run.

    Returns:
        The most rows of each table that grows, by name.

    Raises:
        UsageError: The memory is not enough for one row of each.
    """
    specs = {name: spec for name, spec in specs.items() if spec.grows}
    sizes = {name: _row_bytes(spec, optimizer, config) + ID_BYTES for name, spec in specs.items()}
    left = int(config.table.table_gb * 1e9)
    rows: dict[str, int] = {}
    for name in sorted(specs, key=lambda name: specs[name].rows):
        share = left // sum(sizes[other] for other in sizes.keys() - rows.keys())
        rows[name] = min(share, specs[name].rows)
        left -= rows[name] * sizes[name]
    if not all(rows.values()):
        raise UsageError(
            f"--table_gb={config.table.table_gb}: a row of each table takes {sum(sizes.values())} "
            "bytes; give more"
        )
    return rows


def _row_bytes(spec: TableSpec, optimizer: Optimizer, config: Config) -> int:
    """Return the bytes of a row with its slots."""
    one = dataclasses.replace(spec, rows=1)
    items = memory_plan.table("", one, optimizer, {"": 1}, dtypes(config))
    return sum(item.bytes for item in items)


def rows_for_words(model: Model, optimizer: Optimizer, config: Config) -> int:
    """Return the number of words whose rows fit in --table_gb.

    Args:
        model: The model, whose tables have a row for each word.
        optimizer: The optimizer, whose slots take memory as well.
        config: The settings of the run.

    Returns:
        The number of words, at most --max_vocab_size.

    Raises:
        UsageError: The memory is not enough for a single word.
    """
    specs = model.tables().values()
    row_bytes = sum(_row_bytes(spec, optimizer, config) for spec in specs) + word_bytes(config)
    most = config.vocabulary.max_vocab_size or 2**31 - 2
    rows = min(int(config.table.table_gb * 1e9) // row_bytes, most)
    if not rows:
        raise UsageError(
            f"--table_gb={config.table.table_gb}: a word takes {row_bytes} bytes; give more"
        )
    return rows


def make_key_map(rows: int, config: Config, pinned: int) -> KeyMap:
    """Return an empty map from words to rows.

    Args:
        rows: The number of rows.
        config: The settings of the run.
        pinned: See `KeyMap`.

    Returns:
        The map.
    """
    admits = config.vocabulary.min_count
    return KeyMap(rows, STRING, admits, config.table.max_age, pinned)


def word_bytes(config: Config) -> int:
    """Return the approximate bytes of a word of --table=dynamic, without its rows."""
    return key_memory.key_bytes(STRING, config.vocabulary.min_count) + _WEIGHT_BYTES
