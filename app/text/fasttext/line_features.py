"""The rows of the input matrix that a line of text has in a fastText model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...types import NgramRule
from .hashing import hash_word_ngrams, hash_words
from .model_file import Model
from .parts import LABEL_PREFIX, LINE_END, Args

_END, _PREFIX = LINE_END.encode(), LABEL_PREFIX.encode()


def make_rule(args: Args) -> NgramRule:
    """Return the n-grams of a word in a model that has any.

    Args:
        args: The settings of the model.
    """
    return NgramRule(max(1, args.min_ngram), args.max_ngram, args.buckets)


class LineFeatures:
    """Finds the features of lines as Dictionary::getLine does (src/dictionary.cc).

    Every line ends with the word `</s>`. The features are the known words, the character n-grams of
    all words, and the word n-grams, which unknown words are part of, too.

    Args:
        model: The model.
    """

    def __init__(self, model: Model):
        self._args, self._words = model.args, model.dictionary.words
        self._ids = {word: number for number, word in enumerate(self._words)}
        self._labels = frozenset(model.dictionary.labels)
        self._kept = None
        if model.dictionary.kept_buckets_K is not None:
            order_K = np.argsort(model.dictionary.kept_buckets_K)
            self._kept = model.dictionary.kept_buckets_K[order_K], order_K

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
        from .. import subwords  # imports TensorFlow, which few models need

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
        if not len(kept_K):
            return buckets_N, np.zeros(len(buckets_N), bool)
        places_N = np.minimum(np.searchsorted(kept_K, buckets_N), len(kept_K) - 1)
        return len(self._words) + order_K[places_N], kept_K[places_N] == buckets_N


def _split(line: bytes) -> list[bytes]:
    """Return the words of a line, of which `</s>` is the last (Dictionary::readWord)."""
    tokens = line.replace(b"\0", b" ").split()
    return [*(tokens[: tokens.index(_END)] if _END in tokens else tokens), _END]


def mean_rows(model: Model, rows_N: np.ndarray, owners_N: np.ndarray, count: int) -> np.ndarray:
    """Return the mean of the input rows of each owner, (count, D) float32; 0 without rows.

    Args:
        model: The model.
        rows_N: Numbers of rows.
        owners_N: The owner of each row, not descending.
        count: The number of owners.
    """
    means_ED = np.zeros((count, model.args.dim), np.float32)
    if len(rows_N):
        first_K = np.flatnonzero(np.diff(owners_N, prepend=-1))
        sums_KD = np.add.reduceat(model.input.take(rows_N), first_K, axis=0)
        sizes_K = np.diff(first_K, append=len(rows_N))
        means_ED[owners_N[first_K]] = sums_KD / sizes_K[:, np.newaxis].astype(np.float32)
    return means_ED
