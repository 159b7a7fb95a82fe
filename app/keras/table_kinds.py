"""The kinds of table that a layer can have, by the values of its argument `table`."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ..tables import sharded
from ..tables.base import Table
from ..tables.device import DeviceTable
from ..types import HOST


def make_table(kind: str, rows: int, columns: int, initializer: Any) -> Table:
    def initial(shape):
        return initializer(shape, "float32")

    if kind == "host":
        with tf.device(HOST):
            return DeviceTable(rows, columns, initial)
    if kind == "sharded":
        return sharded.make(rows, columns, initial, sharded.local_devices())
    raise ValueError(kind)
