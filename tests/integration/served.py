"""Trains small models with servers in this process: python -m tests.integration.served WORKERS RUN…

A RUN is as of `tests.integration.replicas`, with as many workers and two parameter servers. The
first has the --exchange of all with servers.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import sys
from unittest import mock

import numpy as np

from app.checkpoints import checkpoint, stored
from app.distributed import parameter_server
from app.settings import Config
from app.system import devices
from app.training.runner import Runner
from tests import in_process
from tests.integration import replicas

# So that a call is an epoch: workers begin each with the state of a stream that begins.
_LONG = {"language_model": {"steps_per_call": 4, "batch_tokens": 1024}}


def main() -> None:
    """All runs."""
    runs = [run.split(",") for run in sys.argv[2:]]
    configs = [_in_long_calls(case, replicas.made(case, *rest)) for case, *rest in runs]
    devices.use_machine(configs[0].run)
    hosts, kept = in_process.start(int(sys.argv[1]), 2)
    with mock.patch.object(parameter_server, "rendezvous"):
        coordinator = parameter_server.Coordinator(configs[0], hosts)
    for config in configs:
        served = config.run.strategy == "parameter_server"
        replicas.train(config, coordinator if served else Runner())
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # the servers' destructors would wait for one another
    del kept


def _in_long_calls(case: str, config: Config) -> Config:
    settings = dataclasses.replace(config.input, **_LONG.get(case, {}))
    return dataclasses.replace(config, input=settings)


def assert_same(workdir: pathlib.Path, other: pathlib.Path) -> None:
    """Their newest checkpoints have the same rows and slots by id, to 1e-5, after as many steps."""
    one, two = (checkpoint.list_checkpoints(path / "checkpoints")[0] for path in (workdir, other))
    assert one.name == two.name
    trained = sorted(stored.read_layouts(one).keys() - {"state"})
    assert trained
    for name in trained:
        for slot in ("", *_slots(one, name)):
            rows, others = (stored.read_rows(path, name, slot) for path in (one, two))
            np.testing.assert_allclose(others, rows, 1e-5, 1e-5, err_msg=f"{name} {slot}")


def _slots(folder: pathlib.Path, name: str) -> set[str]:
    """The slots that a checkpoint has of a table."""
    keys = replicas.rows(folder.parents[1])
    places = (key.split("/") for key in keys if key.startswith(f"{name}/"))
    return {place[place.index("slots") + 1] for place in places if "slots" in place}


if __name__ == "__main__":
    main()
