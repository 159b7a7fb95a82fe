"""Gather or distribute vectors of all replicas by one collective operation of TensorFlow.

`tf.distribute.ReplicaContext.all_gather` does the same, but gathers unknown lengths first, every
time, and copies the vectors more often. On two busy cores it took twice as long for 4 kB between
two processes, and 1.5 times as long for 1.2 MB.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from ..types import HOST

# Keys of groups. Strategies number their own groups from 1.
_GROUPS = itertools.count(1 << 20)
_KEYS = 1 << 31  # keys of operations are int32
# Sizes are rounded up to so many binary digits, by 3 % at most. So there are few between two powers
# of 2, and an operation has a key for each size.
_DIGITS = 6
_OF_POWER = 1 << (_DIGITS - 1)
_SIZES = 32 * _OF_POWER
FLAGS = 2  # the number of flags of `distributed.multi_worker`


class Made(NamedTuple):
    """The result of a call: float32 tensors on the device, the same on every replica.

    Attributes:
        loss: The loss of the first step.
        examples: The examples of the first step.
        flags_F: For each flag, the number of replicas that had it set.
        numbers: The length of the vector that a replica sends in a step, the mean over the steps.
    """

    loss: tf.Tensor
    examples: tf.Tensor
    flags_F: tf.Tensor
    numbers: tf.Tensor


def replica_number() -> int:
    """Return the number of the replica that is traced now, from 0, among those of all processes.

    Only a function that `Strategy.run` traces can call this.
    """
    return int(tf.get_static_value(tf.distribute.get_replica_context().replica_id_in_sync_group))


def round_up(size: tf.Tensor) -> tf.Tensor:
    """Return the next size that a key is known for (see `key_of_size`), an int32 scalar.

    Args:
        size: A number of rows or numbers, an int32 scalar below 2^30.
    """
    with tf.device(HOST):
        unit = tf.bitwise.left_shift(1, _spare_digits(size))
        return -(-size // unit) * unit


def key_of_size(key: int, size: tf.Tensor) -> tf.Tensor:
    """Return the key of an operation for vectors of a size, an int32 scalar.

    Args:
        key: See `Exchange.keys`.
        size: A result of `round_up`: the number of rows of equal length, or of numbers.
    """
    with tf.device(HOST):
        digits = _spare_digits(size)
        return key + digits * _OF_POWER + tf.bitwise.right_shift(size, digits)


def _spare_digits(size: tf.Tensor) -> tf.Tensor:
    """Return how many of the binary digits of a size are more than `_DIGITS`, an int32 scalar."""
    powers = [1 << digits for digits in range(_DIGITS, 31)]
    return tf.math.count_nonzero(size >= tf.constant(powers), dtype=tf.int32)


class Exchange:
    """The collective operations of one group of all replicas of a strategy.

    Every process has to construct its groups in the same order, as they are numbered.

    Attributes:
        replicas: The number of replicas of all processes.
        devices: The devices of the replicas of this process.
        is_gpu: Whether these are GPUs.
    """

    def __init__(self, strategy: tf.distribute.Strategy):
        self._strategy, self.replicas = strategy, strategy.num_replicas_in_sync
        self._group = next(_GROUPS)
        self.devices = strategy.extended.worker_devices
        self.is_gpu = "GPU" in self.devices[0]
        self._used = 0
        # A token for each device orders the operations on that device only. Without tokens, a graph
        # would order the operations of all devices.
        self._tokens = []
        for device in self.devices:
            with tf.device(device):
                self._tokens.append(tf.Variable(0.0, trainable=False))

    def in_replicas(self, function: Callable, **options: Any) -> Any:
        """Return a `tf.function` that calls a function in each replica of this process.

        Its result has a value of each replica (see `first`).

        Args:
            **options: Options of `tf.function`.
        """
        run = self._strategy.run
        return tf.function(lambda *inputs: run(function, inputs), autograph=False, **options)

    def first(self, value: Any) -> tf.Tensor:
        """Return the value of the first replica of this process."""
        return self._strategy.experimental_local_results(value)[0]

    def own(self, parts: int) -> range:
        """Return the share of so many parts of the replica that is traced now."""
        each = parts // self.replicas
        return range(replica_number() * each, (replica_number() + 1) * each)

    def keys(self, count: int) -> range:
        """Reserve keys for some operations of a function.

        Operations that may run at the same time need different keys. All processes must make the
        same calls of this method. The vectors of a key have one size only; if sizes differ from
        call to call, see `key_of_size`. The next call of the function uses the same keys, because
        TensorFlow keeps about 1 kB for each, and asks the other processes before its first use.
        After 2^31 keys they start at 0 again.

        Args:
            count: The number of operations.
        """
        if self._used + count * _SIZES > _KEYS:
            self._used = 0
        self._used += count * _SIZES
        return range(self._used - count * _SIZES, self._used, _SIZES)

    def gather(self, values_N: tf.Tensor, key: tf.Tensor | int) -> tf.Tensor:
        """Return the vectors of all replicas, joined in the order of the replicas.

        Only a function that `Strategy.run` traces can call this, unless there is one replica.

        Args:
            values_N: The vector of this replica; all replicas have the same length and dtype. It
                may have further dimensions.
            key: See `keys`.
        """
        return self._run(tf.raw_ops.CollectiveGatherV2, values_N, key)

    def distribute(self, values_RN: tf.Tensor, key: tf.Tensor | int) -> tf.Tensor:
        """Send row r to replica r, and return the rows that the replicas sent to this one.

        Only a function that `Strategy.run` traces can call this, unless there is one replica.

        Args:
            values_RN: A row for each replica; all replicas have the same N and dtype.
            key: See `keys`.
        """
        return self._run(tf.raw_ops.CollectiveAllToAllV2, values_RN, key)

    def largest(self, numbers: Sequence[tf.Tensor], key: int) -> list[tf.Tensor]:
        """Return the maximum over all replicas of each number, rounded up for `key_of_size`.

        Args:
            numbers: int32 scalars of this replica.
            key: See `keys`.
        """
        numbers_RN = tf.reshape(self.gather(tf.stack(numbers), key), [self.replicas, len(numbers)])
        return list(map(round_up, tf.unstack(tf.reduce_max(numbers_RN, axis=0), num=len(numbers))))

    def _run(self, operation: Callable, values: tf.Tensor, key: tf.Tensor | int) -> tf.Tensor:
        """Return what a collective operation gives the traced replica for its values."""
        if self.replicas == 1:
            return values
        return operation(
            input=values,
            group_size=self.replicas,
            group_key=self._group,
            instance_key=key,
            ordering_token=[self._tokens[replica_number() % len(self._tokens)].handle],
            communication_hint="auto" if self.is_gpu else "ring",
        )
