"""Solve for the rows of users who were not in training, by their items."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from ...errors import UsageError
from ...input.user_item_pairs import KnownItems
from ...models.recommender import Recommender
from ...optimizers.adam import lazy_adam
from ...tables.base import Table
from ...text.vocabulary import Vocabulary, close_names, whole
from .ranking_metrics import Ranker

_SCORES = 1 << 24  # scores that are computed at a time: 64 MB, and twice that for gradients
# Steps of Adam, whose rate falls from a share of the length of a row to 0. With them 1,500 users of
# Gowalla have the recall of their trained rows (data/benchmarks/README.md).
_STEPS, _RATE = 100, 0.1
_BETA_1, _BETA_2, _TINY = 0.9, 0.9, 1e-12  # a small beta_2 follows gradients that shrink
_SHOWN = 5  # of the names that are not known
_USERS = 1000  # trained users whose rows tell how long a row is


def parse_items(names: Sequence[str], items: Vocabulary, flag: str, where: str) -> KnownItems:
    """Return the items that a new user names, as those of a single user.

    Names of other items are left out, with a warning.

    Args:
        items: Names of the item ids.
        flag: The flag that names them, for messages.
        where: What knows the items, for messages.

    Raises:
        UsageError: There is no name, a name comes twice, or no item is known.
    """
    if not names:
        raise UsageError(f"{flag} names no item; give some that the user chose, as --items=A,B")
    ids = {token: number for number, token in enumerate(items.tokens)}
    names = [name if name in ids else whole(name) for name in names]
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise UsageError(f"{flag} names {twice[:60]!r} twice; give each item once")
    unknown = [name for name in names if name not in ids]
    if unknown:
        message = f"{flag}: {len(unknown)} item(s) {explain_unknown(unknown, items, where)}"
        if len(unknown) == len(names):
            raise UsageError(f"{message}; give items of it")
        logging.warning("%s; left out", message)
    return of_one_user(np.array([ids[name] for name in names if name in ids], np.int32))


def join_items(chosen: KnownItems, disliked: KnownItems | None) -> KnownItems:
    """Return the items of a single user, those that it chose and those that it dislikes.

    Raises:
        UsageError: An item is among both.
    """
    if disliked is None:
        return chosen
    if len(np.intersect1d(chosen.items_N, disliked.items_N)):
        raise UsageError("--disliked names an item that --items names, too; name it in one of them")
    return of_one_user(np.concatenate([chosen.items_N, disliked.items_N]))


def of_one_user(items_N: np.ndarray) -> KnownItems:
    """Return the items of a single user."""
    return KnownItems(np.array([0, len(items_N)]), np.sort(items_N))


def explain_unknown(unknown: Sequence[str], known: Vocabulary, where: str) -> str:
    """Return the part of a message that names some unknown names, and known names that are close.

    Args:
        where: What does not know them.
    """
    shown = []
    for name in unknown[:_SHOWN]:
        close = " or ".join(map(repr, close_names(name, known.tokens)))
        shown.append(f"{name[:60]!r}" + f" (did you mean {close}?)" * bool(close))
    return f"not known to {where}: {', '.join(shown)}" + ", …" * (len(unknown) > _SHOWN)


def solve_rows(
    model: Recommender,
    tables: Mapping[str, Table],
    ranker: Ranker,
    chosen: KnownItems,
    disliked: KnownItems | None = None,
) -> np.ndarray:
    """Return rows for new users, with all other rows as they are, (M, D) float32.

    A row minimizes the mean of -log P of the user's items, P being the softmax of the scores of all
    items. Training minimizes an estimate of this sum, or (`bpr`) another loss of ranks. The items
    are all scored, so nothing is drawn, and the same items give the same row. For items that the
    user dislikes, the mean of -log P that a random item ranks above each is added.

    Args:
        ranker: Ranks the items of the model.
        chosen: The items of each new user, at least one.
        disliked: The items that each user dislikes; None if there are none.

    Raises:
        UsageError: The scores predict ratings, so they do not say which items are chosen.
    """
    if model.pair_loss.predicts_ratings:
        raise UsageError(
            "--items: this model predicts ratings, and ratings of new users are not known; train "
            "with --loss=sampled_items, in_batch_softmax or bpr"
        )
    scorer, items_VE = model.scorer, ranker.item_codes()
    columns = scorer.columns[0]
    sample = model.gather("users", tf.range(min(_USERS, model.users)), tables["users"].gather)
    length = tf.reduce_mean(tf.norm(sample, axis=1))

    def loss(pairs_N2: tf.Tensor, weights_N: tf.Tensor, rows_MD: tf.Tensor) -> tf.Tensor:
        """Return the weighted sum of -log P of pairs (row, item)."""
        scores_MV = tf.matmul(scorer.encode_users(rows_MD), items_VE, transpose_b=True)
        log_p_N = tf.gather_nd(tf.nn.log_softmax(scores_MV / model.pair_loss.temperature), pairs_N2)
        if disliked is None:
            return -tf.reduce_sum(weights_N * log_p_N)
        odds_N = log_p_N + tf.math.log(float(model.items))
        return -tf.reduce_sum(weights_N * tf.where(weights_N < 0, tf.nn.softplus(odds_N), log_p_N))

    block, parts = max(1, _SCORES // model.items), []
    for start in range(0, len(chosen.starts_U) - 1, block):
        items_N, owners_N, weights_N = _items_of(chosen, start, block)
        users = min(block, len(chosen.starts_U) - 1 - start)
        pairs = items_N, owners_N, weights_N
        if disliked is not None:
            others = _items_of(disliked, start, block)
            others = *others[:2], -others[2]
            pairs = tuple(tf.concat(parts, axis=0) for parts in zip(pairs, others, strict=True))
        user_loss = functools.partial(loss, tf.stack(pairs[1::-1], axis=1), pairs[2])
        rows_ND = model.gather("items", items_N, tables["items"].gather)[:, :columns]
        rows_ND = tf.pad(rows_ND, [[0, 0], [0, columns - rows_ND.shape[1]]])
        start_MD = tf.math.unsorted_segment_mean(rows_ND, owners_N, users)
        rows_MD = length * tf.math.l2_normalize(start_MD, axis=1)
        parts.append(_minimize(user_loss, rows_MD, length))
    return np.concatenate(parts)


def _items_of(items: KnownItems, first: int, block: int) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return the items of some users, int32, the place of the user of each, and its weight.

    The weights of the items of a user add up to 1.
    """
    starts_M = items.starts_U[first : first + block + 1]
    counts_M = np.diff(starts_M)
    owners_N = np.repeat(np.arange(len(counts_M)), counts_M)
    return (
        tf.constant(items.items_N[starts_M[0] : starts_M[-1]], tf.int32),
        tf.constant(owners_N, tf.int32),
        tf.constant(np.float32(1) / counts_M[owners_N].astype(np.float32)),
    )


def _minimize(
    loss: Callable[[tf.Tensor], tf.Tensor], rows_MD: tf.Tensor, length: tf.Tensor
) -> np.ndarray:
    """Return the rows after the steps of Adam; the rate is a share of the length of a row."""
    adam = lazy_adam(_BETA_1, _BETA_2, _TINY)
    state = {name: tf.zeros_like(rows_MD) for name in adam.slots}
    for step in range(1, _STEPS + 1):
        with tf.GradientTape() as tape:
            tape.watch(rows_MD)
            value = loss(rows_MD)
        gradient_MD = tf.convert_to_tensor(tape.gradient(value, rows_MD))
        rate = length * (_RATE * (1 - (step - 1) / _STEPS))
        change_MD, state = adam.rule(rows_MD, gradient_MD, state, rate, tf.constant(step))
        rows_MD += change_MD
    return rows_MD.numpy()
