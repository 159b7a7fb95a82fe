"""Labelled texts in memory, as ids."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np


@dataclasses.dataclass(frozen=True, eq=False)
class Examples:
    """E texts with their labels.

    Attributes:
        words: Names of the word ids.
        labels: Names of the label ids.
        tokens_M: Word ids, int32, one text after the other.
        starts_E: Start of each text in `tokens_M`, and the end of the last, (E + 1,) int64.
        labels_N: Label ids, int32, one text after the other; -1 for a label without an id.
        label_starts_E: Start of each text in `labels_N`, and the end of the last, (E + 1,) int64.
        weights_E: Weight of each text, (E,) float32, above 0; None if all are 1.
        shares_N: Weight of each label of `labels_N` in its text, float32, above 0 and at most 1;
            None if all are 1.
    """

    words: Sequence[str]
    labels: Sequence[str]
    tokens_M: np.ndarray
    starts_E: np.ndarray
    labels_N: np.ndarray
    label_starts_E: np.ndarray
    weights_E: np.ndarray | None = None
    shares_N: np.ndarray | None = None

    def __len__(self) -> int:
        """Return the number of texts."""
        return len(self.starts_E) - 1

    @property
    def lengths_E(self) -> np.ndarray:
        """Return the number of words of each text, (E,) int64."""
        return np.diff(self.starts_E)

    @property
    def label_counts_E(self) -> np.ndarray:
        """Return the number of labels of each text, (E,) int64."""
        return np.diff(self.label_starts_E)

    @property
    def bytes(self) -> int:
        """Return the memory of the arrays, in bytes."""
        arrays = [value for value in vars(self).values() if isinstance(value, np.ndarray)]
        return sum(array.nbytes for array in arrays)

    def select(self, mask_E: np.ndarray) -> Examples:
        """Return a copy of the selected texts, with the same ids and names.

        Args:
            mask_E: Whether to select each text, (E,) bool.
        """
        mask_N = np.repeat(mask_E, self.label_counts_E)
        return dataclasses.replace(
            self,
            tokens_M=self.tokens_M[np.repeat(mask_E, self.lengths_E)],
            starts_E=list_starts(self.lengths_E[mask_E]),
            labels_N=self.labels_N[mask_N],
            label_starts_E=list_starts(self.label_counts_E[mask_E]),
            weights_E=None if self.weights_E is None else self.weights_E[mask_E],
            shares_N=None if self.shares_N is None else self.shares_N[mask_N],
        )

    def part(self, start: int, stop: int) -> Examples:
        """Return the texts from number `start` up to `stop`; word and label ids are not copied.

        Args:
            start: First text.
            stop: The text after the last one.
        """
        bounds, labels = self.starts_E[start : stop + 1], self.label_starts_E[start : stop + 1]
        part_N = slice(labels[0], labels[-1])
        return dataclasses.replace(
            self,
            tokens_M=self.tokens_M[bounds[0] : bounds[-1]],
            starts_E=bounds - bounds[0],
            labels_N=self.labels_N[part_N],
            label_starts_E=labels - labels[0],
            weights_E=None if self.weights_E is None else self.weights_E[start:stop],
            shares_N=None if self.shares_N is None else self.shares_N[part_N],
        )

    def with_names(
        self, words: Sequence[str], labels: Sequence[str], keeps_unknown: bool = False
    ) -> Examples:
        """Return the same texts with ids of other names; words without a new id are dropped.

        A text may lose all its words, but not its labels.

        Args:
            words: New names of the word ids.
            labels: New names of the label ids; a label that is not among them becomes -1.
            keeps_unknown: Whether to keep words without a new id; their names follow the new ones.
        """
        if keeps_unknown:
            known = set(words)
            words = [*words, *(word for word in self.words if word not in known)]
        tokens_M = _positions(self.words, words)[self.tokens_M]
        known_M = tokens_M >= 0
        return dataclasses.replace(
            self,
            words=words,
            labels=labels,
            tokens_M=tokens_M[known_M],
            starts_E=list_starts(known_M)[self.starts_E],
            labels_N=_positions(self.labels, labels)[self.labels_N],
        )

    def with_last_word(self, word: str) -> Examples:
        """Return the texts with a word more at the end of each.

        Args:
            word: The word, which need not have an id yet.
        """
        words = self.words if word in self.words else [*self.words, word]
        return dataclasses.replace(
            self,
            words=words,
            tokens_M=np.insert(self.tokens_M, self.starts_E[1:], words.index(word)),
            starts_E=self.starts_E + np.arange(len(self.starts_E)),
        )


def _positions(names: Sequence[str], others: Sequence[str]) -> np.ndarray:
    """Return the position of each of `names` in `others`, int32; -1 if it is not there."""
    index = {name: position for position, name in enumerate(others)}
    return np.array([index.get(name, -1) for name in names], np.int32)


def list_starts(lengths_E: np.ndarray) -> np.ndarray:
    """Return the start of each of several consecutive lists, and the end of the last, int64.

    Args:
        lengths_E: Length of each list.
    """
    return np.concatenate([[0], np.cumsum(lengths_E, dtype=np.int64)])
