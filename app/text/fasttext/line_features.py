"""The features of words and lines in a fastText model: hashes, n-grams, rows; the tree of labels.

TensorFlow is imported where it is used: most models are read and used without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...types import NgramRule
from .. import subwords
from ..subwords import OFFSET_BASIS, PRIME
from .model_file import LABEL_PREFIX, LINE_END, Args, Model

# Dictionary::addWordNgrams multiplies by this, modulo 2 ** 64.
HASH_FACTOR = 116_049_371
_END, _PREFIX = LINE_END.encode(), LABEL_PREFIX.encode()
_SIGNED = [byte if byte < 128 else byte | 0xFFFFFF00 for byte in range(256)]  # with 32 bits
# Counts of nodes that are not made yet (HierarchicalSoftmaxLoss::buildTree, src/loss.cc).
UNMADE = 10**15


def hash_words(words: Sequence[bytes]) -> np.ndarray:
    """Return the hash of each word, (N,) int32, as Dictionary::hash does.

    A byte counts as a signed number. fastText computes in uint32, and takes the result as int32
    for word n-grams.

    Args:
        words: The words in UTF-8.
    """
    return np.fromiter(map(_hash, words), np.uint32, len(words)).view(np.int32)


def _hash(word: bytes) -> int:
    """Return the hash of a word, an unsigned number."""
    value = OFFSET_BASIS
    for byte in word:
        value = (value ^ _SIGNED[byte]) * PRIME & 0xFFFFFFFF
    return value


def hash_names(words: Sequence[str]) -> np.ndarray:
    """Return the hash of each word, (N,) int32; see `hash_words`."""
    return hash_words([word.encode("utf-8", "replace") for word in words])


def hash_word_ngrams(
    hashes_M: np.ndarray, owners_M: np.ndarray, longest: int, buckets: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the buckets of the word n-grams of texts, and the text of each, (N,) int64.

    Args:
        hashes_M: The hashes of words, int32, one text after the other.
        owners_M: The number of the text of each word, not descending.
        longest: The words of the longest n-gram; 1 for none.
        buckets: The number of buckets.
    """
    words_M = hashes_M.astype(np.int64).view(np.uint64)  # sign-extended, as in C++
    sums_M = words_M
    found, owners = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for shift in range(1, min(longest, len(hashes_M))):
        sums_M = sums_M[:-1] * np.uint64(HASH_FACTOR) + words_M[shift:]
        in_text_M = owners_M[shift:] == owners_M[:-shift]
        found.append((sums_M[in_text_M] % np.uint64(buckets)).astype(np.int64))
        owners.append(owners_M[:-shift][in_text_M])
    return np.concatenate(found), np.concatenate(owners)


def make_rule(args: Args) -> NgramRule:
    """Return the n-grams of a word in a model that has any."""
    return NgramRule(max(1, args.min_ngram), args.max_ngram, args.buckets)


class LineFeatures:
    """Finds the features of lines as Dictionary::getLine does (src/dictionary.cc).

    Every line ends with the word `</s>`. The features are the known words, the character n-grams of
    all words, and the word n-grams, which unknown words are part of, too.
    """

    def __init__(self, model: Model):
        self._args, self._words = model.args, model.dictionary.words
        self._ids = {word: number for number, word in enumerate(self._words)}
        self._labels = frozenset(model.dictionary.labels)
        self._kept = None
        if model.dictionary.kept_buckets_K is not None:
            order_K = np.argsort(model.dictionary.kept_buckets_K)
            # At the end a bucket that no n-gram has.
            kept_K = np.append(model.dictionary.kept_buckets_K[order_K], -1)
            self._kept = kept_K, np.append(order_K, 0)

    def of_lines(self, lines: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows of the features of lines, and the line of each, not descending, (N,).

        Args:
            lines: The lines in UTF-8, without line feeds.
        """
        numbers: dict[bytes, int] = {}
        lists = [_split(line) for line in lines]
        tokens_M = [numbers.setdefault(token, len(numbers)) for part in lists for token in part]
        owners_M = np.repeat(np.arange(len(lines)), list(map(len, lists)))
        words = [word for word in numbers if not self._is_label(word)]
        index = np.full(len(numbers), -1)
        index[[numbers[word] for word in words]] = np.arange(len(words))
        words_M = index[tokens_M]
        owners_M, words_M = owners_M[words_M >= 0], words_M[words_M >= 0]
        rows_N, counts_W = self.of_words(words)
        starts_W = np.cumsum(counts_W) - counts_W
        counts_M = counts_W[words_M]
        first_M = np.cumsum(counts_M) - counts_M
        places_N = np.repeat(starts_W[words_M] - first_M, counts_M) + np.arange(counts_M.sum())
        rows, owners = [rows_N[places_N]], [np.repeat(owners_M, counts_M)]
        if self._args.word_ngrams > 1:
            hashes_M = hash_words(words)[words_M]
            size = self._args.word_ngrams, self._args.buckets
            buckets_N, owners_N = hash_word_ngrams(hashes_M, owners_M, *size)
            rows_N, is_there_N = self._bucket_rows(buckets_N)
            rows.append(rows_N[is_there_N])
            owners.append(owners_N[is_there_N])
        order_N = np.argsort(np.concatenate(owners), kind="stable")
        return np.concatenate(rows)[order_N], np.concatenate(owners)[order_N]

    def of_words(self, words: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows of words, one word after the other, and how many each word has.

        They are its own row, if it is known, and those of its character n-grams.

        Args:
            words: The words in UTF-8.
        """
        ids_W = np.array([self._ids.get(word, -1) for word in words], np.int64)
        if self._args.max_ngram <= 0:
            return ids_W[ids_W >= 0], (ids_W >= 0).astype(np.int64)
        ngrams = subwords.hash_words(words, make_rule(self._args))
        owners_N = np.repeat(np.arange(len(words)), np.diff(ngrams.starts))
        rows_N, is_there_N = self._bucket_rows(ngrams.buckets_N)
        known_K = np.flatnonzero(ids_W >= 0)
        owners = np.concatenate([known_K, owners_N[is_there_N]])
        rows = np.concatenate([ids_W[known_K], rows_N[is_there_N]])
        return rows[np.argsort(owners, kind="stable")], np.bincount(owners, minlength=len(words))

    def _is_label(self, token: bytes) -> bool:
        """Return whether a token is a label; an unknown token is one by its prefix."""
        if token in self._ids:
            return False
        return token in self._labels or token.startswith(_PREFIX)

    def _bucket_rows(self, buckets_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the row of each bucket, and whether a pruned model has kept it."""
        if self._kept is None:
            return len(self._words) + buckets_N, np.ones(len(buckets_N), bool)
        kept_K, order_K = self._kept
        places_N = np.searchsorted(kept_K[:-1], buckets_N)
        return len(self._words) + order_K[places_N], kept_K[places_N] == buckets_N


def _split(line: bytes) -> list[bytes]:
    """Return the words of a line, of which `</s>` is the last (Dictionary::readWord)."""
    tokens = line.replace(b"\0", b" ").split()
    return [*(tokens[: tokens.index(_END)] if _END in tokens else tokens), _END]


def mean_rows(model: Model, rows_N: np.ndarray, owners_N: np.ndarray, count: int) -> np.ndarray:
    """Return the mean of the input rows of each owner, (count, D) float32; 0 without rows.

    Args:
        rows_N: Numbers of rows.
        owners_N: The owner of each row, not descending.
        count: The number of owners.
    """
    means_ED = np.zeros((count, model.args.dim), np.float32)
    if len(rows_N):
        first_K = np.flatnonzero(np.diff(owners_N, prepend=-1))
        sums_KD = np.add.reduceat(model.input[rows_N], first_K, axis=0)
        sizes_K = np.diff(first_K, append=len(rows_N))
        means_ED[owners_N[first_K]] = sums_KD / sizes_K[:, np.newaxis].astype(np.float32)
    return means_ED


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
