"""The memory plan of a run: how many bytes each part takes, in which place, and whether it fits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from ..errors import UsageError
from ..optimizers.base import Optimizer
from ..tables.base import TableSpec

# Places besides the devices: the memory of the machine, which CPU devices share, and --table_file.
HOST, FILE = "host", "file"


class Item(NamedTuple):
    """One part of the memory of a run.

    Attributes:
        name: What takes the memory.
        size: Its size as text, such as "1,000 x 100".
        place: A device, `HOST` or `FILE`.
        bytes: The number of bytes.
    """

    name: str
    size: str
    place: str
    bytes: int


class Size(NamedTuple):
    """The number of rows of a host table that are cached on the device.

    Attributes:
        hot: The rows that stay there.
        cold: The slots for rows that are loaded and evicted.
        moving: The rows that are loaded at a time.
    """

    hot: int
    cold: int
    moving: int


def table(
    name: str,
    spec: TableSpec,
    optimizer: Optimizer,
    places: Mapping[str, int],
    dtypes: tuple[tf.DType, tf.DType],
) -> list[Item]:
    """Return the memory of a table and of its optimizer slots.

    Args:
        name: The name of the table.
        spec: Its columns.
        optimizer: Has the slots.
        places: The number of rows in each place.
        dtypes: The dtypes of rows, and of slots of several columns (see `DeviceTable`).
    """
    columns = {name: (spec.columns, dtypes[0])}
    if spec.trained:
        for slot, kind in optimizer.slots.items():
            width = kind.columns or spec.columns
            columns[f"{name}.{slot}"] = (width, dtypes[1] if width > 1 else tf.float32)
    return [
        Item(part, f"{rows:,} x {width}", place, rows * width * dtype.size)
        for part, (width, dtype) in columns.items()
        for place, rows in places.items()
    ]


def staged(
    name: str,
    spec: TableSpec,
    optimizer: Optimizer,
    size: Size,
    place: str,
    dtypes: tuple[tf.DType, tf.DType],
) -> list[Item]:
    """Return the memory that the device cache of a host table takes.

    Args:
        name: The name of the table.
        spec: Its rows and columns.
        optimizer: Has the slots.
        size: The number of cached rows.
        place: The device.
        dtypes: The dtypes of rows, and of slots of several columns (see `DeviceTable`).
    """
    hot, cold = (
        sum(item.bytes for item in table(name, spec, optimizer, {place: rows}, dtypes))
        for rows in (size.hot, size.cold)
    )
    moved = sum(
        item.bytes
        for item in table(name, spec, optimizer, {HOST: size.moving}, (tf.float32, tf.float32))
    )
    kinds = {
        "hot rows": (f"{size.hot:,} rows", place, hot),
        "staged rows": (f"{size.cold:,} rows", place, cold),
        # One for the steps, and one for the chunk that is prepared meanwhile.
        "maps of ids": (f"{spec.rows:,} ids", HOST, 2 * 4 * spec.rows),
        "rows on their way": (f"{size.moving:,} rows", HOST, moved),
    }
    return [Item(f"{name}: {kind}", *rest) for kind, rest in kinds.items()]


def totals(items: Iterable[Item]) -> dict[str, int]:
    """Return the bytes in each place.

    Args:
        items: The memory plan.
    """
    total: dict[str, int] = {}
    for item in items:
        total[item.place] = total.get(item.place, 0) + item.bytes
    return total


def too_much(items: Iterable[Item], free: Mapping[str, int]) -> dict[str, int]:
    """Return the planned bytes of each place where they do not fit.

    Args:
        items: The memory plan.
        free: The free bytes of each place whose limit is known.
    """
    planned = totals(items)
    planned[HOST] = sum(count for place, count in planned.items() if _in_host(place))
    return {place: planned[place] for place in free if planned.get(place, 0) > free[place]}


def refusal(items: list[Item], free: Mapping[str, int], remedies: list[str]) -> UsageError:
    """Return the error for a plan that does not fit.

    Args:
        items: The memory plan.
        free: The free bytes of each place whose limit is known.
        remedies: Flags with which the plan would fit.
    """
    place, planned = min(too_much(items, free).items())
    parts = [item for item in items if place in (item.place, _in_host(item.place) and HOST)]
    parts.sort(key=lambda item: -item.bytes)
    largest = ", ".join(
        f"{f'{item.name} {item.size}'.rstrip()} ({shown(item.bytes)})" for item in parts[:3]
    )
    either = "; or ".join(remedies) or "lower --max_vocab_size, --dim or --batch_tokens"
    return UsageError(
        f"the tables do not fit: {place} has {shown(free[place])} free, and {shown(planned)} are "
        f"planned there, of them {largest}; {either}"
    )


def lines(items: Sequence[Item]) -> list[str]:
    """Return the lines of the plan as a table, with the total of each place.

    Args:
        items: The memory plan.
    """
    rows = [(item.name, item.size, item.place, shown(item.bytes)) for item in items]
    rows += [("total", "", place, shown(count)) for place, count in totals(items).items()]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return [
        f"  {name:<{widths[0]}}  {size:>{widths[1]}}  {place:<{widths[2]}}  {count:>{widths[3]}}"
        for name, size, place, count in rows
    ]


def _in_host(place: str) -> bool:
    return place == HOST or place.startswith("CPU")


def shown(count: int) -> str:
    """Return a number of bytes as text in MB or GB."""
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
