"""Build the loss that --loss names. Only this module maps names of losses to classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from ..errors import UsageError
from ..losses.base import Loss
from ..losses.classes import classes
from ..losses.classes.adaptive_softmax import AdaptiveSoftmax
from ..losses.classes.class_softmax import ClassSoftmax
from ..losses.in_batch_softmax import InBatchSoftmax, log_expected
from ..losses.negative_sampling import NegativeSampling
from ..losses.one_vs_all import OneVsAll
from ..losses.sampled.nce import Nce
from ..losses.sampled.sampled_softmax import SampledSoftmax
from ..losses.sampled.samplers import Unigram
from ..losses.sampled_items import SampledItems
from ..losses.tree.hierarchical_softmax import HierarchicalSoftmax
from ..losses.user_item_losses import Bpr, SquaredError, UserItemLoss
from ..settings import Config, ModelConfig
from ..settings.recommend_config import RecommendConfig
from ..settings.setting import numbers
from ..system import devices


class OutputSpec(NamedTuple):
    """The words that a loss predicts, and the size of its inputs.

    Attributes:
        counts_V: Occurrences of the words, descending.
        columns: The columns of the vectors that predict the words.
        targets: The number of predictions in a step.
        seed: The seed of the run.
    """

    counts_V: np.ndarray
    columns: int
    targets: int
    seed: int


def make_loss(settings: ModelConfig, spec: OutputSpec) -> Loss:
    """Return the loss that --loss names.

    Args:
        settings: The flags of the model.
        spec: The words to predict.

    Returns:
        The loss, without tables.

    Raises:
        UsageError: The vocabulary is too small for the flags, or --cutoffs is wrong.
    """
    return LOSSES[settings.loss](settings, spec)


def make_run_loss(config: Config, counts_V: np.ndarray, columns: int) -> Loss:
    """Return the loss of a run over its words or labels.

    Args:
        config: The settings of the run.
        counts_V: Occurrences of each word or label, (V,), descending.
        columns: The columns of the vectors that predict them.

    Raises:
        UsageError: The vocabulary is too small for the flags, or --cutoffs is wrong.
    """
    spec = OutputSpec(counts_V, columns, config.input.micro_tokens, config.run.seed)
    return make_loss(config.model, spec)


def _class_softmax(settings: ModelConfig, spec: OutputSpec) -> Loss:
    """Divide the words into classes, and these over --class_devices; log it, return the loss.

    Raise UsageError for more classes than words, or more devices than classes.
    """
    counts_V, columns, targets, _ = spec
    words, device_count = len(counts_V), settings.class_devices
    if settings.classes > words:
        raise UsageError(
            f"--classes={settings.classes}: the vocabulary has {words:,} words; give at most "
            "that number, or 0"
        )
    starts = classes.partition(
        counts_V, settings.class_levels, settings.class_rule, settings.classes, targets
    )
    count, rows = len(starts[-1]) - 1, classes.expected_rows(counts_V, starts, targets)
    logging.info(
        "%s classes of words, %s: a step touches %s rows of %s words on average",
        *(f"{count:,}", settings.class_rule, f"{rows:,.0f}", f"{words:,}"),
    )
    if device_count == 1:
        return ClassSoftmax(words, columns, starts)
    if count < device_count:
        raise UsageError(
            f"--class_devices={device_count}: there are {count} classes; give at most that number"
        )
    device_C = classes.assign_devices(counts_V, starts[-1], targets, device_count)
    expected, worst = classes.imbalance(counts_V, starts[-1], targets, device_C)
    logging.info(
        "classes on %d devices: the busiest device has %.2f times an even share of a step's rows "
        "on average, %.2f times at worst",
        *(device_count, expected, worst),
    )
    return ClassSoftmax(words, columns, starts, devices=device_C)


def _auto(settings: ModelConfig, spec: OutputSpec) -> Loss:
    """Return the class softmax, or a softmax if a step of it would touch all words as well."""
    counts_V, columns, targets, _ = spec
    starts = classes.partition(counts_V, settings.class_levels, settings.class_rule, 0, targets)
    if classes.expected_rows(counts_V, starts, targets) < len(counts_V):
        return _class_softmax(settings, spec)
    return ClassSoftmax(len(counts_V), columns)


def _adaptive_softmax(settings: ModelConfig, spec: OutputSpec) -> Loss:
    """Return the loss, its cutoffs chosen by cost if --cutoffs is empty.

    Raise UsageError if --cutoffs is not possible with this vocabulary.
    """
    try:
        cutoffs = numbers(settings.cutoffs)
        return AdaptiveSoftmax(spec.counts_V, spec.columns, cutoffs, seed=spec.seed)
    except ValueError as error:
        raise UsageError(
            f"--cutoffs={settings.cutoffs}: {error}; give numbers such as 2000,10000, or leave the "
            "flag out"
        ) from error


LOSSES: dict[str, Callable[[ModelConfig, OutputSpec], Loss]] = {
    "negative_sampling": lambda settings, spec: NegativeSampling(
        *(spec.counts_V, spec.columns, settings.negative_power),
        *(settings.centres_of_group, settings.samples_of_group, settings.negatives),
    ),
    "sampled_softmax": lambda settings, spec: SampledSoftmax(
        spec.counts_V, spec.columns, settings.samples, settings.sampler
    ),
    "nce": lambda settings, spec: Nce(
        spec.counts_V, spec.columns, settings.samples, settings.sampler
    ),
    "hierarchical_softmax": lambda settings, spec: HierarchicalSoftmax(spec.counts_V, spec.columns),
    "class_softmax": _class_softmax,
    "auto": _auto,
    "adaptive_softmax": _adaptive_softmax,
    "softmax": lambda settings, spec: ClassSoftmax(len(spec.counts_V), spec.columns),
    "one_vs_all": lambda settings, spec: OneVsAll(len(spec.counts_V), spec.columns),
}


# The losses whose only table has one row for each word or label: scores are products with rows.
ROW_PER_WORD = ("softmax", "sampled_softmax", "one_vs_all")


def _temperature(config: RecommendConfig) -> float:
    """Return the temperature of a softmax over items: 1 unless scores are cosines."""
    has_cosines = config.ratings.cosine and config.model.model == "mf"
    return config.ratings.temperature if has_cosines else 1.0


def _sampled_items(
    config: RecommendConfig, counts_V: np.ndarray, mean: float | None
) -> UserItemLoss:
    """Return the softmax of an item against samples; see `_in_batch_softmax`."""
    settings, device = config.model, devices.name(config.run)
    with tf.device(device):
        return SampledItems(
            Unigram(counts_V, settings.samples),
            tf.Variable(np.log(np.maximum(counts_V, 1)).astype(np.float32), trainable=False),
            config.ratings.user_pairs,
            _temperature(config),
            devices.compute_dtype(settings, device),
        )


def _in_batch_softmax(
    config: RecommendConfig, counts_V: np.ndarray, mean: float | None
) -> UserItemLoss:
    """Return the in-batch softmax loss, with its item probabilities on the device of the run.

    Args:
        config: The settings of the run.
        counts_V: The number of pairs of each item. The loss holds a variable (V,) with the
            log-probability of each item to be in a micro-batch (see `log_expected`).
        mean: Not used; every loss of `PAIR_LOSSES` is made with it.
    """
    device = devices.name(config.run)
    with tf.device(device):  # a variable, as it may be too large for a constant of the graph
        expected_V = log_expected(counts_V, config.input.micro_tokens)
        return InBatchSoftmax(
            tf.Variable(expected_V, trainable=False),
            _temperature(config),
            devices.compute_dtype(config.model, device),
        )


def _squared_error(
    config: RecommendConfig, counts_V: np.ndarray, mean: float | None
) -> UserItemLoss:
    """Return the squared error of ratings; raise UsageError if the pairs have no ratings."""
    if mean is None:
        raise UsageError(
            "--loss=squared_error needs ratings, and the pairs have none; leave it out"
        )
    return SquaredError(mean)


# The losses of --task=recommend. Each takes the settings, the number of pairs of each item, and the
# mean rating, which is None if the pairs have no ratings.
PAIR_LOSSES: dict[str, Callable[[RecommendConfig, np.ndarray, float | None], UserItemLoss]] = {
    "sampled_items": _sampled_items,
    "in_batch_softmax": _in_batch_softmax,
    "bpr": lambda config, counts_V, mean: Bpr(config.ratings.pair_negatives),
    "squared_error": _squared_error,
}
