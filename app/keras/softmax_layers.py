"""Output layers for vocabularies of up to ten million words.

Each takes hidden vectors (..., D) and the words that they are to predict, integers (...), and gives
-log P of each, float32 (...): a model's output, and its loss. So the words are an input, too:

    tokens = keras.Input((None,), dtype="int32")
    words = keras.Input((None,), dtype="int32")
    vectors = app.keras.RowEmbedding(V, 300, mask_zero=True)(tokens)
    hidden = keras.layers.GRU(300, return_sequences=True)(vectors)
    output = app.keras.ClassSoftmax(V, counts)
    model = keras.Model([tokens, words], output(hidden, words))
    model.compile(app.keras.RowwiseAdagrad(0.1), loss=app.keras.output_as_loss)
    model.fit([x, y], y, sample_weight=weights)

The y of `fit` is there because Keras wants one; the words that count are those of the input.
`evaluate` then gives the mean of -log P, whose exponential is the perplexity. A train step of one's
own takes the mean of `output(hidden, words, training=True)` instead. To use the trained layer:

    predictor = keras.Model(tokens, hidden)
    ids, log_p = output.top_k(predictor(x), 10)
    output.log_probability(predictor(x), y)
    for ids, log_p in output.distribution(predictor(x)):  # all words, in blocks

Arguments of every layer. vocabulary_size: V. counts: the occurrences of each word, (V,) integers,
in any order: ids are yours, and the layer has its rows by rank; without them ids are taken to be by
descending count, under Zipf's law (id i in proportion to 1 / (i + 1)); np.ones(V) is for words that
are equally frequent. use_bias: a bias for each row, kept as one more column of its table.
And those of keras.layers.Layer: name, dtype, trainable.

- Rows start at zeros. Products are made in the compute dtype, sums and results in float32.
- Where Keras' mask of the hidden vectors is False, the word may be anything and the result is 0.
  Keras leaves such places out of the mean of a loss. Sample weights work as usual.
- A gradient is row-sparse (tf.IndexedSlices): with an optimizer of `app.keras` a step writes the
  rows that it read, and no others; those of Keras write all of them.
- Rows are read block by block, each once for all words of the batch that need it, and once more for
  the gradient. All gradients of rows are then in memory until the optimizer has used them: bytes of
  the rows that a batch touches. `app.train` updates each block as it goes, and holds none.
- A word outside of 0 .. V - 1 is an InvalidArgumentError, other misuse a ValueError.
- Which rows a batch needs is known when it comes, so XLA cannot compile the layer: Keras says so
  and compiles without.
- Under `tf.distribute.MirroredStrategy` every replica has all tables. Other strategies are not
  tested.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ..losses.base import NormalizedLoss
from ..losses.classes.adaptive_softmax import AdaptiveSoftmax as AdaptiveSoftmaxLoss
from ..losses.classes.class_softmax import ClassSoftmax as ClassSoftmaxLoss
from ..losses.classes.classes import RULES, partition
from ..losses.sampled.nce import Nce
from ..losses.sampled.sampled import SampledLoss
from ..losses.sampled.sampled_softmax import SampledSoftmax as SampledSoftmaxLoss
from ..losses.sampled.samplers import SAMPLERS
from ..losses.tree.hierarchical_softmax import HierarchicalSoftmax as HierarchicalSoftmaxLoss
from . import softmax_gradients
from .softmax_base import OutputLayer


@keras.saving.register_keras_serializable(package="lexrow")
def output_as_loss(targets: Any, output: tf.Tensor) -> tf.Tensor:
    """For `compile(loss=...)` of a model whose output is -log P: that output; targets are unused.

    A function, so that Keras applies sample weights and masks to it, and takes the mean.
    """
    return output


@keras.saving.register_keras_serializable(package="lexrow")
class Softmax(OutputLayer):
    """The full softmax, as Dense(V) with sparse categorical cross-entropy; see this module.

    Each step reads and changes all V rows, 32 MB of them at a time, and never has the scores of all
    words in memory. The reference for the others.
    """

    def __init__(self, vocabulary_size: int, use_bias: bool = True, **options: Any):
        super().__init__(vocabulary_size, None, use_bias, **options)

    def make_loss(self, counts_V: np.ndarray, columns: int) -> NormalizedLoss:
        """See `OutputLayer`."""
        return ClassSoftmaxLoss(len(counts_V), columns)

    def get_config(self) -> dict[str, Any]:
        """The arguments."""
        config = super().get_config()
        del config["counts"]
        return config


@keras.saving.register_keras_serializable(package="lexrow")
class ClassSoftmax(OutputLayer):
    """P(class) P(word | class), each a softmax: reads the classes that a batch's words fall in.

    See `keras.softmax_layers` for how to use it, `losses.classes.class_softmax` for what it does.

    levels: 2, or 3 for classes of classes. rule: how classes are made, "fewest_rows",
    "equal_size" or "equal_frequency" (`losses.classes.classes`). classes: how many; 0 for the
    number at which a batch costs least that predicts `batch_targets` words; to within a factor of
    ten will do.
    """

    def __init__(
        self,
        vocabulary_size: int,
        counts: Any = None,
        levels: int = 2,
        rule: str = "fewest_rows",
        classes: int = 0,
        batch_targets: int = 1000,
        use_bias: bool = True,
        **options: Any,
    ):
        super().__init__(vocabulary_size, counts, use_bias, **options)
        self.levels, self.rule, self.classes = levels, rule, classes
        self.batch_targets = batch_targets
        if levels not in (2, 3):
            raise ValueError(f"{self.name}: levels={levels}: give 2 or 3")
        if rule not in RULES:
            raise ValueError(f"{self.name}: rule={rule!r}: choose from {', '.join(RULES)}")
        if not 0 <= classes <= vocabulary_size:
            raise ValueError(
                f"{self.name}: classes={classes}: give at most the {vocabulary_size:,} words of "
                "vocabulary_size, or 0 to choose"
            )
        if batch_targets < 1:
            raise ValueError(f"{self.name}: batch_targets={batch_targets}: give a positive number")

    def make_loss(self, counts_V: np.ndarray, columns: int) -> NormalizedLoss:
        """See `OutputLayer`."""
        starts = partition(counts_V, self.levels, self.rule, self.classes, self.batch_targets)
        return ClassSoftmaxLoss(len(counts_V), columns, starts)

    def get_config(self) -> dict[str, Any]:
        """The arguments."""
        return super().get_config() | {
            "levels": self.levels,
            "rule": self.rule,
            "classes": self.classes,
            "batch_targets": self.batch_targets,
        }


@keras.saving.register_keras_serializable(package="lexrow")
class HierarchicalSoftmax(OutputLayer):
    """The turns to a word in a Huffman tree: reads about 15 rows a word of ten million.

    See `keras.softmax_layers` for how to use it, `losses.tree.hierarchical_softmax` for what it
    does.
    """

    def make_loss(self, counts_V: np.ndarray, columns: int) -> NormalizedLoss:
        """See `OutputLayer`."""
        return HierarchicalSoftmaxLoss(counts_V, columns)


@keras.saving.register_keras_serializable(package="lexrow")
class AdaptiveSoftmax(OutputLayer):
    """Frequent words and clusters of rare ones, with fewer columns (`adaptive_softmax`).

    See `keras.softmax_layers` for how to use it.

    cutoffs: the ranks at which clusters begin, rising; none for one or two at which a word needs
    the fewest scores. divisor: the k-th cluster has D / divisor ** k columns. seed: of the first
    projections.
    """

    def __init__(
        self,
        vocabulary_size: int,
        counts: Any = None,
        cutoffs: Sequence[int] = (),
        divisor: float = 4.0,
        seed: int = 0,
        use_bias: bool = True,
        **options: Any,
    ):
        super().__init__(vocabulary_size, counts, use_bias, **options)
        self.cutoffs, self.divisor, self.seed = list(cutoffs), divisor, seed
        bounds = [0, *self.cutoffs, self.vocabulary_size]
        if any(end <= start for start, end in itertools.pairwise(bounds)):
            raise ValueError(
                f"{self.name}: cutoffs={self.cutoffs}: give rising numbers from 1 to "
                f"{self.vocabulary_size - 1}, below vocabulary_size"
            )
        if divisor < 1:
            raise ValueError(f"{self.name}: divisor={divisor}: give a number of 1 or more")

    def make_loss(self, counts_V: np.ndarray, columns: int) -> NormalizedLoss:
        """See `OutputLayer`."""
        return AdaptiveSoftmaxLoss(counts_V, columns, self.cutoffs, self.divisor, self.seed)

    def get_config(self) -> dict[str, Any]:
        """The arguments."""
        own = {"cutoffs": self.cutoffs, "divisor": self.divisor, "seed": self.seed}
        return super().get_config() | own


class _SampledLayer(OutputLayer):
    """What trains on samples of the words, and is a softmax over all of them afterwards."""

    _loss: Callable[[np.ndarray, int, int, str], SampledLoss]

    def __init__(
        self,
        vocabulary_size: int,
        counts: Any = None,
        *,
        samples: int,
        sampler: str = "log_uniform",
        seed: int | None = None,
        use_bias: bool = True,
        **options: Any,
    ):
        super().__init__(vocabulary_size, counts, use_bias, **options)
        self.samples, self.sampler, self.seed = samples, sampler, seed
        if samples < 1:
            raise ValueError(f"{self.name}: samples={samples}: give a positive number")
        if sampler not in SAMPLERS:
            raise ValueError(f"{self.name}: sampler={sampler!r}: choose from {', '.join(SAMPLERS)}")
        self._seeds = keras.random.SeedGenerator(seed)

    def make_loss(self, counts_V: np.ndarray, columns: int) -> NormalizedLoss:
        """See `OutputLayer`."""
        self._softmax = ClassSoftmaxLoss(len(counts_V), columns)  # of the same table
        return self._loss(counts_V, columns, self.samples, self.sampler)

    def get_config(self) -> dict[str, Any]:
        """The arguments."""
        own = {"samples": self.samples, "sampler": self.sampler, "seed": self.seed}
        return super().get_config() | own

    def _estimate(
        self, hidden_ND: tf.Tensor, targets_N: tf.Tensor, training: bool | None
    ) -> tf.Tensor:
        given = self._values(), hidden_ND, targets_N
        if not training:
            return softmax_gradients.exact(self._softmax, *given)
        seed = tf.cast(self._seeds.next(), tf.int64)
        return softmax_gradients.sampled(self._output, *given, seed)


@keras.saving.register_keras_serializable(package="lexrow")
class SampledSoftmax(_SampledLayer):
    """A softmax over each word and some samples, to train (`losses.sampled.sampled_softmax`).

    The drop-in for tf.nn.sampled_softmax_loss. In training (`training=True`, as in `fit`) the
    result is the estimate from the samples, which is not -log P; otherwise, as in `evaluate`, it is
    the exact -log P under the full softmax, which reads all V rows.

    samples: how many a batch draws, for all of its words. sampler: "log_uniform", which takes ids
    by rank to follow about Zipf's law, or "unigram", in proportion to counts ** 0.75
    (`losses.sampled.samplers`). seed: of the draws; None for another each time.
    """

    _loss = SampledSoftmaxLoss


@keras.saving.register_keras_serializable(package="lexrow")
class NCE(_SampledLayer):
    """Noise-contrastive estimation: each word is told from samples, to train (`nce`).

    The drop-in for tf.nn.nce_loss with biases that start at -log V; arguments and use are those of
    `SampledSoftmax`.
    """

    _loss = Nce
