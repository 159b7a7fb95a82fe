"""The binary tree that fastText builds from the counts of labels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

# Counts of nodes that are not made yet (HierarchicalSoftmaxLoss::buildTree, src/loss.cc).
UNMADE = 10**15


class CountTree(NamedTuple):
    """A tree with C leaves, nodes 0 to C - 1, and C - 1 inner nodes, of which the last is the root.

    Attributes:
        parents: The parent of each node but the root, (2 C - 2,) int64.
        is_right: Whether a node is the right child, whose probability is the sigmoid of the score
            of row `parent - C`.
    """

    parents: np.ndarray
    is_right: np.ndarray

    @property
    def leaves(self) -> int:
        """Return the number of leaves, C."""
        return len(self.parents) // 2 + 1

    def levels(self) -> list[np.ndarray]:
        """Return the nodes of each depth, from the children of the root down."""
        levels, above = [], np.array([2 * self.leaves - 2])
        order = np.argsort(self.parents, kind="stable")  # the two children of node C come first
        while len(above := above[above >= self.leaves]):
            first = 2 * (above - self.leaves)
            above = order[np.stack([first, first + 1], axis=1).reshape(-1)]
            levels.append(above)
        return levels


def build_tree(counts_C: np.ndarray) -> CountTree:
    """Return the tree of some labels, node by node as HierarchicalSoftmaxLoss::buildTree makes it.

    The two lightest of all nodes without a parent get one; of a leaf and an inner node of equal
    weight, the inner node is taken first.

    Args:
        counts_C: Occurrences of the labels, descending.
    """
    count = len(counts_C)
    weights = [*map(int, counts_C), *[UNMADE] * count]
    parents = np.zeros(2 * count - 2, np.int64)
    is_right = np.zeros(2 * count - 2, bool)
    leaf, inner = count - 1, count
    for node in range(count, 2 * count - 1):
        weight = 0
        for side in (False, True):
            if leaf >= 0 and weights[leaf] < weights[inner]:
                child, leaf = leaf, leaf - 1
            else:
                child, inner = inner, inner + 1
            parents[child], is_right[child] = node, side
            weight += weights[child]
        weights[node] = weight
    return CountTree(parents, is_right)
