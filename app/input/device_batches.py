"""Bring batches to the device of the steps: copy them ahead, or make those of word models there.

`copy_ahead` copies batches of any task. `make_batches` keeps the token ids of a corpus on the
device. Its batches are those of `pipeline.make_epoch_rows` and `pipeline.make_batches` for one
micro-batch, bit for bit and in the same order. XLA compiles the functions that make the rows of a
block, for blocks of a static size. The host knows from the counted rows of an epoch which rows are
in which batch. So it reads from the device once an epoch, then copies a few numbers to it for each
block, and else only launches work: TensorFlow copies nothing to a GPU until all earlier work is
done.

TensorFlow keeps int32 of a GPU in host memory, except for the results of `Bitcast` and of XLA. So
tokens are uint32 on a device until a batch is ready.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ..settings import InputConfig
from ..system.xla import copy_to_device, uniform
from ..types import Batches
from .blocks import take_ahead
from .token_rows import PAD, SHUFFLE, SUBSAMPLE, block_seed, differs_from_previous, encode

# Blocks of at most this share of the largest one have a size, and a compiled program, of their own.
_SMALL = 16


def copy_ahead(
    batches: Iterable[tuple[int, Any]], device: str, is_wanted: Callable[[], bool]
) -> Iterator[tuple[int, Any]]:
    """Yield the batches, copied to a device by a thread while the steps before them are made.

    The thread begins once the second batch is asked for.

    Args:
        batches: Pairs of an epoch and a nest of tensors.
        device: The device. Tensors that are there are not copied.
        is_wanted: Returns whether to copy; called for each batch.
    """
    source = iter(batches)

    def take() -> tuple[int, Any] | None:
        """Return the next batch on the device, or None at the end."""
        item = next(source, None)
        if item is None or not is_wanted():
            return item
        return item[0], tf.nest.map_structure(
            functools.partial(copy_to_device, device=device), item[1]
        )

    if (item := take()) is None:
        return
    # While steps are traced, a thread that makes tensors would change the names of functions, by
    # which XLA finds its stored programs (see `system.xla.renumber_functions`).
    yield item
    yield from take_ahead(take, "copy")


class _Corpus(NamedTuple):
    """The tokens of a corpus on a device.

    Attributes:
        tokens_N: The blocks one after the other, then as many tokens as the largest has, uint32.
        starts: The position of the first token of each block.
        counts: The number of tokens of each block.
    """

    tokens_N: tf.Tensor
    starts: np.ndarray
    counts: np.ndarray

    def static_size(self, number: int) -> int:
        """Return the size with which to process a block, one of two; not less than its own."""
        largest = int(self.counts.max())
        small = max(largest // _SMALL, 1)
        return small if self.counts[number] <= small else largest


def make_batches(
    read_blocks: Callable[[], Iterable[np.ndarray]],
    keep_V: np.ndarray,
    window: int,
    settings: InputConfig,
    seed: int,
    device: str,
) -> Batches:
    """Return the function that yields the batches of a run, made on a device.

    The first batch waits until all blocks are read and copied to the device.

    Args:
        read_blocks: Yields the tokens (M,) int32 of each block of the text, in order.
        keep_V: Probability that a token of each id is kept, (V,) float32.

    Returns:
        See `types.Batches`: the data is (S, B, L) int32 on the device. It has no `parts`.
    """
    rows_of_step = settings.batch_tokens // settings.row_tokens
    shape = settings.steps_per_call, rows_of_step, settings.row_tokens + 2 * window
    load = functools.cache(lambda: _load(read_blocks(), device))
    with tf.device(device):
        functions = _row_functions(keep_V, window, settings, seed, shape)

    def run_batches(epochs: range, first: int) -> Iterator[tuple[int, tf.Tensor]]:
        """Yield (epoch, batch) as in `types.Batches`."""
        for epoch in epochs:
            skipped = first if epoch == epochs.start else 0
            for batch_SBL in _epoch_batches(load(), epoch, skipped, functions, shape, device):
                with tf.device(device):
                    tokens_SBL = tf.bitcast(batch_SBL, tf.int32)
                yield epoch, tokens_SBL

    return run_batches


def _epoch_batches(
    corpus: _Corpus,
    epoch: int,
    first: int,
    functions: tuple[Callable, Callable],
    shape: tuple[int, int, int],
    device: str,
) -> Iterator[tf.Tensor]:
    """Yield the batches of an epoch but the `first` ones, as uint32; see `_row_functions`."""
    count_rows, make_rows = functions
    together = shape[0] * shape[1]
    rows = _count_rows(corpus, epoch, count_rows, device)
    begins, skipped = np.cumsum(rows) - rows, first * together
    # How many rows are before a block in its first batch; if negative, how many to skip of it.
    held = np.where(begins < skipped, begins - skipped, begins % together)
    blocks = _describe(corpus, epoch, held, device)
    with tf.device(device):
        rest_SBL = tf.constant(np.full(shape, PAD, np.uint32))
    left = 0
    for number in np.flatnonzero((rows > 0) & (begins + rows > skipped)).tolist():
        with tf.device(device):
            size = corpus.static_size(number)
            batches = make_rows(corpus.tokens_N, blocks[number], rest_SBL, size)
        full, left = divmod(int(held[number] + rows[number]), together)
        for index in range(full):
            with tf.device(device):
                batch_SBL = batches[index]
            yield batch_SBL
        if left:
            with tf.device(device):
                rest_SBL = batches[full]
    if left:
        yield rest_SBL


def _load(blocks: Iterable[np.ndarray], device: str) -> _Corpus:
    """Copy all blocks of a text, tokens (M,) int32, to a device."""
    tokens = list(blocks)
    counts = np.array([len(block) for block in tokens], np.int64)
    tokens.append(np.zeros(counts.max(initial=0), np.int32))
    joined_N = np.concatenate(tokens).view(np.uint32)
    with tf.device(device):
        return _Corpus(tf.constant(joined_N), np.cumsum(counts) - counts, counts)


def _describe(corpus: _Corpus, epoch: int, held: np.ndarray, device: str) -> tf.Tensor:
    """Return what `_row_functions` needs to know of each block, (blocks, 5) int64 on a device.

    These are the epoch, the number of the block, its start, its tokens, and the rows before it.
    """
    numbers = np.arange(len(held))
    columns = np.full_like(numbers, epoch), numbers, corpus.starts, corpus.counts, held
    with tf.device(device):
        return tf.constant(np.stack(columns, axis=1))


def _count_rows(corpus: _Corpus, epoch: int, count: Callable, device: str) -> np.ndarray:
    """Return the number of rows of each block in an epoch; wait for the device once."""
    rows, used = np.zeros_like(corpus.counts), np.flatnonzero(corpus.counts).tolist()
    blocks = _describe(corpus, epoch, rows, device)
    if used:
        with tf.device(device):
            counted = [count(corpus.tokens_N, blocks[b], corpus.static_size(b)) for b in used]
            rows[used] = tf.stack(counted).numpy()
    return rows


def _row_functions(
    keep_V: np.ndarray, window: int, settings: InputConfig, seed: int, shape: tuple[int, int, int]
) -> tuple[Callable, Callable]:
    """Return two functions that XLA compiles, which count and make the rows of a block.

    Both take the tokens of the corpus, the description of the block (5,) int64, see `_describe`,
    and at the end the static size M.
    """
    row_tokens, length = settings.row_tokens, shape[2]
    together = shape[0] * shape[1]
    subsample = _make_subsampler(keep_V, seed)

    @tf.function(autograph=False, jit_compile=True)
    def count_rows(tokens_N: tf.Tensor, block: tf.Tensor, size: int) -> tf.Tensor:
        """Return the number of rows of a block, an int64 scalar."""
        *_, kept_M = subsample(tokens_N, block, size)
        return (tf.reduce_sum(tf.cast(kept_M, tf.int64)) + row_tokens - 1) // row_tokens

    @tf.function(autograph=False, jit_compile=True)
    def make_rows(
        tokens_N: tf.Tensor, block: tf.Tensor, rest_SBL: tf.Tensor, size: int
    ) -> tf.Tensor:
        """Return the batches (n, S, B, L) uint32 that begin with rows before those of the block."""
        tokens_M, total = _compact(*subsample(tokens_N, block, size))
        padded = tf.pad(tokens_M, [[window, window + row_tokens]], constant_values=PAD)
        most = -(-size // row_tokens)
        rows, order_R = (total + row_tokens - 1) // row_tokens, tf.range(most)
        if settings.shuffle:
            keys_R = uniform(most, block_seed(seed, SHUFFLE, block[0], block[1]))
            order_R = tf.argsort(tf.where(order_R < rows, keys_R, 2.0), stable=True)
        batches = -(-(together - 1 + most) // together)
        numbers_N = tf.range(batches * together) - tf.cast(block[4], tf.int32)
        starts_N = row_tokens * tf.gather(order_R, tf.clip_by_value(numbers_N, 0, most - 1))
        made_NL = tf.gather(padded, starts_N[:, tf.newaxis] + tf.range(length))
        numbers_N1 = numbers_N[:, tf.newaxis]
        rest_NL = tf.bitcast(tf.reshape(rest_SBL, (together, length)), tf.int32)
        rest_NL = tf.pad(rest_NL, [[0, (batches - 1) * together], [0, 0]])
        rows_NL = tf.where(numbers_N1 < rows, made_NL, PAD)
        rows_NL = tf.where(numbers_N1 < 0, rest_NL, rows_NL)
        return tf.bitcast(tf.reshape(rows_NL, (batches, *shape)), tf.uint32)

    return count_rows, make_rows


def _make_subsampler(keep_V: np.ndarray, seed: int) -> Callable[..., tuple[tf.Tensor, ...]]:
    """Return a function from tokens, a block and its static size M to ids, documents and masks."""
    # Subsampling concerns the most frequent words only.
    frequent = int(np.flatnonzero(keep_V < 1).max(initial=-1)) + 1
    keep_N = tf.constant(np.append(keep_V[:frequent], np.float32(1)))

    def subsample(
        tokens_N: tf.Tensor, block: tf.Tensor, size: int
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Return of each token the id, the number of its document, and whether it is kept."""
        epoch, number, start, count, _ = tf.unstack(block)
        # XLA would compile a slice for each start.
        places_M = tf.range(size, dtype=tf.int64)
        tokens_M = tf.bitcast(tf.gather(tokens_N, start + places_M), tf.int32)
        is_first_M = tokens_M < 0
        ids_M = encode(tokens_M, is_first_M)
        chances_M = tf.gather(keep_N, tf.minimum(ids_M, frequent))
        draws_M = uniform(size, block_seed(seed, SUBSAMPLE, epoch, number))
        kept_M = (draws_M < chances_M) & (places_M < count)
        return ids_M, tf.cumsum(tf.cast(is_first_M, tf.int32)), kept_M

    return subsample


def _compact(
    ids_M: tf.Tensor, documents_M: tf.Tensor, kept_M: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the kept tokens, then `PAD`, (M,) int32, and how many they are."""
    size = kept_M.shape[0]
    places_M = tf.cumsum(tf.cast(kept_M, tf.int32))
    total = places_M[-1]
    # XLA leaves out the tokens whose place is out of range.
    places_M1 = tf.where(kept_M, places_M - 1, size)[:, tf.newaxis]
    pairs_M2 = tf.stack([ids_M, documents_M], axis=1)
    pairs_M2 = tf.tensor_scatter_nd_update(tf.zeros_like(pairs_M2), places_M1, pairs_M2)
    tokens_M = encode(pairs_M2[:, 0], differs_from_previous(pairs_M2[:, 1]))
    return tf.where(tf.range(size) < total, tokens_M, PAD), total
