"""From --loss and its flags to a loss: the only place that knows which class a name stands for."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from absl import logging

from ..config import ModelConfig
from ..config.settings import numbers
from ..errors import UsageError
from ..losses.base import Loss
from ..losses.classes import classes
from ..losses.classes.adaptive_softmax import AdaptiveSoftmax
from ..losses.classes.class_softmax import ClassSoftmax
from ..losses.negative_sampling import NegativeSampling
from ..losses.one_vs_all import OneVsAll
from ..losses.sampled.nce import Nce
from ..losses.sampled.sampled_softmax import SampledSoftmax
from ..losses.tree.hierarchical_softmax import HierarchicalSoftmax


class Wanted(NamedTuple):
    """What a loss is for.

    counts_V: occurrences of the words, descending. columns: of the vectors that predict them.
    targets: predictions of a step. seed: of the run.
    """

    counts_V: np.ndarray
    columns: int
    targets: int
    seed: int


def make(settings: ModelConfig, wanted: Wanted) -> Loss:
    """The loss that --loss names. UsageError where the vocabulary is too small for the flags."""
    return LOSSES[settings.loss](settings, wanted)


def _negative_sampling(settings: ModelConfig, wanted: Wanted) -> Loss:
    return NegativeSampling(
        wanted.counts_V,
        wanted.columns,
        settings.negative_power,
        settings.group_tokens,
        settings.shared_negatives,
        settings.negatives,
    )


def _sampled_softmax(settings: ModelConfig, wanted: Wanted) -> Loss:
    return SampledSoftmax(wanted.counts_V, wanted.columns, settings.samples, settings.sampler)


def _nce(settings: ModelConfig, wanted: Wanted) -> Loss:
    return Nce(wanted.counts_V, wanted.columns, settings.samples, settings.sampler)


def _hierarchical_softmax(settings: ModelConfig, wanted: Wanted) -> Loss:
    return HierarchicalSoftmax(wanted.counts_V, wanted.columns)


def _softmax(settings: ModelConfig, wanted: Wanted) -> Loss:
    return ClassSoftmax(len(wanted.counts_V), wanted.columns)


def _one_vs_all(settings: ModelConfig, wanted: Wanted) -> Loss:
    return OneVsAll(len(wanted.counts_V), wanted.columns)


def _class_softmax(settings: ModelConfig, wanted: Wanted) -> Loss:
    counts_V, columns, targets, _ = wanted
    words, devices = len(counts_V), settings.class_devices
    if settings.classes > words:
        raise UsageError(
            f"--classes={settings.classes}: the vocabulary has {words:,} words; give at most "
            "that, or 0"
        )
    starts = classes.partition(
        counts_V, settings.class_levels, settings.class_rule, settings.classes, targets
    )
    count, rows = len(starts[-1]) - 1, classes.expected_rows(counts_V, starts, targets)
    logging.info(
        "%s classes of words, %s: a step touches %s rows of %s words on average",
        *(f"{count:,}", settings.class_rule, f"{rows:,.0f}", f"{words:,}"),
    )
    if devices == 1:
        return ClassSoftmax(words, columns, starts)
    if count < devices:
        raise UsageError(f"--class_devices={devices}: there are {count} classes; give at most that")
    device_C = classes.assign_devices(counts_V, starts[-1], targets, devices)
    expected, worst = classes.imbalance(counts_V, starts[-1], targets, device_C)
    logging.info(
        "dealt over %d devices: the busiest has %.2f times an even share of a step's rows on "
        "average, %.2f times at worst",
        *(devices, expected, worst),
    )
    return ClassSoftmax(words, columns, starts, devices=device_C)


def _adaptive_softmax(settings: ModelConfig, wanted: Wanted) -> Loss:
    try:
        cutoffs = numbers(settings.cutoffs)
        return AdaptiveSoftmax(wanted.counts_V, wanted.columns, cutoffs, seed=wanted.seed)
    except ValueError as error:
        raise UsageError(
            f"--cutoffs={settings.cutoffs}: {error}; give numbers such as 2000,10000, or none"
        ) from error


LOSSES: dict[str, Callable[[ModelConfig, Wanted], Loss]] = {
    "negative_sampling": _negative_sampling,
    "sampled_softmax": _sampled_softmax,
    "nce": _nce,
    "hierarchical_softmax": _hierarchical_softmax,
    "class_softmax": _class_softmax,
    "adaptive_softmax": _adaptive_softmax,
    "softmax": _softmax,
    "one_vs_all": _one_vs_all,
}
