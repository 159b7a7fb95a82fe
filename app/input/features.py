"""Labelled texts in memory, as ids, and their features: words and hashed n-grams."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ..text.fasttext.line_features import HASH_FACTOR, hash_names

# Words whose features are computed at a time.
_WORDS_AT_ONCE = 1 << 20


@dataclasses.dataclass(frozen=True, eq=False)
class Examples:
    """E texts with their labels.

    Attributes:
        words: Names of the word ids.
        labels: Names of the label ids.
        tokens_M: Word ids, int32, one text after the other.
        starts_E: Start of each text in `tokens_M`, and the end of the last, (E + 1,) int64.
        labels_N: Label ids, int32, one text after the other; -1 for a label without an id.
        label_starts_E: Start of each text in `labels_N`, and the end of the last, (E + 1,) int64.
        weights_E: Weight of each text, (E,) float32, above 0; None if all are 1.
        shares_N: Weight of each label of `labels_N` in its text, float32, above 0 and at most 1;
            None if all are 1.
    """

    words: Sequence[str]
    labels: Sequence[str]
    tokens_M: np.ndarray
    starts_E: np.ndarray
    labels_N: np.ndarray
    label_starts_E: np.ndarray
    weights_E: np.ndarray | None = None
    shares_N: np.ndarray | None = None

    def __len__(self) -> int:
        """Return the number of texts."""
        return len(self.starts_E) - 1

    @property
    def lengths_E(self) -> np.ndarray:
        """Return the number of words of each text, (E,) int64."""
        return np.diff(self.starts_E)

    @property
    def label_counts_E(self) -> np.ndarray:
        """Return the number of labels of each text, (E,) int64."""
        return np.diff(self.label_starts_E)

    @property
    def bytes(self) -> int:
        """Return the memory of the arrays, in bytes."""
        arrays = [value for value in vars(self).values() if isinstance(value, np.ndarray)]
        return sum(array.nbytes for array in arrays)

    def select(self, mask_E: np.ndarray) -> Examples:
        """Return a copy of the selected texts, with the same ids and names.

        Args:
            mask_E: Whether to select each text, (E,) bool.
        """
        mask_N = np.repeat(mask_E, self.label_counts_E)
        return dataclasses.replace(
            self,
            tokens_M=self.tokens_M[np.repeat(mask_E, self.lengths_E)],
            starts_E=list_starts(self.lengths_E[mask_E]),
            labels_N=self.labels_N[mask_N],
            label_starts_E=list_starts(self.label_counts_E[mask_E]),
            weights_E=None if self.weights_E is None else self.weights_E[mask_E],
            shares_N=None if self.shares_N is None else self.shares_N[mask_N],
        )

    def with_names(
        self, words: Sequence[str], labels: Sequence[str], keeps_unknown: bool = False
    ) -> Examples:
        """Return the same texts with ids of other names; words without a new id are dropped.

        A text may lose all its words, but not its labels.

        Args:
            words: New names of the word ids.
            labels: New names of the label ids; a label that is not among them becomes -1.
            keeps_unknown: Whether to keep words without a new id; their names follow the new ones.
        """
        if keeps_unknown:
            known = set(words)
            words = [*words, *(word for word in self.words if word not in known)]
        tokens_M = positions(self.words, words)[self.tokens_M]
        known_M = tokens_M >= 0
        return dataclasses.replace(
            self,
            words=words,
            labels=labels,
            tokens_M=tokens_M[known_M],
            starts_E=list_starts(known_M)[self.starts_E],
            labels_N=positions(self.labels, labels)[self.labels_N],
        )


def positions(names: Sequence[str], others: Sequence[str]) -> np.ndarray:
    """Return the position of each of `names` in `others`, int32; -1 if it is not there."""
    index = {name: position for position, name in enumerate(others)}
    return np.array([index.get(name, -1) for name in names], np.int32)


def list_starts(lengths_E: np.ndarray) -> np.ndarray:
    """Return the start of each of several consecutive lists, and the end of the last, int64.

    Args:
        lengths_E: Length of each list.
    """
    return np.concatenate([[0], np.cumsum(lengths_E, dtype=np.int64)])


class Features(NamedTuple):
    """The features of a text: its words and its n-grams, hashed into buckets.

    Attributes:
        words: Number of words of the vocabulary.
        ngrams: Longest n-gram, in words.
        buckets: Number of buckets that n-grams are hashed into.
        by_spelling: Whether n-grams are hashed exactly as by fastText, from the hashes of their
            words' spellings, also of unknown words. Else they are hashed from the ids of known
            words.
        buckets_N: The buckets that have a row, rising, int32, at least one; None if all have one.
    """

    words: int
    ngrams: int
    buckets: int
    by_spelling: bool = False
    buckets_N: np.ndarray | tf.Variable | None = None

    @property
    def rows(self) -> int:
        """Return the number of feature ids: words, and buckets too if n-grams exceed one word."""
        buckets = self.buckets if self.buckets_N is None else self.buckets_N.shape[0]
        return self.words + (buckets if self.ngrams > 1 else 0)

    @property
    def needs_hashes(self) -> bool:
        """Whether `extract` needs the hashes of the words."""
        return self.by_spelling and self.ngrams > 1

    def sizes(self, lengths_E: np.ndarray, most: int) -> np.ndarray:
        """Return the number of features of each text, cut to at most `most` features, (E,).

        A text is cut to its first `longest(most)` words. An unknown word counts like a known one.

        Args:
            lengths_E: Words of each text.
            most: Largest number of features of a text.
        """
        lengths_E = np.minimum(lengths_E, self.longest(most))
        return sum(np.maximum(lengths_E - shorter, 0) for shorter in range(self.ngrams))

    def longest(self, most: int) -> int:
        """Return the most words that a text of at most `most` features can have, at least 1.

        Args:
            most: Largest number of features of a text.
        """
        return max(1, (most + self.ngrams * (self.ngrams - 1) // 2) // self.ngrams)

    def extract(
        self, tokens_M: tf.Tensor, owners_M: tf.Tensor, hashes_M: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the features of texts: ids and text numbers, (N,) int32, one text after the other.

        The id of an n-gram is a hash of the ids of its words. fastText hashes the words' own hashes
        in the same way (Joulin et al. 2016, section 2.3; Dictionary::addWordNgrams), as this does
        if `by_spelling` is set. An n-gram whose bucket has no row has the id `rows`.

        Args:
            tokens_M: Word ids, int32, one text after the other. With hashes, an id from `words` on
                is an unknown word, which is part of n-grams only.
            owners_M: Text number of each word, int32, not descending. N-grams do not cross texts.
            hashes_M: The hash of each word (see `line_features.hash_words`), int32; not used unless
                `needs_hashes`.
        """
        if self.ngrams == 1:
            return tokens_M, owners_M
        source_M = hashes_M if self.by_spelling else tokens_M
        count, padding = tf.size(tokens_M), [[0, self.ngrams - 1]]
        following = tf.pad(tf.cast(source_M, tf.int64), padding)
        owners = tf.pad(owners_M, padding, constant_values=-1)
        hash_M = tf.cast(source_M, tf.int64)
        ids, in_text = [tokens_M], [tokens_M < self.words]
        for shift in range(1, self.ngrams):
            hash_M = hash_M * HASH_FACTOR + following[shift : shift + count]
            ids.append(self.words + self._place(self._bucket(hash_M)))
            in_text.append(owners[shift : shift + count] == owners_M)
        in_text_MK = tf.stack(in_text, axis=1)
        owners_MK = tf.repeat(owners_M[:, tf.newaxis], self.ngrams, axis=1)
        ids_MK = tf.stack(ids, axis=1)
        return tf.boolean_mask(ids_MK, in_text_MK), tf.boolean_mask(owners_MK, in_text_MK)

    def _bucket(self, hash_M: tf.Tensor) -> tf.Tensor:
        """Return the bucket of each hash, int32; fastText takes a hash as an unsigned number."""
        bucket_M = hash_M % self.buckets
        if self.by_spelling:
            wrapped_M = (bucket_M + 2**64 % self.buckets) % self.buckets
            bucket_M = tf.where(hash_M < 0, wrapped_M, bucket_M)
        return tf.cast(bucket_M, tf.int32)

    def _place(self, bucket_M: tf.Tensor) -> tf.Tensor:
        """Return the index of each bucket in `buckets_N`, or the length of it if it is not there.

        Without `buckets_N`, this is the bucket itself.
        """
        if self.buckets_N is None:
            return bucket_M
        count = self.buckets_N.shape[0]
        place_M = tf.searchsorted(self.buckets_N, bucket_M)
        has_row_M = tf.gather(self.buckets_N, tf.minimum(place_M, count - 1)) == bucket_M
        return tf.where(has_row_M, place_M, count)


class EncodedTexts(NamedTuple):
    """The features of E texts, in memory: each feature of a text once, by rising id.

    Features without a row are left out, but count in the shares of the others and in the sizes.

    Attributes:
        ids_F: Feature ids, int32, one text after the other.
        shares_F: How often the text has the feature, as a share of all its features, float32.
        starts_E: Start of each text in `ids_F`, int64, and at the end the length of `ids_F`.
        sizes_E: Number of features of each text, with repetitions.
        rows: Number of feature ids.
    """

    ids_F: np.ndarray
    shares_F: np.ndarray
    starts_E: np.ndarray
    sizes_E: np.ndarray
    rows: int

    @property
    def bytes(self) -> int:
        """Return the memory of the arrays, in bytes."""
        return sum(part.nbytes for part in self if isinstance(part, np.ndarray))


def encode(examples: Examples, features: Features, most: int) -> EncodedTexts:
    """Return the features of all texts. They are the same in every epoch.

    Args:
        most: Largest number of features of a text; longer texts are cut.
    """
    by_bucket = features._replace(buckets_N=None)  # with an id for each bucket
    sizes_E = features.sizes(examples.lengths_E, most)
    lengths_E = np.minimum(examples.lengths_E, features.longest(most))
    hashes_W = hash_names(examples.words) if features.needs_hashes else None
    block_E = np.cumsum(lengths_E) // _WORDS_AT_ONCE
    bounds = [0, *(np.flatnonzero(np.diff(block_E)) + 1), len(sizes_E)]
    ids_F, shares_F = np.empty(sizes_E.sum(), np.int32), np.empty(sizes_E.sum(), np.float32)
    counts_E, end = np.zeros(len(sizes_E), np.int64), 0  # of unique features
    for first, stop in itertools.pairwise(bounds):
        owners, index_M = intervals(examples.starts_E[first:stop], lengths_E[first:stop])
        ids = examples.tokens_M[index_M]
        if features.ngrams > 1:
            hashes_M = None if hashes_W is None else hashes_W[ids]
            with tf.device("CPU"):
                extracted = by_bucket.extract(tf.constant(ids), owners.astype(np.int32), hashes_M)
            ids, owners = (part.numpy() for part in extracted)
            sizes_E[first:stop] = np.bincount(owners, minlength=stop - first)  # no unknown words
        ids, shares, counts_E[first:stop] = _count_features(ids, owners, sizes_E[first:stop])
        ids_F[end : end + len(ids)], shares_F[end : end + len(ids)] = ids, shares
        end += len(ids)
    starts_E = list_starts(counts_E)
    texts = EncodedTexts(ids_F[:end], shares_F[:end], starts_E, sizes_E, by_bucket.rows)
    return select_rows(texts, features)


def find_buckets(texts: EncodedTexts, features: Features) -> np.ndarray:
    """Return the buckets that some texts have an n-gram in, rising, int32.

    Bucket 0 is always among them, so that the result is not empty.

    Args:
        texts: The texts, with an id for each bucket.
    """
    is_there_B = np.zeros(features.buckets, bool)
    is_there_B[0] = True
    is_there_B[texts.ids_F[texts.ids_F >= features.words] - features.words] = True
    return np.flatnonzero(is_there_B).astype(np.int32)


def select_rows(texts: EncodedTexts, features: Features) -> EncodedTexts:
    """Return the texts without the features that have no row; the others get the ids of rows.

    Args:
        texts: The texts, with an id for each bucket.
        features: Which features have a row.
    """
    if features.buckets_N is None:
        return texts
    row_B = np.full(features.buckets, -1, np.int32)  # faster than to search for each
    row_B[features.buckets_N] = np.arange(features.words, features.rows, dtype=np.int32)
    ids_F = texts.ids_F.copy()
    is_ngram_F = ids_F >= features.words
    ids_F[is_ngram_F] = row_B[ids_F[is_ngram_F] - features.words]
    has_row_F = ids_F >= 0
    return EncodedTexts(
        ids_F[has_row_F],
        texts.shares_F[has_row_F],
        list_starts(has_row_F)[texts.starts_E],
        texts.sizes_E,
        features.rows,
    )


def _count_features(
    ids_M: np.ndarray, owners_M: np.ndarray, sizes_E: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the unique ids of all texts, their shares, and the number of unique ids of each text.

    `owners_M` has the text of each id, and `sizes_E` the ids of each text.
    """
    keys_M = owners_M.astype(np.int64) << 32 | ids_M
    keys_F, counts_F = np.unique(keys_M, return_counts=True)
    owners_F = keys_F >> 32
    shares_F = counts_F / sizes_E[owners_F]
    ids_F = (keys_F & 0xFFFFFFFF).astype(np.int32)
    return ids_F, shares_F.astype(np.float32), np.bincount(owners_F, minlength=len(sizes_E))


def intervals(starts_K: np.ndarray, lengths_K: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers from each start on, as many as its length, one list after the other.

    Args:
        starts_K: The first number of each list.
        lengths_K: How many numbers each list has, N in all.

    Returns:
        The list that each number is in, and the numbers, (N,) int64 each.
    """
    before_K = np.cumsum(lengths_K) - lengths_K
    owners_N = np.repeat(np.arange(len(lengths_K)), lengths_K)
    return owners_N, (starts_K - before_K)[owners_N] + np.arange(len(owners_N))
