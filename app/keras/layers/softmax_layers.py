"""Output layers for vocabularies of up to ten million words.

A layer takes hidden vectors (..., D) and target words, integer ids (...). It returns the negative
log probability -log P of each target, float32 (...), which is the output and the loss of the model:

    tokens = keras.Input((None,), dtype="int32")
    words = keras.Input((None,), dtype="int32")
    vectors = lexrow.keras.RowEmbedding(V, 300, mask_zero=True)(tokens)
    hidden = keras.layers.GRU(300, return_sequences=True)(vectors)
    output = lexrow.keras.ClassSoftmax(V, counts)
    model = keras.Model([tokens, words], output(hidden, words))
    model.compile(lexrow.keras.RowwiseAdagrad(0.1), loss=lexrow.keras.output_as_loss)
    model.fit([x, y], y, sample_weight=weights)

`fit` needs a y, but the targets are those of the second input. `evaluate` returns the mean of
-log P; its exponential is the perplexity. In your own train step, take the mean of
`output(hidden, words, training=True)`. To predict with the trained layer:

    predictor = keras.Model(tokens, hidden)
    ids, log_p = output.top_k(predictor(x), 10)
    output.log_probability(predictor(x), y)
    for ids, log_p in output.distribution(predictor(x)):  # all words, in blocks

The arguments of `OutputLayer` are common to all layers. The following holds for all of them:

- Rows start at zero. Products are computed in the compute dtype, sums and results in float32.
- Where the Keras mask of the hidden vectors is False, the target is ignored and the result is 0.
  Keras leaves such positions out of the mean of a loss. Sample weights work as usual.
- Gradients are row-sparse (`tf.IndexedSlices`). With an optimizer of `lexrow.keras`, a step writes
  only the rows that it read. The Keras optimizers write all rows.
- Rows are read block by block: once for all targets of the batch that need them, and once more for
  the gradient. The gradients of all these rows are in memory until the optimizer has used them.
  `lexrow train` instead updates each block at once. Take fewer targets a step if memory is short;
  see `ClassSoftmax` for figures.
- A target outside 0 .. V - 1 raises `tf.errors.InvalidArgumentError`, other misuse `ValueError`.
- XLA cannot compile the layers, because the rows that a step reads depend on the batch. Keras
  says so and compiles the model without XLA.
- Under `tf.distribute.MirroredStrategy` every replica has all tables. Other strategies are not
  tested.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.losses import ALL_OBJECTS_DICT  # Keras has no public way to add a name

from ...losses.base import NormalizedLoss
from ...losses.classes.adaptive_softmax import AdaptiveSoftmax as AdaptiveSoftmaxLoss
from ...losses.classes.class_softmax import ClassSoftmax as ClassSoftmaxLoss
from ...losses.classes.classes import RULES, partition
from ...losses.tree.hierarchical_softmax import HierarchicalSoftmax as HierarchicalSoftmaxLoss
from .softmax_base import OutputLayer


@keras.saving.register_keras_serializable(package="lexrow")
def output_as_loss(targets: Any, output: tf.Tensor) -> tf.Tensor:
    """Return the output of a model as its loss, for `compile(loss=...)`.

    Keras applies sample weights and masks to the result and takes the mean.

    Args:
        targets: Not used.
        output: The output of an output layer, -log P of each target.
    """
    return output


ALL_OBJECTS_DICT["output_as_loss"] = output_as_loss  # for `compile` and `keras.losses.get`


@keras.saving.register_keras_serializable(package="lexrow")
class Softmax(OutputLayer):
    """The full softmax, equal to `Dense(V)` with sparse categorical cross-entropy.

    A step reads and changes all V rows, in blocks of 32 MB, so it never holds the scores of all
    words. It is the reference for the other layers. See `keras.layers.softmax_layers` for its use.

    Example:
        output = lexrow.keras.Softmax(50_000)
        model = keras.Model([tokens, words], output(hidden, words))

    Args:
        vocabulary_size: As for `OutputLayer`.
        use_bias: As for `OutputLayer`.
        **options: As for `OutputLayer`.
    """

    def __init__(self, vocabulary_size: int, use_bias: bool = True, **options: Any):
        super().__init__(vocabulary_size, None, use_bias, **options)

    def make_loss(self, counts_V: np.ndarray, columns: int) -> NormalizedLoss:
        """Return the full softmax over all words, without classes."""
        return ClassSoftmaxLoss(len(counts_V), columns)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the layer, which has no counts."""
        config = super().get_config()
        del config["counts"]
        return config


@keras.saving.register_keras_serializable(package="lexrow")
class ClassSoftmax(OutputLayer):
    """Softmax over classes, then over the words of a class: P(class) P(word | class).

    A step reads only the classes of its targets (see `losses.classes.class_softmax`). See
    `keras.layers.softmax_layers` for its use.

    The gradients of all rows that a step reads are in memory at once. With a million words and 300
    hidden units, the rows take 1.2 GB. A step of 400 targets took 0.2 GB more, a step of 40,000
    targets 5.8 GB more. Fewer targets a step help; `gradient_accumulation_steps` does not, because
    it holds the rows of all its batches.

    Example:
        output = lexrow.keras.ClassSoftmax(10_000_000, counts)
        model = keras.Model([tokens, words], output(hidden, words))

    Args:
        vocabulary_size: As for `OutputLayer`.
        counts: As for `OutputLayer`.
        levels: 2, or 3 for classes of classes.
        rule: How classes are made: "fewest_rows", "equal_size" or "equal_frequency" (see
            `losses.classes.classes`).
        classes: The number of classes. 0 chooses the number with the least work for a batch.
        batch_targets: The number of targets in a batch, for that choice. An estimate within a
            factor of ten is good enough.
        use_bias: As for `OutputLayer`.
        **options: As for `OutputLayer`.

    Raises:
        ValueError: An argument is out of range.
    """

    _own_arguments = ("levels", "rule", "classes", "batch_targets")

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
        """Return the class softmax, with classes made from the counts by `rule`."""
        starts = partition(counts_V, self.levels, self.rule, self.classes, self.batch_targets)
        return ClassSoftmaxLoss(len(counts_V), columns, starts)


@keras.saving.register_keras_serializable(package="lexrow")
class HierarchicalSoftmax(OutputLayer):
    """Hierarchical softmax: the path to a word in a Huffman tree, a decision at each node.

    A step reads about 15 rows for each target out of ten million (see
    `losses.tree.hierarchical_softmax`). Arguments are those of `OutputLayer`. See
    `keras.layers.softmax_layers` for its use.

    Example:
        output = lexrow.keras.HierarchicalSoftmax(10_000_000, counts)
        model = keras.Model([tokens, words], output(hidden, words))
    """

    def make_loss(self, counts_V: np.ndarray, columns: int) -> NormalizedLoss:
        """Return the hierarchical softmax on the Huffman tree of the counts."""
        return HierarchicalSoftmaxLoss(counts_V, columns)


@keras.saving.register_keras_serializable(package="lexrow")
class AdaptiveSoftmax(OutputLayer):
    """Adaptive softmax: frequent words in full, clusters of rare words with fewer columns.

    See `losses.classes.adaptive_softmax` for the algorithm, and `keras.layers.softmax_layers` for
    its use.

    Example:
        output = lexrow.keras.AdaptiveSoftmax(1_000_000, counts, cutoffs=[10_000, 100_000])
        model = keras.Model([tokens, words], output(hidden, words))

    Args:
        vocabulary_size: As for `OutputLayer`.
        counts: As for `OutputLayer`.
        cutoffs: The ranks at which clusters begin, rising. By default one or two are chosen that
            need the fewest scores for a word.
        divisor: The k-th cluster has D / divisor ** k columns.
        seed: The seed of the initial projections.
        use_bias: As for `OutputLayer`.
        **options: As for `OutputLayer`.

    Raises:
        ValueError: An argument is out of range.
    """

    _own_arguments = ("cutoffs", "divisor", "seed")
    _row_each = False

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
        """Return the adaptive softmax; without cutoffs the loss chooses them from the counts."""
        return AdaptiveSoftmaxLoss(counts_V, columns, self.cutoffs, self.divisor, self.seed)
