"""Solve for the rows of users who were not in training, by their items."""

from __future__ import annotations

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
from .recommend_model import TrainedRecommender

# Steps of Adam, whose rate falls from a share of the length of a row to 0. With them 1,500 users of
# Gowalla have the recall of their trained rows (data/benchmarks/README.md).
_STEPS, _RATE = 100, 0.1
_BETA_1, _BETA_2, _TINY = 0.9, 0.9, 1e-12  # a small beta_2 follows gradients that shrink
_SHOWN = 5  # of the names that are not known
_USERS = 1000  # trained users whose rows tell how long a row is


def parse_items(names: Sequence[str], items: Vocabulary, flag: str, where: str) -> np.ndarray:
    """Return the ids of the items that a new user names, int32, rising.

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
    return np.sort(np.array([ids[name] for name in names if name in ids], np.int32))


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


def rank_items(
    trained: TrainedRecommender,
    ranker: Ranker,
    chosen_N: np.ndarray,
    disliked_N: np.ndarray,
    include_known: bool,
) -> list[tuple[str, float]]:
    """Return the best items of a new user, each with its score, best first.

    Args:
        ranker: Ranks the items of the model.
        chosen_N: The ids of the items that the user chose, at least one.
        disliked_N: The ids of those that the user dislikes.
        include_known: Whether to rank these items as well.

    Raises:
        UsageError: An item is among both, or the scores predict ratings.
    """
    if len(np.intersect1d(chosen_N, disliked_N)):
        raise UsageError("--disliked names an item that --items names, too; name it in one of them")
    row_1D = solve_row(trained.model, trained.tables, ranker, chosen_N, disliked_N)
    known_N = np.sort(np.concatenate([chosen_N, disliked_N]))
    known = None if include_known else KnownItems(np.array([0, len(known_N)]), known_N)
    ((_, ids_1K, scores_1K),) = ranker.blocks(np.zeros(1, np.int32), known, row_1D)
    pairs = zip(ids_1K[0].tolist(), scores_1K[0].tolist(), strict=True)
    return [(trained.items.tokens[item], score) for item, score in pairs if item >= 0]


def solve_row(
    model: Recommender,
    tables: Mapping[str, Table],
    ranker: Ranker,
    chosen_N: np.ndarray,
    disliked_N: np.ndarray,
) -> np.ndarray:
    """Return a row for a new user, with all other rows as they are, (1, D) float32.

    The row minimizes the mean of -log P of the user's items, P being the softmax of the scores of
    all items. Training minimizes an estimate of this sum, or (`bpr`) another loss of ranks. The
    items are all scored, so nothing is drawn, and the same items give the same row. For items that
    the user dislikes, the mean of -log P that a random item ranks above each is added.

    Args:
        ranker: Ranks the items of the model.
        chosen_N: The ids of the items of the user, at least one.
        disliked_N: The ids of those that the user dislikes.

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

    def mean_of(values_V: tf.Tensor, ids_N: np.ndarray) -> tf.Tensor:
        """Return the mean of the values of some items; 0 for none."""
        return tf.reduce_sum(tf.gather(values_V, ids_N)) / max(len(ids_N), 1)

    def loss(row_1D: tf.Tensor) -> tf.Tensor:
        """Return the sum of both means of -log P."""
        scores_1V = tf.matmul(scorer.encode_users(row_1D), items_VE, transpose_b=True)
        log_p_V = tf.nn.log_softmax(scores_1V / model.pair_loss.temperature)[0]
        odds_V = tf.nn.softplus(log_p_V + tf.math.log(float(model.items)))
        return mean_of(odds_V, disliked_N) - mean_of(log_p_V, chosen_N)

    rows_ND = model.gather("items", chosen_N, tables["items"].gather)[:, :columns]
    rows_ND = tf.pad(rows_ND, [[0, 0], [0, columns - rows_ND.shape[1]]])
    start_1D = tf.reduce_mean(rows_ND, axis=0, keepdims=True)
    return _minimize(loss, length * tf.math.l2_normalize(start_1D, axis=1), length)


def _minimize(
    loss: Callable[[tf.Tensor], tf.Tensor], row_1D: tf.Tensor, length: tf.Tensor
) -> np.ndarray:
    """Return the row after the steps of Adam; the rate is a share of the length of a row."""
    adam = lazy_adam(_BETA_1, _BETA_2, _TINY)
    state = {name: tf.zeros_like(row_1D) for name in adam.slots}
    for step in range(1, _STEPS + 1):
        with tf.GradientTape() as tape:
            tape.watch(row_1D)
            value = loss(row_1D)
        gradient_1D = tf.convert_to_tensor(tape.gradient(value, row_1D))
        rate = length * (_RATE * (1 - (step - 1) / _STEPS))
        change_1D, state = adam.rule(row_1D, gradient_1D, state, rate, tf.constant(step))
        row_1D += change_1D
    return row_1D.numpy()
