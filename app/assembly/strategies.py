"""Build the runner that --strategy names: the processes and devices that train."""

from __future__ import annotations

import dataclasses

from ..checkpoints.checkpoint import Position
from ..distributed import multi_worker, replicas
from ..distributed.cluster_spec import Hosts
from ..errors import UsageError
from ..settings import Config
from ..settings.checks import check_micro_batches
from ..settings.flag_values import by_name
from ..training.runner import Runner


def make_runner(config: Config, hosts: Hosts | None) -> Runner:
    """Return the runner of a run, connected to the other processes; for --plan_only a local one.

    Args:
        hosts: The processes of the cluster; None for a strategy of one process, and to plan.

    Returns:
        The runner. The call waits until all processes of the cluster have arrived.

    Raises:
        UsageError: This process differs from the others, or cannot use its address.
        RunError: A process did not arrive within --cluster_timeout.
    """
    settings = config.run
    if hosts is not None:
        return multi_worker.Workers(settings, by_name(config), hosts)
    if settings.strategy == "mirrored" and not settings.plan_only:
        return replicas.mirrored(settings.sync_steps, settings.sync_dtype)
    return Runner()


def describe(config: Config, replicas: int) -> str:
    """Return a line about the processes and replicas that train; empty for one device."""
    strategy, micro = config.run.strategy, config.input.micro_batches
    if strategy == "none":
        return ""
    pace = "in step"
    if config.run.sync_steps > 1:
        pace = f"that exchange changes of rows every {config.run.sync_steps} steps"
    return f"{strategy}: {replicas} replica(s) {pace}, {micro} micro-batch(es) a step"


def with_micro_batches(config: Config, replicas: int, position: Position | None) -> Config:
    """Return the settings with the number of micro-batches of a step filled in.

    A given number is kept. Otherwise it is the number of replicas; but a run that continues within
    an epoch keeps the number with which the epoch was begun, if the replicas can share it evenly.

    Args:
        config: The settings of the run; --micro_batches=0 chooses the number here.
        replicas: The number of replicas that share the micro-batches.
        position: The position of the newest checkpoint, or None.

    Raises:
        UsageError: The replicas cannot share the micro-batches evenly, or the micro-batches cannot
            share the batch evenly.
    """
    begun = position.micro_batches if position is not None and position.batch else replicas
    micro = config.input.micro_batches or (replicas if begun % replicas else begun)
    if micro % replicas:
        raise UsageError(
            f"--micro_batches={micro}: {replicas} replicas cannot share them evenly; give a "
            f"multiple of {replicas}, or 0"
        )
    settings = dataclasses.replace(config.input, micro_batches=micro)
    config = dataclasses.replace(config, input=settings)
    check_micro_batches(config)
    return config
