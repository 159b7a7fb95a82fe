"""Initial rows as a function of their ids, so that any part of a table can be made by itself.

A table in a file is filled part by part, and one that grows makes a row when its key is first seen;
both start as the table that is made whole.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import tensorflow as tf

# From a shape (V, D) to float32 values.
Initial = Callable[[tuple[int, int]], tf.Tensor]

# The increment and the finaliser of SplitMix64 (Steele, Lea & Flood 2014, figure 17; the constants
# are those of its reference implementation, https://prng.di.unimi.it/splitmix64.c).
_STEP = 0x9E3779B97F4A7C15
_ROUNDS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_LAST_SHIFT = 31
_BITS = 24  # of a float32's mantissa
_BUCKETS = 2**63 - 1  # the most that tf.strings.to_hash_bucket_fast has


@dataclasses.dataclass(frozen=True)
class Constant:
    """The same number everywhere."""

    value: float

    def __call__(self, shape: tuple[int, int]) -> tf.Tensor:
        """The values of a table, (V, D) float32."""
        return tf.fill(shape, tf.constant(self.value, tf.float32))

    def rows(self, ids_U: tf.Tensor, columns: int) -> tf.Tensor:
        """Those of some rows, (U, D) float32."""
        return self((tf.size(ids_U), columns))


@dataclasses.dataclass(frozen=True)
class Uniform:
    """Drawn from -limit to limit: a hash of the seed, the id and the column.

    seed: from 0 to 2^64 - 1.
    """

    limit: float
    seed: int

    def __call__(self, shape: tuple[int, int]) -> tf.Tensor:
        """The values of a table, (V, D) float32, made in one buffer."""
        return _uniform(tf.range(shape[0], dtype=tf.int64), shape[1], self.limit, self.seed)

    def rows(self, ids_U: tf.Tensor, columns: int) -> tf.Tensor:
        """Those of some rows, (U, D) float32; ids: any int32 or int64, also of no table."""
        return _hashed(tf.cast(ids_U, tf.int64), columns, self.limit, self.seed)


@dataclasses.dataclass(frozen=True, eq=False)
class LastColumn:
    """The values of `others`, and in the last column those given: last_V, (V,) float32.

    No variable, as XLA reads none of another device than that of the table.
    """

    others: Uniform
    last_V: tf.Tensor

    def __call__(self, shape: tuple[int, int]) -> tf.Tensor:
        """The values of a table, (V, D) float32."""
        others = self.others((shape[0], shape[1] - 1))
        return tf.concat([others, self.last_V[:, tf.newaxis]], axis=1)

    def rows(self, ids_U: tf.Tensor, columns: int) -> tf.Tensor:
        """Those of some rows, (U, D) float32."""
        last_U1 = tf.gather(self.last_V, ids_U)[:, tf.newaxis]
        return tf.concat([self.others.rows(ids_U, columns - 1), last_U1], axis=1)


class Unwritten:
    """No values at all, for rows that are written before they are read.

    On a CPU the system commits the memory of a row when that is first written.
    """

    def __call__(self, shape: tuple[int, int], dtype: tf.DType = tf.float32) -> tf.Tensor:
        """Memory for the values of a table, (V, D)."""
        return tf.raw_ops.Empty(shape=shape, dtype=dtype, init=False)


def rows(initial: Initial, ids_U: tf.Tensor, shape: tuple[int, int]) -> tf.Tensor:
    """The initial rows of some ids of a table of this shape, (U, D) float32.

    Makes all of them for an `initial` that has no `rows` of its own, unless it is tf.zeros.
    """
    if initial is tf.zeros:
        return tf.zeros((tf.size(ids_U), shape[1]))
    if hasattr(initial, "rows"):
        return initial.rows(ids_U, shape[1])
    return tf.gather(initial(shape), ids_U)


def fingerprints(strings: tf.Tensor) -> tf.Tensor:
    """Return a hash of each string, int64, not below 0: FarmHash, as TensorFlow has it."""
    return tf.strings.to_hash_bucket_fast(strings, _BUCKETS)


def _uniform(ids_V: tf.Tensor, columns: int, limit: float, seed: int) -> tf.Tensor:
    # XLA makes one loop of it, which holds nothing but the result.
    compiled = tf.function(_hashed, autograph=False, jit_compile=True)
    return compiled.get_concrete_function(ids_V, columns, limit, seed)(ids_V)


def _hashed(ids_U: tf.Tensor, columns: int, limit: float, seed: int) -> tf.Tensor:
    step = tf.constant(_STEP, tf.uint64)
    of_row_U = _mixed(tf.bitcast(ids_U, tf.uint64) * step + tf.constant(seed, tf.uint64))
    of_number_UD = _mixed(of_row_U[:, tf.newaxis] + tf.cast(tf.range(columns), tf.uint64) * step)
    bits_UD = tf.cast(_shifted(of_number_UD, 64 - _BITS), tf.int32)
    # Whole numbers until the last product: the same float32 from every compiler.
    return tf.cast(bits_UD - (1 << _BITS - 1), tf.float32) * (limit / (1 << _BITS - 1))


def _mixed(values: tf.Tensor) -> tf.Tensor:
    for shift, factor in _ROUNDS:
        values = tf.bitwise.bitwise_xor(values, _shifted(values, shift))
        values *= tf.constant(factor, tf.uint64)
    return tf.bitwise.bitwise_xor(values, _shifted(values, _LAST_SHIFT))


def _shifted(values: tf.Tensor, bits: int) -> tf.Tensor:
    return tf.bitwise.right_shift(values, tf.constant(bits, tf.uint64))
