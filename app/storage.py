"""From settings to tables: where each lives, and what brings its rows to the device."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from app.config import Config
from app.models.base import Model
from app.optimizers.base import Optimizer
from app.tables.base import Table, TableSpec
from app.tables.device import DeviceTable
from app.training.staging import InPlace, Staging


def staging(
    model: Model, tables: Mapping[str, Table], config: Config, optimizer: Optimizer, device: str
) -> InPlace | Staging:
    """What brings the rows of a run's tables to the device."""
    if config.table.table != "host":
        return InPlace(tables)
    return Staging(
        model,
        tables,
        optimizer,
        seed=config.run.seed,
        device=device,
        hot_rows=int(config.table.hot_rows),
        stage_steps=config.table.stage_steps,
        steps_per_batch=config.input.steps_per_call,
    )
