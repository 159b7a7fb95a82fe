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
        "Where the rows are stored: in the memory of the device; in that of the machine or in a "
        "file (`host`), with a cache on the device; over all local devices (`sharded`); or on the "
        "device, where ids get rows as they are seen, without a vocabulary (`dynamic`).",
        choices=("device", "host", "sharded", "dynamic"),
    )
    table_dtype: str = _number_format("float32", "The number format of the stored rows.")
    slot_dtype: str = _number_format(
        "float32", "The number format of the optimizer's slots (its state for each row)."
    )
    rounding: str = setting(
        "stochastic",
        "How rows and slots are rounded to 16 bits; `nearest` loses many small changes.",
        choices=("stochastic", "nearest"),
    )
    hot_rows: str = setting(
        "auto",
        "The rows of each table that stay on the device, the most frequent first. `auto`: as many "
        "as fit in --device_memory.",
    )
    stage_steps: int = setting(
        100, "Steps for which other rows are loaded to the device at once.", bounds=(1, 100_000)
    )
    device_memory: float = setting(
        0.0, "GB of device memory that a run may use. 0: all free memory.", bounds=(0, 1e6)
    )
    table_file: str = setting(
        "", "A file to store the rows in, if they exceed the memory of the machine.", path=True
    )
    table_gb: float = fixed_setting(
        2.0, "GB that the rows of a dynamic table may use, with slots and keys.", bounds=(1e-6, 1e6)
    )
    max_age: int = fixed_setting(
        0,
        "A word not seen in so many blocks of text (--block_bytes), or a user or an item not seen "
        "in so many steps, loses its row. 0: never; a full table removes the rows seen least.",
        bounds=(0, 10**9),
    )
    shard_rule: str = setting(
        "mod",
        "How rows are divided into shards: in turn (`mod`), or in contiguous parts (`block`).",
        choices=("mod", "block"),
    )

    @property
    def is_dynamic(self) -> bool:
        """Whether words, users and items get rows while training."""
        return self.table == "dynamic"
