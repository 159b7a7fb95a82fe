"""The upper nodes of a Huffman tree, and the subtrees of words below them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

from ..base import WordBlock
from .huffman import Code

# A block of words is a subtree of at most this many depths, which has at most 32,768 words.
_DEPTHS = 15

# Reads rows of the table: takes row numbers (U,) int32, returns rows (U, D).
Read = Callable[[tf.Tensor], tf.Tensor]


def word_blocks(code: Code, hidden_ND: np.ndarray, read: Read) -> Iterator[WordBlock]:
    """Yield all words in blocks: one for the words near the root, then one for each subtree.

    Rows of inner nodes near the root are read at once, the rows of a subtree only when its
    log-probabilities are asked for. There is no first block if no word is near the root.

    Args:
        code: The code of the vocabulary.
        hidden_ND: N hidden vectors, float32.
        read: Reads rows of the table.
    """
    depth = max(code.depth - _DEPTHS, 0)
    above_NI = np.zeros((len(hidden_ND), 1), np.float32)
    ended = [above_NI[:, : code.words_E[0]]]
    for level in range(depth):
        first = code.rows_E[level]
        rows_ID = _read(read, [np.arange(first, first + code.inner_E[level])])
        above_NI, ended_NM = _split_children(code, level, 0, above_NI, hidden_ND @ rows_ID.T)
        ended.append(ended_NM[:, ::-1])  # of one depth the higher index is the lower id
    if code.ends_E[depth]:
        log_p_NM = np.concatenate(ended, axis=1)
        ids_M = np.arange(log_p_NM.shape[1], dtype=np.int32)
        yield WordBlock(ids_M, log_p_NM.max(axis=1), lambda: log_p_NM)
    for root in range(code.inner_E[depth]):
        bound_N = above_NI[:, root]
        log_probability = functools.partial(
            _subtree_log_probabilities, code, depth, root, bound_N, hidden_ND, read
        )
        yield WordBlock(_subtree_ids(code, depth, root), bound_N, log_probability)


def _spans(code: Code, depth: int, root: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield the interval of nodes of a subtree at each depth, from its root down.

    Args:
        code: The code of the vocabulary.
        depth: The depth of the root.
        root: The index of the root at its depth.

    Yields:
        A depth, the index of its first node, the index of its first word, and the end of the
        interval. Nodes with children come before words.
    """
    begin, end = root, root + 1
    while begin < end:
        middle = int(np.clip(code.inner_E[depth], begin, end))
        yield depth, begin, middle, end
        depth, begin, end = depth + 1, 2 * begin, 2 * middle


def _subtree_ids(code: Code, depth: int, root: int) -> np.ndarray:
    """Return the ids of the words of a subtree, (M,) int32, depth by depth."""
    spans = _spans(code, depth, root)
    ids = [code.last_E[level] - np.arange(middle, end) for level, _, middle, end in spans]
    return np.concatenate(ids).astype(np.int32)


def _subtree_log_probabilities(
    code: Code, depth: int, root: int, above_N: np.ndarray, hidden_ND: np.ndarray, read: Read
) -> np.ndarray:
    """Return the log-probabilities of a subtree's words, (N, M), in the order of `_subtree_ids`.

    This reads the rows of all nodes of the subtree. `above_N` is the log-probability of its root.
    """
    *spans, _ = _spans(code, depth, root)  # no node of the last depth has children
    rows = [code.rows_E[level] + np.arange(begin, middle) for level, begin, middle, _ in spans]
    scores_NU = hidden_ND @ _read(read, rows).T
    ends = np.cumsum([len(depth_rows) for depth_rows in rows])
    above_NI, words = above_N[:, np.newaxis], []
    for (level, begin, _, _), scores_NI in zip(
        spans, np.split(scores_NU, ends[:-1], axis=1), strict=True
    ):
        above_NI, ended_NM = _split_children(code, level, begin, above_NI, scores_NI)
        words.append(ended_NM)
    return np.concatenate(words, axis=1)


def _split_children(
    code: Code, depth: int, begin: int, above_NI: np.ndarray, scores_NI: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the log-probabilities of the children of nodes: of inner nodes, then of words.

    The nodes are I neighbors at one depth. Their 2 I children are columns by ascending index; inner
    nodes come before words.

    Args:
        code: The code of the vocabulary.
        depth: The depth of the nodes.
        begin: The index of the first node at its depth; its children have 2 begin and 2 begin + 1.
        above_NI: The log-probability of each of I nodes, for each of N hidden vectors.
        scores_NI: The scores of the nodes; a left child has the probability sigmoid(score).

    Returns:
        Two arrays with N rows, which have 2 I columns in all; either may have no column.
    """
    # The left child has log sigmoid(s) = -log(1 + e^-s), the right child has log sigmoid(-s).
    left_NI = np.minimum(scores_NI, 0) - np.log1p(np.exp(-np.abs(scores_NI)))
    below_NI2 = above_NI[..., np.newaxis] + np.stack([left_NI, left_NI - scores_NI], axis=-1)
    below_NJ = below_NI2.reshape(len(scores_NI), -1)
    middle = int(np.clip(code.inner_E[depth + 1] - 2 * begin, 0, below_NJ.shape[1]))
    return below_NJ[:, :middle], below_NJ[:, middle:]


def _read(read: Read, rows: list[np.ndarray]) -> np.ndarray:
    """Read the rows of several arrays of row numbers, and return them as one array (U, D)."""
    return read(tf.constant(np.concatenate(rows), tf.int32)).numpy()
