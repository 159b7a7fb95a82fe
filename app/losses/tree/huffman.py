"""Huffman's code of a vocabulary, in its canonical form: a few numbers for each depth, no tree."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Code(NamedTuple):
    """The shape of a binary tree over the words, which tells every word's path.

    At each depth nodes have an index from 0, those with children before those that are words. The
    children of node i are 2 i and 2 i + 1 of the next depth, so the ancestor of a node s depths
    further up is i >> s: no path, and no pointer, is stored for any of ten million words. WordBlock
    with shorter paths have lower ids, and of one depth the higher index, so that a subtree is a
    range of ids at each depth, and rising indices of a depth are falling ids.

    All fields are int64 and have one number for each depth from 0 on. words_E: how many words.
    inner_E: how many nodes with children. last_E: the index of the depth's word `id` is
    `last_E[depth] - id`. rows_E: which row of the table is that of the depth's first node; rows go
    from the root down. ends_E: below that are the ids of words at this depth or less.
    """

    words_E: np.ndarray
    inner_E: np.ndarray
    last_E: np.ndarray
    rows_E: np.ndarray
    ends_E: np.ndarray

    @property
    def depth(self) -> int:
        """The longest path."""
        return len(self.words_E) - 1


def canonical_code(counts_V: np.ndarray) -> Code:
    """The canonical code (Schwartz and Kallick 1964) with the lengths of Huffman's.

    counts_V: occurrences, by descending count, as ids are; see `code_length_counts`.
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
    """How many words an optimal binary code has of each length, from 0 to the longest, int64.

    counts_V: occurrences; one below 1 is taken as 1. Of all codes with the smallest sum of counts
    times lengths (Huffman 1952) this is the one whose longest word is shortest, as of two items of
    equal weight a word is joined before a node (Schwartz 1964).

    Huffman joins the two lightest items, again and again. Here all items that weigh no more than
    those two together are joined at once, two by two, as what is made of them is no lighter. That
    gives the same tree in a few dozen passes over arrays instead of V - 1 turns of a loop.
    """
    words_V = np.sort(np.maximum(counts_V, 1).astype(np.int64))
    size = len(words_V)
    # Nodes are made by ascending weight, so that words and nodes are two sorted queues.
    nodes = np.empty(size, np.int64)
    of_words, of_nodes = np.empty(size, np.int32), np.empty(size, np.int32)  # the node above each
    word = node = made = 0
    rounds = []
    while made < size - 1:
        front = np.concatenate([words_V[word : word + 2], nodes[node : min(node + 2, made)]])
        light = np.searchsorted(words_V[word:], np.sort(front)[:2].sum(), side="right")
        weights = np.concatenate([words_V[word : word + light], nodes[node:made]])
        pairs = len(weights) // 2
        order = np.argsort(weights, kind="stable")[: 2 * pairs]  # merges the two, words first
        above, is_word = made + np.arange(2 * pairs) // 2, order < light
        joined = np.count_nonzero(is_word)
        of_words[word : word + joined] = above[is_word]
        of_nodes[node : node + 2 * pairs - joined] = above[~is_word]
        nodes[made : made + pairs] = weights[order].reshape(-1, 2).sum(axis=1)
        rounds.append(slice(made, made + pairs))
        word, node, made = word + joined, node + 2 * pairs - joined, made + pairs
    if not rounds:
        return np.ones(1, np.int64)
    depths = np.zeros(size, np.int16)
    for nodes_made in reversed(rounds[:-1]):  # the last round made the root
        depths[nodes_made] = depths[of_nodes[nodes_made]] + 1
    return np.bincount(depths[of_words] + 1)
