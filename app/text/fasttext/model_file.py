"""Files of fastText, `.bin` and `.ftz`, word vectors and classifiers: their parts, and a reader.

The parts are as the C++ source writes them (src/args.cc, src/dictionary.cc). All numbers are
little-endian. A file has, in order: magic number and version; `Args`; the sizes of the dictionary
and its entries; the pairs of a pruned dictionary; whether the input is quantised, and the input
matrix; whether the output is, and the output matrix. A file is mapped into memory: only the rows
that are used are read from the disk.
"""

from __future__ import annotations

import dataclasses
import mmap
import struct
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np

from ...errors import UsageError
from ...system.files import open_regular
from .. import reading

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
# Names of losses and models by number, from 1 (enums loss_name and model_name of src/args.h).
LOSSES = ("", "hierarchical_softmax", "negative_sampling", "softmax", "one_vs_all")
MODELS = ("", "cbow", "skipgram", "supervised")
# Centroids of each part of a vector: one for each value of a byte (ProductQuantizer::ksub_).
CENTROIDS = 256


class Args(NamedTuple):
    """The settings that a file stores, in its order; by default those of fastText's skip-gram.

    Attributes:
        dim: The columns of a vector.
        window: The largest distance of a context word (-ws).
        epochs: Passes over the text (-epoch).
        min_count: The least count of a word (-minCount).
        negatives: Negative samples (-neg).
        word_ngrams: The words of the longest word n-gram (-wordNgrams).
        loss: The number of one of `LOSSES`.
        model: The number of one of `MODELS`.
        buckets: Rows for n-grams (-bucket).
        min_ngram: The characters of the shortest character n-gram (-minn).
        max_ngram: The characters of the longest one; 0 for none (-maxn).
        update_rate: Words between two changes of the learning rate (-lrUpdateRate).
        subsample: The threshold of subsampling (-t).
    """

    dim: int
    window: int = 5
    epochs: int = 5
    min_count: int = 1
    negatives: int = 5
    word_ngrams: int = 1
    loss: int = 2
    model: int = 2
    buckets: int = 0
    min_ngram: int = 0
    max_ngram: int = 0
    update_rate: int = 100
    subsample: float = 1e-4

    @property
    def is_supervised(self) -> bool:
        """Whether the model is a classifier."""
        return self.model == MODELS.index("supervised")


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
        ("model", args.model, 0 < args.model < len(MODELS)),
        ("loss", args.loss, 0 < args.loss < len(LOSSES)),
        ("bucket", args.buckets, args.buckets >= (1 if has_ngrams else 0)),
        ("maxn", args.max_ngram, args.max_ngram <= _LONGEST_NGRAM),
        ("wordNgrams", args.word_ngrams, args.word_ngrams <= _LONGEST_NGRAM),
    )
    return next((f"{name} {value}" for name, value, is_possible in checks if not is_possible), "")


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


@dataclasses.dataclass(eq=False)
class QuantizedMatrix:
    """A matrix of product-quantised rows (src/quantmatrix.cc), which are indexed as those of numpy.

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

    def __getitem__(self, rows_N: np.ndarray | slice) -> np.ndarray:
        """Return some rows, (N, D) float32."""
        rows_ND = self.quantizer.decode(self.codes_VP[rows_N])
        if self.norm_codes_V is None:
            return rows_ND
        return rows_ND * self.norm_quantizer.decode(self.norm_codes_V[rows_N][:, np.newaxis])


# An array is mapped: its numbers are read from the file where they are used.
Matrix: TypeAlias = "np.ndarray | QuantizedMatrix"

_REMEDY = "copy or download the file again"
_LONGEST_WORD = 1 << 20  # bytes; a word without an end must not be searched in gigabytes
_INT32 = struct.Struct("<i")


class Model(NamedTuple):
    """The content of a fastText file.

    Attributes:
        path: The file, for messages.
        args: The settings.
        dictionary: The words and labels.
        input: The rows of the words, then those of the buckets of n-grams.
        output: A row for each label, or for each word of word vectors; the nodes of a tree with
            the loss `hierarchical_softmax`.
    """

    path: str
    args: Args
    dictionary: Dictionary
    input: Matrix
    output: Matrix


def is_fasttext(path: str | Path) -> bool:
    """Return whether a file begins as those of fastText do; False for one that cannot be read.

    Args:
        path: A file; of a pipe nothing is read.
    """
    try:
        with open_regular(path) as file:
            return file.read(_INT32.size) == _INT32.pack(MAGIC)
    except OSError:
        return False


def is_classifier(path: str | Path) -> bool:
    """Return whether a file begins as the classifiers of fastText do."""
    if not is_fasttext(path):
        return False
    with open_regular(path) as file:
        head = file.read(2 * _INT32.size + ARGS.size)[2 * _INT32.size :]
    return len(head) == ARGS.size and bool(Args(*ARGS.unpack(head)).is_supervised)


def load(path: str | Path, is_supervised: bool) -> Model:
    """Read a fastText file of version 11 or 12, as FastText::loadModel does (src/fasttext.cc).

    Args:
        is_supervised: Whether it must be a classifier; else it must be of word vectors.

    Raises:
        UsageError: The file is missing, no file of fastText, of another version, truncated or
            damaged; or it is a classifier where word vectors are needed, or the reverse.
    """
    message = "{}; give a .bin or .ftz file of fastText"
    with reading.read_errors(path, UsageError, message), open_regular(path) as file:
        # Without a byte nothing can be mapped.
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if file.read(1) else b""
    parts = _Parts(path, data)
    args = _read_args(parts)
    _check_kind(path, args, is_supervised)
    dictionary = _read_dictionary(parts)
    kept = dictionary.kept_buckets_K
    rows = len(dictionary.words) + (args.buckets if kept is None else len(kept))
    is_quantized = parts.unpack(FLAG, "input")[0]
    if kept is not None and not is_quantized:
        raise parts.error("a pruned model whose rows are not quantised")
    inputs = _read_matrix(parts, is_quantized, rows, args.dim, "input")
    is_output_quantized = parts.unpack(FLAG, "output")[0] and is_quantized
    outputs = len(dictionary.labels if args.is_supervised else dictionary.words)
    output = _read_matrix(parts, is_output_quantized, outputs, args.dim, "output")
    if parts.position < len(data):
        raise parts.error(f"{len(data) - parts.position:,} bytes follow the model")
    return Model(str(path), args, dictionary, inputs, output)


class _Parts:
    """The bytes of a file, read part by part.

    Args:
        data: Its bytes, mapped.
    """

    def __init__(self, path: str | Path, data: mmap.mmap | bytes):
        self.path, self.data, self.position = path, data, 0

    def error(self, what: str) -> UsageError:
        """Return the error of a damaged file."""
        return UsageError(f"{self.path}: damaged ({what}); {_REMEDY}")

    def skip(self, size: int, part: str) -> int:
        """Go past the next bytes, and return where they begin; raise UsageError at the end."""
        start = self.position
        if not 0 <= size <= len(self.data) - start:
            raise UsageError(
                f"{self.path}: ends within the {part}, after {len(self.data):,} bytes; {_REMEDY}"
            )
        self.position = start + size
        return start

    def unpack(self, form: struct.Struct, part: str) -> tuple:
        """Return the next numbers."""
        return form.unpack_from(self.data, self.skip(form.size, part))

    def array(self, dtype: str, count: int, part: str) -> np.ndarray:
        """Return the next numbers as an array that is mapped."""
        start = self.skip(count * np.dtype(dtype).itemsize, part)
        return np.frombuffer(self.data, dtype, count, start) if count else np.zeros(0, dtype)


def _read_args(parts: _Parts) -> Args:
    """Return the settings; raise UsageError for a file not of fastText or its versions."""
    magic = _INT32.pack(MAGIC)
    if parts.data[: len(magic)] != magic:
        raise UsageError(
            f"{parts.path}: does not begin as a file of fastText does; give a .bin or .ftz file"
        )
    _, version = parts.unpack(SIGNATURE, "head")
    if version not in (VERSION_WITHOUT_NGRAMS, VERSION):
        raise UsageError(
            f"{parts.path}: version {version} of fastText's format; give a file of version "
            f"{VERSION_WITHOUT_NGRAMS} or {VERSION}, which fastText 0.1 to 0.9 write"
        )
    args = Args(*parts.unpack(ARGS, "head"))
    if version == VERSION_WITHOUT_NGRAMS and args.is_supervised:
        args = args._replace(max_ngram=0)
    if wrong := check_args(args):
        raise parts.error(wrong)
    return args


def _check_kind(path: str | Path, args: Args, is_supervised: bool) -> None:
    """Raise UsageError if a classifier is given where word vectors are needed, or the reverse."""
    if args.is_supervised and not is_supervised:
        raise UsageError(
            f"{path}: a classifier of fastText, not word vectors; give a file of `fasttext "
            f"skipgram` or `cbow`, or classify with `lexrow predict --model`"
        )
    if is_supervised and not args.is_supervised:
        raise UsageError(
            f"{path}: word vectors of fastText, not a classifier; give a file of `fasttext "
            "supervised`, or use it as --vectors"
        )


def _read_dictionary(parts: _Parts) -> Dictionary:
    """Return the words and labels, and the buckets that are left (Dictionary::load)."""
    size, words, labels, tokens, pairs = parts.unpack(SIZES, "dictionary")
    if min(words, labels) < 0 or size != words + labels or not words + labels or pairs < -1:
        raise parts.error(f"{size} entries of {words} words and {labels} labels")
    names: list[bytes] = []
    counts = np.zeros(min(size, len(parts.data) // ENTRY.size), np.int64)
    for number in range(size):
        start = parts.position
        end = parts.data.find(b"\0", start, start + _LONGEST_WORD)
        if end < 0:
            parts.skip(len(parts.data) - start + 1, "dictionary")
        parts.skip(end + 1 - start, "dictionary")
        count, kind = parts.unpack(ENTRY, "dictionary")
        if kind != (WORD if number < words else LABEL):
            raise parts.error(f"entry {number} of the dictionary is of type {kind}")
        names.append(parts.data[start:end])
        counts[number] = count
    kept = _read_kept_buckets(parts, pairs) if pairs >= 0 else None
    return Dictionary(names[:words], counts[:words], names[words:], counts[words:], tokens, kept)


def _read_kept_buckets(parts: _Parts, count: int) -> np.ndarray:
    """Return the buckets that a pruned dictionary has kept, in the order of their rows, (K,)."""
    bucket_K, row_K = parts.array("<i4", 2 * count, "dictionary").reshape(-1, 2).T
    order_K = np.argsort(row_K)
    if not np.array_equal(row_K[order_K], np.arange(count)):
        raise parts.error("n-grams of a pruned dictionary without a row of their own")
    return bucket_K[order_K]


def _read_matrix(parts: _Parts, is_quantized: bool, rows: int, columns: int, name: str) -> Matrix:
    """Return a matrix of the given shape; raise UsageError if it has another."""
    part = f"{name} matrix"
    has_norms = parts.unpack(FLAG, part)[0] if is_quantized else False
    if (found := parts.unpack(SHAPE, part)) != (rows, columns):
        raise parts.error(f"{found[0]} x {found[1]} numbers in the {part}, not {(rows, columns)}")
    if not is_quantized:
        return parts.array("<f4", rows * columns, part).reshape(rows, columns)
    (size,) = parts.unpack(_INT32, part)
    codes = parts.array("u1", size, part)
    quantizer = _read_quantizer(parts, columns, part)
    if len(codes) != rows * quantizer.parts:
        raise parts.error(f"{size} bytes of codes in the {part}")
    norms = (parts.array("u1", rows, part), _read_quantizer(parts, 1, part)) if has_norms else ()
    return QuantizedMatrix(codes.reshape(rows, -1), quantizer, *norms)


def _read_quantizer(parts: _Parts, columns: int, part: str) -> Quantizer:
    """Return the centroids of vectors of some columns (ProductQuantizer::load)."""
    found, count, length, last = parts.unpack(QUANTIZER, part)
    is_whole = (
        length > 0 and count == -(-columns // length) and last == columns - (count - 1) * length
    )
    if found != columns or not is_whole:
        raise parts.error(f"{count} parts of {length} columns in the {part}")
    return Quantizer(columns, length, parts.array("<f4", CENTROIDS * columns, part))
