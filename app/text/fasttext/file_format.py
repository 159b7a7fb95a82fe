"""The parts of a fastText file, as its C++ source writes them (src/args.cc, src/dictionary.cc).

All numbers are little-endian. A file has, in order: magic number and version; `Args`; the sizes of
the dictionary and its entries; the pairs of a pruned dictionary; whether the input is quantised,
and the input matrix; whether the output is, and the output matrix.
"""

from __future__ import annotations

import struct
from typing import NamedTuple, Protocol

import numpy as np

MAGIC, VERSION = 793_712_314, 12  # FASTTEXT_FILEFORMAT_MAGIC_INT32 and FASTTEXT_VERSION
# Supervised models of this version were trained without character n-grams (FastText::loadModel).
VERSION_WITHOUT_NGRAMS = 11
SIGNATURE = struct.Struct("<2i")
ARGS = struct.Struct("<12id")
# Entries, words, labels, tokens of the corpus, pairs of a pruned dictionary (-1: not pruned).
SIZES = struct.Struct("<3i2q")
ENTRY = struct.Struct("<qb")  # after a word and a NUL byte: its count and its type
WORD, LABEL = 0, 1  # types of entries
FLAG = struct.Struct("<?")  # whether a matrix is quantised
SHAPE = struct.Struct("<2q")  # rows and columns of a matrix, before its float32 numbers
# Of a quantised matrix: whether norms are quantised, rows, columns, bytes of codes.
QUANTIZED = struct.Struct("<?2qi")
QUANTIZER = struct.Struct("<4i")  # columns, parts, columns of a part, columns of the last part
# Far more than any model has, so that a damaged file cannot ask for all memory.
_MOST_COLUMNS, _LONGEST_NGRAM = 1 << 20, 1 << 8
# The end of a line, which is a word of its own (Dictionary::EOS).
LINE_END = "</s>"
LABEL_PREFIX = "__label__"  # the default of -label, which files do not store
# Names of losses and models by number (enums loss_name and model_name of src/args.h).
LOSSES = {1: "hierarchical_softmax", 2: "negative_sampling", 3: "softmax", 4: "one_vs_all"}
MODELS = {1: "cbow", 2: "skipgram", 3: "supervised"}
# Centroids of each part of a vector: one for each value of a byte (ProductQuantizer::ksub_).
CENTROIDS = 256


class Args(NamedTuple):
    """The settings that a file stores, in its order.

    Attributes:
        dim: The columns of a vector.
        window: The largest distance of a context word (-ws).
        epochs: Passes over the text (-epoch).
        min_count: The least count of a word (-minCount).
        negatives: Negative samples (-neg).
        word_ngrams: The words of the longest word n-gram (-wordNgrams).
        loss: A key of `LOSSES`.
        model: A key of `MODELS`.
        buckets: Rows for n-grams (-bucket).
        min_ngram: The characters of the shortest character n-gram (-minn).
        max_ngram: The characters of the longest one; 0 for none (-maxn).
        update_rate: Words between two changes of the learning rate (-lrUpdateRate).
        subsample: The threshold of subsampling (-t).
    """

    dim: int
    window: int
    epochs: int
    min_count: int
    negatives: int
    word_ngrams: int
    loss: int
    model: int
    buckets: int
    min_ngram: int
    max_ngram: int
    update_rate: int
    subsample: float

    @property
    def is_supervised(self) -> bool:
        """Whether the model is a classifier."""
        return MODELS.get(self.model) == "supervised"


class Dictionary(NamedTuple):
    """The words and labels of a model, in the order of their rows.

    Attributes:
        words: The V words, UTF-8 as a rule.
        counts_V: Occurrences of the words, int64.
        labels: The C labels with their prefix; none for word vectors.
        counts_C: Occurrences of the labels, int64.
        tokens: The number of tokens of the corpus.
        kept_buckets_K: The buckets that a pruned model has kept, in the order of their rows, which
            follow those of the words; None for a model that is not pruned.
    """

    words: list[bytes]
    counts_V: np.ndarray
    labels: list[bytes]
    counts_C: np.ndarray
    tokens: int
    kept_buckets_K: np.ndarray | None = None


def check_args(args: Args) -> str:
    """Return the first setting that no model can have, with its value; "" if all are possible."""
    has_ngrams = args.max_ngram > 0 or (args.is_supervised and args.word_ngrams > 1)
    checks = (
        ("dim", args.dim, 0 < args.dim <= _MOST_COLUMNS),
        ("model", args.model, args.model in MODELS),
        ("loss", args.loss, args.loss in LOSSES),
        ("bucket", args.buckets, args.buckets >= (1 if has_ngrams else 0)),
        ("maxn", args.max_ngram, args.max_ngram <= _LONGEST_NGRAM),
        ("wordNgrams", args.word_ngrams, args.word_ngrams <= _LONGEST_NGRAM),
    )
    return next((f"{name} {value}" for name, value, is_possible in checks if not is_possible), "")


class Matrix(Protocol):
    """A matrix whose rows are read on demand.

    Attributes:
        shape: The number of rows and of columns.
    """

    @property
    def shape(self) -> tuple[int, int]:
        """Return the number of rows and of columns."""

    def take(self, rows_N: np.ndarray) -> np.ndarray:
        """Return some rows, (N, D) float32.

        Args:
            rows_N: The numbers of the rows, integers, with any repetitions.
        """


class DenseMatrix(NamedTuple):
    """A matrix of float32 numbers in a mapped file.

    Attributes:
        values_VD: The numbers, which are read from the file where they are used.
    """

    values_VD: np.ndarray

    @property
    def shape(self) -> tuple[int, int]:
        """Return the number of rows and of columns."""
        rows, columns = self.values_VD.shape
        return rows, columns

    def take(self, rows_N: np.ndarray) -> np.ndarray:
        """Return some rows, (N, D) float32."""
        return np.asarray(self.values_VD[rows_N], np.float32)


class Quantizer(NamedTuple):
    """The centroids of a product quantizer (src/productquantizer.cc).

    A vector is divided into parts of equal length; the last part may be shorter. Each part is one
    of 256 centroids.

    Attributes:
        columns: The columns of a vector, D.
        length: The columns of a part; all but the last part have as many.
        numbers: The centroids of part after part, (256 D,) float32.
    """

    columns: int
    length: int
    numbers: np.ndarray

    @property
    def parts(self) -> int:
        """Return the number of parts of a vector."""
        return -(-self.columns // self.length)

    def decode(self, codes_NP: np.ndarray) -> np.ndarray:
        """Return vectors (N, D) float32.

        Args:
            codes_NP: The number of the centroid of each part, uint8.
        """
        decoded = []
        for part in range(self.parts):
            first = part * self.length
            stop = min(first + self.length, self.columns)
            centroids = self.numbers[CENTROIDS * first : CENTROIDS * stop]
            decoded.append(centroids.reshape(CENTROIDS, -1)[codes_NP[:, part]])
        return np.concatenate(decoded, axis=1)


class QuantizedMatrix(NamedTuple):
    """A matrix of product-quantised rows (src/quantmatrix.cc).

    Attributes:
        codes_VP: The centroid of each part of each row, uint8.
        quantizer: The centroids.
        norm_codes_V: The centroid of the norm of each row, uint8; None if the rows have theirs.
        norm_quantizer: The centroids of norms.
    """

    codes_VP: np.ndarray
    quantizer: Quantizer
    norm_codes_V: np.ndarray | None = None
    norm_quantizer: Quantizer | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Return the number of rows and of columns."""
        return len(self.codes_VP), self.quantizer.columns

    def take(self, rows_N: np.ndarray) -> np.ndarray:
        """Return some rows, (N, D) float32."""
        rows_ND = self.quantizer.decode(self.codes_VP[rows_N])
        if self.norm_codes_V is None:
            return rows_ND
        return rows_ND * self.norm_quantizer.decode(self.norm_codes_V[rows_N, np.newaxis])
