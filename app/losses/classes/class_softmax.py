"""The softmax over all words, or over classes and over the words of each class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ...tables.base import TableSpec
from ...types import Rows
from .. import softmax
from ..base import Gather, NormalizedLoss, Part, Predictions, VectorWordPairs, WordSegments
from . import classes
from .levels import Level, ShardedLevel

_NAMES = ("output", "classes", "superclasses")  # of the tables, words first


class ClassSoftmax(NormalizedLoss):
    """The loss -log P(c | h) - log P(w | c, h) of a word w of class c (Goodman 2001).

    Each of the two is a softmax. There may also be classes of classes, as a third level. Without
    classes the loss is the full softmax.

    A class is an interval of ids, so its rows are adjacent. The targets of a step are grouped by
    class. The rows of a class are read, differentiated and written once for all of its targets.

    Args:
        words: The number of words, V.
        starts: Where the segments of each level begin, top level first, as
            `losses.classes.classes.partition` returns it. Empty for the full softmax.
        devices: The device that holds the words of each class, (C,) int32, as
            `losses.classes.classes.assign_devices` returns it. None for one device.
    """

    is_likelihood, lists_pairs = True, True

    def __init__(
        self,
        words: int,
        columns: int,
        starts: Sequence[np.ndarray] = (),
        devices: np.ndarray | None = None,
    ):
        top = np.array([0, len(starts[0]) - 1 if len(starts) else words])
        bounds = [*reversed(starts), top]
        self._levels = [
            Level(name, bounds_G, columns) for name, bounds_G in zip(_NAMES, bounds, strict=False)
        ]
        if devices is not None:
            self._levels[0] = ShardedLevel(_NAMES[0], bounds[0], columns, devices)

    def tables(self) -> dict[str, TableSpec]:
        """Return the specs of tables with a row for each word, and for each class of each level.

        With several devices there is a table of words for each.
        """
        return {name: spec for level in self._levels for name, spec in level.tables().items()}

    def loss(self, predictions: Predictions, rows: dict[str, Rows]) -> tuple[Any, list[Part]]:
        """Return 0, and a part for each level, not yet computed; for words one for each device."""
        pairs = VectorWordPairs.from_predictions(predictions, is_sorted=len(self._levels) > 1)
        parts = []
        for level in self._levels:
            parts += level.parts(pairs)
            pairs = pairs._replace(targets_P=level.segment_of(pairs.targets_P))
        return 0.0, parts

    def exact(self, predictions: Predictions, gather: Gather) -> list[Part]:
        """Return the parts of a class softmax, not yet computed, with a number for each vector."""
        _, parts = ClassSoftmax.loss(self, predictions, {})
        return [part._replace(loss=softmax.vector_losses) for part in parts]

    def priors(self, counts_V: np.ndarray) -> dict[str, np.ndarray]:
        """Return the logarithm of the share of the text of each word and of each class."""
        share_N = classes.probabilities(counts_V)
        priors: dict[str, np.ndarray] = {}
        for level in self._levels:
            priors |= level.split(np.log(share_N).astype(np.float32))
            share_N = np.add.reduceat(share_N, level.bounds[:-1])
        return priors

    def word_segments(self, hidden_ND: tf.Tensor, gather: Gather) -> list[WordSegments]:
        """Return the words of each class; see `NormalizedLoss`.

        The rows of all classes are read at once. The bound of a class is its log-probability. With
        several devices the ids are not ascending from class to class.
        """
        hidden_ND = tf.cast(hidden_ND, tf.float32)
        above_NG = tf.zeros_like(hidden_ND[:, :1])
        for level in reversed(self._levels[1:]):
            above_NG = level.log_probabilities(hidden_ND, gather, above_NG)
        return self._levels[0].word_segments(hidden_ND, gather, above_NG)
