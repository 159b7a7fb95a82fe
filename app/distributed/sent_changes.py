"""Send changes of rows to other replicas, without copying the wide ones into one vector."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import tensorflow as tf

from ..types import HOST
from .exchange import key_of_size, round_up
from .row_changes import Changes, Layout

# The dtype that carries the bits of another: one of the collective operations lacks bfloat16.
_CARRIED = {tf.bfloat16: tf.float16, tf.float32: tf.float32}


def operations(layouts: Mapping[str, Layout]) -> int:
    """Return the number of collective operations of `send`.

    Args:
        layouts: The layout of the changes of each table.
    """
    return 1 + sum(block.is_wide for layout in layouts.values() for block in layout.blocks)


def row_bytes(layout: Layout) -> int:
    """Return the bytes that carry the change of a row, its id included.

    Args:
        layout: The layout of the changes of the table.
    """
    return tf.int32.size + sum(block.width * block.dtype.size for block in layout.blocks)


def send(
    changes: Mapping[str, Changes],
    layouts: Mapping[str, Layout],
    operation: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
    keys: Iterator[int],
    receivers: int,
) -> dict[str, Changes]:
    """Send changes to other replicas, and return by table the changes that these send.

    Ids and blocks of one column go together, every other block by an operation of its own.

    Args:
        changes: The changes by table. Every replica has as many of a table for every receiver, a
            result of `round_up`.
        layouts: The layout of the changes of each table.
        operation: A collective operation of `Exchange`. It takes (receivers, K) and a key, and
            returns what each of R replicas has sent, (R, K).
        keys: The keys of the operations; `operations` are taken.
        receivers: The number of replicas that get different changes: R, or 1 if all get all.
    """
    heads = {name: _head(part, layouts[name]) for name, part in changes.items()}
    by_receiver = [tf.reshape(head_NC, [receivers, -1]) for head_NC in heads.values()]
    sizes = [tf.shape(head)[1] for head in by_receiver]
    size = round_up(tf.add_n(sizes))
    filling = tf.zeros([receivers, size - tf.add_n(sizes)], tf.int32)
    joined = operation(tf.concat([*by_receiver, filling], axis=1), key_of_size(next(keys), size))
    with tf.device(HOST):  # a GPU cannot split integers
        *received_heads, _ = tf.split(joined, [*sizes, -1], axis=1)
    received = {}
    for (name, head_NC), head in zip(heads.items(), received_heads, strict=True):
        columns, rows = head_NC.shape[1], tf.shape(head_NC)[0] // receivers
        with tf.device(HOST):
            ids_N1, *narrow = tf.split(tf.reshape(head, [-1, columns]), columns, axis=1)
        values = []
        for block, values_ND in zip(layouts[name].blocks, changes[name].values, strict=True):
            if block.is_wide:
                carried = tf.bitcast(values_ND, _CARRIED[block.dtype])
                key = key_of_size(next(keys), rows)
                sent = operation(tf.reshape(carried, [receivers, -1]), key)
                values.append(tf.bitcast(tf.reshape(sent, [-1, block.width]), block.dtype))
            else:
                values.append(tf.bitcast(narrow.pop(0), block.dtype))
        received[name] = Changes(ids_N1[:, 0], values)
    return received


def _head(part: Changes, layout: Layout) -> tf.Tensor:
    """Return the ids and the bits of the blocks of one column, (N, C) int32."""
    blocks = zip(layout.blocks, part.values, strict=True)
    narrow = [tf.bitcast(values_N1, tf.int32) for block, values_N1 in blocks if not block.is_wide]
    return tf.concat([part.ids_N[:, tf.newaxis], *narrow], axis=1)
