"""Softmax over all words, or over classes and the words of a class."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from ...tables.base import TableSpec
from ...types import Rows
from .. import softmax
from ..base import Gather, Pairs, Part, Predictions, WordBlock
from . import classes
from .levels import Entropy, Level
from .shards import Shards

_NAMES = ("output", "classes", "superclasses")  # of the tables, from the words up


class ClassSoftmax:
    """P(w | h) = P(c | h) P(w | c, h), each a softmax (Goodman 2001); or with classes of classes.

    Without classes it is the full softmax. A class is an interval of ids, so its rows lie side by
    side. The targets of a step are grouped by class: the rows of a class are read, differentiated
    and written once, however many targets fall in it, and no target has a copy of them.

    words: V. columns: D. starts: where the groups of each level begin, the top level first, as
    `losses.classes.classes.partition` gives them; none for the full softmax. tile_rows: see
    `Level`. devices: for each class the device, (C,) int32, that holds its words, as
    `losses.classes.classes.assign_devices` chooses it; None for one device.
    """

    def __init__(
        self,
        words: int,
        columns: int,
        starts: Sequence[np.ndarray] = (),
        tile_rows: int | None = 0,
        devices: np.ndarray | None = None,
    ):
        top = np.array([0, len(starts[0]) - 1 if len(starts) else words])
        bounds = [*reversed(starts), top]
        self._levels = [
            Level(name, bounds_G, columns, tile_rows)
            for name, bounds_G in zip(_NAMES, bounds, strict=False)
        ]
        self._shards = None if devices is None else Shards(self._levels[0], devices)

    def tables(self) -> dict[str, TableSpec]:
        """A row a word, a row a class of each level; 0 at first."""
        found = {} if self._shards is None else self._shards.tables()
        levels = self._levels if self._shards is None else self._levels[1:]
        return found | {level.table: level.spec() for level in levels}

    def lookups(self, targets_GM: tf.Tensor, vectors: int, seed: tf.Tensor) -> dict[str, tf.Tensor]:
        """Nothing: all rows are streamed."""
        return {}

    def loss(self, predictions: Predictions, rows: dict[str, Rows]) -> tuple[float, list[Part]]:
        """A part for each level, and for each device of the words."""
        return 0.0, self._parts(predictions, softmax.summed_loss)

    def exact_lookups(self) -> dict[str, tf.Tensor]:
        """Nothing: all rows are streamed."""
        return {}

    def exact(self, predictions: Predictions, rows: dict[str, Rows]) -> list[Part]:
        """The parts of `loss`, with a loss for each vector."""
        return self._parts(predictions, softmax.vector_losses)

    def priors(self, counts_V: np.ndarray) -> dict[str, np.ndarray]:
        """The logarithm of the share of each word and of each class."""
        share_N, found = classes.probabilities(counts_V), {}
        for level in self._levels:
            found[level.table] = np.log(share_N).astype(np.float32)
            share_N = np.add.reduceat(share_N, level.bounds[:-1])
        return found if self._shards is None else found | self._shards.dealt(found)

    def word_blocks(self, hidden_ND: tf.Tensor, gather: Gather) -> Iterator[WordBlock]:
        """The words of each class, as probable as their class at most."""
        hidden_ND = tf.cast(hidden_ND, tf.float32)
        above_NG = np.zeros((hidden_ND.shape[0], 1), np.float32)
        for level in reversed(self._levels[1:]):
            blocks = level.word_blocks(hidden_ND, gather, above_NG)
            above_NG = np.concatenate([block.log_probability() for block in blocks], axis=1)
        lowest = self._levels[0] if self._shards is None else self._shards
        yield from lowest.word_blocks(hidden_ND, gather, above_NG)

    def _parts(self, predictions: Predictions, entropy: Entropy) -> list[Part]:
        pairs = Pairs.from_predictions(predictions)
        found = []
        for level in self._levels:
            if level is self._levels[0] and self._shards is not None:
                found += self._shards.parts(pairs, entropy)
            else:
                found.append(level.part(pairs, entropy))
            pairs = pairs._replace(targets_P=level.group_of(pairs.targets_P))
        return found
