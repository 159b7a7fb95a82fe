"""Build the loss, the optimizer and the learning rate that the flags name."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from ..errors import UsageError
from ..losses.base import Loss
from ..losses.classes import classes
from ..losses.classes.adaptive_softmax import AdaptiveSoftmax
from ..losses.classes.class_softmax import ClassSoftmax
from ..losses.negative_sampling import NegativeSampling
from ..losses.one_vs_all import OneVsAll
from ..losses.sampled_losses import Nce, SampledSoftmax
from ..losses.sampling import Unigram
from ..losses.tree.hierarchical_softmax import HierarchicalSoftmax
from ..losses.user_item_losses import (
    Bpr,
    InBatchSoftmax,
    SampledItems,
    SquaredError,
    UserItemLoss,
    log_expected,
)
from ..optimizers import adagrad, adam, ftrl, sgd
from ..optimizers.base import Gradients, Optimizer, clip_by_global_norm, clip_by_row_norm
from ..settings import ModelConfig, OptimizerConfig, RatingsConfig
from ..settings.setting import numbers
from ..system import devices

# The smallest factor, as in word2vec.c (`starting_alpha * 0.0001`).
LEAST_FACTOR = 1e-4

# From the share of the training that is done, 0 to 1, to a factor.
SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda done: 1.0,
    # As in word2vec.c.
    "linear": lambda done: 1.0 - done,
    # Loshchilov & Hutter 2017 (SGDR), equation 5, without restarts.
    "cosine": lambda done: (1.0 + math.cos(math.pi * done)) / 2.0,
}


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

    Raises:
        UsageError: The vocabulary is too small for the flags, or --cutoffs is wrong.
    """
    return LOSSES[settings.loss](settings, spec)


def _class_softmax(settings: ModelConfig, spec: OutputSpec) -> Loss:
    """Divide the words into classes; log it, return the loss.

    Raise UsageError for more classes than words.
    """
    counts_V, columns, targets, _ = spec
    words = len(counts_V)
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
    return ClassSoftmax(words, columns, starts)


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
        *(settings.pool_centres, settings.pool_samples, settings.negatives),
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


class PairSpec(NamedTuple):
    """The items that a loss of pairs of a user and an item predicts.

    Attributes:
        counts_V: The number of pairs of each item.
        mean: The mean rating; None if the pairs have no ratings.
        pairs: The number of pairs in a micro-batch.
        device: The device of the run.
        has_disliked: Whether pairs have negative weights (see `UserItemLoss`).
    """

    counts_V: np.ndarray
    mean: float | None
    pairs: int
    device: str
    has_disliked: bool = False


def _temperature(ratings: RatingsConfig) -> float:
    """Return the temperature of a softmax over items: 1 unless scores are cosines."""
    return ratings.temperature if ratings.cosine else 1.0


def _sampled_items(settings: ModelConfig, ratings: RatingsConfig, spec: PairSpec) -> UserItemLoss:
    """Return the softmax of an item against samples, with its variables on the device."""
    counts_V = spec.counts_V
    with tf.device(spec.device):
        return SampledItems(
            Unigram(counts_V, settings.samples),
            tf.Variable(np.log(np.maximum(counts_V, 1)).astype(np.float32), trainable=False),
            ratings.user_pairs,
            _temperature(ratings),
            devices.compute_dtype(settings, spec.device),
            spec.has_disliked,
        )


def _in_batch_softmax(
    settings: ModelConfig, ratings: RatingsConfig, spec: PairSpec
) -> UserItemLoss:
    """Return the in-batch softmax, with the log-probabilities of items on the device."""
    with tf.device(spec.device):  # a variable, as it may be too large for a constant of the graph
        return InBatchSoftmax(
            tf.Variable(log_expected(spec.counts_V, spec.pairs), trainable=False),
            _temperature(ratings),
            devices.compute_dtype(settings, spec.device),
            spec.has_disliked,
        )


def _squared_error(settings: ModelConfig, ratings: RatingsConfig, spec: PairSpec) -> UserItemLoss:
    """Return the squared error of ratings; raise UsageError if the pairs have no ratings."""
    if spec.mean is None:
        raise UsageError(
            "--loss=squared_error needs ratings, and the pairs have none; leave it out"
        )
    return SquaredError(spec.mean)


# The losses of --task=recommend.
PAIR_LOSSES: dict[str, Callable[[ModelConfig, RatingsConfig, PairSpec], UserItemLoss]] = {
    "sampled_items": _sampled_items,
    "in_batch_softmax": _in_batch_softmax,
    "bpr": lambda settings, ratings, spec: Bpr(ratings.pair_negatives, spec.has_disliked),
    "squared_error": _squared_error,
}


OPTIMIZERS: dict[str, Callable[[OptimizerConfig], Optimizer]] = {
    "sgd": lambda settings: sgd.sgd(),
    "momentum": lambda settings: sgd.momentum(settings.momentum, settings.nesterov),
    "adagrad": lambda settings: adagrad.adagrad(settings.initial_accumulator),
    "rowwise_adagrad": lambda settings: adagrad.rowwise_adagrad(
        settings.initial_accumulator, power=settings.learning_rate_power
    ),
    "ftrl": lambda settings: ftrl.ftrl(
        settings.l1, settings.l2, initial=settings.initial_accumulator
    ),
    "lazy_adam": lambda settings: adam.lazy_adam(**_adam(settings)),
    "lazy_adamw": lambda settings: adam.lazy_adamw(
        **_adam(settings), weight_decay=settings.weight_decay
    ),
}


def make_optimizer(settings: OptimizerConfig) -> Optimizer:
    """Return the optimizer that --optimizer names, with the clipping that the flags ask for."""

    def clip(gradients: Gradients) -> Gradients:
        """Return the gradients, clipped row by row, then all together, if the flags ask for it."""
        if settings.clip_row_norm:
            gradients = clip_by_row_norm(gradients, settings.clip_row_norm)
        if settings.clip_global_norm:
            gradients = clip_by_global_norm(gradients, settings.clip_global_norm)
        return gradients

    return dataclasses.replace(OPTIMIZERS[settings.optimizer](settings), clip=clip)


def make_learning_rate(settings: OptimizerConfig) -> Callable[[float], float]:
    """Return a function from the finished share of the training, 0 to 1, to the learning rate.

    It follows --schedule and --warmup. The peak is --learning_rate, or the optimizer's default if
    that is 0.
    """
    peak = settings.learning_rate or OPTIMIZERS[settings.optimizer](settings).learning_rate
    return lambda progress: peak * schedule_factor(settings.schedule, settings.warmup, progress)


def schedule_factor(schedule: str, warmup: float, done: float) -> float:
    """Return the factor of the learning rate at one moment, from `LEAST_FACTOR` to 1.

    Args:
        schedule: A key of SCHEDULES. It runs over the part of the training after the warmup, and
            gives no factor below `LEAST_FACTOR`, even at the end.
        warmup: The share of the training, 0 to 1, in which the rate first rises linearly from 0
            (Goyal et al. 2017, section 2.2).
        done: The share of the training that is done, 0 to 1.
    """
    if done < warmup:
        value = done / warmup
    else:
        value = SCHEDULES[schedule](min((done - warmup) / (1.0 - warmup), 1.0))
    return max(value, LEAST_FACTOR)


def _adam(settings: OptimizerConfig) -> dict[str, Any]:
    """Return the arguments of both forms of Adam by name: decays, epsilon, `correct_skipped`."""
    names = ("beta_1", "beta_2", "epsilon", "correct_skipped")
    return {name: getattr(settings, name) for name in names}
