"""The rows that dynamic tables get within --table_gb, and the memory of their maps."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import UsageError
from ..models.base import Model
from ..settings import Config
from ..tables.base import TableSpec
from ..tables.dynamic import key_memory
from ..tables.dynamic.keys import INT64, STRING, KeyMap
from ..training.memory_plan import HOST, Item, row_bytes, row_parts
from .storage import dtypes
from .updates import make_optimizer

# Bytes of a word of --table=dynamic in the distribution of negatives, and while that is computed.
_WEIGHT_BYTES = 4 * 8
# Bytes of an id of --table=dynamic that has a row.
ID_BYTES = key_memory.key_bytes(INT64, 1)


def rows_for_ids(specs: Mapping[str, TableSpec], config: Config) -> dict[str, int]:
    """Return how many rows each table that grows gets, if they share the memory of --table_gb.

    All of them get the same number of rows. A table that has fewer ids leaves the rest of its share
    to the others.

    Args:
        specs: The tables, by name.
        config: The settings of the run.

    Returns:
        The most rows of each table that grows, by name.

    Raises:
        UsageError: The memory is not enough for one row of each.
    """
    specs = {name: spec for name, spec in specs.items() if spec.grows}
    sizes = {name: _row_bytes(spec, config) + ID_BYTES for name, spec in specs.items()}
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


def rows_for_words(model: Model, config: Config) -> int:
    """Return the number of words whose rows fit in --table_gb.

    Args:
        model: The model, whose tables have a row for each word.
        config: The settings of the run.

    Returns:
        The number of words, at most --max_vocab_size.

    Raises:
        UsageError: The memory is not enough for a single word.
    """
    specs = model.tables().values()
    taken = sum(_row_bytes(spec, config) for spec in specs) + _word_bytes(config)
    most = config.vocabulary.max_vocab_size or 2**31 - 2
    rows = min(int(config.table.table_gb * 1e9) // taken, most)
    if not rows:
        raise UsageError(
            f"--table_gb={config.table.table_gb}: a word takes {taken} bytes; give more"
        )
    return rows


def make_key_map(rows: int, config: Config, pinned: int) -> KeyMap:
    """Return an empty map from words to rows, with the rules of --min_count and --max_age.

    Args:
        rows: The number of rows.
        config: The settings of the run.
        pinned: A row that was seen in this many last steps is never evicted (see `KeyMap`).

    Returns:
        The map.
    """
    return KeyMap(rows, STRING, config.vocabulary.min_count, config.table.max_age, pinned)


def id_map(rows: Mapping[str, int]) -> Item:
    """Return the approximate memory of the maps of ids, without their rows.

    Args:
        rows: The number of rows of each table that grows, by name.
    """
    count = sum(rows.values())
    return Item("ids and their counts", f"{count:,} ids", HOST, count * ID_BYTES)


def word_map(rows: int, config: Config) -> Item:
    """Return the approximate memory of a map of words, without their rows.

    Args:
        rows: The number of words.
        config: The settings of the run.
    """
    return Item("words and their counts", f"{rows:,} words", HOST, rows * _word_bytes(config))


def _word_bytes(config: Config) -> int:
    """Return the host bytes of a word in the map and in the distribution of negatives."""
    return key_memory.key_bytes(STRING, config.vocabulary.min_count) + _WEIGHT_BYTES


def _row_bytes(spec: TableSpec, config: Config) -> int:
    """Return the bytes of a row with its slots."""
    optimizer = make_optimizer(config.optimizer)
    return row_bytes(row_parts("", spec, optimizer, dtypes(config)))
