"""Graphs that XLA compiles: which they are, and random draws that are the same in them.

With one seed, XLA draws other numbers than TensorFlow: it reads the lower halves of the seed only,
and makes fractions of other bits. The draws here are TensorFlow's in both. Its generator is Philox
4x32 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3").
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

# What TensorFlow raises for an operation that XLA does not have or a size that it does not know,
# and for a program that the compiler cannot finish.
_REFUSALS = tf.errors.InvalidArgumentError, tf.errors.UnimplementedError, tf.errors.InternalError

# The key with which TensorFlow scrambles seeds: `GenerateKey` in `stateless_random_ops.cc`.
_SCRAMBLE = np.uint64(0x02461E29_3EC8F720)
_PHILOX = 1  # `RNG_ALG_PHILOX` in `rng_alg.h`
# Of a float64: the higher 20 of the 52 bits of a mantissa, and the exponent of numbers from 1 to 2.
_HIGHER_BITS, _FROM_1_TO_2 = np.uint64(0xFFFFF << 32), np.uint64(1023 << 52)


def under_xla() -> bool:
    """Return whether the graph being traced is compiled by XLA; False in eager mode."""
    graph = tf.compat.v1.get_default_graph()
    while graph is not None:
        if graph._get_control_flow_context() is not None:
            return True
        graph = getattr(graph, "outer_graph", None)
    return False


class CompiledIfPossible:
    """A `tf.function` that XLA compiles or, if XLA cannot, the same without XLA.

    It is decided at the first call. XLA refuses a graph before any part of it has run.

    Attributes:
        chosen: The function that the next call calls.

    Args:
        by_xla: The function with `jit_compile=True`.
        without: The function without.
        subject: What the function computes, for the log.
    """

    def __init__(self, by_xla: Any, without: Any, subject: str):
        self.chosen, self._without, self._subject = by_xla, without, subject

    def get_concrete_function(self, *inputs: Any) -> Any:
        """Trace the function as its next call would; see `tf.function`."""
        return self.chosen.get_concrete_function(*inputs)

    def __call__(self, *inputs: Any) -> Any:
        """Call the function."""
        if self._without is None:
            return self.chosen(*inputs)
        try:
            result = self.chosen(*inputs)
        except _REFUSALS as error:
            logging.warning(
                "XLA cannot compile %s, so it runs operation by operation, which is slower on a "
                "GPU: %s",
                *(self._subject, _reason(error)),
            )
            self.chosen = self._without
            result = self.chosen(*inputs)
        self._without = None
        return result


def _reason(error: Exception) -> str:
    """Return why XLA refused a graph, in one line."""
    text = " ".join(str(error).split())
    lacking = re.search(r"unsupported operations .*?: (\w+) \(", text)
    return f"it has no {lacking[1]}" if lacking else text.split(". ")[0][:200]


def uniform_fractions(count: int, seed: tf.Tensor) -> tf.Tensor:
    """Draw numbers from 0 to 1, as `tf.random.stateless_uniform` does.

    Args:
        count: How many to draw.
        seed: (2,) int64; the draw is a function of it.

    Returns:
        Numbers (count,) float64, 0 included and 1 not.
    """
    if not under_xla():
        return tf.random.stateless_uniform((count,), seed, dtype=tf.float64)
    key, counter = _key_and_counter(seed)
    bits_N2 = _draw_bits((count, 2), key, counter)
    # As `Uint64ToDouble` in `random_distributions_utils.h`: the first number has the higher bits.
    mantissa_N = (tf.bitwise.left_shift(bits_N2[:, 0], 32) & _HIGHER_BITS) | bits_N2[:, 1]
    return tf.bitcast(mantissa_N | _FROM_1_TO_2, tf.float64) - 1.0


def uniform_integers(shape: Sequence[int], seed: tf.Tensor, low: int, high: int) -> tf.Tensor:
    """Draw integers from `low` to `high - 1`, as `tf.random.stateless_uniform` does.

    Args:
        shape: The shape of the result.
        seed: (2,) int64; the draw is a function of it.
        low: The smallest integer.
        high: One more than the largest integer.

    Returns:
        Integers of the shape, int32.
    """
    if not under_xla():
        return tf.random.stateless_uniform(shape, seed, low, high, tf.int32)
    key, counter = _key_and_counter(seed)
    return tf.raw_ops.StatelessRandomUniformIntV2(
        shape=shape, key=key, counter=counter, alg=_PHILOX, minval=low, maxval=high
    )


def _key_and_counter(seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the key (1,) and the counter (2,) of Philox that TensorFlow makes of a seed."""
    seed = tf.bitcast(tf.cast(seed, tf.int64), tf.uint64)
    mixed = _draw_bits((4,), tf.constant([_SCRAMBLE]), seed)
    halves = mixed[0::2] | tf.bitwise.left_shift(mixed[1::2], 32)
    return halves[:1], tf.stack([tf.zeros([], tf.uint64), halves[1]])


def _draw_bits(shape: Sequence[int], key: tf.Tensor, counter: tf.Tensor) -> tf.Tensor:
    """Draw integers of 32 random bits, as uint64 of the given shape."""
    return tf.cast(
        tf.raw_ops.StatelessRandomUniformFullIntV2(
            shape=shape, key=key, counter=counter, alg=_PHILOX, dtype=tf.uint32
        ),
        tf.uint64,
    )
