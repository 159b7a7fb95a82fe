"""The adaptive softmax, which has rare words in clusters with fewer columns."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from ...system.xla import under_xla
from ...tables.base import TableSpec
from ...tables.initial import Uniform
from ...tables.row_reads import gather_unique, take
from ...types import HOST, Rows
from ..base import Gather, NormalizedLoss, Part, Predictions, VectorWordPairs, WordSegments
from .class_softmax import Level
from .classes import probabilities

# The fewest columns of a cluster, if the vectors have that many. With fewer the words of a cluster
# are hardly told apart.
_LEAST = 8
# The ids that are tried as cutoffs grow by this factor.
_STEP = 1.05


class AdaptiveSoftmax(NormalizedLoss):
    """The adaptive softmax of Grave et al. 2017, "Efficient softmax approximation for GPUs".

    The head is a softmax over the most frequent words and over one row for each cluster. A cluster
    is a softmax over its words, where vectors are projected to fewer columns. The formulas are
    those of torch.nn.AdaptiveLogSoftmaxWithLoss, without biases. A step reads and updates a cluster
    only if one of its words is to be predicted.

    Args:
        counts: (V,) occurrences of the words, descending.
        cutoffs: The ids at which clusters begin. Empty for the result of `choose_cutoffs`.
        divisor: The k-th cluster has D / divisor ** k columns, and at least 8.

    Raises:
        ValueError: The cutoffs are not ascending numbers from 1 to V - 1.
    """

    is_likelihood, lists_pairs = True, True

    def __init__(
        self,
        counts: np.ndarray,
        columns: int,
        cutoffs: Sequence[int] = (),
        divisor: float = 4.0,
        seed: int = 0,
    ):
        words = len(counts)
        cutoffs = list(cutoffs) or choose_cutoffs(counts)
        self._bounds = [*cutoffs, words]
        if any(end <= start for start, end in zip([0, *cutoffs], self._bounds, strict=True)):
            raise ValueError(
                f"cutoffs {', '.join(map(str, cutoffs))}: give rising numbers from 1 to "
                f"{words - 1}, as there are {words:,} words"
            )
        self._columns, self._seed = columns, seed
        bounds_head = np.array([0, self._bounds[0] + len(cutoffs)])
        # Its last rows stand for whole clusters, so they are needed most.
        self._head = Level("head", bounds_head, columns, by_frequency=False)
        self._tails = []
        for number, size in enumerate(np.diff(self._bounds), 1):
            least = min(columns, max(int(columns / divisor**number), _LEAST))
            self._tails.append(Level(f"tail{number}", np.array([0, size]), least))

    def tables(self) -> dict[str, TableSpec]:
        """Return the specs of the tables of the head, the clusters and the clusters' projections.

        Rows of the head and of the clusters start as 0. Projections are uniform with a variance of
        1 / D (LeCun et al. 1998, section 4.6): if they were 0, too, no gradient would ever flow.
        """
        tables = self._head.tables()
        for number, tail in enumerate(self._tails, 1):
            # Each projection has a random stream of its own, which no table of a model uses.
            initial = Uniform(math.sqrt(3 / self._columns), (number << 48) + self._seed)
            tables[_projection(tail)] = TableSpec(tail.columns, self._columns, initial)
            tables |= tail.tables()
        return tables

    def lookups(
        self, targets_GM: tf.Tensor | None = None, vectors: int = 0, seed: tf.Tensor | None = None
    ) -> dict[str, tf.Tensor]:
        """Return all rows of the projections; the other rows are streamed."""
        return {_projection(tail): tf.range(tail.columns) for tail in self._tails}

    def loss(self, predictions: Predictions, rows: dict[str, Rows]) -> tuple[float, list[Part]]:
        """Return 0, a part for the head, and a part for each cluster, none of them computed yet.

        The part of a cluster has only the pairs whose word is in it. Without any it has no segment,
        so its rows are not read.
        """
        pairs = VectorWordPairs.from_predictions(predictions)
        targets_P, first = pairs.targets_P, self._bounds[0]
        with tf.device(HOST):
            cutoffs = tf.constant(self._bounds[:-1], tf.int32, shape=[len(self._tails)])
            cluster_P = tf.searchsorted(cutoffs, targets_P, side="right")  # 0 is the head
            in_head_P = tf.where(cluster_P > 0, first + cluster_P - 1, targets_P)
        targets = predictions.targets_GM.shape.num_elements()
        parts = self._head.parts(pairs._replace(targets_P=in_head_P), targets)
        for number, tail in enumerate(self._tails, 1):
            rows_KD = take(rows[_projection(tail)], pairs.hidden_ND.dtype)
            tail_pairs = pairs._replace(
                hidden_ND=tf.matmul(pairs.hidden_ND, rows_KD, transpose_b=True),
                targets_P=targets_P - self._bounds[number - 1],
            )
            if not under_xla():  # which leaves out the pairs of other clusters in the part
                with tf.device(HOST):
                    indices = tf.where(cluster_P == number)[:, 0]
                tail_pairs = tail_pairs.select(indices)
            (part,) = tail.parts(tail_pairs, targets)
            parts.append(part._replace(segments=tf.minimum(tf.size(tail_pairs.targets_P), 1)))
        return 0.0, parts

    def exact(self, predictions: Predictions, gather: Gather) -> list[Part]:
        """Return the parts of `loss`, not yet computed, with one number for each vector."""
        return self.loss(predictions, gather_unique(self.lookups(), gather))[1]

    def priors(self, counts_V: np.ndarray) -> dict[str, np.ndarray]:
        """Return the log share of the text of every word and cluster in the head.

        Rows of clusters have no priors: their columns are projections of the vectors.
        """
        share_V = probabilities(counts_V)
        tails = [share_V[start:end].sum() for start, end in itertools.pairwise(self._bounds)]
        return {"head": np.log([*share_V[: self._bounds[0]], *tails]).astype(np.float32)}

    def word_segments(self, hidden_ND: tf.Tensor, gather: Gather) -> list[WordSegments]:
        """Return the words of the head, then the words of each cluster; see `NormalizedLoss`.

        All rows of the head and the projections are read at once, those of a cluster as in
        `Level.word_segments`.
        """
        hidden_ND = tf.cast(hidden_ND, tf.float32)
        first = self._bounds[0]
        head_NH = self._head.log_probabilities(hidden_ND, gather, tf.zeros_like(hidden_ND[:, :1]))
        words = tf.range(first), head_NH[:, :first]
        bounds_N1 = tf.reduce_max(words[1], axis=1, keepdims=True)
        found = [WordSegments.whole(bounds_N1, lambda _: words)]
        for number, tail in enumerate(self._tails):
            rows_KD = gather(_projection(tail), tf.range(tail.columns))
            projected_NK = tf.matmul(hidden_ND, rows_KD, transpose_b=True)
            above_N1 = head_NH[:, first + number : first + number + 1]
            (segments,) = tail.word_segments(projected_NK, gather, above_N1)
            found.append(segments.renumber(functools.partial(tf.add, self._bounds[number])))
        return found


def choose_cutoffs(counts_V: np.ndarray) -> list[int]:
    """Return the cutoffs at which a word needs the fewest scores on average.

    A word needs the scores of the head and of its cluster. Of 67,871 words of English
    (data/benchmarks/README.md) 1,833 are then in the head and 13,852 in the first cluster. The cost
    does not count that clusters have fewer columns; if it did, hardly any words would be left in
    the head. A third cutoff would save a quarter of the scores, but give more words fewer columns.

    Args:
        counts_V: Occurrences of the words, descending.

    Returns:
        One or two ids, ascending. No ids if V scores for each word are the fewest.
    """
    words = len(counts_V)
    below_V = np.append(0.0, np.cumsum(probabilities(counts_V)))
    steps = np.ceil(np.log(words) / np.log(_STEP))
    ids_I = np.unique(np.append(np.round(_STEP ** np.arange(steps)), words)).astype(np.int64)
    ids_I = ids_I[ids_I <= words]
    below_I = below_V[ids_I]
    # Entry [i, j] of each array (I, I) is for cutoffs ids_I[i] <= ids_I[j].
    first_I1, first_below_I1 = ids_I[:, np.newaxis], below_I[:, np.newaxis]
    clusters_II = (first_I1 < words) * 1 + ((first_I1 < ids_I) & (ids_I < words))
    scores_II = first_I1 + clusters_II + (below_I - first_below_I1) * (ids_I - first_I1)
    scores_II = scores_II + (1 - below_I) * (words - ids_I)
    scores_II[first_I1 > ids_I] = np.inf
    best = np.unravel_index(np.argmin(scores_II), scores_II.shape)
    return sorted({int(ids_I[index]) for index in best} - {words})


def _projection(tail: Level) -> str:
    """Return the name of the table that projects vectors to the columns of a cluster."""
    return tail.table.replace("tail", "projection")
