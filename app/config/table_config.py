"""Settings of where rows live."""

from __future__ import annotations

import dataclasses

from .setting import setting

_HOST, _DYNAMIC = ("table", "host"), ("table", "dynamic")


@dataclasses.dataclass(frozen=True)
class TableConfig:
    """Where rows live."""

    table: str = setting(
        "device",
        "`device`: in the memory of the device. `host`: in that of the machine, or in a file "
        "(--table_file), and on the device while steps need them. `sharded`: dealt over all local "
        "devices of its kind. `dynamic`: a word gets a row once it was seen --min_count times; no "
        "pass over the text comes before; what is classified or recommended, when it is seen.",
        choices=("device", "host", "sharded", "dynamic"),
    )
    table_dtype: str = setting(
        "float32",
        "Storage of the rows; arithmetic is float32.",
        choices=("float32", "bfloat16", "float16"),
        fixed=True,
    )
    slot_dtype: str = setting(
        "float32",
        "Storage of the optimizer's state of a row.",
        choices=("float32", "bfloat16", "float16"),
        fixed=True,
    )
    rounding: str = setting(
        "stochastic",
        "How rows and state are written to fewer bits: `stochastic` keeps the sum of many small "
        "changes right, to `nearest` they are lost.",
        choices=("stochastic", "nearest"),
    )
    hot_rows: str = setting(
        "auto",
        "Rows of each table that stay on the device, the most frequent: a number, or `auto` for as "
        "many as fit --device_memory.",
        only=_HOST,
    )
    stage_steps: int = setting(
        100,
        "Steps for which the other rows come to the device at a time, rounded up to whole calls.",
        minimum=1,
        maximum=100_000,
        only=_HOST,
    )
    device_memory: float = setting(
        0.0,
        "GB of the device that tables may take; 0 for what it has free.",
        minimum=0,
        maximum=1e6,
    )
    table_file: str = setting(
        "",
        "A file to keep the rows in, for tables larger than the machine's memory.",
        only=_HOST,
        path=True,
    )
    table_gb: float = setting(
        2.0,
        "GB that the rows of a dynamic table, their state and the words may take; as many words "
        "have a row at a time as that holds, at most --max_vocab_size; or users and items.",
        minimum=1e-6,
        maximum=1e6,
        fixed=True,
        only=_DYNAMIC,
    )
    max_age: int = setting(
        0,
        "A word that was not seen in so many blocks of text (--block_bytes, or as many as fill a "
        "call of steps) loses its row, as does a user or an item that was not in so many steps; 0 "
        "for never. Where rows run out, those seen the fewest times lose theirs.",
        minimum=0,
        maximum=10**9,
        fixed=True,
        only=_DYNAMIC,
    )
    shard_rule: str = setting(
        "mod",
        "How rows are dealt: `mod` in turn, so that frequent ones are spread, `block` in parts.",
        choices=("mod", "block"),
        only=("table", "sharded"),
    )
