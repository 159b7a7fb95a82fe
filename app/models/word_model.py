"""The parts that the models of words share: their attributes and the table of word vectors."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from ..losses.base import Loss
from ..tables.base import TableSpec
from ..tables.initial import Uniform
from .seeds import initial_seed


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
    """

    size: int
    dim: int
    window: int
    output: Loss
    seed: int
    dtype: tf.DType = tf.float32

    def tables(self) -> dict[str, TableSpec]:
        """Return the specs of the table `input`, the word vectors, and of the loss's tables.

        Word vectors are uniform at first, -0.5 / D to 0.5 / D, as in word2vec.c.
        """
        initial = Uniform(0.5 / self.dim, initial_seed("initial", self.seed))
        spec = TableSpec(self.size, self.dim, initial, by_frequency=True)
        return {"input": spec, **self.output.tables()}
