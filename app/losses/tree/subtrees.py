"""A Huffman tree from the root down: the paths to its upper nodes, and what lies below them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

from ..base import WordBlock
from .huffman import Code

# A block of words is a subtree of at most so many further depths, so of at most 32,768 words.
_DEPTHS = 15

# From rows (U,) int32 of the table to their values (U, D).
Read = Callable[[tf.Tensor], tf.Tensor]


def path_turns(code: Code, depth: int) -> np.ndarray:
    """Which way the paths go on above a depth, (N, 2 K) float32 of 0 and 1.

    In the order of `losses.tree.paths.Paths.cut`: first the nodes with children at that depth, then
    the words that are no deeper, by their ids. Of the K nodes above, by their rows, the first K
    columns say whether the path goes left there, the others whether it goes right.
    """
    ids = np.arange(code.ends_E[depth])
    lengths = np.searchsorted(code.ends_E, ids, side="right")
    depths_N = np.append(np.full(code.inner_E[depth], depth), lengths)
    indices_N = np.append(np.arange(code.inner_E[depth]), code.last_E[lengths] - ids)
    rows = max(int(code.inner_E[:depth].sum()), 1)
    found = np.zeros((len(depths_N), 2, rows), np.float32)
    for above in range(depth):
        on_N = np.flatnonzero(depths_N > above)
        further_N = depths_N[on_N] - above
        right_N = indices_N[on_N] >> (further_N - 1) & 1
        found[on_N, right_N, code.rows_E[above] + (indices_N[on_N] >> further_N)] = 1
    return found.reshape(len(depths_N), -1)


def word_blocks(code: Code, hidden_ND: np.ndarray, read: Read) -> Iterator[WordBlock]:
    """All words in blocks, each a subtree but for one of the words above these.

    hidden_ND: float32.
    """
    depth = max(code.depth - _DEPTHS, 0)
    above_NI = np.zeros((len(hidden_ND), 1), np.float32)
    ended = [above_NI[:, : code.words_E[0]]]
    for level in range(depth):
        first = code.rows_E[level]
        rows_ID = _read(read, [np.arange(first, first + code.inner_E[level])])
        above_NI, ended_NM = _children(code, level, 0, above_NI, hidden_ND @ rows_ID.T)
        ended.append(ended_NM[:, ::-1])  # of one depth the higher index is the lower id
    if code.ends_E[depth]:
        found_NM = np.concatenate(ended, axis=1)
        ids_M = np.arange(found_NM.shape[1], dtype=np.int32)
        yield WordBlock(ids_M, found_NM.max(axis=1), lambda: found_NM)
    for root in range(code.inner_E[depth]):
        bound_N = above_NI[:, root]
        found = functools.partial(_below, code, depth, root, bound_N, hidden_ND, read)
        yield WordBlock(_ids(code, depth, root), bound_N, found)


def _spans(code: Code, depth: int, root: int) -> Iterator[tuple[int, int, int, int]]:
    """A subtree's depths, and of each the first index, that of its first word, and the end."""
    begin, end = root, root + 1
    while begin < end:
        middle = int(np.clip(code.inner_E[depth], begin, end))
        yield depth, begin, middle, end
        depth, begin, end = depth + 1, 2 * begin, 2 * middle


def _ids(code: Code, depth: int, root: int) -> np.ndarray:
    """The words of a subtree, (M,) int32, depth by depth."""
    spans = _spans(code, depth, root)
    ids = [code.last_E[level] - np.arange(middle, end) for level, _, middle, end in spans]
    return np.concatenate(ids).astype(np.int32)


def _below(
    code: Code, depth: int, root: int, above_N: np.ndarray, hidden_ND: np.ndarray, read: Read
) -> np.ndarray:
    """The log-probabilities of a subtree's words, (N, M) float32, in the order of `_ids`."""
    *spans, _ = _spans(code, depth, root)  # none of the last has children
    rows = [code.rows_E[level] + np.arange(begin, middle) for level, begin, middle, _ in spans]
    scores_NU = hidden_ND @ _read(read, rows).T
    ends = np.cumsum([len(some) for some in rows])
    above_NI, found = above_N[:, np.newaxis], []
    for (level, begin, _, _), scores_NI in zip(
        spans, np.split(scores_NU, ends[:-1], axis=1), strict=True
    ):
        above_NI, ended_NM = _children(code, level, begin, above_NI, scores_NI)
        found.append(ended_NM)
    return np.concatenate(found, axis=1)


def _children(
    code: Code, depth: int, begin: int, above_NI: np.ndarray, scores_NI: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The log-probabilities of nodes' children that have children, and of those that are words.

    begin: the index of the first of the nodes. above_NI: their log-probabilities.
    """
    # -log(1 + e^-s), and -log(1 + e^s) for the right
    left_NI = np.minimum(scores_NI, 0) - np.log1p(np.exp(-np.abs(scores_NI)))
    below_NI2 = above_NI[..., np.newaxis] + np.stack([left_NI, left_NI - scores_NI], axis=-1)
    below_NJ = below_NI2.reshape(len(scores_NI), -1)
    middle = int(np.clip(code.inner_E[depth + 1] - 2 * begin, 0, below_NJ.shape[1]))
    return below_NJ[:, :middle], below_NJ[:, middle:]


def _read(read: Read, rows: list[np.ndarray]) -> np.ndarray:
    return read(tf.constant(np.concatenate(rows), tf.int32)).numpy()
