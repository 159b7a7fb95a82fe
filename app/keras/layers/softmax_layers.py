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
  the gradient, if XLA compiles the step, there is a GPU, or the losses have different weights. The
  gradients of all these rows are in memory until the optimizer has used them. Those of a table of
  1 GiB or more are not: it is read twice, and each block is updated before the next is read, where
  the training step is that of Keras (`fit`, `train_on_batch`), with an optimizer of `lexrow.keras`.
  A warning names an option of the optimizer that prevents it, such as `clipnorm`.
- `table`, `table_file` and `tied_to` say where the rows are; see `OutputLayer`.
- A target outside 0 .. V - 1 raises `tf.errors.InvalidArgumentError`, other misuse `ValueError`.
- XLA compiles the layers with table="device", and on a CPU with "host"
  (`compile(jit_compile=True)`; on a GPU Keras compiles by itself). A compiled step cannot raise an
  error: the result of a target out of range is NaN, and no row changes by it;
  `lexrow.keras.check_inputs` finds it before. XLA does not compile a layer with
  metrics=["accuracy"], which searches all words; Keras says so.
- Under `tf.distribute.MirroredStrategy` and `MultiWorkerMirroredStrategy` every replica has all
  tables with table="device", and every process those of another kind.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.losses import ALL_OBJECTS_DICT  # Keras has no public way to add a name

from ...losses.base import NormalizedLoss
from ...losses.classes.adaptive_softmax import AdaptiveSoftmax as AdaptiveSoftmaxLoss
from ...losses.classes.class_softmax import ClassSoftmax as ClassSoftmaxLoss
from ...losses.classes.classes import RULES, partition
from ...losses.sampled_losses import Nce, SampledLoss
from ...losses.sampled_losses import SampledSoftmax as SampledSoftmaxLoss
from ...losses.sampling import SAMPLERS
from ...losses.tree.hierarchical_softmax import HierarchicalSoftmax as HierarchicalSoftmaxLoss
from ...system.xla import under_xla
from . import softmax_gradients
from .softmax_base import SAMPLED_LOSS, OutputLayer, TargetMean

_DRAWS = "draws"  # the name in a file of the state of a layer's draws


@keras.saving.register_keras_serializable(package="lexrow")
def output_as_loss(targets: Any, output: tf.Tensor) -> tf.Tensor:
    """Return the output of a model as its loss, for `compile(loss=...)`.

    Keras applies sample weights and masks to the result and takes the mean.

    Example:
        >>> model = keras.Model([tokens, words], lexrow.keras.Softmax(10_000)(hidden, words))
        >>> model.compile(lexrow.keras.RowwiseAdagrad(0.1), loss=lexrow.keras.output_as_loss)

    Args:
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
        >>> output = lexrow.keras.Softmax(10_000)
        >>> model = keras.Model([tokens, words], output(hidden, words))

    Args:
        vocabulary_size: As for `OutputLayer`, like every argument that is not listed here.
    """

    def __init__(self, vocabulary_size: int, use_bias: bool = True, **options: Any):
        super().__init__(vocabulary_size, None, use_bias, **options)

    def make_loss(self, counts_V: np.ndarray, columns: int) -> NormalizedLoss:
        """Return the full softmax over all words, without classes."""
        return ClassSoftmaxLoss(len(counts_V), columns)


@keras.saving.register_keras_serializable(package="lexrow")
class ClassSoftmax(OutputLayer):
    """Softmax over classes, then over the words of a class: P(class) P(word | class).

    A step reads only the classes of its targets (see `losses.classes.class_softmax`). See
    `keras.layers.softmax_layers` for its use.

    `fit` updates the rows of a table of 1 GiB or more one block after the other. With a million
    words and 300 hidden units, 1.2 GB of rows, it took 2.0 GB at most with 400 targets in a step,
    2.6 GB with 40,000 (two cores of an AMD EPYC). A step that reads rows of 64 columns takes up to
    12 % longer for it. The gradients of all rows that a step reads are in memory at once, 7.4 GB
    with 40,000 targets, if the table is smaller, tied or called twice, in a training step of your
    own, and for an optimizer with clipping, `gradient_accumulation_steps` or a loss scale, of which
    a warning tells. Then take fewer targets a step.

    Example:
        >>> output = lexrow.keras.ClassSoftmax(10_000, counts)
        >>> model = keras.Model([tokens, words], output(hidden, words))

    Args:
        vocabulary_size: As for `OutputLayer`, like every argument that is not listed here.
        levels: 2, or 3 for classes of classes.
        rule: How classes are made: "fewest_rows", "equal_size" or "equal_frequency" (see
            `losses.classes.classes`).
        classes: The number of classes. 0 chooses the number with the least work for a batch.
        batch_targets: The number of targets in a batch, for that choice. An estimate within a
            factor of ten is good enough.

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
        >>> output = lexrow.keras.HierarchicalSoftmax(10_000, counts)
        >>> model = keras.Model([tokens, words], output(hidden, words))
    """

    looks_up_rows = True
    _can_be_tied = False

    def make_loss(self, counts_V: np.ndarray, columns: int) -> NormalizedLoss:
        """Return the hierarchical softmax on the Huffman tree of the counts."""
        return HierarchicalSoftmaxLoss(counts_V, columns)

    def _exact(self, hidden_ND: tf.Tensor, targets_N: tf.Tensor, _: Any = None) -> tf.Tensor:
        """Return -log P of each target, float32 (N,); XLA reads the rows once, to copy no table."""
        if not under_xla():
            return super()._exact(hidden_ND, targets_N)
        seed = tf.zeros(2, tf.int64)  # not used: the loss draws no samples
        inputs = self._sources(), hidden_ND, targets_N
        return softmax_gradients.of_lookups(self._output, *inputs, seed)


@keras.saving.register_keras_serializable(package="lexrow")
class AdaptiveSoftmax(OutputLayer):
    """Adaptive softmax: frequent words in full, clusters of rare words with fewer columns.

    See `losses.classes.adaptive_softmax` for the algorithm, and `keras.layers.softmax_layers` for
    its use.

    Example:
        >>> output = lexrow.keras.AdaptiveSoftmax(10_000, counts, cutoffs=[1_000, 4_000])
        >>> model = keras.Model([tokens, words], output(hidden, words))

    Args:
        vocabulary_size: As for `OutputLayer`, like every argument that is not listed here.
        cutoffs: The ranks at which clusters begin, rising. By default one or two are chosen that
            need the fewest scores for a word.
        divisor: The k-th cluster has D / divisor ** k columns.
        seed: The seed of the initial projections.

    Raises:
        ValueError: An argument is out of range.
    """

    _own_arguments = ("cutoffs", "divisor", "seed")
    _row_each = _can_be_tied = False

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


class _SampledLayer(OutputLayer):
    """The base of layers that train on samples of the words and evaluate the full softmax.

    A subclass sets `_loss`, called with counts, columns, samples and sampler. Raises ValueError if
    `samples` is not positive or `sampler` is unknown.
    """

    looks_up_rows = True
    _own_arguments = ("samples", "sampler", "seed", "evaluation")
    _measures = OutputLayer._measures | {SAMPLED_LOSS: TargetMean}
    _loss: Callable[[np.ndarray, int, int, str], SampledLoss]

    def __init__(
        self,
        vocabulary_size: int,
        counts: Any = None,
        *,
        samples: int = 1024,
        sampler: str = "log_uniform",
        seed: int | None = None,
        use_bias: bool = True,
        evaluation: str = "exact",
        **options: Any,
    ):
        super().__init__(vocabulary_size, counts, use_bias, **options)
        self.samples, self.sampler, self.seed = samples, sampler, seed
        self.evaluation = evaluation
        if evaluation not in ("exact", "sampled"):
            raise ValueError(f"{self.name}: evaluation={evaluation!r}: give 'exact' or 'sampled'")
        if samples < 1:
            raise ValueError(f"{self.name}: samples={samples}: give a positive number")
        if sampler not in SAMPLERS:
            raise ValueError(f"{self.name}: sampler={sampler!r}: choose from {', '.join(SAMPLERS)}")
        self._seeds = keras.random.SeedGenerator(seed)
        # tf.train.Checkpoint saves what is in an attribute. Keras would take the state alone for a
        # weight of the layer.
        self._draws = tf.train.Checkpoint(state=self._seeds.state)

    def make_loss(self, counts_V: np.ndarray, columns: int) -> NormalizedLoss:
        """Return the sampled loss, and keep the full softmax for evaluation; see `OutputLayer`."""
        self._softmax = ClassSoftmaxLoss(len(counts_V), columns)  # reads the same table
        return self._loss(counts_V, columns, self.samples, self.sampler)

    def _estimate(
        self,
        hidden_ND: tf.Tensor,
        targets_N: tf.Tensor,
        training: bool | None,
        real_N: tf.Tensor | None,
    ) -> tf.Tensor:
        """Return -log P of the full softmax, or the loss estimated from samples; see `evaluation`.

        Training draws new samples. Evaluation draws those that belong to the targets, so that it
        does not change what training draws, and is the same when it is repeated.
        """
        seed = None
        if training:
            seed = tf.cast(self._seeds.next(), tf.int64)
        elif self.evaluation == "sampled" or SAMPLED_LOSS in self.measured:
            count = tf.size(targets_N)
            if real_N is not None:  # the other targets are 0
                count = tf.reduce_sum(tf.cast(real_N, tf.int32))
            seed = tf.cast(tf.stack([count, tf.reduce_sum(targets_N)]), tf.int64)
        sampled_N = None
        if seed is not None:
            inputs = self._sources(), hidden_ND, targets_N
            sampled_N = softmax_gradients.of_lookups(self._output, *inputs, seed)
            self._measure(SAMPLED_LOSS, sampled_N, real_N)
        if training or self.evaluation == "sampled":
            return sampled_N
        return super()._estimate(hidden_ND, targets_N, training, real_N)

    def save_own_variables(self, store: Any) -> None:
        """Write the rows, and the state of the draws, which Keras leaves out."""
        super().save_own_variables(store)
        store[_DRAWS] = self._seeds.state.numpy()

    def load_own_variables(self, store: Any) -> None:
        """Read the rows, and the state of the draws, which files of earlier versions lack."""
        super().load_own_variables(store)
        if _DRAWS in set(store.keys()):
            self._seeds.state.assign(store[_DRAWS])

    def _exact(self, hidden_ND: tf.Tensor, targets_N: tf.Tensor, _: Any = None) -> tf.Tensor:
        """Return -log P of the full softmax of each target, float32 (N,)."""
        return softmax_gradients.exact(self._softmax, self._sources(), hidden_ND, targets_N)


@keras.saving.register_keras_serializable(package="lexrow")
class SampledSoftmax(_SampledLayer):
    """Sampled softmax: trains on the targets and some sampled words.

    It replaces `tf.nn.sampled_softmax_loss` (see `losses.sampled_losses`). In training
    (`training=True`, as in `fit`) the result is the loss estimated from the samples, which is not
    -log P. Otherwise, as in `evaluate`, it is the exact -log P of the full softmax, which reads
    all V rows. See `keras.layers.softmax_layers` for its use.

    The exact result takes 1.4 times as long as the product of all targets and all rows, in blocks:
    measured with 60,000 words, 300 units and 602 targets, .97 s of processor time beside .71 s. For
    6,400 targets of a million words, this product alone has 3.9e12 operations, which take minutes
    on two cores. Give `evaluation="sampled"`, or validate fewer targets.

    Example:
        >>> output = lexrow.keras.SampledSoftmax(10_000, counts, samples=1024)
        >>> model = keras.Model([tokens, words], output(hidden, words))

    Args:
        vocabulary_size: As for `OutputLayer`, like every argument that is not listed here.
        samples: The number of samples that all targets of a batch share.
        sampler: "log_uniform", for ids by rank that follow Zipf's law, or "unigram", in proportion
            to counts ** 0.75 (see `losses.sampling`).
        seed: The seed of the draws; None for a new one in each run.
        evaluation: The result where the layer does not train: "exact", or "sampled" for the loss of
            training, which takes the time of a training step and compares with its loss.
        metrics: As for `OutputLayer`, and "sampled_loss": the loss of training, measured where the
            layer is evaluated, too.

    Raises:
        ValueError: An argument is out of range.
    """

    _loss = SampledSoftmaxLoss


@keras.saving.register_keras_serializable(package="lexrow")
class NCE(_SampledLayer):
    """Noise-contrastive estimation: learns to distinguish each target from sampled words.

    It replaces `tf.nn.nce_loss`, with biases that start at -log V (see `losses.sampled_losses`).
    Arguments and use are those of `SampledSoftmax`.

    Example:
        >>> output = lexrow.keras.NCE(10_000, counts, samples=1024)
        >>> model = keras.Model([tokens, words], output(hidden, words))
    """

    _loss = Nce
