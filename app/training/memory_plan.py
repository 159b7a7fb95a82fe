"""The memory of a run, known before any of it is taken: what lies where, and whether it fits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import tensorflow as tf

from ..errors import UsageError
from ..optimizers.base import Optimizer
from ..tables.base import TableSpec

# Places beside the devices: the machine's memory, which that of a CPU is part of, and --table_file.
HOST, FILE = "host", "file"


class Item(NamedTuple):
    """What takes memory: its name, its size in words, where it lies, and its bytes."""

    name: str
    size: str
    place: str
    bytes: int


class Size(NamedTuple):
    """How many rows of a staged table have a place on the device: hot ones, and cold in turn.

    moving: of the cold ones, those that come at a time.
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
    """A table and the optimizer's slots of it; places: rows in each.

    dtypes: of rows, and of slots of several columns; see `DeviceTable`.
    """
    columns = {name: (spec.columns, dtypes[0])}
    if spec.trained:
        for slot, kind in optimizer.slots.items():
            width = kind.columns or spec.columns
            columns[f"{name}.{slot}"] = (width, dtypes[1] if width > 1 else tf.float32)
    return [
        Item(what, f"{rows:,} x {width}", place, rows * width * dtype.size)
        for what, (width, dtype) in columns.items()
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
    """The part of a table at home that is on the device, and what finds and moves it."""
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
        # That of the steps, and that of the chunks after them.
        "maps of ids": (f"{spec.rows:,} ids", HOST, 2 * 4 * spec.rows),
        "rows on their way": (f"{size.moving:,} rows", HOST, moved),
    }
    return [Item(f"{name}: {kind}", *rest) for kind, rest in kinds.items()]


def totals(items: Iterable[Item]) -> dict[str, int]:
    """The bytes in each place."""
    found: dict[str, int] = {}
    for item in items:
        found[item.place] = found.get(item.place, 0) + item.bytes
    return found


def too_much(items: Iterable[Item], free: Mapping[str, int]) -> dict[str, int]:
    """The places that have less than is planned there, and what is; of some no limit is known."""
    planned = totals(items)
    planned[HOST] = sum(count for place, count in planned.items() if _in_host(place))
    return {place: planned[place] for place in free if planned.get(place, 0) > free[place]}


def refusal(items: list[Item], free: Mapping[str, int], remedies: list[str]) -> UsageError:
    """What to say of a plan that does not fit. remedies: flags with which it would."""
    place, planned = min(too_much(items, free).items())
    here = [item for item in items if place in (item.place, _in_host(item.place) and HOST)]
    here.sort(key=lambda item: -item.bytes)
    largest = ", ".join(
        f"{f'{item.name} {item.size}'.rstrip()} ({shown(item.bytes)})" for item in here[:3]
    )
    either = "; or ".join(remedies) or "lower --max_vocab_size, --dim or --batch_tokens"
    return UsageError(
        f"the tables do not fit: {place} has {shown(free[place])} free, and {shown(planned)} are "
        f"planned there, of them {largest}; {either}"
    )


def lines(items: list[Item]) -> list[str]:
    """The plan as a table, with the total of each place."""
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
    """Bytes as people read them."""
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
