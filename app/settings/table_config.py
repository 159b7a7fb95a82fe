"""The settings of the tables: where the rows are stored, and in which number format."""

from __future__ import annotations

import dataclasses
import functools

from .setting import fixed_setting, setting

_number_format = functools.partial(setting, choices=("float32", "bfloat16", "float16"), fixed=True)


@dataclasses.dataclass(frozen=True)
class TableConfig:
    """The settings of the tables: where the rows are stored, and in which number format."""

    table: str = setting(
        "device",
        "Where the rows are stored. `device`: in the memory of the device. `host`: in the memory "
        "of the machine or in a file (--table_file), with a cache of rows on the device. "
        "`sharded`: over all local devices of its kind. `dynamic`: on the device; a word gets a "
        "row once it was seen --min_count times, so no vocabulary is counted first; a user or an "
        "item gets one when it is first seen.",
        choices=("device", "host", "sharded", "dynamic"),
    )
    table_dtype: str = _number_format(
        "float32", "The number format of the stored rows. Arithmetic is float32."
    )
    slot_dtype: str = _number_format(
        "float32", "The number format of the optimizer's slots (its state for each row)."
    )
    rounding: str = setting(
        "stochastic",
        "How rows and slots are rounded to 16 bits. `stochastic` keeps the sum of many small "
        "changes; `nearest` loses it.",
        choices=("stochastic", "nearest"),
    )
    hot_rows: str = setting(
        "auto",
        "How many rows of each table always stay on the device, the most frequent first. `auto`: "
        "as many as fit in --device_memory.",
    )
    stage_steps: int = setting(
        100,
        "The number of steps for which the other rows are loaded to the device at once. It is "
        "rounded up to whole calls.",
        bounds=(1, 100_000),
    )
    device_memory: float = setting(
        0.0, "GB of device memory that a run may use. 0: all free memory.", bounds=(0, 1e6)
    )
    table_file: str = setting(
        "",
        "A file to store the rows in, for tables larger than the memory of the machine.",
        path=True,
    )
    table_gb: float = fixed_setting(
        2.0,
        "GB that the rows of a dynamic table may use, with their slots and their keys. It limits "
        "how many words, users or items have a row at the same time; --max_vocab_size limits the "
        "words further.",
        bounds=(1e-6, 1e6),
    )
    max_age: int = fixed_setting(
        0,
        "A word loses its row when it was not seen in this many blocks of text (--block_bytes, "
        "or enough text for one call of steps). A user or an item loses its row after this many "
        "steps. 0: never. When a dynamic table is full, the rows seen least often are removed.",
        bounds=(0, 10**9),
    )
    shard_rule: str = setting(
        "mod",
        "How rows are divided into shards. `mod`: in turn, which spreads the frequent rows. "
        "`block`: in contiguous parts.",
        choices=("mod", "block"),
    )

    @property
    def is_dynamic(self) -> bool:
        """Whether words, users and items get rows while training."""
        return self.table == "dynamic"
