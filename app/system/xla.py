"""Graphs that XLA compiles: which they are, and random draws that are the same in them.

With one seed, XLA draws other numbers than TensorFlow: it reads the lower halves of the seed only,
and makes fractions of other bits. The draws here are TensorFlow's in both. Its generator is Philox
4x32 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3").
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from absl import logging
from tensorflow.python.framework import ops  # no public module counts names

from ..types import HOST
from . import program_cache
from .python_functions import graphs_in_trace

# What TensorFlow raises for an operation that XLA does not have or a size that it does not know,
# and for a program that the compiler cannot finish or a stored one that has been cut off.
_REFUSALS = (
    tf.errors.InvalidArgumentError,
    tf.errors.UnimplementedError,
    tf.errors.InternalError,
    tf.errors.OutOfRangeError,
)
_REASONS = {
    r"unsupported operations .*?: (\w+) \(": "it has no {}",
    r"with op (\w+) must be a compile-time constant": "it cannot make a {} of a computed size",
    r"requires a fixed tensor list size": "it cannot make a loop of a computed length",
}
# More than the functions that a process traces before or beside its steps.
_NAMES = 20_000

# Philox 4x32 (Salmon et al. 2011, section 4.3), as `philox_random.h` has it.
_MULTIPLIERS, _KEY_STEPS = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)
# The key with which TensorFlow scrambles seeds: `GenerateKey` in `stateless_random_ops.cc`.
_SCRAMBLE = 0x3EC8F720, 0x02461E29


def under_xla() -> bool:
    """Return whether the graph being traced is compiled by XLA; False in eager mode."""
    return any(graph._get_control_flow_context() is not None for graph in graphs_in_trace())


def renumber_functions() -> None:
    """Let the functions that are traced next have the same names in every process of a command.

    Each name has a number that TensorFlow counts up, also for other names. A run that is resumed
    has counted others before its steps. XLA finds the programs that it stored by these names. No
    other thread may make tensors until the functions are traced: they are counted, too.
    """
    while ops.uid() % _NAMES:
        pass


def copy_to_device(tensor: tf.Tensor, device: str) -> tf.Tensor:
    """Return a tensor in the memory of a device, where a program of XLA needs it.

    It may be there. Other ways leave int32 in the memory of the host, if the device is a GPU. The
    program would then copy it when it is called, after the device has done all earlier work.
    """
    if tensor.backing_device.endswith(device):
        return tensor
    is_int32 = tensor.dtype == tf.int32
    bits = to_uint32(tensor)
    with tf.device(device):
        copy = tf.identity(bits)
        return from_uint32(copy) if is_int32 else copy


def to_uint32(tensor: tf.Tensor) -> tf.Tensor:
    """Return the bits of an int32 tensor of the host as uint32; any other tensor as it is.

    In a graph, it is then copied to a device before the program that takes it (see
    `copy_to_device`), which calls `from_uint32`.
    """
    with tf.device(HOST):
        return tf.bitcast(tensor, tf.uint32) if tensor.dtype == tf.int32 else tensor


def from_uint32(tensor: tf.Tensor) -> tf.Tensor:
    """Return what `to_uint32` was given; no data is uint32 without it."""
    return tf.bitcast(tensor, tf.int32) if tensor.dtype == tf.uint32 else tensor


class CompiledIfPossible:
    """A `tf.function` that XLA compiles or, if XLA cannot, the same without XLA.

    It is decided before or at the first call. XLA refuses a graph before any part of it has run, as
    it refuses a stored program that it cannot load; `program_cache` has removed damaged ones.

    Attributes:
        is_by_xla: Whether XLA compiles it, as far as is known.

    Args:
        subject: What the function computes, for the log.
        prepare: Called before the function is traced, also more than once. Makes what it needs, or
            returns why XLA cannot compile it; otherwise None.
    """

    def __init__(
        self,
        by_xla: Any,
        without: Any,
        subject: str,
        prepare: Callable[[], str | None] = lambda: None,
    ):
        self.chosen, self._without, self._subject = by_xla, without, subject
        self._prepare, self.is_by_xla = prepare, True

    def get_concrete_function(self, *inputs: Any) -> Any:
        """Trace the function as its next call would; see `tf.function`."""
        self._choose()
        if not self.chosen.experimental_get_tracing_count():
            renumber_functions()
        try:
            return self.chosen.get_concrete_function(*inputs)
        except tf.errors.UnimplementedError as error:  # of code that has no form for XLA
            if self._without is None:
                raise
            self._give_up(_reason(error))
            return self.chosen.get_concrete_function(*inputs)

    def __call__(self, *inputs: Any) -> Any:
        """Call the function."""
        self._choose()
        if self._without is None:
            return self.chosen(*inputs)
        try:
            self.get_concrete_function(*inputs)
            result = self.chosen(*inputs)
        except tf.errors.OpError as error:
            if self._without is None or not _is_refusal(error):
                raise
            self._give_up(_reason(error))
            result = self.chosen(*inputs)
        self._without = None
        program_cache.seal(os.environ)
        return result

    def _choose(self) -> None:
        """Prepare the function for XLA, or choose the one without; do nothing if that is done."""
        reason = self._prepare() if self._without is not None else None
        if reason is not None:
            self._give_up(reason)

    def _give_up(self, reason: str) -> None:
        """Choose the function without XLA, and log the reason."""
        _warn(
            f"XLA cannot compile {self._subject}, so it runs operation by operation, which is "
            f"slower on a GPU: {reason}"
        )
        self.chosen, self._without, self.is_by_xla = self._without, None, False


def _warn(message: str) -> None:
    """Log a warning, on a line above any bar."""
    bars = sys.modules.get("tqdm")  # may not be installed, as layers of Keras need none
    with bars.tqdm.external_write_mode() if bars else contextlib.nullcontext():
        logging.warning("%s", message)


def _is_refusal(error: tf.errors.OpError) -> bool:
    """Return whether XLA refused a graph, or could not read or write its folder of programs."""
    folder = program_cache.folder(os.environ)
    return isinstance(error, _REFUSALS) or (bool(folder) and folder in str(error))


def _reason(error: tf.errors.OpError) -> str:
    """Return why XLA refused a graph, in one line."""
    text = " ".join(str(error).split())
    for pattern, reason in _REASONS.items():
        if found := re.search(pattern, text):
            return reason.format(*found.groups())
    return text.split(". ")[0][:200]


def uniform_fractions(count: int, seed: tf.Tensor) -> tf.Tensor:
    """Draw numbers from 0 to 1, as `tf.random.stateless_uniform` does.

    Args:
        seed: (2,) int64; the draw is a function of it.

    Returns:
        Numbers (count,) float64, 0 included and 1 not.
    """
    if not under_xla():
        return tf.random.stateless_uniform((count,), seed, dtype=tf.float64)
    bits_N2 = tf.cast(tf.reshape(_draw_bits(2 * count, seed), (count, 2)), tf.int64)
    # As `Uint64ToDouble` in `random_distributions_utils.h`: 52 bits, the higher 20 of the first.
    return tf.cast((bits_N2[:, 0] & 0xFFFFF) * (1 << 32) + bits_N2[:, 1], tf.float64) / (1 << 52)


def uniform(count: int, seed: tf.Tensor) -> tf.Tensor:
    """Draw numbers from 0 to 1, as `tf.random.stateless_uniform` does.

    The first numbers do not depend on how many are drawn.

    Args:
        seed: (2,) int64; the draw is a function of it.

    Returns:
        Numbers (count,) float32, 0 included and 1 not.
    """
    if not under_xla():
        return tf.random.stateless_uniform((count,), seed)
    # As `Uint32ToFloat` in `random_distributions_utils.h`: the lower 23 bits.
    return tf.cast(_draw_bits(count, seed) & 0x7FFFFF, tf.float32) / (1 << 23)


def uniform_integers(shape: Sequence[int], seed: tf.Tensor, low: int, high: int) -> tf.Tensor:
    """Draw integers from `low` to `high - 1`, as `tf.random.stateless_uniform` does."""
    if not under_xla():
        return tf.random.stateless_uniform(shape, seed, low, high, tf.int32)
    bits_N = tf.cast(_draw_bits(math.prod(shape), seed), tf.int64)
    return tf.reshape(low + tf.cast(bits_N % (high - low), tf.int32), shape)


def _draw_bits(count: int, seed: tf.Tensor) -> tf.Tensor:
    """Return the first random bits of TensorFlow's generator for a seed, (count,) uint32.

    These are operations of arithmetic only, so `tf.vectorized_map` draws for many seeds at once.
    """
    seed = tf.cast(seed, tf.uint64)
    mixed = _philox(_SCRAMBLE, [half for number in tf.unstack(seed) for half in _halves(number)])
    block_B = tf.range(-(-count // 4), dtype=tf.int32)
    blocks_B = tf.cast(block_B, tf.uint32), tf.zeros_like(block_B, tf.uint32)
    bits_4B = _philox(mixed[:2], (*blocks_B, *mixed[2:]))
    return tf.reshape(tf.stack(bits_4B, axis=1), [-1])[:count]


def _philox(key: Sequence[tf.Tensor | int], counter: Sequence[tf.Tensor]) -> Sequence[tf.Tensor]:
    """Return the four words of Philox 4x32 with 10 rounds, uint32 of the counter's shape."""
    first, second = (tf.cast(word, tf.uint64) for word in key)
    words = [*counter]
    for round_number in range(10):
        high_0, low_0 = _multiply(_MULTIPLIERS[0], words[0])
        high_1, low_1 = _multiply(_MULTIPLIERS[1], words[2])
        keys = [
            _halves(word + tf.constant(round_number * step, tf.uint64))[0]
            for word, step in zip((first, second), _KEY_STEPS, strict=True)
        ]
        words = [high_1 ^ words[1] ^ keys[0], low_1, high_0 ^ words[3] ^ keys[1], low_0]
    return words


def _multiply(factor: int, word: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the higher and the lower 32 bits of a product of two words."""
    low, high = _halves(tf.constant(factor, tf.uint64) * tf.cast(word, tf.uint64))
    return high, low


def _halves(number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the lower and the higher 32 bits of a uint64, as uint32."""
    return tf.cast(number, tf.uint32), tf.cast(tf.bitwise.right_shift(number, 32), tf.uint32)
