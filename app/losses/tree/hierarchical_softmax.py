"""The hierarchical softmax over a Huffman tree."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from ...tables.base import TableSpec
from ...tables.initial import Constant
from ...types import Rows
from ..base import Gather, NormalizedLoss, Part, Predictions, WordGroups
from . import huffman, single_loss, subtrees
from .grouped_loss import GroupedLoss

_TABLE = "output"
# The most numbers that are gathered at once, 256 MB. If a batch needs more, the depths of the tree
# are processed some at a time.
_GATHERED = 64 << 20


class HierarchicalSoftmax(NormalizedLoss):
    """The loss of a word as the sum of logistic losses along its path through a binary tree.

    A path goes left at node n with a probability of sigmoid(h v_n) (Mikolov et al. 2013b, section
    2.1, after Morin and Bengio 2005). The tree is Huffman's, as in word2vec.c: a word of
    probability p costs about -log2 p rows, which is 11 on average in English text, and 15 for ten
    million words. It is in the canonical form, which takes no memory (see
    `losses.tree.huffman.Code`).

    Args:
        counts: (V,) occurrences of the words, descending.
        columns: The columns of a vector, D.
    """

    is_likelihood = True
    group_words = 16

    def __init__(self, counts: np.ndarray, columns: int):
        self._code = huffman.canonical_code(counts)
        self._columns = columns
        self._grouped = GroupedLoss(self._code)

    def tables(self) -> dict[str, TableSpec]:
        """Return the spec of a table with a row for each inner node, 0 at first (word2vec.c)."""
        rows = max(int(self._code.inner_E.sum()), 1)  # a table needs a row, even for a single word
        spec = TableSpec(rows, self._columns, Constant(0.0), by_frequency=True)  # the root first
        return {_TABLE: spec}

    def loss(self, predictions: Predictions, rows: dict[str, Rows]) -> tuple[float, list[Part]]:
        """Return 0, and the parts of `exact`, which hold the whole loss."""
        return 0.0, self.exact(predictions, rows)

    def exact(self, predictions: Predictions, rows: dict[str, Rows]) -> list[Part]:
        """Return parts, not yet computed, whose losses sum to the weighted -log P.

        If the rows of all depths are too many to be gathered at once, a part has a tile for every
        few depths. Each part gives a loss for each vector and can be differentiated. `rows` is not
        used.
        """
        if predictions.hidden_GND.shape[1] == predictions.targets_GM.shape[1] == 1:
            return [single_loss.make_part(self._code, predictions, _TABLE, _GATHERED)]
        return self._grouped.parts(predictions, _TABLE, _GATHERED)

    def priors(self, counts_V: np.ndarray) -> dict[str, np.ndarray]:
        """Return no scores: at each node of Huffman's tree both turns are about as frequent."""
        return {}

    def word_groups(self, hidden_ND: tf.Tensor, gather: Gather) -> list[WordGroups]:
        """Return the words near the root, then the words of each subtree; see `NormalizedLoss`.

        The bound of a subtree is the log-probability of its root.
        """
        hidden_ND = tf.cast(hidden_ND, tf.float32)
        return subtrees.word_groups(self._code, hidden_ND, lambda rows_U: gather(_TABLE, rows_U))
