"""From --strategy to who makes the calls of a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

from ..checkpoints import bundle
from ..checkpoints.checkpoint import Position
from ..config import Config
from ..config.checks import check_micro_batches
from ..distributed import multi_worker, parameter_server, replicas
from ..distributed.cluster_spec import Hosts
from ..errors import UsageError
from ..training.runner import Here, Runner

# From the settings and the processes of the cluster; it waits for those.
RUNNERS: dict[str, Callable[[Config, Hosts | None], Runner]] = {
    "none": lambda config, hosts: Here(),
    "mirrored": lambda config, hosts: replicas.mirrored(),
    "multi_worker": multi_worker.Workers,
    "parameter_server": parameter_server.Coordinator,
}


def runner(config: Config, hosts: Hosts | None) -> Runner:
    """Return who makes the calls of a run; a plan needs nobody else.

    Raises:
        UsageError: Parameter servers could not read the checkpoints of the workdir.
    """
    strategy, workdir = config.run.strategy, config.run.workdir
    if config.run.plan_only:
        return Here()
    if strategy == "parameter_server" and not bundle.is_literal(Path(workdir)):
        raise UsageError(
            f"--workdir={workdir}: --strategy={strategy} cannot read checkpoints in a path with "
            "*, ?, [ or a backslash; choose another folder"
        )
    return RUNNERS[strategy](config, hosts)


def serves(config: Config, hosts: Hosts | None) -> bool:
    """Whether this process is there for a chief that runs the job; see `distributed.serving`."""
    asynchronous = config.run.strategy == "parameter_server" and not config.run.plan_only
    return asynchronous and hosts is not None and not hosts.is_chief


def about(config: Config, hosts: Hosts | None, replicas: int) -> str:
    """Who trains, for people; empty for one device."""
    strategy, micro = config.run.strategy, config.input.micro_batches
    if strategy == "none":
        return ""
    if strategy == "parameter_server" and hosts is not None:
        workers_count, servers_count = (len(hosts.tasks[job]) for job in ("worker", "ps"))
        return (
            f"{strategy}: {workers_count} worker(s) at their own pace, "
            f"{servers_count} parameter server(s)"
        )
    return f"{strategy}: {replicas} replica(s) in step, {micro} micro-batch(es) a step"


def settled(config: Config, replicas: int, at: Position | None) -> Config:
    """The settings with the number of micro-batches that so many replicas share.

    at: where the workdir stands; within an epoch it is that with which this was begun, if they can
    share that. UsageError where they do not go into the number, or it does not go into the batch.
    """
    begun = at.micro_batches if at is not None and at.batch else replicas
    micro = config.input.micro_batches or (replicas if begun % replicas else begun)
    if micro % replicas:
        raise UsageError(
            f"--micro_batches={micro}: {replicas} replicas are to share them evenly; give a "
            f"multiple of {replicas}, or 0"
        )
    settings = dataclasses.replace(config.input, micro_batches=micro)
    config = dataclasses.replace(config, input=settings)
    check_micro_batches(config)
    return config
