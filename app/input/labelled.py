"""Labelled texts in memory, as ids, and the names of those."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np


@dataclasses.dataclass(frozen=True, eq=False)
class Examples:
    """E texts with their labels.

    words, labels: the names of ids. tokens_M: int32 ids of words, one text after the other.
    starts_E: where each text begins, and where the last one ends, (E + 1,) int64. labels_N,
    label_starts_E: the same of labels; -1 for one without an id.
    """

    words: Sequence[str]
    labels: Sequence[str]
    tokens_M: np.ndarray
    starts_E: np.ndarray
    labels_N: np.ndarray
    label_starts_E: np.ndarray

    def __len__(self) -> int:
        return len(self.starts_E) - 1

    @property
    def lengths_E(self) -> np.ndarray:
        """Words of each text, (E,) int64."""
        return np.diff(self.starts_E)

    @property
    def label_counts_E(self) -> np.ndarray:
        """Labels of each text, (E,) int64."""
        return np.diff(self.label_starts_E)

    @property
    def bytes(self) -> int:
        """What they take in memory, without the names."""
        arrays = self.tokens_M, self.starts_E, self.labels_N, self.label_starts_E
        return sum(array.nbytes for array in arrays)

    def some(self, chosen_E: np.ndarray) -> Examples:
        """Those that are chosen, (E,) bool."""
        return dataclasses.replace(
            self,
            tokens_M=self.tokens_M[np.repeat(chosen_E, self.lengths_E)],
            starts_E=list_starts(self.lengths_E[chosen_E]),
            labels_N=self.labels_N[np.repeat(chosen_E, self.label_counts_E)],
            label_starts_E=list_starts(self.label_counts_E[chosen_E]),
        )

    def part(self, start: int, stop: int) -> Examples:
        """Those of some numbers."""
        bounds, labels = self.starts_E[start : stop + 1], self.label_starts_E[start : stop + 1]
        return dataclasses.replace(
            self,
            tokens_M=self.tokens_M[bounds[0] : bounds[-1]],
            starts_E=bounds - bounds[0],
            labels_N=self.labels_N[labels[0] : labels[-1]],
            label_starts_E=labels - labels[0],
        )

    def named(self, words: Sequence[str], labels: Sequence[str]) -> Examples:
        """The same with ids that stand for other names; words that have none are left out."""
        tokens_M = _ids(self.words, words)[self.tokens_M]
        known_M = tokens_M >= 0
        return Examples(
            words,
            labels,
            tokens_M[known_M],
            list_starts(known_M)[self.starts_E],
            _ids(self.labels, labels)[self.labels_N],
            self.label_starts_E,
        )


def _ids(names: Sequence[str], others: Sequence[str]) -> np.ndarray:
    """The place of each name among the others, int32; -1 where it is not."""
    index = {name: place for place, name in enumerate(others)}
    return np.array([index.get(name, -1) for name in names], np.int32)


def list_starts(lengths_E: np.ndarray) -> np.ndarray:
    """Where each of some lists begins that follow one another, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(lengths_E, dtype=np.int64)])
