"""A hierarchical softmax of ours as the tree that fastText builds from counts.

fastText makes its tree when it loads a file, from the counts of the labels there. With the count
2 ** (longest path - path) for each label it makes our canonical tree: every depth has the same
nodes in the same order. Only the rows are numbered from the deepest nodes up, and a score is for
the right child instead of the left one.
"""

from __future__ import annotations

import numpy as np

from ..losses.tree.huffman import Code, canonical_code

# Sums of counts must stay below those of nodes that are not made (buildTree, src/loss.cc).
_DEEPEST = 49


def has_tree(code: Code) -> bool:
    """Return whether fastText can have the tree: no path is longer than 49 turns.

    Args:
        code: The canonical code of the labels.
    """
    return code.depth <= _DEEPEST


def make_counts(code: Code) -> np.ndarray:
    """Return the counts of the labels from which fastText builds the tree, (C,) int64.

    Args:
        code: The canonical code of the labels.
    """
    return np.repeat(2 ** (code.depth - np.arange(code.depth + 1)), code.words_E)


def order_rows(code: Code) -> np.ndarray:
    """Return our row of each inner node in the order of fastText, (C - 1,) int64.

    The rows have the opposite sign there.

    Args:
        code: The canonical code of the labels.
    """
    depths = reversed(range(code.depth))
    return np.concatenate([code.rows_E[d] + np.arange(code.inner_E[d]) for d in depths])


def is_canonical(counts_C: np.ndarray) -> bool:
    """Return whether fastText builds our canonical tree from some counts.

    Args:
        counts_C: The counts of a file, descending.
    """
    code = canonical_code(counts_C)
    return has_tree(code) and np.array_equal(make_counts(code), counts_C)
