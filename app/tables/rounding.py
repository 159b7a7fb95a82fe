"""Stochastic rounding to half precision, so that small changes of a row are not lost.

The nearest bfloat16 of 1 + 2^-10 is 1, however often 2^-10 is added. Rounded up or down at random,
by how near either is, a number is right on average (Gupta et al. 2015, section 3; for training,
Zamirai et al. 2020, "Revisiting BFloat16 Training").
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

# Rows are filled up to a multiple, as XLA compiles anew, 0.25 s, for every number of them.
_BLOCK = 512
_PHILOX = 1  # as raw_ops name the generator (Salmon et al. 2011)
# MurmurHash3's fmix32 (Appleby, https://github.com/aappleby/smhasher), shifts and factors.
_FINALISER = ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1))
_LEAST_DIGIT = 2.0**-24  # of float16; as that of its numbers below 2^-14
_DIGITS = 10  # of a float16's mantissa


def stochastic(values_UD: tf.Tensor, dtype: tf.DType, seed: tf.Tensor) -> tf.Tensor:
    """Float32 numbers as bfloat16 or float16, (U, D), each rounded up or down at random.

    The mean of the result is the number; to 2^-48, if below 2^-14 and a float16. What the type can
    hold stays as it is, bit for bit; NaN stays NaN. A number between the largest and the one that
    would follow becomes the largest; beyond, it is infinite.

    seed: (2,) int64; the same seed, the same result. Any two numbers are rounded independently of
    each other. XLA compiles no caller whose U it does not know.
    """
    return _STOCHASTIC[dtype](values_UD, seed)


# XLA makes one loop of a function, five times as fast as its operations one by one.
_compiled = tf.function(
    autograph=False,
    jit_compile=True,
    input_signature=[
        tf.TensorSpec([None, None], tf.float32),
        tf.TensorSpec([None], tf.uint32),
        tf.TensorSpec([None], tf.uint32),
    ],
)


@_compiled
def _to_bfloat16(values_UD: tf.Tensor, drawn_U: tf.Tensor, drawn_D: tf.Tensor) -> tf.Tensor:
    """The upper half of a float32; random bits, added to the lower one, may carry."""
    noise_UD = tf.bitwise.right_shift(_noise(drawn_U, drawn_D), 16)
    # Not where that would end as another kind of number.
    noise_UD = tf.where(tf.abs(values_UD) < float(tf.bfloat16.max), noise_UD, 0)
    sum_UD = tf.bitcast(values_UD, tf.uint32) + noise_UD
    return tf.bitcast(tf.cast(tf.bitwise.right_shift(sum_UD, 16), tf.uint16), tf.bfloat16)


@_compiled
def _to_float16(values_UD: tf.Tensor, drawn_U: tf.Tensor, drawn_D: tf.Tensor) -> tf.Tensor:
    """A whole number of last digits, and one more if what is left of another exceeds a draw."""
    bits_UD = tf.bitcast(values_UD, tf.uint32)
    power_UD = tf.bitcast(tf.bitwise.bitwise_and(bits_UD, 0x7F800000), tf.float32)
    digit_UD = tf.maximum(power_UD * 2.0**-_DIGITS, _LEAST_DIGIT)
    size_UD = tf.abs(values_UD)
    whole_UD = tf.floor(size_UD / digit_UD)
    # 24 bits, which float32 holds, from 0 to below 1.
    noise_UD = tf.bitwise.right_shift(_noise(drawn_U, drawn_D), 8)
    more_UD = tf.cast(noise_UD, tf.float32) * 2.0**-24 < size_UD / digit_UD - whole_UD
    rounded_UD = (whole_UD + tf.cast(more_UD, tf.float32)) * digit_UD
    rounded_UD = tf.minimum(rounded_UD, float(tf.float16.max))
    rounded_UD = tf.where(size_UD < 2.0**16, rounded_UD, size_UD)
    signs_UD = tf.bitwise.bitwise_and(bits_UD, 0x80000000)
    signed_UD = tf.bitwise.bitwise_or(tf.bitcast(rounded_UD, tf.uint32), signs_UD)
    return tf.cast(tf.bitcast(signed_UD, tf.float32), tf.float16)


def _noise(drawn_U: tf.Tensor, drawn_D: tf.Tensor) -> tf.Tensor:
    """U x D random numbers from U + D, as to draw each would take longer than all the rest.

    Sums modulo 2^32 are uniform, and any two are independent; the finaliser keeps that, and takes
    away what ties four at the corners of a rectangle.
    """
    noise_UD = drawn_U[:, tf.newaxis] + drawn_D
    for shift, factor in _FINALISER:
        shifted_UD = tf.bitwise.right_shift(noise_UD, tf.constant(shift, tf.uint32))
        noise_UD = tf.bitwise.bitwise_xor(noise_UD, shifted_UD) * tf.constant(factor, tf.uint32)
    return noise_UD


def _filled(values_UD: tf.Tensor, seed: tf.Tensor, to_half: Callable[..., tf.Tensor]) -> tf.Tensor:
    """Rounds as many rows as XLA compiles for, with numbers drawn for them."""
    count, columns = tf.unstack(tf.shape(values_UD))
    padded = -(-count // _BLOCK) * _BLOCK
    seed = tf.bitcast(seed, tf.uint64)  # of which a GPU takes slices, and does not unstack it
    key, draw = seed[:1], seed[1]
    drawn = tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=[padded + columns],
        key=key,
        # Counted up from the lower half, so that no two draws meet.
        counter=tf.stack([tf.zeros_like(draw), draw]),
        alg=_PHILOX,
        dtype=tf.uint32,
    )
    filled_UD = tf.pad(values_UD, [[0, padded - count], [0, 0]])
    return to_half(filled_UD, drawn[:padded], drawn[padded:])[:count]


def _traced_once(to_half: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
    """As each of the fifty operations takes a millisecond of the tracing of a step's writes."""
    return tf.function(
        lambda values_UD, seed: _filled(values_UD, seed, to_half),
        autograph=False,
        input_signature=[tf.TensorSpec([None, None], tf.float32), tf.TensorSpec([2], tf.int64)],
    )


_STOCHASTIC = {
    tf.bfloat16: _traced_once(_to_bfloat16),
    tf.float16: _traced_once(_to_float16),
}
