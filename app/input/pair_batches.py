"""Make batches of pairs of a user and an item, in a new order each epoch."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from ..settings import InputConfig
from ..system.python_functions import numpy_function
from ..text.blocks import without_autograph, without_tuning_thread
from ..types import HOST, Batches
from .ratings import Ratings
from .user_item_pairs import UserItemPairs


def make_batches(
    pairs: Ratings, weighted: bool, seed: int, settings: InputConfig, user_pairs: int = 1
) -> Batches:
    """Return the batches of a run: `UserItemPairs` of (S, B), in a new random order each epoch.

    Args:
        pairs: The training pairs. Without ratings, each pair has the rating 1.
        weighted: Whether the weight of a pair is its rating, which it must have; else it is 1.
        seed: Seed of the run.
        settings: Batch size and steps per call.
        user_pairs: The number of pairs of a user that follow one another; they are drawn at random
            among the user's pairs. The last of a user may be fewer.
    """
    steps, size = settings.steps_per_call, settings.batch_tokens
    count = len(pairs.users_N)
    ones_N = np.ones(count, np.float32)
    columns = UserItemPairs(
        pairs.users_N,
        pairs.items_N,
        ones_N if pairs.ratings_N is None else pairs.ratings_N,
        pairs.ratings_N if weighted else ones_N,
    )

    def shuffle(epoch: np.ndarray) -> np.ndarray:
        random = np.random.default_rng((seed, int(epoch)))
        if user_pairs == 1:
            return random.permutation(count).astype(np.int32)
        return _shuffle_groups(pairs.users_N, user_pairs, random)

    @without_autograph
    def dataset(epochs: range, first: int) -> tf.data.Dataset:
        with tf.device(HOST):
            tensors = UserItemPairs(*map(tf.constant, columns))

        def epoch_calls(epoch: tf.Tensor) -> tf.data.Dataset:
            order_N = tf.ensure_shape(numpy_function(shuffle, [epoch], tf.int32), [count])

            def make_call(number: tf.Tensor) -> tuple[tf.Tensor, UserItemPairs]:
                positions = number * steps * size + tf.range(steps * size, dtype=tf.int64)
                chosen = tf.gather(order_N, tf.minimum(positions, count - 1))
                batch = UserItemPairs(*(tf.gather(tensor, chosen) for tensor in tensors))
                weights = tf.where(positions < count, batch.weights, 0.0)
                batch = batch._replace(weights=weights)
                return epoch, UserItemPairs(*(tf.reshape(part, (steps, size)) for part in batch))

            skipped = tf.where(epoch == epochs.start, tf.constant(first, tf.int64), 0)
            numbers = tf.data.Dataset.range(skipped, count_batches(count, settings))
            return numbers.map(make_call, name="pairs")

        numbers = tf.data.Dataset.range(epochs.start, epochs.stop, name="epochs")
        calls = numbers.flat_map(epoch_calls, name="epochs")
        return without_tuning_thread(calls.prefetch(settings.prefetch, name="ahead"))

    def epoch_batches(epochs: range, first: int) -> Iterator[tuple[int, UserItemPairs]]:
        for epoch, data in dataset(epochs, first):
            yield int(epoch), data

    return epoch_batches


def _shuffle_groups(users_N: np.ndarray, size: int, random: np.random.Generator) -> np.ndarray:
    """Return a random order of pairs in which groups of pairs of a user stay together, (N,) int32.

    The pairs of each user are divided at random into groups of `size`, and a smaller last one.
    """
    count = len(users_N)
    draws_N = random.integers(1 << 32, size=count, dtype=np.uint64)
    by_user_N = np.argsort((users_N.astype(np.uint64) << np.uint64(32)) | draws_N, kind="stable")
    is_first_N = np.diff(users_N[by_user_N], prepend=-1) != 0
    user_starts = np.flatnonzero(is_first_N)
    places_N = np.arange(count) - np.repeat(user_starts, np.diff(user_starts, append=count))
    starts_G = np.flatnonzero(places_N % size == 0)
    sizes_G = np.diff(starts_G, append=count)
    order_G = random.permutation(len(starts_G))
    starts_G, sizes_G = starts_G[order_G], sizes_G[order_G]
    shifts_G = starts_G - (np.cumsum(sizes_G) - sizes_G)
    return by_user_N[np.arange(count) + np.repeat(shifts_G, sizes_G)].astype(np.int32)


def count_batches(pairs: int, settings: InputConfig) -> int:
    """Return the number of batches, of S steps each, of an epoch, rounded up.

    Args:
        pairs: Number of training pairs.
        settings: Batch size and steps per call.
    """
    return -(-pairs // (settings.steps_per_call * settings.batch_tokens))
