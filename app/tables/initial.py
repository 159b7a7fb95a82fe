"""Initial values of tables, as functions of the id, so that any part can be made by itself.

A table in a file is filled part by part, and a dynamic table makes a row when its key is first
seen. Both start with the same values as a table that is made as a whole.

The methods `__tf_flatten__` and `__tf_unflatten__` make initial values an argument of a
`tf.function`, whose trace does not depend on their numbers (see `compiled_rows`).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

# A function from a shape (V, D) to float32 values of that shape.
Initial = Callable[[tuple[int, int]], tf.Tensor]

# The increment and the finaliser of SplitMix64 (Steele, Lea & Flood 2014, figure 17; the constants
# are those of its reference implementation, https://prng.di.unimi.it/splitmix64.c).
SPLITMIX_STEP = 0x9E3779B97F4A7C15
SPLITMIX_ROUNDS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
SPLITMIX_LAST_SHIFT = 31
_BITS = 24  # bits of the mantissa of a float32
_BUCKETS = 2**63 - 1  # the largest number that tf.strings.to_hash_bucket_fast allows


class _ById:
    """Initial values whose method `rows` makes the rows of given ids.

    The parts that `__tf_flatten__` gives are the arguments of the constructor.
    """

    def __call__(self, shape: tuple[int, int]) -> tf.Tensor:
        """Return the values of a whole table, (V, D) float32, made in one buffer."""
        return all_rows(self, shape, tf.float32)

    @classmethod
    def __tf_unflatten__(cls, _: Any, parts: tuple[Any, ...]) -> Any:
        return cls(*parts)


@dataclasses.dataclass(frozen=True)
class Constant(_ById):
    """An initial value that is the same number everywhere."""

    value: float

    def __call__(self, shape: tuple[int, int]) -> tf.Tensor:
        """Return the values of a whole table, (V, D) float32."""
        return tf.fill(shape, tf.cast(self.value, tf.float32))

    def rows(self, ids_U: tf.Tensor, columns: int) -> tf.Tensor:
        """Return the values of some rows, (U, D) float32; see `Uniform.rows`."""
        return self((tf.size(ids_U), columns))

    def __tf_flatten__(self) -> tuple[Any, tuple[Any, ...]]:
        return (), (tf.convert_to_tensor(self.value, tf.float32),)


@dataclasses.dataclass(frozen=True)
class Uniform(_ById):
    """Uniform initial values from -limit to limit, each a hash of the seed, the id and the column.

    Attributes:
        limit: The largest magnitude of a value.
        seed: The seed, from 0 to 2^64 - 1.
    """

    limit: float
    seed: int

    def rows(self, ids_U: tf.Tensor, columns: int) -> tf.Tensor:
        """Return the values of some rows.

        Args:
            ids_U: Any int32 or int64 (U,), also negative, whether or not a table has such ids.
        """
        return _hash_rows(tf.cast(ids_U, tf.int64), columns, self.limit, self.seed)

    def __tf_flatten__(self) -> tuple[Any, tuple[Any, ...]]:
        limit = tf.convert_to_tensor(self.limit, tf.float32)
        return (), (limit, tf.convert_to_tensor(self.seed, tf.uint64))


@dataclasses.dataclass(frozen=True, eq=False)
class LastColumn(_ById):
    """Initial values with a given last column, such as the biases of items.

    Attributes:
        last_V: The last column, (V,) float32. It must not be a variable: XLA reads only variables
            of the device of the table.
    """

    others: Any
    last_V: tf.Tensor

    def rows(self, ids_U: tf.Tensor, columns: int) -> tf.Tensor:
        """Return the values of some rows; ids must be indices of `last_V`; see `Uniform.rows`."""
        last_U1 = tf.gather(self.last_V, ids_U)[:, tf.newaxis]
        return tf.concat([self.others.rows(ids_U, columns - 1), last_U1], axis=1)

    def __tf_flatten__(self) -> tuple[Any, tuple[Any, ...]]:
        return (), (self.others, tf.convert_to_tensor(self.last_V))


@dataclasses.dataclass(frozen=True, eq=False)
class FirstColumns(_ById):
    """Initial values with given first columns, such as vectors that were computed before.

    Attributes:
        first: A function that returns the first K columns, (V, K) float32. It is called when values
            are made for the first time. The result must not be a variable; see `LastColumn`.
    """

    first: Callable[[], tf.Tensor]
    others: Any

    def rows(self, ids_U: tf.Tensor, columns: int) -> tf.Tensor:
        """Return the values of some rows; ids must be rows of `first()`; see `Uniform.rows`."""
        first_UK = tf.gather(self._first(), ids_U)
        return tf.concat([first_UK, self.others.rows(ids_U, columns)[:, first_UK.shape[1] :]], 1)

    def _first(self) -> tf.Tensor:
        """Return the first columns, computed outside of the graph that may be traced."""
        with tf.init_scope():
            return tf.convert_to_tensor(self.first())

    def __tf_flatten__(self) -> tuple[Any, tuple[Any, ...]]:
        return (), (self._first(), self.others)

    @classmethod
    def __tf_unflatten__(cls, _: Any, parts: tuple[Any, ...]) -> Any:
        return cls(lambda: parts[0], parts[1])


class Unwritten:
    """Memory without initial values, for rows that are written before they are read.

    On a CPU the system commits the memory of a row when the row is first written.
    """

    def __call__(self, shape: tuple[int, int], dtype: tf.DType = tf.float32) -> tf.Tensor:
        """Return memory for the values of a table, with arbitrary content.

        Args:
            shape: The number of rows and of columns, (V, D).
        """
        return tf.raw_ops.Empty(shape=shape, dtype=dtype, init=False)


def initial_rows(initial: Initial, ids_U: tf.Tensor, shape: tuple[int, int]) -> tf.Tensor:
    """Return the initial rows of some ids of a table, if possible without the other rows.

    Args:
        initial: The initial values. If they have no method `rows`, the whole table is made for a
            moment.
    """
    if hasattr(initial, "rows"):
        return initial.rows(ids_U, shape[1])
    return tf.gather(initial(shape), ids_U)


def all_rows(initial: Any, shape: tuple[int, int], dtype: tf.DType) -> tf.Tensor:
    """Return the values of a whole table, made by id in one buffer."""
    return compiled_rows(initial, tf.range(shape[0], dtype=tf.int64), shape[1], dtype)


def compiled_rows(initial: Any, ids_U: tf.Tensor, columns: int, dtype: tf.DType) -> tf.Tensor:
    """Return the values of some rows, made by one loop, which holds nothing but the result."""
    # The function itself is not called: TensorFlow counts calls that trace and warns of them.
    return _rows_function(columns, dtype).get_concrete_function(initial, ids_U)(initial, ids_U)


@functools.cache
def _rows_function(columns: int, dtype: tf.DType) -> Any:
    """Return an XLA function from initial values and ids (U,) to rows (U, D) of `dtype`.

    It is one for all tables, as TensorFlow keeps what XLA has compiled, and every function that
    calls it, until the process ends. The ids are an argument: from constant ids TensorFlow would
    first compute all values, only to see whether to keep them.
    """
    return tf.function(
        lambda initial, ids_U: tf.cast(initial.rows(ids_U, columns), dtype),
        autograph=False,
        jit_compile=True,
    )


def fingerprints(strings: tf.Tensor) -> tf.Tensor:
    """Return the FarmHash of each string, as TensorFlow computes it.

    Returns:
        Numbers of the same shape, int64, at least 0.
    """
    return tf.strings.to_hash_bucket_fast(strings, _BUCKETS)


def _hash_rows(ids_U: tf.Tensor, columns: int, limit: Any, seed: Any) -> tf.Tensor:
    """Return numbers from -limit to below limit, each a hash of seed, id and column, (U, D)."""
    step = tf.constant(SPLITMIX_STEP, tf.uint64)
    row_hash_U = _mix(tf.bitcast(ids_U, tf.uint64) * step + tf.convert_to_tensor(seed, tf.uint64))
    hash_UD = _mix(row_hash_U[:, tf.newaxis] + tf.cast(tf.range(columns), tf.uint64) * step)
    bits_UD = tf.cast(_shift_right(hash_UD, 64 - _BITS), tf.int32)
    # These are integers up to the last product, so every compiler gives the same float32.
    scale = tf.convert_to_tensor(limit, tf.float32) / (1 << _BITS - 1)
    return tf.cast(bits_UD - (1 << _BITS - 1), tf.float32) * scale


def _mix(values: tf.Tensor) -> tf.Tensor:
    """Return the SplitMix64 hash of each uint64."""
    for shift, factor in SPLITMIX_ROUNDS:
        values = tf.bitwise.bitwise_xor(values, _shift_right(values, shift))
        values *= tf.constant(factor, tf.uint64)
    return tf.bitwise.bitwise_xor(values, _shift_right(values, SPLITMIX_LAST_SHIFT))


def _shift_right(values: tf.Tensor, bits: int) -> tf.Tensor:
    """Return uint64 numbers shifted right by `bits`, with zeros from the left."""
    return tf.bitwise.right_shift(values, tf.constant(bits, tf.uint64))
