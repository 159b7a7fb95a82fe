"""Read word vectors from files of word2vec.c, gensim, GloVe (compressed or not) and fastText.

`lexrow.exporting.word2vec` writes the formats and describes them. The first bytes of a file show
whether it is text or binary, and whether it has a header.
"""

from __future__ import annotations

import array
import contextlib
import io
import itertools
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from absl import logging

from ..errors import UsageError, needs_package
from ..system.files import BYTE_ORDER_MARK, open_regular, open_stream
from ..types import NgramVectors, WordVectors
from . import reading
from .fasttext import model_file
from .fasttext.line_features import LineFeatures, make_rule, mean_rows

_AGAIN = "copy or download the file again"
_AS_BINARY = " (read as binary: its first row is no line of numbers)"
_REMEDY = "give a word2vec file (text or binary), GloVe text, or a .bin of fastText"
# Bytes; longer than any word that word2vec.c writes (MAX_STRING 100) or a tokenizer makes.
_LONGEST_WORD = 65_536
# Bytes; longer than any header, and than a row of 80,000 numbers.
_LONGEST_LINE = _READ_BYTES = 1 << 20
_MAGIC_BYTES = 16  # no compression needs more to be known
# Far more columns than any vectors have, so that a damaged header cannot ask for all memory.
_MOST_COLUMNS, _LONGEST_NUMBER = 1 << 20, 18
# Rows of words that came before. A file that repeats more is no file of vectors; a compressed one
# might go on for hours.
_MOST_REPEATED = 1_000_000


# Rows that are checked at a time: numpy takes as long for one row as for several.
_CHECKED = 256
_COMPOSED = 1 << 14  # words of fastText whose vectors are made at a time


class _Layout(NamedTuple):
    """The format of a file: a file without a header is text."""

    binary: bool
    rows: int | None  # the number that the header announces; None without a header
    columns: int


def read(path: str | Path, limit: int = 0) -> WordVectors:
    """Read a file of word2vec (text or binary), GloVe, fastText (`.bin`), or `lexrow export`.

    Bytes of a word that are not UTF-8 become U+FFFD. Of a repeated word the first row is used, with
    a warning. Content after the rows that the header announces is ignored, with a warning for text.
    A row without a word is left out, and a vector of zeros is kept, each with a warning.

    Args:
        path: The file, which may be a pipe, or compressed by gzip, bzip2, xz or zstd. Files of
            safetensors and Parquet are known by their name.
        limit: Read only so many words, the first of the file; 0 reads all.

    Returns:
        Words and vectors (V, D) float32, in the order of the file. A file of fastText has counts,
        too, and the vectors of n-grams, which stay in the file until they are used.

    Raises:
        UsageError: The file is missing, malformed or truncated, a number is not finite, more than a
            million rows repeat an earlier word, or it is a classifier of fastText.
    """
    if model_file.is_fasttext(path):
        return _read_fasttext(path, limit)
    exported = {".safetensors": _read_safetensors, ".parquet": _read_parquet}
    if read_exported := exported.get(Path(path).suffix.lower()):
        vectors = read_exported(path, limit)
        check_finite(path, vectors.tokens, vectors.matrix)
        return without_repeated(vectors)
    return _read_rows(path, limit)


def _read_rows(path: str | Path, limit: int) -> WordVectors:
    """Read a file of word2vec or GloVe; see `read`."""
    words: dict[str, None] = {}
    # This grows with the file, so that a damaged header cannot ask for terabytes.
    numbers = bytearray()
    count = 0
    for count, (word, row) in enumerate(rows(path), 1):
        if word not in words:
            words[word] = None
            numbers += row
            if len(words) == limit:
                break
        elif count - len(words) > _MOST_REPEATED:
            raise UsageError(
                f"{path}, row {count}: more than {_MOST_REPEATED:,} rows repeat an earlier word; "
                f"{_REMEDY}"
            )
    if count > len(words):
        logging.warning("%d row(s) that repeat an earlier word are left out", count - len(words))
    if not words:
        raise UsageError(f"{path}: no row has a word; {_REMEDY}")
    tokens, matrix = list(words), np.frombuffer(numbers, "<f4").reshape(len(words), -1)
    zeros_N = np.flatnonzero(~matrix.any(axis=1))
    if len(zeros_N):
        logging.warning(
            "%s: %d word(s) have a zero vector, which is near to no word; the first is %r",
            *(path, len(zeros_N), tokens[zeros_N[0]]),
        )
    return WordVectors(tokens, matrix.astype(np.float32, copy=False))


def unique_rows(tokens: Sequence[str]) -> np.ndarray:
    """Return the row numbers without those that repeat an earlier word, (N,) int64, rising.

    A warning names the number of rows that are left out.
    """
    rows: dict[str, int] = {}
    for row, token in enumerate(tokens):
        rows.setdefault(token, row)
    if repeated := len(tokens) - len(rows):
        logging.warning("%d row(s) that repeat an earlier word are left out", repeated)
    return np.fromiter(rows.values(), np.int64, len(rows))


def without_repeated(vectors: WordVectors) -> WordVectors:
    """Return vectors with the first row only of a repeated word; see `unique_rows`."""
    rows_N = unique_rows(vectors.tokens)
    if len(rows_N) == len(vectors.tokens):
        return vectors
    tokens = [vectors.tokens[row] for row in rows_N]
    counts = None if vectors.counts is None else vectors.counts[rows_N]
    return vectors._replace(tokens=tokens, matrix=vectors.matrix[rows_N], counts=counts)


def rows(path: str | Path) -> Iterator[tuple[str, bytes]]:
    """Yield each word of a file and its vector as little-endian float32 bytes, row by row.

    Repeated words are not left out, and rows before a damage may be given before its error. Only
    the vectors of a fastText file (`.bin`) are all in memory.

    Args:
        path: As for `read`.

    Raises:
        UsageError: As for `read`, but for rows that repeat a word.
    """
    found = _rows(path)
    if model_file.is_fasttext(path):
        vectors = _read_fasttext(path)
        numbers = map(np.ndarray.tobytes, vectors.matrix.astype("<f4", copy=False))
        found = zip(vectors.tokens, numbers, strict=True)
    first, blank = 1, 0
    while part := list(itertools.islice(found, _CHECKED)):
        numbers = np.frombuffer(b"".join(row for _, row in part), "<f4")
        check_finite(path, [word for word, _ in part], numbers.reshape(len(part), -1), first)
        first += len(part)
        for word, row in part:
            if word:
                yield word, row
            else:
                blank += 1
    if blank:
        logging.warning("%s: %d row(s) without a word are left out", path, blank)


def check_finite(
    path: str | Path, tokens: Sequence[str], matrix_ND: np.ndarray, first: int = 1
) -> None:
    """Raise UsageError if a number of some vectors, from row `first` on, is not finite.

    An infinite one of float16 was too large for it.
    """
    for start in range(0, len(tokens), _CHECKED):
        is_finite_M = np.isfinite(matrix_ND[start : start + _CHECKED]).all(axis=1)
        if not is_finite_M.all():
            row = start + int(is_finite_M.argmin())
            number = matrix_ND[row][~np.isfinite(matrix_ND[row])][0]
            if matrix_ND.dtype == np.float16 and np.isinf(number):
                raise UsageError(
                    f"{path}, row {first + row}: the vector of {tokens[row][:60]!r} has a number "
                    "beyond the largest of float16, 65,504; read it as float32"
                )
            raise UsageError(
                f"{path}, row {first + row}: the vector of {tokens[row][:60]!r} has {number}, "
                "which is not a finite number; correct or remove the row"
            )


def _read_fasttext(path: str | Path, limit: int = 0) -> WordVectors:
    """Read the words of a fastText file; see `read`.

    A word's vector is the mean of its own row and those of its character n-grams, if the model has
    any (FastText::getWordVector).
    """
    model = model_file.load(path, is_supervised=False)
    count = len(model.dictionary.words)
    words = model.dictionary.words[: limit or None]
    tokens = [word.decode(errors="replace") for word in words]
    # Of quantised rows, which fastText has in classifiers only, a small file can have more than any
    # memory.
    if not isinstance(model.input, np.ndarray):
        raise UsageError(f"{path}: quantised word vectors; give a .bin file of fastText")
    ngrams = None
    if model.args.max_ngram > 0:
        ngrams = NgramVectors(make_rule(model.args), model.input[count:])
    features = LineFeatures(model)
    matrix_VD = np.empty((len(words), model.args.dim), np.float32)
    for first in range(0, len(words), _COMPOSED):
        part = words[first : first + _COMPOSED]
        rows_N, counts_W = features.of_words(part)
        owners_N = np.repeat(np.arange(len(part)), counts_W)
        matrix_VD[first : first + len(part)] = mean_rows(model, rows_N, owners_N, len(part))
    check_finite(path, tokens, matrix_VD)
    return WordVectors(tokens, matrix_VD, model.dictionary.counts_V[: limit or None], ngrams)


def _rows(path: str | Path) -> Iterator[tuple[str, bytes]]:
    """Yield the rows of a word2vec file; the word may be empty, and numbers not finite."""
    count = 0
    with reading.read_errors(path, UsageError, f"{{}}; {_REMEDY}"), open_stream(path) as raw:
        # A pipe can be read only once, so the next reader gets these first bytes as well. They may
        # come one by one.
        head = raw.read(_MAGIC_BYTES)
        with reading.decompression(head)(_joined(path, head, raw)) as stream:
            start = stream.read(_LONGEST_LINE)
            reading.check_decompressed(path, start)
            start = start.removeprefix(BYTE_ORDER_MARK)
            layout, start = _detect_layout(path, start, stream)
            parse = _binary_rows if layout.binary else _text_rows
            for token, row in parse(path, _joined(path, start, stream), layout):
                count += 1
                yield token.decode("utf-8", "replace"), row
    if layout.rows is not None and count < layout.rows:
        remedy = "" if layout.binary else f", or correct line 1 to '{count} {layout.columns}'"
        raise UsageError(
            f"{path}: ends after {count} of the {layout.rows} rows that its first line announces"
            f"{_AS_BINARY if layout.binary else ''}; {_AGAIN}{remedy}"
        )


def _joined(path: str | Path, start: bytes, stream: Any) -> io.BufferedReader:
    """Return the stream of `start`, bytes that were read already, and the rest of `stream`."""
    return io.BufferedReader(_Joined(path, start, stream), _READ_BYTES)


class _Joined(io.RawIOBase):
    """The stream of `_joined`; `name` is the path of the file, as of other streams."""

    def __init__(self, path: str | Path, start: bytes, stream: Any):
        self.name, self._start, self._stream = path, io.BytesIO(start), stream

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read the next bytes into a buffer, and return their number; 0 at the end."""
        return self._start.readinto(buffer) or self._stream.readinto(buffer)


def _detect_layout(path: str | Path, start: bytes, stream: BinaryIO) -> tuple[_Layout, bytes]:
    """Return the layout of a file, and the bytes after its header that were read so far.

    Without a header these are all bytes of `start`. With a header, more bytes may be read from
    `stream`, until they hold the first row.

    Args:
        start: The first bytes of the file.
        stream: The rest of the file.
    """
    first, end, rest = start.partition(b"\n")
    fields = first.split()
    if len(fields) == 2 and all(field.isdigit() for field in fields) and end:
        if max(map(len, fields)) > _LONGEST_NUMBER:
            raise UsageError(f"{path}, line 1: announces too many numbers; {_REMEDY}")
        rows, columns = map(int, fields)
        if not rows or not 0 < columns <= _MOST_COLUMNS:
            raise UsageError(f"{path}, line 1: announces {rows} x {columns} numbers; {_REMEDY}")
        rest += stream.read(max(0, _longest_row(columns) - len(rest)))
        row = rest[: _longest_row(columns)].partition(b"\n")[0]
        numbers = row.split()[1:]
        # A row without a word begins with white space.
        possible = (0, columns, columns - 1 if row[:1].isspace() else columns)
        if len(numbers) not in possible and _are_numbers(numbers, len(numbers)):
            raise UsageError(
                f"{path}, line 2: {len(numbers)} numbers, where line 1 announces {columns}; "
                f"{_AGAIN}, or correct line 1 to '{rows} {len(numbers)}'"
            )
        return _Layout(not _are_numbers(row.split()[-columns:], columns), rows, columns), rest
    columns = len(fields) - 1
    if columns < 1 or not _are_numbers(fields[1:], columns):
        raise UsageError(f"{path}, line 1: neither a header nor a word and its numbers; {_REMEDY}")
    return _Layout(False, None, columns), start


def _longest_row(columns: int) -> int:
    """Return the most bytes of a row of text: no decimal of a float32 needs more than 32."""
    return _LONGEST_WORD + 32 * columns


def _are_numbers(fields: list[bytes], columns: int) -> bool:
    """Return whether there are `columns` fields, and each is the text of a number."""
    with contextlib.suppress(ValueError):
        return len(list(map(float, fields))) == columns
    return False


def _text_rows(path: str | Path, file: BinaryIO, layout: _Layout) -> Iterator[tuple[bytes, bytes]]:
    """Yield the word of each row of a text file, and its numbers as little-endian float32.

    Empty lines are skipped. The word is empty on a line that begins with white space and has no
    more than the numbers. Lines after the announced rows are ignored, with a warning.
    """
    count, longest = 0, _longest_row(layout.columns)
    lines = iter(lambda: file.readline(longest + 1), b"")
    for line_number, line in enumerate(lines, 1 if layout.rows is None else 2):
        if not line.strip():
            continue
        if count == layout.rows:
            logging.warning(
                "%s: lines after the %d announced are ignored; if they are vectors, correct the "
                "first number of line 1",
                path,
                layout.rows,
            )
            break
        # Split from the right, as some GloVe words contain spaces.
        token, *fields = line.strip().rsplit(None, layout.columns)
        if len(fields) == layout.columns - 1 and line[:1].isspace():
            token, fields = b"", [token, *fields]
        try:
            row = array.array("f", map(float, fields))
        except ValueError:
            row = array.array("f")
        if len(row) != layout.columns or len(line) > longest:
            raise UsageError(
                f"{path}, line {line_number}: not a word and {layout.columns} numbers; {_AGAIN}"
            )
        count += 1
        yield token, row.tobytes()


def _binary_rows(
    path: str | Path, file: BinaryIO, layout: _Layout
) -> Iterator[tuple[bytes, bytes]]:
    """Yield the word of each row of a binary file, and its numbers as little-endian float32.

    Stop after `layout.rows` rows, or at the end of the file: an incomplete last row is dropped.
    """
    buffer, start, row_bytes = b"", 0, 4 * layout.columns
    for row in range(layout.rows):
        while True:
            space = buffer.find(b" ", start)
            if space >= 0 and len(buffer) - space > row_bytes:
                break
            if space < 0 and len(buffer) - start > _LONGEST_WORD:
                raise UsageError(f"{path}, row {row}: no word is found there{_AS_BINARY}; {_AGAIN}")
            block = file.read(_READ_BYTES + row_bytes)
            if not block:
                return
            buffer, start = buffer[start:] + block, 0
        numbers = space + 1
        # word2vec.c ends a row by a newline, which is then the first byte of the next word.
        yield buffer[start:space].lstrip(b"\n"), buffer[numbers : numbers + row_bytes]
        start = numbers + row_bytes


_DTYPES = {"F32": "<f4", "F16": "<f2", "I64": "<i8", "U8": "|u1"}
_COPY_AGAIN = "copy it again, or give a file of `lexrow export`"


def _read_safetensors(path: str | Path, limit: int) -> WordVectors:
    """Read the tensors `vectors`, `tokens` and `counts`; see `vector_files.read`."""
    try:
        data = np.memmap(path, np.uint8, "r")
        start = 8 + int.from_bytes(data[:8].tobytes(), "little")
        header = json.loads(data[8:start].tobytes())
        if not isinstance(header, dict):
            raise ValueError("the header is no JSON object")
        parts = {}
        for name in {"vectors", "tokens", "counts"} & header.keys():
            first, last = (start + offset for offset in header[name]["data_offsets"])
            part = data[first:last].view(_DTYPES[header[name]["dtype"]])
            parts[name] = part.reshape(header[name]["shape"])
        tokens = json.loads(parts["tokens"].tobytes())
        matrix = np.array(parts["vectors"][: limit or None], np.float32)
        counts = np.array(parts["counts"][: limit or None]) if "counts" in parts else None
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; give another file") from error
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        reason = f"no tensors `vectors` and `tokens` can be read ({error})"
        raise UsageError(f"{path}: {reason}; {_COPY_AGAIN}") from error
    _check(path, tokens, parts["vectors"].shape, parts.get("counts"))
    return WordVectors(tokens[: limit or None], matrix, counts)


def _check(
    path: str | Path, tokens: Any, shape: tuple[int, ...], counts: np.ndarray | None = None
) -> None:
    """Raise UsageError if tokens, the shape of vectors and counts are not of one table."""
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        raise UsageError(f"{path}: a token is no text; {_COPY_AGAIN}")
    if len(shape) != 2 or len(tokens) != shape[0] or not shape[1]:
        raise UsageError(f"{path}: {len(tokens)} tokens, and vectors {shape}; {_COPY_AGAIN}")
    if counts is not None and (counts.shape != shape[:1] or counts.dtype.kind not in "iuf"):
        raise UsageError(f"{path}: {len(tokens)} tokens, and counts {counts.shape}; {_COPY_AGAIN}")


def _read_parquet(path: str | Path, limit: int) -> WordVectors:
    """Read the columns `token`, `vector` and `count`; see `vector_files.read`."""
    with needs_package(f'{path}: needs pyarrow; pip install "lexrow[handover]"'):
        import pyarrow
        from pyarrow import compute
        from pyarrow.dataset import dataset
    try:
        open_regular(path).close()
        data = dataset(path, format="parquet")
        names = data.schema.names
        wanted = ["token", "vector", *(["count"] if "count" in names else [])]
        if missing := {*wanted} - {*names}:
            raise UsageError(f"{path}: no column {min(missing)!r}; {_COPY_AGAIN}")
        table = data.head(limit, columns=wanted) if limit else data.to_table(columns=wanted)
        widths = compute.list_value_length(table["vector"]).to_pylist()
        if not widths:
            raise UsageError(f"{path}: no row has a word; {_COPY_AGAIN}")
        if wrong := [width for width in widths if not width or width != widths[0]]:
            found = f"of {wrong[0]} numbers" if wrong[0] is not None else "missing"
            raise UsageError(
                f"{path}: a vector is {found}, where the first has {widths[0]}; {_COPY_AGAIN}"
            )
        tokens = table["token"].to_pylist()
        numbers = table["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
        matrix = numbers.astype(np.float32, copy=False).reshape(len(tokens), -1)
        counts_V = table["count"].to_numpy() if "count" in wanted else None
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        if isinstance(error, UsageError):
            raise
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{path}: {reason}; {_COPY_AGAIN}") from error
    _check(path, tokens, matrix.shape, counts_V)
    if counts_V is not None and counts_V.dtype.kind == "f" and math.isnan(counts_V.sum()):
        counts_V = None  # null: not known
    return WordVectors(tokens, matrix, counts_V)
