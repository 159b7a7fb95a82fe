"""Read a file as a stream of blocks of bounded size, valid UTF-8, not cut inside a token.

Its first bytes show its content, whatever its name.
"""

from __future__ import annotations

import bz2
import codecs
import contextlib
import dataclasses
import gzip
import hashlib
import json
import lzma
import os
import re
import types
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

from ..errors import RunError, UsageError, needs_package
from ..system.files import BYTE_ORDER_MARK, LONGEST_LINE, open_regular, open_stream

Item = TypeVar("Item")

BLOCK_BYTES = 1 << 20

# ASCII characters that are white space for every tokenizer (Unicode property White_Space).
_WHITE_SPACE = (b" ", b"\n", b"\t", b"\r", b"\v", b"\f")
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_DAMAGE = (EOFError, UnicodeError, zlib.error, lzma.LZMAError)  # errors that a damaged file raises


@dataclasses.dataclass
class Progress:
    """State of the readers of a corpus. Reader threads write it, and any thread may read it.

    Each list has an entry per source. A new pass over a source resets the first two entries.

    Attributes:
        positions: Bytes read from disk, before decompression.
        replaced: Number of sequences that were not UTF-8.
        digests: SHA-256 of the decompressed text of each source that was read to its end, in hex,
            else ""; None if none are computed.
        error: The error that stopped a reader, or None.
    """

    positions: list[int]
    replaced: list[int]
    digests: list[str] | None = None
    error: Exception | None = None

    @classmethod
    def make(cls, sources: tuple[str, ...], hashed: bool = False) -> Progress:
        """Return the state of some sources before any of them is read.

        Args:
            hashed: Whether to compute the digests.
        """
        count = len(sources)
        return cls([0] * count, [0] * count, [""] * count if hashed else None)


def blocks(
    path: str,
    documents: str = "line",
    invalid_utf8: str = "replace",
    block_bytes: int = BLOCK_BYTES,
    progress: Progress | None = None,
    index: int = 0,
) -> Iterator[bytes]:
    """Yield the text of a file in blocks of valid UTF-8, as lines whatever these contain.

    It is decompressed and converted from UTF-16, and a byte-order mark is dropped.

    "line" cuts blocks after the last line end that fits, so a line shorter than a block stays
    whole. "file" and "none" cut after white space, and so does "line" if a line is longer than a
    block: it becomes documents of a block each. Only a token that fills a block is cut, between two
    characters.

    Args:
        documents: Value of --documents: "line", "file" or "none".
        invalid_utf8: Value of --invalid_utf8: "replace" or "error"; or "refuse", for files that
            this flag has no effect on.
        block_bytes: Largest size of a block, before replacement.

    Raises:
        UsageError: The file is no text, or cannot be decompressed.
        RunError: The file cannot be read, or it is not UTF-8 and `invalid_utf8` is "error".
    """
    progress = progress or Progress([0], [0])
    progress.replaced[index] = 0
    for offset, text in raw_blocks(path, documents, block_bytes, progress, index):
        block, replaced = to_valid_utf8(text, invalid_utf8, path, offset)
        progress.replaced[index] += replaced
        yield block


def raw_blocks(
    path: str, documents: str, block_bytes: int, progress: Progress | None = None, index: int = 0
) -> Iterator[tuple[int, bytes]]:
    """Yield the offset and the bytes of each block of `blocks`, not checked to be UTF-8.

    The offset is the position in the decompressed file, converted to UTF-8. At the end of the file,
    the digest is set in `progress`, if it has digests. Of a Parquet file these are all bytes.

    Args:
        block_bytes: Largest size of a block.

    Raises:
        UsageError: The file is neither text nor Parquet, or cannot be decompressed.
        RunError: The file cannot be read.
    """
    progress = progress or Progress([0], [0])
    progress.positions[index] = 0
    digest = None if progress.digests is None else hashlib.sha256()

    with open_source(path) as file:
        found = recognize(path, file)

        def chunks() -> Iterator[bytes]:
            """Yield the text, decompressed and in UTF-8, and set the position in `progress`."""
            with found.decompress(file) as stream:
                parts = iter(lambda: stream.read(block_bytes), b"")
                if found.encoding != "utf-8":
                    parts = map(str.encode, codecs.iterdecode(parts, found.encoding))
                for chunk in parts:
                    progress.positions[index] = file.tell()
                    yield chunk

        for offset, block in cut_blocks(chunks(), documents, block_bytes):
            if digest is not None:
                digest.update(block)
            yield offset, block
        progress.positions[index] = file.tell()
    if digest is not None:
        progress.digests[index] = digest.hexdigest()


def cut_blocks(
    chunks: Iterable[bytes], documents: str, block_bytes: int
) -> Iterator[tuple[int, bytes]]:
    """Yield the offset and the bytes of each block of a text, without a byte-order mark.

    Args:
        chunks: Consecutive parts of the text.
        block_bytes: Largest size of a block.
    """
    buffer, offset = b"", 0  # the offset of the buffer
    for chunk in chunks:
        buffer += chunk
        if not offset and buffer.startswith(BYTE_ORDER_MARK):
            buffer, offset = buffer[len(BYTE_ORDER_MARK) :], len(BYTE_ORDER_MARK)
        while len(buffer) >= block_bytes:
            end = block_length(buffer[:block_bytes], documents)
            yield offset, buffer[:end]
            buffer, offset = buffer[end:], offset + end
    if buffer:
        yield offset, buffer


def block_length(buffer: bytes, documents: str) -> int:
    """Return the length of the block that a full buffer begins with, at least 1.

    It ends after the last line end if `documents` is "line", else (or if there is none) after the
    last white space. Without white space, it ends before the last character, which may be cut.

    Args:
        buffer: As many bytes of the text as a block has at most.
    """
    end = buffer.rfind(b"\n") + 1 if documents == "line" else 0
    end = end or last_white_space(buffer) + 1
    if end:
        return end
    # One token fills the block. A character has at most three continuation bytes (RFC 3629), so
    # four of them in a row are not UTF-8 and may be separated.
    for end in range(len(buffer) - 1, max(len(buffer) - 5, 0), -1):
        if buffer[end] & 0xC0 != 0x80:
            return end
    return len(buffer)


def last_white_space(text: bytes) -> int:
    """Return the position of the last byte that is white space to every tokenizer, -1 for none."""
    return max(map(text.rfind, _WHITE_SPACE))


def grouped(
    items: Iterable[Item], most: int, size: int, size_of: Callable[[Any], int] = len
) -> Iterator[list[Item]]:
    """Yield lists of `most` consecutive items, or fewer if they have a size or more together."""
    group: list[Item] = []
    total = 0
    for item in items:
        group.append(item)
        total += size_of(item)
        if len(group) == most or total >= size:
            yield group
            group, total = [], 0
    if group:
        yield group


def to_valid_utf8(text: bytes, invalid_utf8: str, path: str, offset: int) -> tuple[bytes, int]:
    """Return the text as valid UTF-8, and the number of invalid sequences replaced by U+FFFD.

    Args:
        offset: Position of the block in the decompressed file, for messages.

    Raises:
        RunError: The text is not UTF-8 and `invalid_utf8` is "error".
        UsageError: The same with "refuse".
    """
    if text.isascii():
        return text, 0
    try:
        text.decode()
        return text, 0
    except UnicodeDecodeError as error:
        at = f"{path}: byte {text[error.start]:#04x} at offset {offset + error.start:,}"
        if invalid_utf8 == "refuse":
            raise UsageError(f"{at} is not UTF-8; convert the file") from None
        if invalid_utf8 == "error":
            raise RunError(
                f"{at} is not UTF-8; convert the file or pass --invalid_utf8=replace"
            ) from None
    decoded = text.decode(errors="replace")
    replaced = decoded.count(_REPLACEMENT) - text.count(_REPLACEMENT.encode())
    return decoded.encode(), replaced


@contextlib.contextmanager
def open_source(path: str) -> Iterator[BinaryIO]:
    """Yield a regular file, open to read its bytes, and convert read errors.

    Raises:
        UsageError: The block of code raised an error of decompression or decoding.
        RunError: The file cannot be opened, or the block of code raised an OSError.
    """
    with read_errors(path, RunError, "cannot read {}; check the file"), open_regular(path) as file:
        yield file


@contextlib.contextmanager
def read_errors(path: str | Path, kind: type[Exception], message: str) -> Iterator[None]:
    """Convert the errors of a block that reads a file, or decompresses it.

    Args:
        kind: The error for a file that cannot be read.
        message: Its text, in which `{}` stands for the path and the reason.

    Raises:
        UsageError: The file is damaged.
    """
    try:
        yield
    except _DAMAGE as error:
        raise damaged(path, error) from error
    except OSError as error:
        # bz2 and gzip report damage by an OSError without a number.
        if error.errno is None:
            raise damaged(path, error) from error
        raise kind(message.replace("{}", f"{path}: {error.strerror}")) from error


def read_lines(path: str | Path, content: str) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file or a pipe, without a byte-order mark. It is opened at the first."""
    message = f"cannot read {{}}; give a file of {content}"
    with read_errors(path, UsageError, message), open_stream(path) as file:
        yield from bounded_lines(file, path, content)


def bounded_lines(file: BinaryIO, name: str | Path, content: str) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of an open file, without a byte-order mark."""
    for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE + 1), b""), 1):
        if number == 1:
            check_not_compressed(name, line)
            line = line.removeprefix(BYTE_ORDER_MARK)
        if len(line) > LONGEST_LINE:
            raise UsageError(
                f"{name}, line {number}: longer than {LONGEST_LINE:,} bytes; give a file of "
                f"{content}"
            )
        yield number, line


def damaged(path: str | Path, error: Exception, kind: type[Exception] = UsageError) -> Exception:
    """Return the error for a file that an error of a library shows as damaged."""
    reason = " ".join(str(error).split())
    return kind(f"{path} is truncated or corrupt ({reason}); fetch or write it again")


# The content of a file.

_HEAD_BYTES = 1 << 16  # the first bytes of a file, which show its content


def _open_zstd(file: BinaryIO) -> Any:
    """Return the decompressed stream of a file of zstd; raise UsageError without pyarrow."""
    with needs_package(f"{file.name}: pyarrow is needed to decompress zstd; pip install pyarrow"):
        import pyarrow
    # Closing the stream would close the file.
    kept = types.SimpleNamespace(read=file.read, close=lambda: None, closed=False)
    return pyarrow.CompressedInputStream(pyarrow.PythonFile(kept, mode="r"), "zstd")


# Pattern of the first bytes, and the function that opens a stream of the decompressed bytes.
_COMPRESSIONS: dict[bytes, Callable[[BinaryIO], Any]] = {
    rb"\x1f\x8b\x08": gzip.open,
    rb"BZh[1-9](1AY&SY|\x17\x72\x45\x38\x50\x90)": bz2.open,
    rb"\xfd7zXZ\0": lzma.open,
    rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18": _open_zstd,
}
_UNPACK = "unpack it, or compress the text by gzip, bzip2, xz or zstd"
_TEXT = "give text in UTF-8, or CSV, TSV, JSON lines or Parquet"
# Pattern of the first bytes of other files, what these are, and what to do.
_OTHERS = {
    rb"PK[\3\5][\4\6]": ("a zip archive", _UNPACK),
    rb"7z\xbc\xaf\x27\x1c": ("a 7z archive", _UNPACK),
    rb"Rar!\x1a\x07": ("a rar archive", _UNPACK),
    rb"(?s:.{257})ustar": ("a tar archive", _UNPACK),
    rb"%PDF-": ("a PDF document", "convert it to text"),
    rb"\x89PNG|\xff\xd8\xff|GIF8[79]a": ("a picture", _TEXT),
    rb"ARROW1": ("an Arrow file", "write it as Parquet"),
    rb"version https://git-lfs": ("a pointer of Git LFS", "fetch the file: git lfs pull"),
}
_ARRAY = re.compile(r'\[\s*\{\s*"')
_OBJECT = re.compile(r'\{\s*"[^"\n]*"\s*:')
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",  # before UTF-16, whose mark is the beginning of this one
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
# Bytes that text has hardly ever; the last of these is between the labels of a text in memory.
_CONTROLS = bytes({*range(32), 127} - {*b"\t\n\v\f\r\b\x1b\x1f"})
_ZEROS = re.compile(rb"\0{64,}")  # a part of a file that was never written


class Content(NamedTuple):
    """The content of a file.

    Attributes:
        format: `text`, `json` (a JSON object in each line) or `parquet`.
        decompress: Opens the stream of the decompressed bytes.
        encoding: Of the text.
    """

    format: str
    decompress: Callable[[BinaryIO], Any] = contextlib.nullcontext
    encoding: str = "utf-8"


def recognize_file(path: str) -> Content:
    """Return the content of a file (see `recognize`).

    Raises:
        UsageError: The file is neither text nor Parquet, or cannot be decompressed.
        RunError: The file cannot be read.
    """
    with open_source(path) as file:
        return recognize(path, file)


def is_cuttable(path: str, text_column: str) -> bool:
    """Return whether blocks of the text of a file are parts of the file, as it is plain UTF-8.

    Raises:
        UsageError: The file is neither text nor Parquet, or cannot be decompressed.
        RunError: The file cannot be read.
    """
    return not text_column and recognize_file(path) == Content("text")


def check_not_compressed(name: str | Path, head: bytes) -> None:
    """Raise UsageError if the first bytes of text that is read as it is are compressed."""
    if decompression(head) is not contextlib.nullcontext:
        raise UsageError(f"{name} is compressed; decompress it, as zcat does for gzip")


def check_decompressed(path: str | Path, head: bytes) -> None:
    """Raise UsageError if the first bytes of a file, decompressed, are not those of its content."""
    if decompression(head) is not contextlib.nullcontext:
        raise UsageError(f"{path} is compressed twice; decompress it once")
    if other := kind_of_other(head):
        raise UsageError(f"{path} is {other[0]}, which cannot be read; {other[1]}")


def kind_of_other(head: bytes) -> tuple[str, str] | None:
    """Return what a file is that is not text, by its first bytes, and the remedy; else None."""
    found = (other for pattern, other in _OTHERS.items() if re.match(pattern, head))
    return next(found, None)


def recognize(path: str, file: BinaryIO) -> Content:
    """Return the content of a file, by its first bytes. The file is left at its beginning.

    Raises:
        UsageError: It is neither text nor Parquet: for example an archive or a picture.
        EOFError, OSError, zlib.error, lzma.LZMAError: It cannot be read or decompressed.
    """
    head = file.read(_HEAD_BYTES)
    decompress = decompression(head)
    is_compressed = decompress is not contextlib.nullcontext
    if is_compressed:
        file.seek(0)
        with decompress(file) as stream:
            head = stream.read(_HEAD_BYTES)
        file.seek(0)
    check_decompressed(path, head)
    if head.startswith(b"PAR1") and (b"\0" in head or _ends_as_parquet(file)):
        if is_compressed:
            raise UsageError(f"{path} is a compressed Parquet file; decompress it")
        file.seek(0)
        return Content("parquet")
    file.seek(0)
    encoding = _encoding(head)
    if encoding is None:
        raise UsageError(
            f"{path} is not text, but binary data; {_TEXT} (UTF-16 needs a byte-order mark)"
        )
    if path.lower().endswith(".parquet"):
        raise UsageError(f"{path} is not a Parquet file, as its name says; check or rename it")
    start = codecs.getincrementaldecoder(encoding)("replace").decode(head).lstrip("\ufeff \t\r\n")
    if _ARRAY.match(start):
        raise UsageError(
            f"{path} is one JSON array; write a JSON object in each line, as jq -c '.[]' does"
        )
    is_json = _begins_with_object(start, len(head) < _HEAD_BYTES)
    kind = "json" if is_json else "text"
    return Content(kind, decompress, encoding)


def decompression(head: bytes) -> Callable[[BinaryIO], Any]:
    """Return the function that decompresses a file with these first bytes, if it is compressed."""
    matches = (opener for pattern, opener in _COMPRESSIONS.items() if re.match(pattern, head))
    return next(matches, contextlib.nullcontext)


def _ends_as_parquet(file: BinaryIO) -> bool:
    """Return whether the last bytes of a file are those of Parquet."""
    file.seek(max(file.seek(0, os.SEEK_END) - 4, 0))
    return file.read(4) == b"PAR1"


def _encoding(head: bytes) -> str | None:
    """Return the encoding of the text that begins with these bytes; None if it is no text.

    Text without a byte-order mark counts as UTF-8, maybe with errors.
    """
    for mark, encoding in _MARKS.items():
        if head.startswith(mark):
            return encoding
    text = _ZEROS.sub(b"", head)
    controls = len(text) - len(text.translate(None, _CONTROLS))
    # A few may be in any text, for example a NUL between records.
    is_odd = controls > len(text) / 5 or controls > max(len(text) / 20, 7)
    is_odd = is_odd or (not text and len(head) > 0)
    return None if is_odd else "utf-8"


def _begins_with_object(start: str, is_whole: bool) -> bool:
    """Return whether the first line of a text is a JSON object with a name at least.

    Args:
        start: The beginning of the text.
        is_whole: Whether this is the whole text.
    """
    if not _OBJECT.match(start):
        return False
    line, end, _ = start.partition("\n")
    if not end and not is_whole:
        return True  # a longer line than can be seen here
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
