"""The audit of the train function of a run: it finds operations on whole tables."""

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
    """Trace a train function, and return its operations on whole tables and slots.

    The function is not run. A later call of it with inputs of the same shapes and dtypes, on the
    same device, does not trace it again. In the result a slot is named `table.slot`.

    Args:
        function: The train function, a `tf.function`.
        tables: The tables by name.
        inputs: The arguments of a call; only their shapes and dtypes are used.
        least_bytes: The size of the smallest table or slot to report, in bytes.
    """
    traced = function.get_concrete_function(*inputs)
    known = {
        ".".join([name, *(part for part in path if part not in ("slots", "values"))]): variable
        for name, table in tables.items()
        for path, variable in named_variables(table)
    }
    return whole.findings(traced, known, least_bytes)
