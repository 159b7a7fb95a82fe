"""The canonical Huffman code of a vocabulary: a few numbers for each depth instead of a tree."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Code(NamedTuple):
    """The shape of a binary tree over the words, from which every word's path follows.

    The nodes of a depth have an index from 0. Nodes with children come before nodes that are words.
    The children of node i are nodes 2 i and 2 i + 1 of the next depth, so the ancestor of node i
    that is s depths further up is i >> s. So no path and no pointer is stored for any word.

    Words with shorter paths have lower ids. Of one depth, the word with the higher index has the
    lower id. So the words of a subtree are a range of ids at each depth.

    Attributes:
        words_E: The number of words at each depth, from depth 0, int64, as are all fields.
        inner_E: The number of nodes with children at each depth.
        last_E: The index of word `id` at its depth is `last_E[depth] - id`.
        rows_E: The table row of the first node of each depth; rows are numbered from the root down.
        ends_E: The number of words at each depth or above, so their ids are below it.
    """

    words_E: np.ndarray
    inner_E: np.ndarray
    last_E: np.ndarray
    rows_E: np.ndarray
    ends_E: np.ndarray

    @property
    def depth(self) -> int:
        """The length of the longest path."""
        return len(self.words_E) - 1


def canonical_code(counts_V: np.ndarray) -> Code:
    """Return the canonical code with Huffman's code lengths (Schwartz and Kallick 1964).

    Args:
        counts_V: Occurrences of the words, descending, so that lower ids get shorter paths.
    """
    words_E = code_length_counts(counts_V)
    inner_E = np.zeros_like(words_E)
    nodes = 1
    for depth, words in enumerate(words_E):
        inner_E[depth] = nodes - words
        nodes = 2 * inner_E[depth]
    ends_E = np.cumsum(words_E)
    rows_E = np.cumsum(inner_E) - inner_E
    return Code(words_E, inner_E, inner_E + ends_E - 1, rows_E, ends_E)


def code_length_counts(counts_V: np.ndarray) -> np.ndarray:
    """Return the number of words of each code length in an optimal binary code.

    Several codes have the least sum of counts times lengths (Huffman 1952). This one has the
    shortest longest word: of two items of equal weight a word is joined before a node (Schwartz
    1964).

    Huffman's algorithm joins the two lightest items again and again. Here all items that weigh no
    more than these two together are joined in one round, two by two; the new nodes are no lighter.
    This gives the same tree in a few dozen array operations instead of V - 1 turns of a loop.

    Args:
        counts_V: Occurrences of the words. A count below 1 is taken as 1.

    Returns:
        The number of words of each length from 0 to the longest, int64. A single word has length 0.
    """
    words_V = np.sort(np.maximum(counts_V, 1).astype(np.int64))
    size = len(words_V)
    # Nodes are made by ascending weight, so that words and nodes are two sorted queues: `word` and
    # `node` are their first items, `end` is the number of nodes.
    nodes = np.empty(size, np.int64)
    word_parents, node_parents = np.empty(size, np.int32), np.empty(size, np.int32)
    word = node = end = 0
    rounds = []
    while end < size - 1:
        front = np.concatenate([words_V[word : word + 2], nodes[node : min(node + 2, end)]])
        light = np.searchsorted(words_V[word:], np.sort(front)[:2].sum(), side="right")
        weights = np.concatenate([words_V[word : word + light], nodes[node:end]])
        pairs = len(weights) // 2
        order = np.argsort(weights, kind="stable")[: 2 * pairs]  # merges the queues, words first
        parents, is_word = end + np.arange(2 * pairs) // 2, order < light
        joined = np.count_nonzero(is_word)
        word_parents[word : word + joined] = parents[is_word]
        node_parents[node : node + 2 * pairs - joined] = parents[~is_word]
        nodes[end : end + pairs] = weights[order].reshape(-1, 2).sum(axis=1)
        rounds.append(slice(end, end + pairs))
        word, node, end = word + joined, node + 2 * pairs - joined, end + pairs
    if not rounds:
        return np.ones(1, np.int64)
    depths = np.zeros(size, np.int16)
    for nodes_made in reversed(rounds[:-1]):  # the last round made the root
        depths[nodes_made] = depths[node_parents[nodes_made]] + 1
    return np.bincount(depths[word_parents] + 1)
