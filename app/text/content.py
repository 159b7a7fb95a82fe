"""Recognize the content of a file by its first bytes, whatever its name, and read it as UTF-8."""

from __future__ import annotations

import bz2
import codecs
import contextlib
import gzip
import json
import lzma
import os
import re
import types
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, NamedTuple

from ..errors import UsageError

_HEAD_BYTES = 1 << 16  # the first bytes of a file, which show its content


def _open_zstd(file: BinaryIO) -> Any:
    """Return the decompressed stream of a file of zstd; raise UsageError without pyarrow."""
    try:
        import pyarrow
    except ImportError as error:
        reason = "pyarrow is needed to decompress zstd; pip install pyarrow"
        raise UsageError(f"{file.name}: {reason}") from error
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
_CONTROLS = bytes({*range(32), 127} - {*b"\t\n\v\f\r\b\x1b"})  # bytes that text has hardly ever
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

    @property
    def is_plain(self) -> bool:
        """Whether the bytes of the file are the bytes of its text in UTF-8."""
        return self == Content("text")


def recognize(path: str, file: BinaryIO) -> Content:
    """Return the content of a file, by its first bytes. The file is left at its beginning.

    Raises:
        UsageError: It is neither text nor Parquet: for example an archive or a picture.
        EOFError, OSError, zlib.error, lzma.LZMAError: It cannot be read or decompressed.
    """
    head = file.read(_HEAD_BYTES)
    decompress = _decompression(head)
    if decompress is not None:
        file.seek(0)
        with decompress(file) as stream:
            head = stream.read(_HEAD_BYTES)
            if _decompression(head) is not None:
                raise UsageError(f"{path} is compressed twice; decompress it once")
        file.seek(0)
    for pattern, (kind, remedy) in _OTHERS.items():
        if re.match(pattern, head):
            raise UsageError(f"{path} is {kind}, which cannot be read; {remedy}")
    if head.startswith(b"PAR1") and (b"\0" in head or _ends_as_parquet(file)):
        if decompress is not None:
            raise UsageError(f"{path} is a compressed Parquet file; decompress it")
        file.seek(0)
        return Content("parquet")
    file.seek(0)
    encoding = _encoding(head)
    if encoding is None:
        raise UsageError(f"{path} is not text, but binary data; {_TEXT}")
    if path.lower().endswith(".parquet"):
        raise UsageError(f"{path} is not a Parquet file, as its name says; check or rename it")
    start = codecs.getincrementaldecoder(encoding)("replace").decode(head).lstrip("\ufeff \t\r\n")
    if _ARRAY.match(start):
        raise UsageError(
            f"{path} is one JSON array; write a JSON object in each line, as jq -c '.[]' does"
        )
    is_json = _begins_with_object(start, len(head) < _HEAD_BYTES)
    kind = "json" if is_json else "text"
    return Content(kind, decompress or contextlib.nullcontext, encoding)


def read_chunks(file: BinaryIO, content: Content, size: int) -> Iterator[bytes]:
    """Yield the bytes of a file, decompressed, and converted to UTF-8 if it is another encoding.

    Args:
        file: The file, at its beginning.
        content: Its content.
        size: Largest number of bytes to read at a time.

    Raises:
        EOFError, OSError, UnicodeError, zlib.error, lzma.LZMAError: It cannot be read, or is
            truncated or corrupt.
    """
    with content.decompress(file) as stream:
        chunks = iter(lambda: stream.read(size), b"")
        if content.encoding == "utf-8":
            yield from chunks
        else:
            yield from map(str.encode, codecs.iterdecode(chunks, content.encoding))


def _decompression(head: bytes) -> Callable[[BinaryIO], Any] | None:
    """Return the function that decompresses a file with these first bytes, or None."""
    matches = (opener for pattern, opener in _COMPRESSIONS.items() if re.match(pattern, head))
    return next(matches, None)


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
