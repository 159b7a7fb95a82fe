"""Read fastText's files, `.bin` and `.ftz`, word vectors and classifiers.

A file is mapped into memory: only the rows that are used are read from the disk.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...errors import UsageError
from ...system.files import open_regular
from .file_format import (
    ARGS,
    CENTROIDS,
    ENTRY,
    FLAG,
    LABEL,
    MAGIC,
    QUANTIZED,
    QUANTIZER,
    SHAPE,
    SIGNATURE,
    SIZES,
    VERSION,
    VERSION_WITHOUT_NGRAMS,
    WORD,
    Args,
    DenseMatrix,
    Dictionary,
    Matrix,
    QuantizedMatrix,
    Quantizer,
    check_args,
)

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

    @property
    def is_quantized(self) -> bool:
        """Whether the rows of the input are product-quantised."""
        return isinstance(self.input, QuantizedMatrix)


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
    try:
        with open_regular(path) as file:
            # Without a byte nothing can be mapped.
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if file.read(1) else b""
    except OSError as error:
        raise UsageError(
            f"{path}: {error.strerror or error}; give a .bin or .ftz file of fastText"
        ) from error
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
    if not is_quantized:
        _check_shape(parts, parts.unpack(SHAPE, part), (rows, columns), part)
        return DenseMatrix(parts.array("<f4", rows * columns, part).reshape(rows, columns))
    has_norms, *shape, size = parts.unpack(QUANTIZED, part)
    _check_shape(parts, tuple(shape), (rows, columns), part)
    codes = parts.array("u1", size, part)
    quantizer = _read_quantizer(parts, columns, part)
    if len(codes) != rows * quantizer.parts:
        raise parts.error(f"{size} bytes of codes in the {part}")
    matrix = QuantizedMatrix(codes.reshape(rows, -1), quantizer)
    if has_norms:
        norms = parts.array("u1", rows, part)
        matrix = matrix._replace(norm_codes_V=norms, norm_quantizer=_read_quantizer(parts, 1, part))
    return matrix


def _check_shape(parts: _Parts, found: tuple[int, ...], wanted: tuple[int, int], part: str) -> None:
    """Raise UsageError if a matrix has another shape than the head and the dictionary announce."""
    if found != wanted:
        raise parts.error(f"{found[0]} x {found[1]} numbers in the {part}, not {wanted}")


def _read_quantizer(parts: _Parts, columns: int, part: str) -> Quantizer:
    """Return the centroids of vectors of some columns (ProductQuantizer::load)."""
    found, count, length, last = parts.unpack(QUANTIZER, part)
    is_whole = (
        length > 0 and count == -(-columns // length) and last == columns - (count - 1) * length
    )
    if found != columns or not is_whole:
        raise parts.error(f"{count} parts of {length} columns in the {part}")
    return Quantizer(columns, length, parts.array("<f4", CENTROIDS * columns, part))
