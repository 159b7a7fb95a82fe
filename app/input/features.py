"""Features of a text for a classifier: the ids of its words and of its hashed n-grams."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf

# fastText hashes n-grams with this factor (Dictionary::addWordNgrams, src/dictionary.cc).
_HASH_FACTOR = 116_049_371


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
            hashes_M: The hash of each word (see `text.fasttext.hashing`), int32; not used unless
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
            hash_M = hash_M * _HASH_FACTOR + following[shift : shift + count]
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
