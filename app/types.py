"""Types that several packages share, and the legend of shapes.

A name ends with its shape: `rows_UD` is a tensor of shape (U, D). The letters are:

    B  rows of a batch             V  rows of a table
    T  centres of a row            D  columns of a table
    L  tokens of a row, T + 2 W    C  classes of words
    W  window                      P  pairs of a vector and a word
    G  groups of vectors           S  steps of a call
    K  shared negative samples     M, N  any other numbers
    U  unique ids
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .errors import RunError, UsageError

# The device on which ids are prepared, whatever the device of the steps is. TensorFlow does
# arithmetic on int32 in the host's memory even for a GPU. The number of unique ids is the shape of
# all later tensors, so on the GPU each step would wait several times for it.
HOST = "CPU:0"

# The phases of a step, in order. The names of its operations in a profile begin with them.
PHASES = ("lookup", "gather", "loss", "gradient", "update")

# A function (epochs, first, parts) -> iterator of (epoch, data of S steps).
#   epochs: the epochs to go through, one after the other.
#   first: the number of batches of the first epoch to skip.
#   parts: optional, the micro-batches to make, for a task with `TrainingData.empty`. A micro-batch
#       whose share of the epoch has ended is empty.
# The data is a nest of tensors (S, ...), see `Batch.data`.
Batches = Callable[..., Iterator[tuple[int, Any]]]


class Batch(NamedTuple):
    """The data of one step, or of one of the micro-batches that share a step.

    Attributes:
        data: A nest of tensors of static shapes; for models of text, tokens (B, L) int32 (see
            `lexrow.input.token_rows`).
        seed: (2,) int64, a function of the run's seed, the step and the part. Every random draw of
            the step is a function of it.
        part: The number of the micro-batch, from 0.
        rows: By table, the row number of each id that the model looks up, (N,) integers. It has
            only tables whose rows are located before the step (see `LocatedData`).
    """

    data: Any
    seed: Any
    part: int = 0
    rows: Mapping[str, Any] = {}


class LocatedData(NamedTuple):
    """The data of S steps, and the rows that they look up in tables of arbitrary ids or in caches.

    Attributes:
        data: A nest of tensors (S, N, ...), see `Batch.data`.
        rows: By table, the row number of each id, (S, N) integers, micro-batch after micro-batch.
    """

    data: Any
    rows: Mapping[str, Any]


class UniqueIds(NamedTuple):
    """Ids to look up that are known to be unique, padded to a static size.

    The ids may be in partitions, one after the other. The rows of the partitions are read,
    differentiated and updated side by side, on several cores.

    Attributes:
        ids_N: Unique ids, then padding.
        counts_P: The number of ids in each partition, (P,) int32 in host memory.
    """

    ids_N: Any
    counts_P: Any


class Rows(NamedTuple):
    """The rows of the N ids that a model looks up, each row once.

    Attributes:
        values_UD: The rows of the unique ids, float32.
        inverse_N: The index of each id among the unique ids, int32: the row of the n-th id is
            `values_UD[inverse_N[n]]`. None for `UniqueIds`.
        ids_U: The unique ids; None where no model needs them.
        partitions: The rows of each partition of ids, if a model gives ids in partitions, and these
            are several lookups. The other attributes are None then.
        ids: The number of ids that were looked up, if `inverse_N` is of a part of them; else None.
    """

    values_UD: Any
    inverse_N: Any
    ids_U: Any = None
    partitions: Sequence[Rows] = ()
    ids: int | None = None


class NgramRule(NamedTuple):
    """The character n-grams that a word has.

    Attributes:
        shortest: The fewest characters of an n-gram, from 1.
        longest: The most characters of an n-gram.
        buckets: The number of buckets that n-grams are hashed into.
    """

    shortest: int
    longest: int
    buckets: int


class NgramVectors(NamedTuple):
    """The vectors of character n-grams, from which words without a row get their vectors.

    Attributes:
        rule: The n-grams of a word.
        rows_ND: The rows of N buckets, float32. The vector of any other bucket is 0.
        buckets_N: The buckets of these rows, rising integers; None for all buckets, in order.
    """

    rule: NgramRule
    rows_ND: np.ndarray
    buckets_N: np.ndarray | None = None


class WordVectors(NamedTuple):
    """Words and their vectors, most frequent word first.

    Attributes:
        tokens: The V words.
        matrix: Their vectors, (V, D) float32. With `ngrams` these are the composed vectors.
        counts: Occurrences in the training corpus, (V,) int64; None for a file without counts.
        ngrams: The vectors of n-grams; None if a word without a row has no vector.
        form: The form in which the words of their text were written, see
            `lexrow.text.unicode_rules.normalize`; empty if they were left as they were.
    """

    tokens: list[str]
    matrix: np.ndarray
    counts: np.ndarray | None = None
    ngrams: NgramVectors | None = None
    form: str = ""

    def first(self, count: int) -> WordVectors:
        """Return the first words only, so many of them; all if the count is 0."""
        part = slice(count or None)
        counts = None if self.counts is None else self.counts[part]
        return self._replace(tokens=self.tokens[part], matrix=self.matrix[part], counts=counts)


# The first byte of a message of a team: that of a part, or of an error of this class.
_PART = b"p"
_ERRORS: dict[bytes, type[Exception]] = {b"r": RunError, b"u": UsageError}


class Team(NamedTuple):
    """The processes that read a text together, each a share of it.

    Attributes:
        number: The number of this process, from 0.
        gather: A function that all processes call together. It takes bytes of this process, and
            returns those of each process, in the order of their numbers.
        names: The name of each process, for messages.
    """

    number: int
    gather: Callable[[bytes], list[bytes]]
    names: tuple[str, ...]

    def gather_parts(self, make: Callable[[], bytes]) -> list[bytes]:
        """Return the result of `make` in each process; all processes call this together.

        Raises:
            UsageError: `make` raised it in some process; all processes raise the first such error.
            RunError: The same for RunError.
        """
        try:
            message = _PART + make()
        except (RunError, UsageError) as error:
            kind = next(kind for kind, known in _ERRORS.items() if isinstance(error, known))
            message = kind + str(error).encode()
        messages = self.gather(message)
        for answer in messages:
            if answer[:1] in _ERRORS:
                raise _ERRORS[answer[:1]](answer[1:].decode())
        return [answer[1:] for answer in messages]

    def gather_arrays(
        self, make: Callable[[], dict[str, np.ndarray]]
    ) -> list[dict[str, np.ndarray]]:
        """Return the arrays that `make` returns in each process, by name; see `gather_parts`."""

        def encode() -> bytes:
            """Return the arrays of this process as bytes."""
            file = io.BytesIO()
            np.savez(file, **make())
            return file.getvalue()

        return [dict(np.load(io.BytesIO(part))) for part in self.gather_parts(encode)]


ALONE = Team(0, lambda data: [data], ("this process",))
