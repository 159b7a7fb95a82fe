"""The processes of a distributed run, as the environment variable TF_CONFIG names them.

The convention is TensorFlow's (its guide to distributed training), which managed clusters follow:
`{"cluster": {JOB: [HOST:PORT, …], …}, "task": {"type": JOB, "index": N}}`, where `task` is the
process that reads it.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from typing import Any

from absl import logging

from .. import __name__ as PACKAGE
from ..config.addresses import is_address
from ..errors import UsageError

JOBS = ("chief", "worker", "ps")
# A process: its job, and its place in the list of that job.
Task = tuple[str, int]

_NUMBER = re.compile("[0-9]{1,9}")
_NEEDED = {"parameter_server": JOBS, "multi_worker": ()}
_EXAMPLE = {"parameter_server": "--workers=2 --ps=2", "multi_worker": "--workers=2"}


@dataclasses.dataclass(frozen=True)
class Hosts:
    """All processes of a run, and which of them this one is.

    tasks: job -> the HOST:PORT of each of its processes; kind, index: the job of this process and
    its place there.
    """

    tasks: Mapping[str, tuple[str, ...]]
    kind: str
    index: int

    @property
    def task(self) -> Task:
        """This process."""
        return self.kind, self.index

    @property
    def chief(self) -> Task:
        """The one that writes; without a job of that name the first worker, as in TensorFlow."""
        return ("chief" if self.tasks.get("chief") else "worker"), 0

    @property
    def is_chief(self) -> bool:
        """Whether this process is the one that writes."""
        return self.task == self.chief

    @property
    def everyone(self) -> tuple[Task, ...]:
        """All processes: chief, workers, servers."""
        return tuple(
            (kind, index) for kind in JOBS for index in range(len(self.tasks.get(kind, ())))
        )

    @property
    def others(self) -> tuple[Task, ...]:
        """All processes but this one."""
        return tuple(task for task in self.everyone if task != self.task)

    @property
    def address(self) -> str:
        """HOST:PORT of this process."""
        return self.address_of(*self.task)

    def address_of(self, kind: str, index: int) -> str:
        """HOST:PORT of a process."""
        return self.tasks[kind][index]

    def name(self, kind: str, index: int) -> str:
        """A process as messages name it: `worker 1 (10.0.0.2:2222)`."""
        number = "" if kind == "chief" else f" {index}"
        return f"{kind}{number} ({self.address_of(kind, index)})"

    def as_tf_config(self, kind: str, index: int) -> str:
        """The TF_CONFIG of a process."""
        cluster = {job: list(self.tasks[job]) for job in JOBS if self.tasks.get(job)}
        return json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})


def of_environment(strategy: str, text: str | None) -> Hosts | None:
    """The processes that a TF_CONFIG names, or None for a --strategy that knows of one only.

    text: the value of TF_CONFIG, None where it is not set. UsageError for one that is malformed,
    or that does not have what the strategy needs.
    """
    given = (text or "").strip()
    if strategy not in _NEEDED:
        if given:  # managed clusters set it whatever is run there
            logging.info(
                "TF_CONFIG is set, and --strategy=%s trains on this machine alone; to use it, give "
                "--strategy=multi_worker or parameter_server",
                strategy,
            )
        return None
    if not given:
        raise UsageError(
            f"--strategy={strategy}: TF_CONFIG is not set, which names all processes and this one; "
            f"start them with: python -m {PACKAGE}.cluster {_EXAMPLE[strategy]} -- FLAGS (or give "
            "--strategy=none to train on this machine alone)"
        )
    value = _json(given)
    tasks = _tasks(value)
    kind, index = _task(value)
    if not 0 <= index < len(tasks.get(kind, ())):
        counts = (f"{len(addresses)} of {job}" for job, addresses in tasks.items())
        there = ", ".join(counts) or "no process"
        raise UsageError(
            f"TF_CONFIG: this process is {kind} {index}, and its cluster has {there}; mend "
            '"task", where "index" counts from 0'
        )
    _check(strategy, tasks)
    return Hosts(tasks, kind, index)


def host_and_port(address: str) -> tuple[str, int]:
    """The two parts of a HOST:PORT, an IPv6 address without its brackets."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _json(text: str) -> dict[str, Any]:
    short = text if len(text) <= 60 else f"{text[:60]}..."
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"TF_CONFIG={short} is no JSON ({error}); put it in single quotes in a shell"
        ) from error
    if not isinstance(value, dict) or not isinstance(value.get("cluster"), dict):
        raise UsageError(
            f'TF_CONFIG={short} has no "cluster"; give one such as {{"cluster": {{"worker": '
            '["10.0.0.1:2222", "10.0.0.2:2222"]}, "task": {"type": "worker", "index": 0}}'
        )
    return value


def _tasks(value: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    names: dict[str, str] = {}
    for job, addresses in value["cluster"].items():
        if job not in JOBS:
            raise UsageError(_no_job(job))
        if not isinstance(addresses, list):
            raise UsageError(
                f'TF_CONFIG: "{job}" is {json.dumps(addresses)}; give a list of HOST:PORT'
            )
        for index, address in enumerate(addresses):
            if not isinstance(address, str) or not is_address(address):
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
        found[job] = tuple(addresses)
    return {job: found[job] for job in JOBS if found.get(job)}


def _task(value: dict[str, Any]) -> Task:
    task = value.get("task")
    if not isinstance(task, dict) or not {"type", "index"} <= task.keys():
        raise UsageError(
            'TF_CONFIG has no "task" that says which process this is; add one such as '
            '{"type": "worker", "index": 0}'
        )
    kind, index = task["type"], task["index"]
    if kind not in JOBS:
        raise UsageError(_no_job(kind))
    text = str(index)  # some clusters write it as a text
    if isinstance(index, bool) or not _NUMBER.fullmatch(text):
        raise UsageError(
            f'TF_CONFIG: "index" of "task" is {json.dumps(index)}; give a number from 0 on'
        )
    return kind, int(text)


def _no_job(job: Any) -> str:
    if job == "evaluator":
        return (
            "TF_CONFIG: there is nothing to do for an evaluator, as the chief scores; leave it out"
        )
    meant = "; write chief" if job == "master" else "; rename it or leave it out"
    return f"TF_CONFIG: {json.dumps(job)} is none of {', '.join(JOBS)}{meant}"


def _check(strategy: str, tasks: Mapping[str, tuple[str, ...]]) -> None:
    chiefs = tasks.get("chief", ())
    if len(chiefs) > 1:
        raise UsageError(
            f"TF_CONFIG: there are {len(chiefs)} of chief ({', '.join(chiefs)}); keep one and make "
            "the others workers"
        )
    for job in _NEEDED[strategy]:
        if job not in tasks:
            raise UsageError(
                f"TF_CONFIG has no {job}, and --strategy={strategy} needs a chief, and at least "
                "one worker and one ps; add it, or give another --strategy"
            )
    if strategy == "multi_worker" and "ps" in tasks:
        raise UsageError(
            f"TF_CONFIG has a ps ({tasks['ps'][0]}), and --strategy=multi_worker has none; leave "
            "it out, or give --strategy=parameter_server"
        )
