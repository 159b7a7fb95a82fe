"""How many bytes tables and other parts of a run take, in which place, and whether they fit.

`assembly.memory_plan` makes these items before a table is made; the banner of the run shows them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from ..errors import UsageError
from ..system import machine
from ..system.console import aligned, apart, size_text
from .base import Slot, TableSpec
from .cached import CacheSize

# Places besides the devices: the memory of the machine, which CPU devices share, and --table_file.
HOST, FILE = "host", "file"
# The disk beside --table_file. Journals take up to so much, and no plan is refused for them.
JOURNALS = "disk for journals, at most"
# The share of the free memory that a plan may use. The rest is for memory that no plan counts.
SHARE = 0.95
# By part of a row: its columns and its bytes.
Parts = dict[str, tuple[int, int]]
Dtypes = tuple[tf.DType, tf.DType]


class Item(NamedTuple):
    """One part of the memory of a run.

    Attributes:
        size: Its size as text, such as "1,000 x 100".
        place: A device, `HOST` or `FILE`.
        bytes: The number of bytes.
    """

    name: str
    size: str
    place: str
    bytes: int


def row_parts(name: str, spec: TableSpec, slots: Mapping[str, Slot], dtypes: Dtypes) -> Parts:
    """Return the columns and bytes of each part of a row: the row itself, and each slot of it.

    A table that is not trained has no slots.

    Args:
        dtypes: The dtype of rows, and of slots of several columns; a slot of one is float32.
    """
    parts = {name: (spec.columns, dtypes[0])}
    for slot, kind in slots.items() if spec.trained else ():
        width = kind.columns or spec.columns
        parts[f"{name}.{slot}"] = width, dtypes[1] if width > 1 else tf.float32
    return {part: (width, width * dtype.size) for part, (width, dtype) in parts.items()}


def row_bytes(parts: Parts) -> int:
    """Return the bytes of a row with its slots (see `row_parts`)."""
    return sum(count for _, count in parts.values())


def table(parts: Parts, places: Mapping[str, int]) -> list[Item]:
    """Return the memory of a table and of its optimizer slots, an item for each part and place."""
    return [
        Item(part, f"{rows:,} x {width}", place, rows * count)
        for part, (width, count) in parts.items()
        for place, rows in places.items()
    ]


def last_exchange(name: str, rows: int, stored: Sequence[Item], device: str) -> list[Item]:
    """Return the memory of the copy of a table and its slots that --sync_steps above 1 keeps.

    Args:
        device: The device of the steps.
    """
    copies = [item._replace(name=f"{item.name}: at the last exchange") for item in stored]
    place = device if device.startswith("GPU") else HOST
    return [*copies, Item(f"{name}: marks of changed rows", f"{rows:,} rows", place, rows)]


def journals(name: str, rows: int, parts: Parts, kept: int) -> Item:
    """Return the disk that the journals of a table in a file take if every row changes in each.

    Args:
        kept: The number of checkpoints that are kept; each begins a journal.
    """
    count = kept * rows * (row_bytes(parts) + len(parts) * tf.int64.size)  # a row is kept by its id
    return Item(f"{name}: journals", f"{rows:,} rows", JOURNALS, count)


def representatives(name: str, rows: int, place: str) -> Item:
    """Return the memory of the numbers by which a compiled step finds unique rows."""
    return Item(f"{name}: numbers of unique rows", f"{rows:,} rows", place, tf.uint32.size * rows)


def cache(
    name: str, parts: Parts, rows: int, size: CacheSize, place: str, home: str = HOST
) -> list[Item]:
    """Return the memory that the device cache of a table takes, on the device and the host.

    The four items are the pinned rows and the cached rows with their slots on the device, the maps
    of ids to rows on the host, and the prefetched rows in `home`.
    """
    pinned, moved = len(size.pinned_N), 4 * sum(width for width, _ in parts.values())  # as float32
    return [
        Item(f"{name}: hot rows", f"{pinned:,} rows", place, pinned * row_bytes(parts)),
        Item(
            f"{name}: cached rows",
            f"{size.unpinned:,} rows",
            place,
            size.unpinned * row_bytes(parts),
        ),
        # One for the steps, and one for the chunk that is prepared meanwhile.
        Item(f"{name}: cache maps", f"{rows:,} ids", HOST, 2 * 4 * rows),
        Item(f"{name}: prefetched rows", f"{size.loaded:,} rows", home, size.loaded * moved),
    ]


def totals(items: Iterable[Item]) -> dict[str, int]:
    """Return the bytes in each place."""
    total: dict[str, int] = {}
    for item in items:
        total[item.place] = total.get(item.place, 0) + item.bytes
    return total


def too_much(items: Sequence[Item], free: Mapping[str, int]) -> dict[str, int]:
    """Return the planned bytes of each place where they do not fit; empty if everything fits.

    Items of CPU devices count for `HOST` as well. A place that is not in `free` always fits.

    Args:
        free: The free bytes of each place whose limit is known.
    """
    planned = {place: sum(item.bytes for item in _items_in(place, items)) for place in free}
    return {place: count for place, count in planned.items() if count > free[place]}


def _items_in(place: str, items: Sequence[Item]) -> list[Item]:
    """Return the items in a place; items of CPU devices are in `HOST` as well."""
    is_host = place == HOST
    return [i for i in items if i.place == place or (is_host and i.place.startswith("CPU"))]


def refusal(items: Sequence[Item], free: Mapping[str, int], remedies: Sequence[str]) -> UsageError:
    """Return (do not raise) the error for a plan that does not fit in some place.

    It names the first such place by name, and the three largest items there.

    Args:
        remedies: Flags with which the plan would fit, or other advice.
    """
    place, planned = min(too_much(items, free).items())
    limits = machine.process_limits()[:1] if place == HOST else []
    within = "".join(f" (ulimit {flag} is {size_text(most)})" for flag, most, _ in limits)
    parts = sorted(_items_in(place, items), key=lambda item: -item.bytes)
    largest = ", ".join(
        f"{f'{item.name} {item.size}'.rstrip()} ({size_text(item.bytes)})" for item in parts[:3]
    )
    return UsageError(
        f"the run does not fit: {place} has {apart(free[place], planned)} free{within}, and "
        f"{apart(planned, free[place])} are planned there, of them {largest}; "
        f"{'; or '.join(remedies)}"
    )


def lines(items: Sequence[Item]) -> list[str]:
    """Return the lines of the plan as a table, an item each, and then the total of each place."""
    rows = [(item.name, item.size, item.place, size_text(item.bytes)) for item in items]
    rows += [("total", "", place, size_text(count)) for place, count in totals(items).items()]
    return [f"  {line}" for line in aligned(rows, "<><>")]
