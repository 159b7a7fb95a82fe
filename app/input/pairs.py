"""Pairs of a user and an item to train on and to score: chosen, split, numbered, in batches."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ..config import Config, InputConfig
from ..errors import UsageError
from ..text.blocks import without_autograph, without_tuning_thread
from ..text.names import count_names
from ..text.vocabulary import Vocabulary
from ..types import Batches
from .layouts import is_number
from .ratings import Ratings


class Pairs(NamedTuple):
    """A batch: users and items, int32; ratings and weights, float32; (B,) each.

    The last batch of an epoch is filled up by its last pair, of weight 0.
    """

    users: Any
    items: Any
    ratings: Any
    weights: Any


class KnownItems(NamedTuple):
    """Which items each user has: those of user u are `items_N[starts_U[u] : starts_U[u + 1]]`.

    starts_U: (U + 1,) int64. items_N: int32, ascending for each user.
    """

    starts_U: np.ndarray
    items_N: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class Split:
    """What is trained on and what is scored, by the ids of users and items.

    users, items: those with a pair to train on, by descending count of pairs. train, heldout: their
    user_keys and item_keys are those. known: the items of `train` by user. repeated: pairs that
    came more than once. left_out: of the pairs held out, see `new`.
    """

    users: Vocabulary
    items: Vocabulary
    train: Ratings
    heldout: Ratings
    known: KnownItems
    repeated: int
    left_out: int


def split_pairs(found: Ratings, given: Ratings | None, config: Config) -> Split:
    """What of the pairs found is trained on and what is scored.

    given: the pairs of --heldout. Their order is that of the files. UsageError where what is
    asked for needs ratings or times that are not there, and where nothing is left to train on.
    """
    settings = config.ratings
    adds = settings.weighted and found.ratings_N is not None
    found = filter_by_rating(found, settings.min_rating)
    if adds and (found.ratings_N <= 0).any():
        raise UsageError("--weighted: some ratings are not above 0; leave them out by --min_rating")
    found, repeated = _once(found, adds)
    if given is not None:
        train, heldout = found, filter_by_rating(given, settings.min_rating)
    else:
        is_heldout_N = _is_heldout(found, config)
        train, heldout = found.select(~is_heldout_N), found.select(is_heldout_N)
    # What is left out may leave others with nothing.
    for least in sorted({config.vocabulary.min_count, 1}, reverse=True):
        users = count_names(train.user_keys, train.users_N, least)
        items = count_names(train.item_keys, train.items_N, least)
        train = _known(_numbered(train, users.tokens, items.tokens))
    if not train.users_N.size:
        raise UsageError(
            f"--corpus={config.corpus.corpus}: no pair is left to train on; lower --min_count, "
            "--min_rating or --heldout_share"
        )
    of_users = group_by_user(train, len(users.tokens))
    heldout, left_out = select_scorable(heldout, users, items, of_users)
    return Split(users, items, train, heldout, of_users, repeated, left_out)


def select_scorable(
    pairs: Ratings, users: Vocabulary, items: Vocabulary, known: KnownItems
) -> tuple[Ratings, int]:
    """Those pairs of users and items with an id that are not known, each once; and how many not."""
    found = _known(_numbered(_once(pairs, adds=False)[0], users.tokens, items.tokens))
    owners_N = np.repeat(np.arange(len(known.starts_U) - 1), np.diff(known.starts_U))
    codes_N = owners_N * len(items.tokens) + known.items_N
    found = found.select(~np.isin(_codes(found), codes_N))
    return found, len(pairs.users_N) - len(found.users_N)


def group_by_user(pairs: Ratings, users: int) -> KnownItems:
    """The items of each of so many users."""
    order_N = np.lexsort((pairs.items_N, pairs.users_N))
    starts_U = np.searchsorted(pairs.users_N[order_N], np.arange(users + 1))
    return KnownItems(starts_U, pairs.items_N[order_N])


def make_batches(pairs: Ratings, weighted: bool, seed: int, settings: InputConfig) -> Batches:
    """The batches of a run: `Pairs` of (S, B), in another order each epoch."""
    steps, size = settings.steps_per_call, settings.batch_tokens
    count = len(pairs.users_N)
    ones_N = np.ones(count, np.float32)
    columns = Pairs(
        pairs.users_N,
        pairs.items_N,
        ones_N if pairs.ratings_N is None else pairs.ratings_N,
        pairs.ratings_N if weighted else ones_N,
    )

    def shuffled(epoch: np.ndarray) -> np.ndarray:
        return np.random.default_rng((seed, int(epoch))).permutation(count).astype(np.int32)

    @without_autograph
    def dataset(epochs: range, first: int) -> tf.data.Dataset:
        with tf.device("CPU:0"):
            tensors = Pairs(*map(tf.constant, columns))

        def of_epoch(epoch: tf.Tensor) -> tf.data.Dataset:
            order_N = tf.ensure_shape(tf.numpy_function(shuffled, [epoch], tf.int32), [count])

            def call(number: tf.Tensor) -> tuple[tf.Tensor, Pairs]:
                places = number * steps * size + tf.range(steps * size, dtype=tf.int64)
                chosen = tf.gather(order_N, tf.minimum(places, count - 1))
                found = Pairs(*(tf.gather(tensor, chosen) for tensor in tensors))
                weights = tf.where(places < count, found.weights, 0.0)
                found = found._replace(weights=weights)
                return epoch, Pairs(*(tf.reshape(part, (steps, size)) for part in found))

            left_out = tf.where(epoch == epochs.start, tf.constant(first, tf.int64), 0)
            numbers = tf.data.Dataset.range(left_out, count_batches(count, settings))
            return numbers.map(call, name="pairs")

        numbers = tf.data.Dataset.range(epochs.start, epochs.stop, name="epochs")
        found = numbers.flat_map(of_epoch, name="epochs").prefetch(settings.prefetch, name="ahead")
        return without_tuning_thread(found)

    def epoch_batches(
        epochs: range, first: int, mine: range | None = None
    ) -> Iterator[tuple[int, Pairs]]:
        for epoch, data in dataset(epochs, first):
            yield int(epoch), data

    return epoch_batches


def count_batches(pairs: int, settings: InputConfig) -> int:
    """The batches of an epoch."""
    return -(-pairs // (settings.steps_per_call * settings.batch_tokens))


def filter_by_rating(pairs: Ratings, least: str) -> Ratings:
    """Those with at least such a rating."""
    if not least:
        return pairs
    if pairs.ratings_N is None:
        raise UsageError(f"--min_rating={least}: the pairs have no ratings; leave it out")
    if not is_number(least) or not np.isfinite(float(least)):
        raise UsageError(f"--min_rating={least}: give a number")
    return pairs.select(pairs.ratings_N >= float(least))


def _once(pairs: Ratings, adds: bool) -> tuple[Ratings, int]:
    """Each pair once, the last by time, and how many came more often. adds: ratings add up."""
    times_N = np.zeros(len(pairs.users_N), np.int8) if pairs.times_N is None else pairs.times_N
    codes_N = _codes(pairs)
    order_N = np.lexsort((times_N, codes_N))  # stable: of the same time, the last in the file
    codes_N = codes_N[order_N]
    is_last_N = np.append(codes_N[1:] != codes_N[:-1], True)[: len(codes_N)]
    kept = pairs.select(order_N[is_last_N])
    repeated = len(codes_N) - len(kept.users_N)
    if adds and repeated:
        first_N = np.flatnonzero(np.append(True, is_last_N[:-1]))
        sums_N = np.add.reduceat(pairs.ratings_N[order_N], first_N)
        kept = kept._replace(ratings_N=sums_N)
    return kept.select(np.argsort(order_N[is_last_N])), repeated


def _is_heldout(pairs: Ratings, config: Config) -> np.ndarray:
    """Which pairs are held out by --split, (N,) bool."""
    rule, share = config.ratings.split, config.input.heldout_share
    count = len(pairs.users_N)
    is_heldout_N = np.zeros(count, bool)
    if not share:
        return is_heldout_N
    if rule == "time" and pairs.times_N is None:
        raise UsageError("--split=time: the pairs have no times; name --time_column, or another")
    if rule == "random":
        order_N = np.random.default_rng(config.run.seed).permutation(count)
    elif pairs.times_N is None:
        order_N = np.arange(count)
    else:
        order_N = np.argsort(pairs.times_N, kind="stable")
    if rule != "leave_one_out":
        is_heldout_N[order_N[count - round(share * count) :]] = True
        return is_heldout_N
    order_N = order_N[np.argsort(pairs.users_N[order_N], kind="stable")]
    users_N = pairs.users_N[order_N]
    is_last_N = np.append(users_N[1:] != users_N[:-1], True)
    is_only_N = is_last_N & np.append(True, is_last_N[:-1])  # who would have nothing to train on
    is_heldout_N[order_N[is_last_N & ~is_only_N]] = True
    return is_heldout_N


def _numbered(pairs: Ratings, user_keys: list[str], item_keys: list[str]) -> Ratings:
    """The same with places in other lists of keys; -1 for one that is not there."""
    users, items = _places(pairs.user_keys, user_keys), _places(pairs.item_keys, item_keys)
    return Ratings(user_keys, item_keys, users[pairs.users_N], items[pairs.items_N], *pairs[4:])


def _known(pairs: Ratings) -> Ratings:
    return pairs.select((pairs.users_N >= 0) & (pairs.items_N >= 0))


def _places(keys: list[str], others: list[str]) -> np.ndarray:
    """The place of each key among others, int32; -1 where it is not, and at last for the -1."""
    places = {key: place for place, key in enumerate(others)}
    return np.array([*(places.get(key, -1) for key in keys), -1], np.int32)


def _codes(pairs: Ratings) -> np.ndarray:
    """A number for each user and item, (N,) int64."""
    return pairs.users_N.astype(np.int64) * len(pairs.item_keys) + pairs.items_N
