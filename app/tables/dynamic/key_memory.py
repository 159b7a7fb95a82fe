"""The memory that a key map takes for each row."""

from __future__ import annotations

from .key_files import STRING
from .sketch import DEPTH

COUNTERS_PER_ROW = 4  # counters of the sketch, for each hash function
# CPython's header of a bytes object with its final 0, and the pointer to it.
STRING_BYTES = 33 + 8
_EXPECTED_LENGTH = 12  # an estimate of the length of a string that is yet to come
# A key takes 8 bytes, two positions in the index of 4 (see `KeyIndex`), the number of its sightings
# and its last step. While rows are chosen for eviction, it takes their row numbers, and the
# sightings twice.
_KEY_BYTES = 8 + 2 * 4 + 8 + 8
_EVICTION_BYTES = 3 * 8


def key_bytes(kind: str, min_sightings: int) -> int:
    """Return about how many bytes a key map takes for a row, if strings have 12 bytes each.

    Args:
        kind: The kind of keys, `INT64` or `STRING`.
        min_sightings: The number of sightings after which a key gets a row.
    """
    strings = STRING_BYTES + _EXPECTED_LENGTH if kind == STRING else 0
    sketch = COUNTERS_PER_ROW * DEPTH if min_sightings > 1 else 0
    return _KEY_BYTES + _EVICTION_BYTES + strings + sketch
