"""Split pairs of a user and an item into training and held-out pairs, and make batches of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ..errors import UsageError
from ..settings import InputConfig, RatingsConfig
from ..system.python_functions import numpy_function
from ..text.vocabulary import Vocabulary, count_names, whole
from ..types import HOST, Batches
from .blocks import without_autograph, without_tuning_thread
from .features import intervals, positions
from .named_features import NO_FEATURES, ByName, NamedFeatures, SideFeatures, gather
from .ratings import Ratings


class UserItemPairs(NamedTuple):
    """A batch of pairs. The last batch of an epoch repeats its last pair with weight 0.

    A pair of an item that the user dislikes has a negative weight.

    Attributes:
        users: User ids (B,) int32.
        items: Item ids (B,) int32.
        ratings: Ratings (B,) float32.
        weights: Weights (B,) float32.
    """

    users: Any
    items: Any
    ratings: Any
    weights: Any


class KnownItems(NamedTuple):
    """The items of each user: `items_N[starts_U[u] : starts_U[u + 1]]` for user u.

    Attributes:
        starts_U: Start of each user in `items_N`, (U + 1,) int64.
        items_N: Item ids, int32, ascending for each user.
    """

    starts_U: np.ndarray
    items_N: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class Split:
    """Training and held-out pairs, with ids by descending count of training pairs.

    Attributes:
        users: Names of the user ids. Those without a training pair, of which only features are
            known, come last, with a count of 0.
        items: Names of the item ids, likewise.
        train: Training pairs with these ids. With --weighted, their ratings are their weights.
        heldout: Held-out pairs with these ids.
        known: Items that each user has in `train`.
        repeated: Number of repeated pairs that were merged.
        left_out: Number of held-out pairs that cannot be scored (see `select_scorable`).
        features: The features of users and items.
        disliked_N: Which pairs of `train` are of items that the user dislikes; None if none is.
    """

    users: Vocabulary
    items: Vocabulary
    train: Ratings
    heldout: Ratings
    known: KnownItems
    repeated: int
    left_out: int
    features: SideFeatures = NO_FEATURES
    disliked_N: np.ndarray | None = None

    @property
    def liked(self) -> Ratings:
        """The training pairs without those of disliked items."""
        return self.train if self.disliked_N is None else self.train.select(~self.disliked_N)


def split_pairs(
    corpus_pairs: Ratings,
    heldout_pairs: Ratings | None,
    settings: RatingsConfig,
    heldout_share: float,
    min_count: int,
    seed: int,
    disliked_below: float = -np.inf,
    described: tuple[ByName | None, ByName | None] = (None, None),
) -> Split:
    """Split pairs into training and held-out pairs, both in the order of the files.

    First, pairs below --min_rating are dropped, and repeated pairs are merged. Afterwards, users
    and items with too few training pairs are dropped, and held-out pairs that cannot be scored.
    Pairs of disliked items stay, do not count, and are never held out.

    Args:
        corpus_pairs: Pairs of --corpus.
        heldout_pairs: Pairs of --heldout, or None to hold out pairs by --split.
        disliked_below: The rating from which on a pair is of an item that the user likes.
        described: The features of users and of items, by name; None if there are none.

    Raises:
        UsageError: Ratings or times that the flags need are missing, or no training pair is left.
    """
    corpus_pairs = filter_by_rating(corpus_pairs, settings.min_rating, disliked_below)
    if heldout_pairs is not None:
        heldout_pairs = select_liked(heldout_pairs, settings, disliked_below)
    if settings.weighted and corpus_pairs.ratings_N is not None:
        corpus_pairs, repeated = _merge_weights(corpus_pairs, disliked_below)
        disliked_below = 0.0
    else:
        corpus_pairs, repeated = _merge_repeated(corpus_pairs, add_ratings=False)
    if heldout_pairs is not None:
        train, heldout = corpus_pairs, heldout_pairs
    else:
        is_heldout_N = ~_is_disliked(corpus_pairs, disliked_below)  # which may be
        liked = corpus_pairs.select(is_heldout_N)
        is_heldout_N[is_heldout_N] = _is_heldout(liked, settings.split, heldout_share, seed)
        train, heldout = corpus_pairs.select(~is_heldout_N), corpus_pairs.select(is_heldout_N)
    # Dropping rare users may leave items without a pair, and the reverse; a second pass drops them.
    for least in sorted({min_count, 1}, reverse=True):
        liked_N = ~_is_disliked(train, disliked_below)
        users = count_names(train.user_keys, train.users_N[liked_N], least)
        items = count_names(train.item_keys, train.items_N[liked_N], least)
        train = _select_known(train, users.tokens, items.tokens)
    if not train.users_N.size:
        raise UsageError(
            "--corpus: no pair is left to train on; lower --min_count, --min_rating or "
            "--heldout_share"
        )
    (users, of_users), (items, of_items) = map(_describe, (users, items), described)
    known_items = group_by_user(train, len(users.tokens))
    heldout, left_out = select_scorable(heldout, users, items, known_items)
    disliked_N = _is_disliked(train, disliked_below)
    return Split(
        *(users, items, train, heldout, known_items, repeated, left_out),
        SideFeatures(of_users, of_items),
        disliked_N if disliked_N.any() else None,
    )


def _is_disliked(pairs: Ratings, below: float) -> np.ndarray:
    """Return which pairs are of items that the user dislikes, (N,) bool."""
    if pairs.ratings_N is None:
        return np.zeros(len(pairs.users_N), bool)
    return pairs.ratings_N < below


def _merge_weights(pairs: Ratings, disliked_below: float) -> tuple[Ratings, int]:
    """Return `_merge_repeated` of pairs with their weights (see `weigh`) as ratings.

    What is disliked is decided before, as two low ratings do not add up to a high one.

    Raises:
        UsageError: The rating of a liked item is not above 0, or weights of a pair add up to 0.
    """
    is_disliked_N = _is_disliked(pairs, disliked_below)
    if (pairs.ratings_N[~is_disliked_N] <= 0).any():
        raise UsageError(
            "--weighted: some ratings are not above 0; leave their pairs out with --min_rating"
        )
    weights_N = np.where(
        is_disliked_N, pairs.ratings_N - np.float32(disliked_below), pairs.ratings_N
    )
    merged, repeated = _merge_repeated(pairs._replace(ratings_N=weights_N), add_ratings=True)
    for pair in np.flatnonzero(merged.ratings_N == 0):
        user = merged.user_keys[merged.users_N[pair]]
        item = merged.item_keys[merged.items_N[pair]]
        raise UsageError(
            f"--weighted: the weights of user {user[:60]!r} with item {item[:60]!r} add up to 0; "
            "leave out these rows"
        )
    return merged, repeated


def select_liked(pairs: Ratings, settings: RatingsConfig, disliked_below: float) -> Ratings:
    """Return the pairs that can be scored by their rating: --min_rating or more, not disliked."""
    pairs = filter_by_rating(pairs, settings.min_rating)
    return pairs.select(~_is_disliked(pairs, disliked_below))


def _describe(names: Vocabulary, by_name: ByName | None) -> tuple[Vocabulary, NamedFeatures | None]:
    """Return the names, then those of which only features are known, and the features of all."""
    if by_name is None:
        return names, None
    new = sorted(by_name.keys() - {*map(whole, names.tokens)})
    counts = np.concatenate([names.counts, np.zeros(len(new), np.int64)])
    found = Vocabulary([*names.tokens, *new], counts, names.total)
    return found, gather(by_name, found.tokens, len(names.tokens))


def select_scorable(
    pairs: Ratings, users: Vocabulary, items: Vocabulary, known: KnownItems
) -> tuple[Ratings, int]:
    """Return the pairs of known users and items that are not in training, and the number of others.

    A repeated pair is returned once; its repetitions count among the others.

    Args:
        pairs: Held-out pairs.
        known: Items that each user has in training.
    """
    once, _ = _merge_repeated(pairs, add_ratings=False)
    scorable = _select_known(once, users.tokens, items.tokens)
    owners_N = np.repeat(np.arange(len(known.starts_U) - 1), np.diff(known.starts_U))
    codes_N = owners_N * len(items.tokens) + known.items_N
    scorable = scorable.select(~np.isin(_codes(scorable), codes_N))
    return scorable, len(pairs.users_N) - len(scorable.users_N)


def group_by_user(pairs: Ratings, users: int) -> KnownItems:
    """Return the items of each user, with an item once for each of its pairs.

    Args:
        pairs: Pairs whose users and items have ids, none of them -1.
        users: Number of user ids.
    """
    order_N = np.lexsort((pairs.items_N, pairs.users_N))
    starts_U = np.searchsorted(pairs.users_N[order_N], np.arange(users + 1))
    return KnownItems(starts_U, pairs.items_N[order_N])


def filter_by_rating(pairs: Ratings, min_rating: str, disliked_below: float = -np.inf) -> Ratings:
    """Return the pairs with at least the rating of --min_rating; for "" the pairs as they are.

    Pairs with a rating below `disliked_below` are returned as well.

    Args:
        pairs: Pairs with or without ratings.
        min_rating: The value of the flag, the text of a finite number, or empty.

    Raises:
        UsageError: The pairs have no ratings.
    """
    if not min_rating:
        return pairs
    if pairs.ratings_N is None:
        raise UsageError(f"--min_rating={min_rating}: the pairs have no ratings; leave it out")
    is_kept_N = pairs.ratings_N >= float(min_rating)
    return pairs.select(is_kept_N | _is_disliked(pairs, disliked_below))


def _merge_repeated(pairs: Ratings, add_ratings: bool) -> tuple[Ratings, int]:
    """Return each pair once, the latest by time, in the order of the files, and the merged number.

    With `add_ratings`, its rating is the sum of the ratings of its repetitions.
    """
    times_N = np.zeros(len(pairs.users_N), np.int8) if pairs.times_N is None else pairs.times_N
    codes_N = _codes(pairs)
    order_N = np.lexsort((times_N, codes_N))  # stable: at equal times, in the order of the file
    codes_N = codes_N[order_N]
    is_last_N = np.append(codes_N[1:] != codes_N[:-1], True)[: len(codes_N)]
    merged = pairs.select(order_N[is_last_N])
    repeated = len(codes_N) - len(merged.users_N)
    if add_ratings and repeated:
        first_N = np.flatnonzero(np.append(True, is_last_N[:-1]))
        merged = merged._replace(ratings_N=np.add.reduceat(pairs.ratings_N[order_N], first_N))
    return merged.select(np.argsort(order_N[is_last_N])), repeated


def _is_heldout(pairs: Ratings, rule: str, share: float, seed: int) -> np.ndarray:
    """Return which pairs --split holds out, (N,) bool; none if --heldout_share is 0.

    `leave_one_out` takes the last pair of each user with several; `time` may raise a UsageError.
    """
    count = len(pairs.users_N)
    is_heldout_N = np.zeros(count, bool)
    if not share or not count:
        return is_heldout_N
    if rule == "time" and pairs.times_N is None:
        raise UsageError("--split=time: the pairs have no times; name --time_column, or another")
    if rule == "random":
        order_N = np.random.default_rng(seed).permutation(count)
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
    is_only_N = is_last_N & np.append(True, is_last_N[:-1])  # users without another pair
    is_heldout_N[order_N[is_last_N & ~is_only_N]] = True
    return is_heldout_N


def _select_known(pairs: Ratings, user_keys: list[str], item_keys: list[str]) -> Ratings:
    """Return the pairs of users and items in other lists of names, with the ids of these."""
    # Older workdirs may have names such as 5800.0.
    users_N = positions(pairs.user_keys, [*map(whole, user_keys)])[pairs.users_N]
    items_N = positions(pairs.item_keys, [*map(whole, item_keys)])[pairs.items_N]
    found = Ratings(user_keys, item_keys, users_N, items_N, *pairs[4:])
    return found.select((users_N >= 0) & (items_N >= 0))


def _codes(pairs: Ratings) -> np.ndarray:
    """Return a number for each (user, item), (N,) int64."""
    return pairs.users_N.astype(np.int64) * len(pairs.item_keys) + pairs.items_N


def weigh(split: Split, weighted: bool) -> np.ndarray | None:
    """Return the weight of each training pair, (N,) float32; None if all are 1.

    With --weighted, the weight of a liked item is its rating, and that of a disliked one is
    negative, and says how far its rating is below; a repeated pair has the sum. Without, they are 1
    and -1.
    """
    if weighted:
        return split.train.ratings_N
    if split.disliked_N is None:
        return None
    return np.where(split.disliked_N, np.float32(-1), np.float32(1))


def make_batches(
    pairs: Ratings,
    weights_N: np.ndarray | None,
    seed: int,
    settings: InputConfig,
    user_pairs: int = 1,
) -> Batches:
    """Return the batches of a run: `UserItemPairs` of (S, B), in a new random order each epoch.

    Args:
        pairs: The training pairs. Without ratings, each pair has the rating 1.
        weights_N: The weights of the pairs, float32; None for 1.
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
        ones_N if weights_N is None else weights_N,
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
                batch = batch._replace(weights=tf.where(positions < count, batch.weights, 0.0))
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
    user_starts = np.flatnonzero(np.diff(users_N[by_user_N], prepend=-1) != 0)
    places_N = np.arange(count) - np.repeat(user_starts, np.diff(user_starts, append=count))
    starts_G = np.flatnonzero(places_N % size == 0)
    sizes_G = np.diff(starts_G, append=count)
    order_G = random.permutation(len(starts_G))
    return by_user_N[intervals(starts_G[order_G], sizes_G[order_G])[1]].astype(np.int32)


def count_batches(pairs: int, settings: InputConfig) -> int:
    """Return the number of batches, of S steps each, of an epoch, rounded up.

    Args:
        pairs: Number of training pairs.
    """
    return -(-pairs // (settings.steps_per_call * settings.batch_tokens))
