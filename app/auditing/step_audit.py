"""The densify guard of a run: its compiled steps are to do nothing to whole tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from ..tables.variable import named_variables
from . import whole
from .findings import Findings


def audit(
    function: Any,
    tables: Mapping[str, tf.Module],
    inputs: Sequence[tf.Tensor],
    least_bytes: int = whole.LEAST_BYTES,
) -> Findings:
    """What a call of a train function does to whole tables and slots of at least `least_bytes`.

    Traces the function as a call with these inputs would, which then finds it traced, if both are
    made for the same device; runs nothing. Bytes are of a call (see `app.auditing.whole.findings`).
    A slot is named `table.slot`.
    """
    traced = function.get_concrete_function(*inputs)  # which makes the slots that are not there
    known = {
        ".".join([name, *(part for part in path if part not in ("slots", "values"))]): variable
        for name, table in tables.items()
        for path, variable in named_variables(table)
    }
    return whole.findings(traced, known, least_bytes)
