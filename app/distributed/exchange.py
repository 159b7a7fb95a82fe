"""Gather or distribute vectors of all replicas by one collective operation of TensorFlow.

`tf.distribute.ReplicaContext.all_gather` does the same, but gathers unknown lengths first, every
time, and copies the vectors more often. On two busy cores it took twice as long for 4 kB between
two processes, and 1.5 times as long for 1.2 MB.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

# Keys of groups. Strategies number their own groups from 1.
_GROUPS = itertools.count(1 << 20)
_KEYS = 1 << 31  # keys of operations are int32


def replica_number() -> int:
    """Return the number of the replica that is traced now, from 0, among those of all processes.

    Only a function that `Strategy.run` traces can call this.
    """
    return int(tf.get_static_value(tf.distribute.get_replica_context().replica_id_in_sync_group))


class Exchange:
    """The collective operations of one group of all replicas of a strategy.

    Every process has to construct its groups in the same order, as they are numbered.

    Args:
        strategy: The strategy of the replicas.
    """

    def __init__(self, strategy: tf.distribute.Strategy):
        self.replicas = strategy.num_replicas_in_sync
        self._group = next(_GROUPS)
        devices = strategy.extended.worker_devices
        self.is_gpu = "GPU" in devices[0]
        self._used = 0
        # A token for each device orders the operations on that device only. Without tokens, a graph
        # would order the operations of all devices.
        self._tokens = []
        for device in devices:
            with tf.device(device):
                self._tokens.append(tf.Variable(0.0, trainable=False))

    def keys(self, count: int) -> tf.Tensor:
        """Reserve keys, one for each operation of a call, and return the first.

        Operations that may run at the same time need different keys. An operation has the same key
        in all processes if all make the same calls of this method. After 2^31 keys they start at 0
        again.

        Args:
            count: The number of operations of the call.

        Returns:
            The first key, int32; the others follow it.
        """
        if self._used + count > _KEYS:
            self._used = 0
        self._used += count
        return tf.constant(self._used - count, tf.int32)

    def gather(self, values_N: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
        """Return the vectors of all replicas, joined in the order of the replicas.

        They may have further dimensions.

        Only a function that `Strategy.run` traces can call this, unless there is one replica.

        Args:
            values_N: The vector of this replica; all replicas have the same length and dtype.
            key: The key of the operation, see `keys`.

        Returns:
            A vector of length replicas x N; `values_N` itself for a single replica.
        """
        if self.replicas == 1:
            return values_N
        return tf.raw_ops.CollectiveGatherV2(input=values_N, **self._options(key))

    def distribute(self, values_RN: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
        """Send row r to replica r, and return the rows that the replicas sent to this one.

        Only a function that `Strategy.run` traces can call this, unless there is one replica.

        Args:
            values_RN: A row for each replica; all replicas have the same N and dtype.
            key: The key of the operation, see `keys`.

        Returns:
            The row that each replica sent, (R, N), in the order of the replicas.
        """
        if self.replicas == 1:
            return values_RN
        return tf.raw_ops.CollectiveAllToAllV2(input=values_RN, **self._options(key))

    def largest(self, numbers: Sequence[tf.Tensor], keys: Iterator[tf.Tensor]) -> list[tf.Tensor]:
        """Return the maximum over all replicas of each number, by one operation.

        Args:
            numbers: int32 scalars of this replica.
            keys: The keys of the call; the next one is taken.

        Returns:
            int32 scalars.
        """
        numbers_RN = tf.reshape(
            self.gather(tf.stack(numbers), next(keys)), [self.replicas, len(numbers)]
        )
        return tf.unstack(tf.reduce_max(numbers_RN, axis=0), num=len(numbers))

    def _options(self, key: tf.Tensor) -> dict[str, Any]:
        """Return the arguments that all collective operations of the traced replica have."""
        token = self._tokens[replica_number() % len(self._tokens)]
        return {
            "group_size": self.replicas,
            "group_key": self._group,
            "instance_key": key,
            "ordering_token": [token.handle],
            "communication_hint": "auto" if self.is_gpu else "ring",
        }
