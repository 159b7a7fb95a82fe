"""A process of a cluster that trains nothing, in place of lexrow train: its flags, and TF_CONFIG.

--corpus says what it does: `good`; `refused` (all end with 2); `failing` (worker 1 does, again and
again); `endless`. Started as `python -m tests.integration.stand_in --launch FLAGS` it is lexrow
cluster, which starts such processes.
"""

import functools
import json
import os
import pathlib
import signal
import sys
import time


def main() -> None:
    """One of the processes."""
    given = dict(flag[2:].split("=", 1) for flag in sys.argv[1:])
    config = json.loads(os.environ["TF_CONFIG"])
    kind, index = config["task"]["type"], config["task"]["index"]
    is_chief = index == 0
    folder, what = pathlib.Path(given["workdir"]), given["corpus"]
    (folder / f"{kind}-{index}.{os.getpid()}").write_text(json.dumps([sys.argv[1:], config]))
    signal.signal(signal.SIGTERM, functools.partial(_stop, is_chief))
    if what == "refused":
        _end("train: --corpus=refused: no", 2)
    if what == "failing" and (kind, index) == ("worker", 1):
        _end("train: no memory", 1)
    if not is_chief:
        time.sleep(600)
    while len(list(folder.glob("*-*.*"))) < sum(map(len, config["cluster"].values())):
        time.sleep(0.02)
    print("the chief trains", flush=True)
    for step in range(10**9 if what in ("endless", "failing") else 8):
        with open(folder / "metrics.jsonl", "a") as file:
            file.write(f'{{"step": {step}}}\n')
        time.sleep(0.1)


def launch() -> None:
    """lexrow cluster with processes of this module."""
    from app import cluster as command
    from app.cli import flags
    from app.distributed import local_cluster

    local_cluster.MODULE = "tests.integration.stand_in"
    sys.argv = ["cluster", *sys.argv[2:]]
    command.define()
    flags.run(command.main, arguments=True)


def _stop(is_chief: bool, *_: object) -> None:
    if is_chief:
        print("the chief saves", flush=True)
    os._exit(1)


def _end(line: str, code: int) -> None:
    print(line, file=sys.stderr, flush=True)
    sys.exit(code)


if __name__ == "__main__":
    launch() if sys.argv[1:2] == ["--launch"] else main()
