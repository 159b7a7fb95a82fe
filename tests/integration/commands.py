"""Runs the commands in processes of their own that start with TensorFlow already imported.

A server imports it once and forks for every command, which saves seconds a command. What only a
fresh interpreter shows (imports, what is said at the start and the end) takes `fresh`.
"""

import io
import json
import multiprocessing
import os
import pathlib
import random
import resource
import runpy
import signal
import subprocess
import sys
import time
from multiprocessing import forkserver
from typing import NamedTuple
from unittest import mock

import numpy as np

from app.tables import row_files

ROOT = pathlib.Path(__file__).parents[2]
SECONDS = 600  # after which a command hangs, also on a machine with much other work
SMALL = (
    "--dim=8",
    "--window=2",
    "--min_count=2",
    "--subsample=0.05",
    "--batch_tokens=256",
    "--row_tokens=16",
    "--group_tokens=32",
    "--shared_negatives=8",
    "--steps_per_call=2",
    "--block_bytes=8192",
    "--epochs=2",
    "--compute_dtype=float32",
    "--device=CPU:0",
    "--log_seconds=0",
)

WORDS = [first + second for first in "bdfgkl" for second in "aeiouy\u00e4\u00f6\u00fc\u00e9"]

_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(
    ["app.tasks.all_tasks", "app.training.run", "app.evaluation.score_report"]
)


class Ended(NamedTuple):
    """How a command ended: its exit code (negative: of a signal), and all that it printed."""

    code: int
    out: str
    err: str


class Command:
    """A running command; `argv` as after `python -m`. file_limit: bytes that a file may have.

    folder: for what it prints. stdin: what it reads there. within: the folder that it runs in.
    """

    def __init__(self, folder: pathlib.Path, *argv: str, **options):
        self._out, self._err = folder / "stdout", folder / "stderr"
        arguments = (list(map(str, argv)), self._out, self._err)
        # As the commands have it, if a person has not; read when the server imports TensorFlow.
        with mock.patch.dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3"):
            forkserver.ensure_running()
        self.process = _SERVER.Process(target=_main, args=arguments, kwargs=options)
        self.process.start()

    def ended(self) -> Ended:
        """Waits for the end."""
        self.process.join(SECONDS)
        if self.process.exitcode is None:
            self.process.kill()
            raise AssertionError(f"still running after {SECONDS} s: {self._err.read_text()}")
        return Ended(self.process.exitcode, self._out.read_text(), self._err.read_text())

    def signal_when(self, happened, number: int, later: float = 0.0) -> Ended:
        """Sends a signal as soon as `happened()` is true, or so many seconds later."""
        deadline = time.monotonic() + SECONDS
        while not happened():
            assert self.process.is_alive(), self.ended()
            assert time.monotonic() < deadline
            time.sleep(0.002)
        time.sleep(later)
        os.kill(self.process.pid, number)
        return self.ended()

    def kill(self) -> None:
        """Ends it at once."""
        self.process.kill()
        self.process.join()


def run(folder: pathlib.Path, *argv: str, **options) -> Ended:
    """Runs a command to its end; options: of `Command`."""
    return Command(folder, *argv, **options).ended()


def done(folder: pathlib.Path, *argv: str, **options) -> Ended:
    """Runs a command that has to end well."""
    ended = run(folder, *argv, **options)
    assert ended.code == 0, ended.err
    assert "Traceback" not in ended.err
    return ended


def refused(folder: pathlib.Path, *argv: str, code: int = 2, **options) -> str:
    """Runs a command that has to end with one line, and returns it."""
    return refusal(run(folder, *argv, **options), code)


def killed_when(happened, folder: pathlib.Path, *argv: str, later: float = 0.0) -> None:
    """Runs a command that has to be there when `happened()`, and kills it then."""
    ended = Command(folder, *argv).signal_when(happened, signal.SIGKILL, later)
    assert ended.code == -signal.SIGKILL, ended


def export(folder: pathlib.Path, workdir: pathlib.Path, form: str, name: str, *more: str) -> Ended:
    """Exports a workdir to the file or folder of this name in the folder."""
    command = ("app.export", f"--workdir={workdir}", f"--format={form}", *more)
    return done(folder, *command, f"--output={folder}/{name}")


def train(
    workdir: pathlib.Path, corpus: str | pathlib.Path, *more: str, small: tuple[str, ...] = SMALL
) -> tuple[str, ...]:
    """The command that trains a small model."""
    return ("app.train", f"--workdir={workdir}", f"--corpus={corpus}", *small, *more)


def fresh(*argv: str) -> Ended:
    """Runs a command as a person does."""
    command = [sys.executable, "-m", *map(str, argv)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TF_")}
    ended = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def refusal(ended: Ended, code: int = 2) -> str:
    """The one line that a command ended with, and said nothing else."""
    assert ended.code == code, ended
    assert "Traceback" not in ended.err
    assert ended.err.endswith("\n") and ended.err.count("\n") == 1, ended.err
    return ended.err.rstrip("\n")


def write_corpus(path: pathlib.Path, lines: int = 300, seed: int = 0) -> pathlib.Path:
    """A corpus of `WORDS`, frequent and rare ones, in lines of 1 to 23 words."""
    draw = random.Random(seed)
    weights = [1 / (1 + rank) for rank in range(len(WORDS))]
    text = (" ".join(draw.choices(WORDS, weights, k=draw.randrange(1, 24))) for _ in range(lines))
    path.write_text("\n".join(text) + "\n", encoding="utf-8")
    return path


def logged(workdir: pathlib.Path) -> list[dict[str, float]]:
    """The lines of metrics.jsonl; none if there is no such file yet."""
    path = workdir / "metrics.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


def steps_logged(workdir: pathlib.Path) -> list[float]:
    """The steps of metrics.jsonl."""
    return [row["step"] for row in logged(workdir)]


def newest_step(workdir: pathlib.Path) -> int:
    """The step of the newest checkpoint; -1 if there is none."""
    return max((int(p.name[5:]) for p in workdir.glob("checkpoints/step-*")), default=-1)


def checkpoint(workdir: pathlib.Path) -> pathlib.Path:
    """The folder of the newest checkpoint."""
    return workdir / "checkpoints" / f"step-{newest_step(workdir):012d}"


def read_tables(folder: pathlib.Path) -> dict[str, np.ndarray]:
    """All rows and slots that a checkpoint holds, by the names of their files, float32."""
    paths = [path.with_suffix("") for path in folder.glob("*/**/*.json")]
    return {str(path.relative_to(folder)): row_files.read([path], folder) for path in paths}


def tensors(workdir: pathlib.Path) -> dict[str, bytes]:
    """Every table of the newest checkpoint, slots included, bit for bit."""
    folder = checkpoint(workdir)
    files = [path for path in folder.glob("*/**/*") if path.is_file()]
    assert len(files) >= 4
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def _main(
    argv: list[str],
    out: pathlib.Path,
    err: pathlib.Path,
    file_limit: int | None = None,
    stdin: str = "",
    within: pathlib.Path = ROOT,
) -> None:
    for path, descriptor in ((out, 1), (err, 2)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
    if file_limit is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, file_limit))
    os.chdir(within)
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin.encode()))
    sys.argv = argv
    runpy.run_module(argv[0], run_name="__main__", alter_sys=True)
