"""Place the tables of a job by a plan of its memory, and load those of a trained run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from ..checkpoints.checkpoint import Position
from ..checkpoints.table_checkpoints import Checkpoints
from ..checkpoints.workdir import Workdir
from ..models.base import Model
from ..settings import Config
from ..system import devices
from ..system.xla import renumber_functions
from ..tables.base import Table
from ..tables.cached import CacheSize
from ..tables.device import InPlace
from ..tables.dynamic.dynamic import DynamicTable, KeyLocator
from ..tables.dynamic.keys import KeyMap
from ..tables.initial import Unwritten
from ..tables.memory import Item
from ..tables.prefetch import Prefetcher
from ..training.job import Job, PlacedTables, TrainingData
from ..training.step import lookup_function
from ..types import Batches
from . import learning, memory_plan, storage


def place_tables(
    config: Config,
    model: Model,
    batches: Batches,
    micro_batch: Any,
    workdir: Workdir,
    others: Sequence[Item] = (),
    keys: KeyMap | None = None,
) -> PlacedTables:
    """Plan the memory of a job, then make its tables and their stage.

    With --plan_only no table is made.

    Args:
        batches: The batches of the job. Some of the first epoch are read to plan caches.
        micro_batch: The nest of tensor specs of one micro-batch of one step.
        workdir: The workdir of the run, for --table_file.
        others: Other memory of the task.
        keys: The map from words to rows of --table=dynamic; None to map ids as they occur.

    Raises:
        UsageError: The memory is not enough (no table has been made), or --table_file cannot be
            used.
        RunError: The file cannot be written, or the workdir has lost the id of its run.
    """
    renumber_functions()  # the plan and the steps share functions, which are traced here
    device = devices.name(config.run)
    slots, rows = learning.make_optimizer(config.optimizer).slots, {}
    if keys is not None:
        others = [*others, memory_plan.word_map(keys.capacity, config.vocabulary.min_count)]
    elif config.table.is_dynamic:
        rows = memory_plan.rows_for_ids(model.tables(), slots, config.table)
        others = [*others, memory_plan.id_map(rows)]
    plan = memory_plan.plan(
        model, lambda: batches(range(1), 0), micro_batch, config, device, others, rows
    )
    tables = {}
    if not config.run.plan_only:
        how = config.table, device, config.run.seed
        path = config.table.table_file
        file = storage.open_file(path, workdir) if path else None
        tables = storage.make_tables(model.tables(), *how, slots, file, keys, rows)
    staging = make_staging(plan.cache_sizes, model, tables, config, device)
    return PlacedTables(
        *(tables, device, config.input.micro_batches or 1, staging, plan.items),
        uncompiled=plan.uncompiled,
    )


def make_staging(
    cache_sizes: Mapping[str, CacheSize],
    model: Model,
    tables: Mapping[str, Table],
    config: Config,
    device: str,
) -> InPlace:
    """Return the stage that brings rows of the tables to the steps.

    Args:
        cache_sizes: The sizes of the device caches of the tables that have some.

    Returns:
        `KeyLocator` for dynamic tables, `Prefetcher` for cached ones, otherwise `InPlace`.
    """
    seed, micro_batches = config.run.seed, config.input.micro_batches or 1
    if any(isinstance(table, DynamicTable) for table in tables.values()):
        return KeyLocator(tables, lookup_function(model, seed, micro_batches))
    if not config.table.is_cached:
        return InPlace(tables)
    steps_per_batch = config.input.steps_per_call
    return Prefetcher(
        tables,
        lookup_function(model, seed, micro_batches),
        device,
        calls_per_chunk=memory_plan.calls_per_chunk(config.table.stage_steps, steps_per_batch),
        steps_per_batch=steps_per_batch,
        cache_sizes=cache_sizes,
    )


def make_job(
    config: Config, model: Model, placed: PlacedTables, data: TrainingData, **others: Any
) -> Job:
    """Return the job of a model, with the optimizer and the learning rate that the flags choose.

    Args:
        **others: The other attributes of `Job`, by name.
    """
    optimizer = learning.make_optimizer(config.optimizer)
    rate = learning.make_learning_rate(config.optimizer)
    return Job(model, placed, optimizer, rate, data, **others)


def load_tables(
    config: Config, model: Model, workdir: Workdir
) -> tuple[dict[str, Table], Position]:
    """Load the tables of a trained run, without their slots.

    The tables are on the device if they were trained with --table=device. Otherwise they are in
    host memory, as they may be too large for the device.

    Returns:
        The tables of the best checkpoint if --patience kept one, else of the newest, and its
        position.

    Raises:
        RunError: There is no checkpoint that can be loaded.
    """
    device = devices.name(config.run)
    specs = model.tables()
    # In a dynamic table an id without a row has its initial value, so that is still needed.
    if not config.table.is_dynamic:
        specs = {n: dataclasses.replace(spec, initial=Unwritten()) for n, spec in specs.items()}
    where = "device" if config.table.table == "device" else "host"
    settings = dataclasses.replace(config.table, table=where)
    tables = storage.make_tables(specs, settings, device, config.run.seed)
    return tables, Checkpoints(workdir.trained, tables).read()
