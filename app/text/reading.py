"""Read a file as a stream of blocks of bounded size, valid UTF-8, not cut inside a token."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import lzma
import zlib
from collections.abc import Iterator
from typing import BinaryIO

from ..errors import RunError, UsageError
from ..system.files import BYTE_ORDER_MARK, open_regular, opener

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
            sources: Paths of the files.
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
    """Yield the text of a plain, .gz, .bz2 or .xz file in blocks of valid UTF-8.

    A byte-order mark at its start is dropped.

    "line" cuts blocks after the last line end that fits, so a line shorter than a block stays
    whole. "file" and "none" cut after white space, and so does "line" if a line is longer than a
    block: it becomes documents of a block each. Only a token that fills a block is cut, between two
    characters.

    Args:
        path: The file.
        documents: Value of --documents: "line", "file" or "none".
        invalid_utf8: Value of --invalid_utf8: "replace" or "error".
        block_bytes: Largest size of a block, before replacement.
        progress: Updated while the file is read, if given.
        index: Number of the source in `progress`.

    Raises:
        UsageError: The file cannot be decompressed.
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

    The offset is the position in the decompressed file. At the end of the file, the digest is set
    in `progress`, if it has digests.

    Args:
        path: The file.
        documents: Value of --documents.
        block_bytes: Largest size of a block.
        progress: Updated while the file is read, if given.
        index: Number of the source in `progress`.

    Raises:
        UsageError: The file cannot be decompressed.
        RunError: The file cannot be read.
    """
    progress = progress or Progress([0], [0])
    progress.positions[index] = 0
    digest = None if progress.digests is None else hashlib.sha256()
    decompress = opener(path, plain=contextlib.nullcontext)
    with open_source(path) as raw, decompress(raw) as stream:
        start = stream.read(len(BYTE_ORDER_MARK))
        rest = start.removeprefix(BYTE_ORDER_MARK)
        offset = len(start) - len(rest)  # of the block's first byte in the decompressed file
        more = True
        while more:
            buffer = rest + stream.read(block_bytes - len(rest))
            more = len(buffer) == block_bytes  # only the end of the file gives fewer bytes
            end = block_length(buffer, documents) if more else len(buffer)
            rest = buffer[end:]
            progress.positions[index] = raw.tell()
            if digest is not None:
                digest.update(memoryview(buffer)[:end])
            if end:
                yield offset, buffer[:end]
            offset += end
    if digest is not None:
        progress.digests[index] = digest.hexdigest()


def block_length(buffer: bytes, documents: str) -> int:
    """Return the length of the block that a full buffer begins with, at least 1.

    It ends after the last line end if `documents` is "line", else (or if there is none) after the
    last white space. Without white space, it ends before the last character, which may be cut.

    Args:
        buffer: As many bytes of the text as a block has at most.
        documents: Value of --documents.
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
    """Return the position of the last byte that is white space to every tokenizer, -1 for none.

    Args:
        text: Bytes of a text.
    """
    return max(map(text.rfind, _WHITE_SPACE))


def to_valid_utf8(text: bytes, invalid_utf8: str, path: str, offset: int) -> tuple[bytes, int]:
    """Return the text as valid UTF-8, and the number of invalid sequences replaced by U+FFFD.

    Args:
        text: Bytes of a block.
        invalid_utf8: Value of --invalid_utf8.
        path: The file, for messages.
        offset: Position of the block in the decompressed file, for messages.

    Raises:
        RunError: The text is not UTF-8 and `invalid_utf8` is "error".
    """
    if text.isascii():
        return text, 0
    try:
        text.decode()
        return text, 0
    except UnicodeDecodeError as error:
        if invalid_utf8 == "error":
            raise RunError(
                f"{path}: byte {text[error.start]:#04x} at offset {offset + error.start:,} is not "
                "UTF-8; convert the file or pass --invalid_utf8=replace"
            ) from None
    decoded = text.decode(errors="replace")
    replaced = decoded.count(_REPLACEMENT) - text.count(_REPLACEMENT.encode())
    return decoded.encode(), replaced


@contextlib.contextmanager
def open_source(path: str) -> Iterator[BinaryIO]:
    """Yield a regular file, open to read its bytes, and convert read errors.

    Args:
        path: The file.

    Raises:
        UsageError: The block of code raised an error of decompression.
        RunError: The file cannot be opened, or the block of code raised an OSError.
    """
    try:
        with open_regular(path) as file:
            yield file
    except (EOFError, zlib.error, lzma.LZMAError) as error:
        raise UsageError(_damaged(path, error)) from error
    except OSError as error:
        # bz2 and gzip report damage by an OSError without a number.
        if error.errno is None:
            raise UsageError(_damaged(path, error)) from error
        raise RunError(f"cannot read {path}: {error.strerror}; check the file") from error


def _damaged(path: str, error: Exception) -> str:
    """Return the message for a compressed file that an error of decompression shows as damaged."""
    reason = " ".join(str(error).split())
    return f"{path} is truncated or corrupt ({reason}); fetch or compress it again"
