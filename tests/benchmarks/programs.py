"""Run the sides of a benchmark as processes of their own, and describe the machine.

A side is a function of a module in this folder, or a command of Lexrow.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import itertools
import json
import os
import platform
import shlex
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from app.errors import RunError, UsageError
from app.system import machine
from app.system.processes import end_with_parent, last_line
from tests.benchmarks import harness
from tests.benchmarks.harness import Runs

OURS = "lexrow"
_BUSY = 0.25  # processes on each core; above it, other work disturbs the timings
# Only the last batch may be missing. More are possible: the last batch of a worker of gensim has
# 10,000 words, some of which the next worker also reads.
_ENOUGH = 0.9
_SAMPLE_SECONDS = 0.02  # between two readings of the resident memory
_START = "from app.cli import startup; startup.start_tensorflow()"  # as lexrow.train


def cores() -> int:
    """Return the number of cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def describe(packages: Sequence[str]) -> dict[str, Any]:
    """Return a description of the machine, and log a warning if it is busy.

    Args:
        packages: The packages whose versions are named, beside Python's.
    """
    load = os.getloadavg()[0]
    if load > _BUSY * cores():
        logging.warning("the machine is busy (load %.1f): timings will be off", load)
    versions = {package: importlib.metadata.version(package) for package in packages}
    read = machine.read_field
    files = sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
    model = read(Path("/proc/cpuinfo"), "model name")
    return {
        "processor": model or platform.processor() or "processor ?",
        "cores": cores(),
        "memory_bytes": machine.memory_bytes(),
        "accelerators": [name for name in (read(file, "Model") for file in files) if name],
        "system": platform.platform(),
        "load": load,
        "versions": {"python": platform.python_version(), **versions},
    }


@contextlib.contextmanager
def watching(look: Callable[[], None], seconds: float) -> Iterator[None]:
    """Call a function in a thread every so many seconds, until the end of the block."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(seconds):
            look()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextlib.contextmanager
def peak_without_files() -> Iterator[Callable[[], int]]:
    """Watch the memory of this process, without mapped files, until the end of the block.

    Yields:
        A function that returns the most memory so far, in bytes.
    """
    most = machine.resident_bytes()

    def look() -> None:
        nonlocal most
        most = max(most, machine.resident_bytes())

    with watching(look, _SAMPLE_SECONDS):
        yield lambda: most


def zipf_ids(random: np.random.Generator, rows: int, shape: int | Sequence[int]) -> np.ndarray:
    """Return ids by Zipf's law, id k in proportion to 1 / (k + 1), of a shape, int32."""
    cumulative_V = np.cumsum(1 / np.arange(1, rows + 1))
    drawn = random.random(shape) * cumulative_V[-1]
    return np.searchsorted(cumulative_V[:-1], drawn, side="right").astype(np.int32)


class Usage(NamedTuple):
    """The time and memory of a process.

    Attributes:
        started: The time of its start, seconds since 1970.
        seconds: The seconds from its start to its end.
        peak_bytes: The most memory that it had resident (ru_maxrss of getrusage(2)).
    """

    started: float
    seconds: float
    peak_bytes: int


def measure(
    name: str,
    arguments: Sequence[str],
    log: Path,
    input: Path | None = None,
    output: Path | None = None,
) -> Usage:
    """Run a Python program to its end, and return its time and memory.

    Args:
        name: The name of the process, for messages.
        arguments: The arguments after `python`.
        log: The file for its stderr; it is emptied first.
        input: The file for its stdin; by default it is empty.
        output: The file for its stdout, which is emptied first; by default `log`.

    Raises:
        UsageError: The program ended with exit code 2.
        RunError: The program ended with another exit code than 0.
    """
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "usage.json"
        launcher = [sys.executable, "-m", "tests.benchmarks.launcher", str(result), sys.executable]
        with contextlib.ExitStack() as stack:
            errors = stack.enter_context(open(log, "wb"))
            process = subprocess.Popen(
                [*launcher, *arguments],
                stdin=stack.enter_context(open(input or os.devnull, "rb")),
                stdout=stack.enter_context(open(output, "wb")) if output else errors,
                stderr=errors,
                start_new_session=True,  # Ctrl-C in a terminal reaches only this process
                env={"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ},
                preexec_fn=end_with_parent(os.getpid()),
            )
            try:
                assert process.wait() == 0
            finally:
                process.kill()
                process.wait()
        values = json.loads(result.read_text(encoding="utf-8"))
    if code := values.pop("code"):
        error = UsageError if code == 2 else RunError
        raise error(f"{name} ended with exit code {code}: {last_line(log) or 'no output'}")
    return Usage(**values)


def run(function: str, job: Mapping[str, Any], log: Path | None = None) -> tuple[Any, Usage]:
    """Call a function in a process of its own.

    Args:
        function: The function as `module:function`, of a module in this folder.
        job: The attributes of its argument, JSON values.
        log: The file for what it prints; by default one that is deleted.

    Returns:
        Its result, JSON values by name, or only `left_out` if it lacks a library or memory; and the
        time and memory of the process.

    Raises:
        RunError: It ended with another exit code than 0.
    """
    with tempfile.TemporaryDirectory(prefix="lexrow-bench-") as folder:
        result = Path(folder) / "result.json"
        arguments = ["-m", "tests.benchmarks.child", function, str(result), json.dumps(job)]
        usage = measure(function, arguments, log or Path(folder) / "log")
        return json.loads(result.read_text(encoding="utf-8")), usage


def run_sides(
    function: str, groups: Mapping[str, Mapping[str, dict[str, Any]]], repeats: int
) -> dict[str, Runs]:
    """Call a function in a process of its own for every job, by turns; see `harness.by_turns`.

    Args:
        function: See `run`. Its argument also has `seed`.
        groups: The jobs. One with `left_out`, a reason, does not run.
        repeats: The number of runs of each.

    Returns:
        The figures that the function returned, with the `peak_bytes` of its process. Where it
        returned `table_bytes`, also the peak above them, on a GPU of its memory.
    """

    def run_one(job: dict[str, Any], seed: int) -> dict[str, Any]:
        if "left_out" in job:
            return {"left_out": job["left_out"]}
        figures, usage = run(function, job | {"seed": seed})
        if "left_out" in figures:
            return figures
        peak = figures.get("device_peak_bytes") or usage.peak_bytes
        above = {"above_table_bytes": peak - figures.get("table_bytes", 0)}
        return {"peak_bytes": usage.peak_bytes, **above, **figures}

    return harness.by_turns(groups, repeats, run_one)


class Session(NamedTuple):
    """What the cases share whose sides are whole programs.

    Attributes:
        scratch: A folder for files of the case.
        folder: A folder for files of runs, which are kept with --keep.
        train_flags: The flags of --train_flags.
        machine: The description of the machine.
        imports: The time and memory of a process that only imports the library of a side.
    """

    scratch: Path
    folder: Path
    train_flags: list[str]
    machine: dict[str, Any]
    imports: dict[str, Usage]

    def place(self, *names: object) -> Path:
        """Make the folder of a run, and return it; raise UsageError if an earlier one is kept."""
        folder = self.folder / "-".join(map(str, names)).replace(" ", "-")
        if folder.exists():
            raise UsageError(f"--keep={folder.parent} has {folder.name} already; give another")
        folder.mkdir()
        return folder

    def costs(self, side: str, *usages: Usage) -> dict[str, float]:
        """Return the figures of the processes of a run: seconds, and the most memory of one."""
        peak = max(usage.peak_bytes for usage in usages)
        return {
            "total_seconds": sum(usage.seconds for usage in usages),
            "peak_bytes": peak,
            "peak_bytes_above_import": peak - self.imports[side].peak_bytes,
        }


@contextlib.contextmanager
def session(
    options: Any, known: Mapping[str, tuple[str, str]], fixed: Collection[str]
) -> Iterator[Session]:
    """Check the peers and --train_flags, measure the imports, and make a folder for the block.

    Args:
        options: The flags of the case.
        known: The module of each peer, and its package for `pip install`.
        fixed: The names of the flags of lexrow.train that the benchmark sets itself.

    Raises:
        UsageError: A peer is not installed, or a flag is not possible.
    """
    peers = options.peers if known else []
    for name in peers:
        if importlib.util.find_spec(known[name][0]) is None:
            text = f"--peers={','.join(peers)}: {name} is not installed"
            raise UsageError(f"{text}; pip install {known[name][1]}")
    train_flags = split_flags(options.train_flags, {*fixed, "corpus", "workdir", "seed"})
    providers = importlib.metadata.packages_distributions()
    packages = dict.fromkeys(providers[known[name][0]][0] for name in peers)
    described = describe(["tensorflow", "numpy", *packages])
    starts = {OURS: _START} | {name: f"import {known[name][0]}" for name in peers}
    with tempfile.TemporaryDirectory(prefix="lexrow-bench-") as scratch:
        log = Path(scratch) / "log"
        imports = {name: measure(text, ["-c", text], log) for name, text in starts.items()}
        folder = Path(options.keep or scratch)
        yield Session(Path(scratch), folder, train_flags, described, imports)


def split_flags(text: str, fixed: Collection[str]) -> list[str]:
    """Return the flags of --train_flags, split as by a shell.

    Args:
        text: The value of --train_flags.
        fixed: The names of the flags that the benchmark sets itself.

    Raises:
        UsageError: Quotes are wrong, or a flag is one of `fixed`.
    """
    try:
        arguments = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"--train_flags={text}: {error}; mend the quotes") from None
    for flag in arguments:
        name = flag.lstrip("-").partition("=")[0]
        if flag.startswith("-") and name in fixed:
            raise UsageError(
                f"--train_flags={text}: --{name} is for the benchmark to set; leave it out here"
            )
    return arguments


def command(program: Sequence[str], settings: Mapping[str, Any], log: Path, **files: Path) -> Usage:
    """Run a command of Lexrow to its end, and return its time and memory.

    Args:
        program: The module and its first arguments.
        settings: The flags that come last, by name.
        log: The file for what it prints.
        **files: `input` for its stdin, by default empty; `output` for its stdout, by default `log`.
    """
    arguments = ["-m", *program, *(f"--{name}={value}" for name, value in settings.items())]
    return measure(program[0], arguments, log, **files)


def train(
    config: str,
    train_flags: Sequence[str],
    settings: Mapping[str, Any],
    folder: Path,
    program: Sequence[str] = ("app.train",),
) -> tuple[Usage, list[dict[str, float]]]:
    """Run lexrow.train with the flags of configs/CONFIG.cfg, then others that win.

    Args:
        config: The name of the configuration.
        train_flags: Further flags.
        settings: The flags that come last, by name; one is `workdir`.
        folder: The folder for train.log, what it prints.
        program: The module to run, and its arguments before the flags.

    Returns:
        The time and memory of the process, and the lines of metrics.jsonl without those of scores.
    """
    program = [*program, f"--flagfile=configs/{config}.cfg", *train_flags]
    usage = command(program, settings, folder / "train.log")
    lines = (Path(settings["workdir"]) / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return usage, [row for row in map(json.loads, lines) if "train_seconds" in row]


def speeds(usage: Usage, rows: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Return the seconds and words/s of a run of lexrow.train, and the time it waits for input."""
    return {
        "total_seconds": usage.seconds,
        "words_per_second": rows[-1]["words"] / rows[-1]["train_seconds"],
        "later_words_per_second": later_speed(rows, "words"),
        "input_wait": mean(rows, "input_wait", "train_seconds"),
    }


def check_count(side: str, count: float, wanted: int, noun: str) -> None:
    """Raise RunError if a side has trained on less than 90 % of the text."""
    if count < _ENOUGH * wanted:
        raise RunError(
            f"{side} trained on {count:,} {noun}, not on the {wanted:,} of the text and its epochs,"
            " so its speed means nothing; --keep=DIR keeps its log"
        )


def later_speed(rows: Sequence[Mapping[str, float]], name: str) -> float | None:
    """Return how much a count of metrics.jsonl grows in a second of training after the first row.

    Return None if there is no time between the first row and the last.
    """
    first, last = rows[0], rows[-1]
    seconds = last["train_seconds"] - first["train_seconds"]
    return (last[name] - first[name]) / seconds if seconds else None


def mean(rows: Sequence[Mapping[str, float]], name: str, by: str) -> float | None:
    """Return the mean of a value of metrics.jsonl, weighted by the growth of a count.

    Return None if a row lacks the value.
    """
    if any(name not in row for row in rows):
        return None
    ends = [0.0, *(row[by] for row in rows)]
    steps = zip(rows, itertools.pairwise(ends), strict=True)
    return sum(row[name] * (end - begin) for row, (begin, end) in steps) / ends[-1]
