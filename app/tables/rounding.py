"""Stochastic rounding to half precision, which keeps the sum of many small updates.

The nearest bfloat16 of 1 + 2^-10 is 1, however often 2^-10 is added. Stochastic rounding goes up or
down at random, more likely to the nearer number, so that the result is right on average (Gupta et
al. 2015, section 3; for training, Zamirai et al. 2020, "Revisiting BFloat16 Training").
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from .base import Ids, Slot
from .initial import Constant

# Rows are padded to a multiple of this: XLA compiles for each number of rows, 0.25 s.
_BLOCK = 512
_PHILOX = 1  # the number of the generator in tf.raw_ops (Salmon et al. 2011)
# The shifts and factors of MurmurHash3's fmix32 (Appleby, https://github.com/aappleby/smhasher).
_FINALISER = ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1))
_LEAST_DIGIT = 2.0**-24  # the smallest float16, and the step between numbers below 2^-14
_DIGITS = 10  # bits of the mantissa of a float16


def round_stochastically(values_UD: tf.Tensor, dtype: tf.DType, seed: tf.Tensor) -> tf.Tensor:
    """Return float32 numbers as bfloat16 or float16, each rounded up or down at random.

    The expected result is the number itself; for float16 below 2^-14, to within 2^-48. A number
    that the dtype can represent stays the same, bit for bit, and NaN stays NaN. A number less than
    one step above the largest becomes the largest; a greater one becomes infinite. Any two numbers
    are rounded independently of each other.

    XLA cannot compile a caller whose U is not static; it can with `round_under_xla`.

    Args:
        dtype: tf.bfloat16 or tf.float16.
        seed: (2,) int64. The same seed gives the same result.
    """
    return _STOCHASTIC[dtype](values_UD, seed)


def round_under_xla(
    values_UD: tf.Tensor, dtype: tf.DType, seed: tf.Tensor, ids_U: tf.Tensor
) -> tf.Tensor:
    """Return numbers rounded as by `round_stochastically`, where XLA compiles the caller.

    The draws are other ones. The number U of rows may be known at run time only.
    """
    drawn = _draw(seed, 2 + values_UD.shape[1])
    # XLA cannot draw an unknown number of values: those of the rows are a hash of their ids.
    random_U = _mix(_mix(tf.cast(ids_U, tf.uint32) + drawn[0]) + drawn[1])
    return _TO_HALF[dtype](values_UD, random_U, drawn[2:])


# XLA makes one loop of a function, five times as fast as its separate operations.
_compile = tf.function(
    autograph=False,
    jit_compile=True,
    input_signature=[
        tf.TensorSpec([None, None], tf.float32),
        tf.TensorSpec([None], tf.uint32),
        tf.TensorSpec([None], tf.uint32),
    ],
)


@_compile
def _to_bfloat16(values_UD: tf.Tensor, random_U: tf.Tensor, random_D: tf.Tensor) -> tf.Tensor:
    """Add random bits to the lower half of each float32, and return the upper half."""
    noise_UD = tf.bitwise.right_shift(_noise(random_U, random_D), 16)
    # A carry into the exponent would make an infinity or NaN of the largest numbers.
    noise_UD = tf.where(tf.abs(values_UD) < float(tf.bfloat16.max), noise_UD, 0)
    sum_UD = tf.bitcast(values_UD, tf.uint32) + noise_UD
    return tf.bitcast(tf.cast(tf.bitwise.right_shift(sum_UD, 16), tf.uint16), tf.bfloat16)


@_compile
def _to_float16(values_UD: tf.Tensor, random_U: tf.Tensor, random_D: tf.Tensor) -> tf.Tensor:
    """Round to a multiple of float16's last digit, up if the remainder exceeds a random number."""
    bits_UD = tf.bitcast(values_UD, tf.uint32)
    power_UD = tf.bitcast(tf.bitwise.bitwise_and(bits_UD, 0x7F800000), tf.float32)
    digit_UD = tf.maximum(power_UD * 2.0**-_DIGITS, _LEAST_DIGIT)
    size_UD = tf.abs(values_UD)
    whole_UD = tf.floor(size_UD / digit_UD)
    # 24 random bits, which float32 can represent, make a number from 0 to below 1.
    noise_UD = tf.bitwise.right_shift(_noise(random_U, random_D), 8)
    is_up_UD = tf.cast(noise_UD, tf.float32) * 2.0**-24 < size_UD / digit_UD - whole_UD
    rounded_UD = (whole_UD + tf.cast(is_up_UD, tf.float32)) * digit_UD
    rounded_UD = tf.minimum(rounded_UD, float(tf.float16.max))
    rounded_UD = tf.where(size_UD < 2.0**16, rounded_UD, size_UD)
    signs_UD = tf.bitwise.bitwise_and(bits_UD, 0x80000000)
    signed_UD = tf.bitwise.bitwise_or(tf.bitcast(rounded_UD, tf.uint32), signs_UD)
    return tf.cast(tf.bitcast(signed_UD, tf.float32), tf.float16)


def _noise(random_U: tf.Tensor, random_D: tf.Tensor) -> tf.Tensor:
    """Return U x D random uint32, made from U + D: this is faster than to draw all of them.

    Sums modulo 2^32 are uniform, and any two are independent. The finaliser keeps them so, and
    breaks the relation of the four sums at the corners of a rectangle.
    """
    return _mix(random_U[:, tf.newaxis] + random_D)


def _mix(values: tf.Tensor) -> tf.Tensor:
    """Return the finaliser of MurmurHash3 of uint32 values."""
    for shift, factor in _FINALISER:
        shifted = tf.bitwise.right_shift(values, tf.constant(shift, tf.uint32))
        values = tf.bitwise.bitwise_xor(values, shifted) * tf.constant(factor, tf.uint32)
    return values


def _draw(seed: tf.Tensor, count: tf.Tensor | int) -> tf.Tensor:
    """Return random uint32 numbers, (count,), by a seed, (2,) int64."""
    seed = tf.bitcast(seed, tf.uint64)  # slices have a GPU kernel for uint64, tf.unstack has none
    key, draw = seed[:1], seed[1]
    return tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=[count],
        key=key,
        # The number of the draw is the upper half of the counter, so that no two draws overlap.
        counter=tf.stack([tf.zeros_like(draw), draw]),
        alg=_PHILOX,
        dtype=tf.uint32,
    )


def _by_seed(to_half: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
    """Return a function of rows and a seed that draws the random numbers of `to_half`.

    It is traced once for all shapes, as each of its fifty operations takes 1 ms of tracing.
    """
    specs = [tf.TensorSpec([None, None], tf.float32), tf.TensorSpec([2], tf.int64)]

    @tf.function(autograph=False, input_signature=specs)
    def round_rows(values_UD: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Return rounded rows, which are padded to a multiple of `_BLOCK` for `to_half`."""
        count, columns = tf.unstack(tf.shape(values_UD))
        padded = -(-count // _BLOCK) * _BLOCK
        drawn = _draw(seed, padded + columns)
        padded_UD = tf.pad(values_UD, [[0, padded - count], [0, 0]])
        return to_half(padded_UD, drawn[:padded], drawn[padded:])[:count]

    return round_rows


_TO_HALF = {tf.bfloat16: _to_bfloat16, tf.float16: _to_float16}
_STOCHASTIC = {dtype: _by_seed(to_half) for dtype, to_half in _TO_HALF.items()}


class RoundedTable(tf.Module):
    """The base class of tables that round rows to the dtype in which they store them.

    With stochastic rounding a variable, `writes`, counts the writes, so that training continues
    with the next random draw after a checkpoint is restored. A subclass calls `add_slots` at the
    end of its constructor, and defines two methods: `assign_exact` replaces rows by rows that the
    stored dtype can represent, without a random draw. `_make_slot` returns a new table for a slot
    of this name, made with these options of its constructor.

    Args:
        slot_dtype: The dtype in which slots are stored. Slots of one column count or sum, and are
            small: they are float32.
        seed: The seed of the draws of stochastic rounding, from 0 to 2^63 - 1.
    """

    device: str
    slots: dict[str, Any]
    assign_exact: Callable[[Any, tf.Tensor], None]
    _make_slot: Callable[..., Any]

    def __init__(
        self,
        rows: int,
        columns: int,
        dtype: tf.DType = tf.float32,
        rounding: str = "nearest",
        slot_dtype: tf.DType = tf.float32,
        seed: int = 0,
    ):
        tf.Module.__init__(self)
        self.rows, self.columns = rows, columns
        self.dtype, self.rounding, self.slot_dtype, self.seed = dtype, rounding, slot_dtype, seed
        self.is_stochastic = rounding == "stochastic" and dtype != tf.float32
        if self.is_stochastic:
            self.writes = tf.Variable(tf.zeros([], tf.int64), trainable=False, name="writes")

    def assign(self, ids_U: Ids, rows_UD: tf.Tensor) -> None:
        """Replace the rows of the given ids, rounded by the rule of this table; see `Table.assign`.

        With stochastic rounding this draws random numbers and adds 1 to `writes`.
        """
        if self.is_stochastic:
            with tf.device(self.writes.device):  # the increment must be there, too
                seed = tf.stack([tf.constant(self.seed, tf.int64), self.writes.assign_add(1)])
            rows_UD = round_stochastically(rows_UD, self.dtype, seed)
        self.assign_exact(ids_U, rows_UD)

    def add_slots(self, slots: Mapping[str, Slot]) -> None:
        """Make further tables of optimizer state, and add them to `slots`.

        They round as this table does. A slot of one column is float32, others `slot_dtype`.
        """
        self.slots = getattr(self, "slots", {})
        for name, slot in slots.items():
            columns = slot.columns or self.columns
            self.slots[name] = self._make_slot(
                name,
                columns=columns,
                initial=Constant(slot.initial),
                dtype=self.slot_dtype if columns > 1 else tf.float32,
                rounding=self.rounding,
                seed=self.seed ^ zlib.crc32(name.encode()),
            )

    @property
    def used(self) -> int:
        """The number of rows that have values: all, unless a key map gives the rows out."""
        return self.rows

    def bytes(self) -> int:
        """Return the size in bytes of all rows that have values, and of their slots."""
        own = self.used * self.columns * self.dtype.size
        return own + sum(slot.bytes() for slot in self.slots.values())
