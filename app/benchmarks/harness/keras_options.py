"""The settings of the benchmark `keras`."""

from __future__ import annotations

import dataclasses

from ...config.setting import setting
from ...config.settings import MOST_ROWS
from .options import Options


@dataclasses.dataclass(frozen=True)
class KerasOptions(Options):
    """Two recommenders in keras.fit with Adam, beside stock Keras and keras-rs."""

    models: str = setting(
        "two_tower,dlrm",
        "Comma-separated models: two towers of users and items (two_tower), and a DLRM (dlrm).",
    )
    sides: str = setting(
        "device,device_jit,host,host_cache,file,file_cache,sharded,dynamic",
        "Comma-separated kinds of table of RowEmbedding; _cache is the kind with hot_rows and "
        "prefetch_rows, device_jit the kind device with jit_compile; empty measures none.",
    )
    peers: str = setting(
        "keras,keras_jit,keras_rs",
        "Comma-separated peers to run beside Lexrow: stock Keras (keras), stock Keras with "
        "jit_compile (keras_jit), and keras-rs, if installed (keras_rs); empty runs none.",
    )
    users: int = setting(2_000_000, "Users of the two towers.", bounds=(1, MOST_ROWS))
    items: int = setting(500_000, "Items of the two towers.", bounds=(1, MOST_ROWS))
    dim: int = setting(64, "Columns of the two tables of the two towers.", bounds=(1, 1_000_000))
    table_rows: str = setting(
        "10000,30000,100000,300000,500000,1000000,2000000,5000000",
        "Comma-separated rows of the tables of the DLRM.",
        bounds=(1, MOST_ROWS),
        numbers=int,
    )
    batch: int = setting(1024, "Examples of a step.", bounds=(2, 2**20))
    steps: int = setting(
        100, "Steps in a timed block; a slow side makes fewer.", bounds=(1, 1_000_000)
    )
    hot_share: int = setting(
        10,
        "Rows in the caches of the _cache sides, in percent of each table; the cache of a small "
        "table has more, 16 for each id of a step.",
        bounds=(1, 100),
    )
    folder: str = setting(
        "",
        "Folder for the table in a file; empty is the folder of temporary files.",
        path=True,
    )
