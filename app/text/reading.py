"""Read a file as a stream of blocks of bounded size, valid UTF-8, not cut inside a token."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import lzma
import zlib
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from ..errors import RunError, UsageError
from ..system.files import BYTE_ORDER_MARK, open_regular
from . import content

BLOCK_BYTES = 1 << 20

# ASCII characters that are white space for every tokenizer (Unicode property White_Space).
_WHITE_SPACE = (b" ", b"\n", b"\t", b"\r", b"\v", b"\f")
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


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

    It is decompressed and converted from UTF-16 (see `content`), and a byte-order mark is dropped.

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
        found = content.recognize(path, file)

        def chunks() -> Iterator[bytes]:
            """Yield the text, and set the position in `progress`."""
            for chunk in content.read_chunks(file, found, block_bytes):
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
    try:
        with open_regular(path) as file:
            yield file
    except (EOFError, UnicodeError, zlib.error, lzma.LZMAError) as error:
        raise damaged(path, error) from error
    except OSError as error:
        # bz2 and gzip report damage by an OSError without a number.
        if error.errno is None:
            raise damaged(path, error) from error
        raise RunError(f"cannot read {path}: {error.strerror}; check the file") from error


def damaged(path: str, error: Exception, kind: type[Exception] = UsageError) -> Exception:
    """Return the error for a file that an error of a library shows as damaged."""
    reason = " ".join(str(error).split())
    return kind(f"{path} is truncated or corrupt ({reason}); fetch or write it again")
