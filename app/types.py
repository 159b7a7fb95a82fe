"""Tuples that cross layers, and the legend of the shape suffixes used in every name.

B rows of a batch, T centres of a row, L tokens of a row (T + 2 window), G groups of centres, K
negatives of a group, U unique ids, V rows of a table, D columns of a table, C classes of words, P
pairs of a vector and a word, S steps of a call; M and N are any other numbers, such as of ids asked
for. `rows_UD` is a tensor of shape (U, D).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

# The device on which ids are prepared, whatever the device of the steps is. TensorFlow does
# arithmetic on int32 in the host's memory even for a GPU, and the number of unique ids gives the
# shape of everything after it: on the GPU each step would wait several times for such a result.
HOST = "CPU:0"

# What a step does, in this order; so begin the names of its operations in a profile.
PHASES = ("lookup", "gather", "loss", "gradient", "update")

# From epochs, one after the other, and a number of batches of the first one to leave out, to the
# epoch and what a call of the train function takes, `Batch.data` of S steps with S as their first
# dimension; the same in every process, but that a third argument tells which micro-batches are
# wanted here: others, and those that are at their end before others, may be empty.
Batches = Callable[..., Iterator[tuple[int, Any]]]


class Batch(NamedTuple):
    """What one step trains on, or one of the micro-batches that share a step.

    data: for models of text, tokens (B, L) int32 (see `app.input.tokens`); or another nest of
    tensors of static shapes. seed: (2,) int64, a function of the run's seed and of the step and the
    part; every random draw of the step is a function of it. part: which of the micro-batches.
    rows: by table, the row number of each id that the model looks up, (N,) int64, where they were
    found before the step (see `Located`).
    """

    data: Any
    seed: Any
    part: int = 0
    rows: Mapping[str, Any] = {}


class Located(NamedTuple):
    """Data of S steps, and the rows that they look up in tables whose ids are any numbers.

    data: A nest of tensors (S, N, ...), see `Batch.data`.
    rows: By table, the row number of each id, (S, N) int64; micro-batches are one after the other.
    """

    data: Any
    rows: Mapping[str, Any]


class Rows(NamedTuple):
    """The rows that a model asked for, each once.

    values_UD: float32. positions_N: int32; the row of the n-th id asked for is
    `values_UD[positions_N[n]]`. ids_U: whose rows they are, for a model that cares.
    """

    values_UD: Any
    positions_N: Any
    ids_U: Any = None


class WordVectors(NamedTuple):
    """Words and their vectors, most frequent word first.

    tokens: V strings. matrix: (V, D) float32. counts: (V,) int64 occurrences in the training
    corpus, or None where a file did not tell.
    """

    tokens: list[str]
    matrix: np.ndarray
    counts: np.ndarray | None = None
