"""The parts that the models of words share: their attributes and the table of word vectors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import tensorflow as tf

from ..losses.base import Loss
from ..tables.base import TableSpec
from ..tables.initial import Uniform
from ..tables.row_reads import take
from ..types import DisjointIds, Rows
from .seeds import initial_seed
from .subword_rows import SubwordRows


@dataclasses.dataclass(frozen=True)
class WordModel:
    """The base class of skip-gram and CBOW.

    Attributes:
        size: The number of words, V.
        dim: The columns of a word's vector, D.
        window: The most tokens between a centre and a word of its context.
        output: The loss by which a vector predicts words.
        seed: The seed of the initial values.
        dtype: The dtype of the matrix products.
        subwords: The rows of each word; None if a word has only the row of its id.
    """

    size: int
    dim: int
    window: int
    output: Loss
    seed: int
    dtype: tf.DType = tf.float32
    subwords: SubwordRows | None = None

    def tables(self) -> dict[str, TableSpec]:
        """Return the specs of the table `input`, the rows of words, and of the loss's tables.

        Rows of words are uniform at first, -0.5 / D to 0.5 / D, as in word2vec.c. With subwords all
        rows are -1 / D to 1 / D, as in FastText::createRandomMatrix.
        """
        rows, reach = self.size, 0.5 / self.dim
        if self.subwords is not None:
            rows, reach = rows + len(self.subwords.buckets_N), 1 / self.dim
        initial = Uniform(reach, initial_seed("initial", self.seed))
        spec = TableSpec(rows, self.dim, initial, by_frequency=True)
        return {"input": spec, **self.output.tables()}

    def word_lookups(self, words: tf.Tensor) -> tf.Tensor | DisjointIds:
        """Return the ids of the rows of `input` that the vectors of words need.

        Args:
            words: Ids of words of any shape.
        """
        return words if self.subwords is None else self.subwords.lookups(words)

    def take_words(self, words: tf.Tensor, rows: Rows) -> tf.Tensor:
        """Return the vector of each word, (N, D) of `dtype`.

        Args:
            words: The N words that `word_lookups` was called with.
            rows: The rows of these lookups.
        """
        if self.subwords is None:
            return take(rows, self.dtype)
        return self.subwords.take(words, rows, self.dtype)

    def unique_words(self, words: tf.Tensor, rows: Rows) -> Rows:
        """Return the vectors of the unique words, float32, and the index of each word among them.

        Args:
            words: The N words that `word_lookups` was called with.
            rows: The rows of these lookups.
        """
        if self.subwords is None:
            return rows
        return self.subwords.take_unique(words, rows)

    def gather_words(
        self, gather: Callable[[tf.Tensor], tf.Tensor], words_W: tf.Tensor
    ) -> tf.Tensor:
        """Return the vectors of unique words, (W, D) float32.

        Args:
            gather: Takes ids of rows of `input` (U,), returns the rows (U, D) float32.
            words_W: Ids of unique words.
        """
        if self.subwords is None:
            return gather(words_W)
        return self.subwords.compose(words_W, gather)
