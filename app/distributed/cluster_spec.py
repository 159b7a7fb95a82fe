"""Parse the environment variable TF_CONFIG, which names the processes of a distributed run.

The format is TensorFlow's (see its guide to distributed training), and managed clusters use it:
`{"cluster": {JOB: [HOST:PORT, …], …}, "task": {"type": JOB, "index": N}}`. Here `task` is the
process that reads the variable.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from absl import logging

from ..errors import UsageError

JOBS = ("chief", "worker")
# A process: its job, and its index in the list of that job.
Task = tuple[str, int]

_NUMBER = re.compile("[0-9]{1,9}")
# A host name, an IPv4 address, or an IPv6 address in brackets; then a port.
_ADDRESS = re.compile(r"(?P<host>[\w.-]+|\[[0-9a-fA-F:.]+\]):(?P<port>[0-9]{1,5})", re.ASCII)


@dataclasses.dataclass(frozen=True)
class Hosts:
    """All processes of a run, and which of them this process is.

    Attributes:
        tasks: The HOST:PORT of each process, by job.
        kind: The job of this process.
        index: The index of this process in its job.
    """

    tasks: Mapping[str, tuple[str, ...]]
    kind: str
    index: int

    @property
    def task(self) -> Task:
        """The job and the index of this process."""
        return self.kind, self.index

    @property
    def chief(self) -> Task:
        """The process that writes files: the job `chief`, else the first worker (as TensorFlow)."""
        return ("chief" if self.tasks.get("chief") else "worker"), 0

    @property
    def is_chief(self) -> bool:
        """Whether this process is the chief."""
        return self.task == self.chief

    @property
    def everyone(self) -> tuple[Task, ...]:
        """All processes: the job `chief`, if there is one, then the workers."""
        return tuple(
            (kind, index) for kind in JOBS for index in range(len(self.tasks.get(kind, ())))
        )

    @property
    def others(self) -> tuple[Task, ...]:
        """All processes except this one."""
        return tuple(task for task in self.everyone if task != self.task)

    @property
    def address(self) -> str:
        """HOST:PORT of this process."""
        return self.tasks[self.kind][self.index]

    def name(self, kind: str, index: int) -> str:
        """Return the name of a process in messages, such as `worker 1 (10.0.0.2:2222)`."""
        number = "" if kind == "chief" else f" {index}"
        return f"{kind}{number} ({self.tasks[kind][index]})"

    def names(self, tasks: Iterable[Task]) -> str:
        """Return the names of processes, separated by commas."""
        return ", ".join(self.name(*task) for task in tasks)

    def as_tf_config(self, kind: str, index: int) -> str:
        """Return the value of TF_CONFIG for the process with this job and index."""
        cluster = {job: list(self.tasks[job]) for job in JOBS if self.tasks.get(job)}
        return json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})


def parse_tf_config(strategy: str, text: str | None) -> Hosts | None:
    """Parse the value of TF_CONFIG for a --strategy.

    Args:
        text: The value of TF_CONFIG, or None if it is not set.

    Returns:
        The processes, or None for a strategy that trains in one process. If TF_CONFIG is set
        nevertheless, this is logged.

    Raises:
        UsageError: The value is missing or malformed.
    """
    text = (text or "").strip()
    if strategy != "multi_worker":
        if text:  # managed clusters set TF_CONFIG for every program
            logging.info(
                "TF_CONFIG is set, but --strategy=%s trains on this machine alone; to use all "
                "processes, give --strategy=multi_worker",
                strategy,
            )
        return None
    if not text:
        raise UsageError(
            f"--strategy={strategy}: TF_CONFIG is not set; it has to name all processes and this "
            "one. To try this, run: lexrow cluster --workers=2 -- FLAGS (or give --strategy=none "
            "to train on this machine alone)"
        )
    value = _parse_json(text)
    tasks = _parse_tasks(value["cluster"])
    kind, index = _parse_task(value.get("task"))
    if not 0 <= index < len(tasks.get(kind, ())):
        counts = ", ".join(f"{len(addresses)} of {job}" for job, addresses in tasks.items())
        raise UsageError(
            f"TF_CONFIG: this process is {kind} {index}, and its cluster has "
            f'{counts or "no process"}; correct "task", where "index" counts from 0'
        )
    chiefs = tasks.get("chief", ())
    if len(chiefs) > 1:
        raise UsageError(
            f"TF_CONFIG: there are {len(chiefs)} chiefs ({', '.join(chiefs)}); keep one and make "
            "the others workers"
        )
    return Hosts(tasks, kind, index)


def _parse_json(text: str) -> dict[str, Any]:
    """Return the dictionary in TF_CONFIG; raise a UsageError without JSON or without `cluster`."""
    short = text if len(text) <= 60 else f"{text[:60]}..."
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"TF_CONFIG={short} is not JSON ({error}); put it in single quotes in a shell"
        ) from error
    if not isinstance(value, dict) or not isinstance(value.get("cluster"), dict):
        raise UsageError(
            f'TF_CONFIG={short} has no "cluster"; give one such as {{"cluster": {{"worker": '
            '["10.0.0.1:2222", "10.0.0.2:2222"]}, "task": {"type": "worker", "index": 0}}'
        )
    return value


def _parse_tasks(cluster: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the addresses of each job in the order of `JOBS`, without jobs that have none.

    Raises:
        UsageError: A job is unknown or has no list of addresses, an address is malformed, or two
            processes have the same one.
    """
    tasks: dict[str, tuple[str, ...]] = {}
    names: dict[str, str] = {}
    for job, addresses in cluster.items():
        if job not in JOBS and addresses:
            raise UsageError(_unknown_job_message(job))
        if not isinstance(addresses, list):
            raise UsageError(
                f'TF_CONFIG: "{job}" is {json.dumps(addresses)}; give a list of HOST:PORT'
            )
        for index, address in enumerate(addresses):
            match = _ADDRESS.fullmatch(address) if isinstance(address, str) else None
            if match is None or not 0 < int(match["port"]) < 2**16:
                raise UsageError(
                    f"TF_CONFIG: {job} {index} is at {json.dumps(address)}; give HOST:PORT such as "
                    "10.0.0.1:2222"
                )
            if address in names:
                raise UsageError(
                    f"TF_CONFIG: {names[address]} and {job} {index} are both at {address}; give "
                    "each process a port of its own"
                )
            names[address] = f"{job} {index}"
        tasks[job] = tuple(addresses)
    return {job: tasks[job] for job in JOBS if tasks.get(job)}


def _parse_task(task: Any) -> Task:
    """Return the job and index of this process by the field `task`.

    Raise a UsageError if that is malformed; the index is not compared with the cluster.
    """
    if not isinstance(task, dict) or not {"type", "index"} <= task.keys():
        raise UsageError(
            'TF_CONFIG has no "task" that says which process this is; add one such as '
            '{"type": "worker", "index": 0}'
        )
    kind, index = task["type"], task["index"]
    if kind not in JOBS:
        raise UsageError(_unknown_job_message(kind))
    text = str(index)  # some clusters write the number as a string
    if isinstance(index, bool) or not _NUMBER.fullmatch(text):
        raise UsageError(
            f'TF_CONFIG: "index" of "task" is {json.dumps(index)}; give a number from 0 on'
        )
    return kind, int(text)


def _unknown_job_message(job: Any) -> str:
    """Return the error message for a job that is none of `JOBS`."""
    return f"TF_CONFIG: {json.dumps(job)} is none of {', '.join(JOBS)}; rename it or leave it out"
