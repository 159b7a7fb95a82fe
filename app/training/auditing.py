"""The densify guard of a run: its compiled steps are to do nothing to whole tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from app.optimizers.base import Optimizer
from app.optimizers.rows import slots
from app.tables import whole
from app.tables.device import DeviceTable
from app.tables.findings import Findings


def audit(
    function: Any,
    tables: Mapping[str, DeviceTable],
    optimizer: Optimizer,
    inputs: Sequence[tf.Tensor],
    least_bytes: int = whole.LEAST_BYTES,
) -> Findings:
    """What a call of a train function does to whole tables and slots of at least `least_bytes`.

    Traces the function as a call with these inputs would, which then finds it traced, if both are
    made for the same device; runs nothing. Bytes are of a call (see `app.tables.whole.findings`).
    """
    variables = {}
    for name, table in tables.items():
        variables[name] = table.values
        for slot, kept in slots(optimizer, table).items():
            variables[f"{name}.{slot}"] = kept.values
    return whole.findings(function.get_concrete_function(*inputs), variables, least_bytes)
