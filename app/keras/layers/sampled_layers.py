"""Output layers that train on sampled words; see `keras.layers.softmax_layers` for their use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ...losses.base import NormalizedLoss
from ...losses.classes.class_softmax import ClassSoftmax as ClassSoftmaxLoss
from ...losses.sampled_losses import Nce, SampledLoss
from ...losses.sampled_losses import SampledSoftmax as SampledSoftmaxLoss
from ...losses.sampling import SAMPLERS
from . import softmax_gradients
from .softmax_base import OutputLayer
from .softmax_metrics import SAMPLED_LOSS, TargetMean


class _SampledLayer(OutputLayer):
    """The base of layers that train on samples of the words and evaluate the full softmax.

    A subclass sets `_loss`, called with counts, columns, samples and sampler. Raises ValueError if
    `samples` is not positive or `sampler` is unknown.
    """

    _own_arguments = ("samples", "sampler", "seed", "evaluation")
    _measures = OutputLayer._measures | {SAMPLED_LOSS: TargetMean}
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

    def make_loss(self, counts_V: np.ndarray, columns: int) -> NormalizedLoss:
        """Return the sampled loss, and keep the full softmax for evaluation; see `OutputLayer`."""
        self._softmax = ClassSoftmaxLoss(len(counts_V), columns)  # reads the same table
        return self._loss(counts_V, columns, self.samples, self.sampler)

    def _estimate(
        self, hidden_ND: tf.Tensor, targets_N: tf.Tensor, training: bool | None
    ) -> tf.Tensor:
        """Return -log P of the full softmax, or the loss estimated from samples; see `evaluation`.

        Training draws new samples. Evaluation draws those that belong to the targets, so that it
        does not change what training draws, and is the same when it is repeated.
        """
        seed = None
        if training:
            seed = tf.cast(self._seeds.next(), tf.int64)
        elif self.evaluation == "sampled" or SAMPLED_LOSS in self.measured:
            seed = tf.cast(tf.stack([tf.size(targets_N), tf.reduce_sum(targets_N)]), tf.int64)
        sampled_N = None
        if seed is not None:
            inputs = self._values(), hidden_ND, targets_N
            sampled_N = softmax_gradients.sampled(self._output, *inputs, seed)
            self._measure(SAMPLED_LOSS, sampled_N)
        if training or self.evaluation == "sampled":
            return sampled_N
        return super()._estimate(hidden_ND, targets_N, training)

    def _exact(self, hidden_ND: tf.Tensor, targets_N: tf.Tensor) -> tf.Tensor:
        """Return -log P of the full softmax of each target, float32 (N,)."""
        return softmax_gradients.exact(self._softmax, self._values(), hidden_ND, targets_N)


@keras.saving.register_keras_serializable(package="lexrow")
class SampledSoftmax(_SampledLayer):
    """Sampled softmax: trains on the targets and some sampled words.

    It replaces `tf.nn.sampled_softmax_loss` (see `losses.sampled_losses`). In training
    (`training=True`, as in `fit`) the result is the loss estimated from the samples, which is not
    -log P. Otherwise, as in `evaluate`, it is the exact -log P of the full softmax, which reads
    all V rows. See `keras.layers.softmax_layers` for its use.

    Example:
        output = lexrow.keras.SampledSoftmax(1_000_000, counts, samples=1024)
        model = keras.Model([tokens, words], output(hidden, words))

    Args:
        vocabulary_size: As for `OutputLayer`.
        counts: As for `OutputLayer`.
        samples: The number of samples that all targets of a batch share.
        sampler: "log_uniform", for ids by rank that follow Zipf's law, or "unigram", in proportion
            to counts ** 0.75 (see `losses.sampling`).
        seed: The seed of the draws; None for a new one in each run.
        evaluation: The result where the layer does not train: "exact", or "sampled" for the loss of
            training, which takes the time of a training step and compares with its loss.
        use_bias: As for `OutputLayer`.
        metrics: As for `OutputLayer`, and "sampled_loss": the loss of training, measured where the
            layer is evaluated, too.
        **options: As for `OutputLayer`.

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
        output = lexrow.keras.NCE(1_000_000, counts, samples=1024)
        model = keras.Model([tokens, words], output(hidden, words))
    """

    _loss = Nce
