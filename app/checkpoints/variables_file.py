"""The variables that TensorFlow saved, read by numpy: no start of TensorFlow, seconds less.

TensorFlow writes an index, which is a sorted table of LevelDB (`tensorflow/core/lib/io/table.h`)
of protocol buffers (`tensorflow/core/protobuf/tensor_bundle.proto`), and files of the bytes of all
tensors, each with a CRC-32C.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..system.checked_files import damaged, reading

PREFIX = "tables"  # the beginning of the names of the files
_FOOTER_BYTES, _MAGIC = 48, 0xDB4775248B80FB57  # at the end of a table of LevelDB
# By number of `tensorflow/core/framework/types.proto`: the name of a dtype, and one of numpy with
# its bytes.
_DTYPES = {
    1: ("float32", "<f4"),
    3: ("int32", "<i4"),
    9: ("int64", "<i8"),
    14: ("bfloat16", "<u2"),
    19: ("float16", "<f2"),
    23: ("uint64", "<u8"),
}
_STRING = 7  # of TensorFlow's description of the objects that it saved
_FIXED = {1: 8, 5: 4}  # the bytes of values of fixed length, by their kind in protocol buffers
_PART_BYTES = 16 << 20
_POLYNOMIAL = 0x82F63B78  # of CRC-32C, the highest power in the lowest bit
_LANES = 1 << 14  # words whose checksums are computed side by side


class _Entry(NamedTuple):
    """Where a variable is: the dtype's number, the file's number, and the bytes there."""

    dtype: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    checksum: int


class Variables:
    """The variables in the folder of a checkpoint; the constructor reads their index.

    Attributes:
        shapes: The shape of each variable, by key.
        dtypes: The name of the dtype of each variable, by key.

    Raises:
        DamagedError: The index is missing or damaged.
        RunError: It cannot be read.
    """

    def __init__(self, folder: Path):
        self._folder, path = folder, folder / f"{PREFIX}.index"
        with reading(folder):
            data = path.read_bytes()
        try:
            self._files, self._entries = _parse_index(data)
        except (ValueError, LookupError) as error:
            raise damaged(path, str(error)) from error
        self.shapes = {key: entry.shape for key, entry in self._entries.items()}
        self.dtypes = {
            key: _DTYPES[entry.dtype][0] if entry.dtype in _DTYPES else f"dtype {entry.dtype}"
            for key, entry in self._entries.items()
        }

    def parts(self, key: str) -> Iterator[tuple[int, np.ndarray]]:
        """Yield all rows of a variable of shape (V, D), in small parts.

        Yields:
            The number of the first row of a part, and rows (N, D) in the dtype of the file, or
            float32 instead of bfloat16.

        Raises:
            DamagedError: The file is missing or too short; or, after the last part, the variable
                has another checksum.
            RunError: The file cannot be read.
        """
        rows, columns = self.shapes[key]
        dtype, row = np.dtype(_DTYPES[self._entries[key].dtype][1]), 0
        for data in self._read(key, max(1, _PART_BYTES // (columns * dtype.itemsize)) * columns):
            part_ND = data.view(dtype).reshape(-1, columns)
            if self.dtypes[key] == "bfloat16":
                part_ND = (part_ND.astype(np.uint32) << 16).view(np.float32)
            yield row, part_ND
            row += len(part_ND)

    def check(self) -> None:
        """Read all variables; raise the errors of `parts`."""
        for key, entry in self._entries.items():
            if entry.dtype == _STRING and entry.shape == ():
                # Its length, the checksum of that as 4 bytes, and its bytes.
                data = np.concatenate([np.zeros(0, np.uint8), *self._read(key, _PART_BYTES)])
                try:
                    length, start = _varint(data.tobytes(), 0)
                    size = np.array([length], "<u4").view(np.uint8)
                except (LookupError, OverflowError) as error:
                    raise damaged(self._path(key), f"{key!r} has no length") from error
                self._compare(key, crc32c(data[start:], crc32c(size)))
            else:
                for _ in self._read(key, _PART_BYTES):
                    pass

    def _compare(self, key: str, checksum: int) -> None:
        """Raise DamagedError if a variable has another checksum."""
        if _mask(checksum) != self._entries[key].checksum:
            raise damaged(self._path(key), f"the checksum of {key!r} differs")

    def _path(self, key: str) -> Path:
        """Return the file that has the bytes of a variable."""
        return self._folder / f"{PREFIX}.data-{self._entries[key].shard:05}-of-{self._files:05}"

    def _read(self, key: str, count: int) -> Iterator[np.ndarray]:
        """Yield the bytes of a variable in parts of `count` of its numbers; see `parts`."""
        entry, checksum = self._entries[key], 0
        path, dtype = self._path(key), np.dtype(_DTYPES.get(entry.dtype, ("", "<u1"))[1])
        most = count * dtype.itemsize
        with reading(self._folder), open(path, "rb", buffering=0) as file:
            for start in range(0, entry.size, most):
                part = np.empty(min(most, entry.size - start), np.uint8)
                file.seek(entry.offset + start)
                if file.readinto(memoryview(part)) < len(part):
                    raise damaged(path, f"it ends within {key!r}")
                checksum = crc32c(part, checksum)
                yield part
        if entry.dtype in _DTYPES:
            self._compare(key, checksum)


def _parse_index(data: bytes) -> tuple[int, dict[str, _Entry]]:
    """Return the number of files and the entry of each variable; raise ValueError for damage."""
    footer = data[-_FOOTER_BYTES:]
    if len(footer) < _FOOTER_BYTES or int.from_bytes(footer[-8:], "little") != _MAGIC:
        raise ValueError("it does not end as an index of TensorFlow")
    _, _, *place = _varints(footer, 4)  # of an empty block, and of the list of blocks
    files, entries = 1, {}
    for _, handle in _block(data, *place):
        for key, value in _block(data, *_varints(handle, 2)):
            message = _parse_message(value)
            if not key:  # the header
                files = message[1][0]
                continue
            sizes = _parse_message(message.get(2, [b""])[0]).get(2, [])
            shape = tuple(_parse_message(size).get(1, [0])[0] for size in sizes)
            shard, offset, size = (message.get(field, [0])[0] for field in (3, 4, 5))
            checksum = int.from_bytes(message[6][0], "little")
            entry = _Entry(message[1][0], shape, shard, offset, size, checksum)
            entries[key.decode()] = entry
            if entry.dtype in _DTYPES:
                needed = math.prod(entry.shape) * np.dtype(_DTYPES[entry.dtype][1]).itemsize
                if entry.size != needed:
                    raise ValueError(f"{entry.size} bytes of {key!r}, where {needed} are needed")
    return files, entries


def _block(data: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a block of LevelDB's table; raise ValueError for damage."""
    block, end = data[offset : offset + size + 1], offset + size + 1
    checksum = int.from_bytes(data[end : end + 4], "little")
    if checksum != _mask(crc32c(np.frombuffer(block, np.uint8))) or block[-1]:  # 0: as it is
        raise ValueError("a checksum differs, or it is compressed")
    restarts = int.from_bytes(block[-5:-1], "little")
    place, last, key = 0, size - 4 - 4 * restarts, b""
    while place < last:
        shared, place = _varint(block, place)
        own, place = _varint(block, place)
        length, place = _varint(block, place)
        key, place = key[:shared] + block[place : place + own], place + own
        yield key, block[place : place + length]
        place += length


def _parse_message(data: bytes) -> dict[int, list[Any]]:
    """Return the values of each field of a protocol buffer: numbers and bytes."""
    fields: dict[int, list[Any]] = {}
    place = 0
    while place < len(data):
        tag, place = _varint(data, place)
        value: Any
        if tag & 7 == 0:
            value, place = _varint(data, place)
        else:
            length, place = _varint(data, place) if tag & 7 == 2 else (_FIXED[tag & 7], place)
            value, place = data[place : place + length], place + length
        fields.setdefault(tag >> 3, []).append(value)
    return fields


def _varints(data: bytes, count: int) -> list[int]:
    """Return the first numbers of variable length."""
    numbers, place = [], 0
    for _ in range(count):
        number, place = _varint(data, place)
        numbers.append(number)
    return numbers


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """Return the number of variable length at a place, and the place after it."""
    number = shift = 0
    while data[place] > 127:
        number |= (data[place] & 127) << shift
        place, shift = place + 1, shift + 7
    return number | data[place] << shift, place + 1


def _mask(checksum: int) -> int:
    """Return a checksum as the files hold it (`tensorflow/core/lib/hash/crc32c.h`)."""
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF


def crc32c(data: np.ndarray, value: int = 0) -> int:
    """Return the CRC-32C (Castagnoli) of bytes (N,) uint8, as `zlib.crc32` does another one.

    A step of four bytes is linear over the bits. So lanes of words that are `_LANES` apart are
    added up side by side, and then the sums of the lanes.

    Args:
        value: The checksum of the bytes before these.
    """
    steps, (low, high) = _lane_tables()
    words, value = data[: len(data) // 4 * 4].view("<u4"), value ^ 0xFFFFFFFF
    if len(words):
        first = len(words) % _LANES or _LANES
        sums = np.zeros(_LANES, "<u4")
        sums[-first:] = words[:first]  # zeros in front change no sum
        sums[-first] ^= np.uint32(value)
        for lane in words[first:].reshape(-1, _LANES):
            halves = sums.view("<u2").reshape(-1, 2)
            sums = low.take(halves[:, 0], mode="clip") ^ high.take(halves[:, 1], mode="clip")
            sums ^= lane
        for step in reversed(steps[:-1]):
            sums = _apply(step, sums[: len(sums) // 2]) ^ sums[len(sums) // 2 :]
        value = int(_apply(steps[0], sums)[0])
    for byte in data[4 * len(words) :].tolist():
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
    return value ^ 0xFFFFFFFF


@functools.cache
def _lane_tables() -> tuple[list[np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Return the steps over 1, 2, 4, …, `_LANES` words of zeros, and tables of the last one.

    A step is the results of the 32 bits. The tables have those of all low and all high halves.
    """
    bits = np.uint32(1) << np.arange(32, dtype=np.uint32)
    step = np.append(np.uint32(_POLYNOMIAL), bits[:-1])  # over one bit
    for _ in range(5):
        step = _apply(step, step)
    steps = [step]
    while len(steps) <= int(math.log2(_LANES)):
        steps.append(_apply(steps[-1], steps[-1]))
    halves = np.arange(1 << 16, dtype=np.uint32)
    return steps, (_apply(steps[-1], halves), _apply(steps[-1], halves << np.uint32(16)))


def _apply(step: np.ndarray, words: np.ndarray) -> np.ndarray:
    """Return the results of a linear step for words: the sums of the results of their bits."""
    result = np.zeros_like(words)
    for bit, image in enumerate(step):
        result ^= (words >> np.uint32(bit) & np.uint32(1)) * image
    return result
