"""What the tables of a run take, known before there are any, and whether they fit."""

from __future__ import annotations

from collections.abc import Mapping

from app import system
from app.errors import UsageError
from app.optimizers.base import Optimizer
from app.tables.base import TableSpec

_FLOAT = 4  # bytes
# Share of the free memory for tables; the rest is for a step and the text.
_SHARE = 0.95


def table_bytes(spec: TableSpec, optimizer: Optimizer) -> int:
    """Bytes of a table's rows, and of the optimizer's state beside them."""
    slots = [slot.columns or spec.columns for slot in optimizer.slots.values()]
    return spec.rows * (spec.columns + sum(slots if spec.trained else [])) * _FLOAT


def check(specs: Mapping[str, TableSpec], optimizer: Optimizer, device: str) -> None:
    """UsageError, with the sizes, where tables on the CPU would not fit its memory.

    TensorFlow does not tell how much a GPU has.
    """
    taken = {name: table_bytes(spec, optimizer) for name, spec in specs.items()}
    free = system.free_bytes()
    if not device.startswith("CPU") or sum(taken.values()) <= _SHARE * free:
        return
    largest = sorted(specs, key=taken.__getitem__, reverse=True)[:3]
    sizes = ", ".join(
        f"{name} {specs[name].rows:,} x {specs[name].columns} ({shown(taken[name])})"
        for name in largest
    )
    raise UsageError(
        f"--device={device} has {shown(free)} free, and the tables with the optimizer's state "
        f"take {shown(sum(taken.values()))}: {sizes}; lower --max_vocab_size or --dim, or give "
        "--optimizer=rowwise_adagrad, whose state is one number a row"
    )


def shown(count: int) -> str:
    """Bytes as people read them."""
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
