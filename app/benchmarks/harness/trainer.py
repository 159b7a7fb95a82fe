"""Run lexrow.train as a side of a benchmark, and check its flags and the peers."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import itertools
import json
import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ... import __name__ as PACKAGE
from ...checkpoints.workdir import Workdir, read_flags
from ...config import Config
from ...config import settings as config_settings
from ...errors import RunError, UsageError
from ...system import processes
from . import machine, programs
from .option_values import chosen
from .report import Measure

OURS = "lexrow"
# Only the last batch may be missing. More are possible: the last batch of a worker of gensim has
# 10,000 words, some of which the next worker also reads.
_ENOUGH = 0.9
# How lexrow.train imports TensorFlow.
_START = f"from {PACKAGE}.cli import startup; startup.start_tensorflow()"
# The peak memory of a process, less that of a process that only imports the library.
ABOVE_IMPORT = Measure(
    "peak_bytes_above_import", "peak above the import, MB", ",.0f", 1e6, "lower", drawn=True
)


class Peer(NamedTuple):
    """The library of a peer.

    Attributes:
        module: The module that its program imports.
        package: The package for `pip install`, in messages.
    """

    module: str
    package: str


def sides(value: str, known: Mapping[str, Peer], case: str) -> list[str]:
    """Return `OURS` and the peers to run in the order of the flag, each once.

    Args:
        value: The value of --peers.
        known: The peers of the case by name.
        case: The name of the case.

    Raises:
        UsageError: A peer is unknown or not installed.
    """
    names = chosen("peers", value, known, f"peer of {case}")
    for name in names:
        if importlib.util.find_spec(known[name].module) is None:
            package = known[name].package
            raise UsageError(f"--peers={value}: {name} is not installed; pip install {package}")
    return [OURS, *names]


def measure_imports(
    names: Sequence[str], known: Mapping[str, Peer]
) -> tuple[dict[str, Any], dict[str, processes.Usage]]:
    """Return a description of the machine with the libraries of the sides, and their imports.

    A warning is logged if the machine is busy.

    Args:
        names: The sides, `OURS` first.
        known: All peers by name.

    Returns:
        The result of `machine.describe`; and for each side, the time and memory of a process that
        only imports its library; for `OURS`, of one that starts TensorFlow as lexrow.train does.

    Raises:
        RunError: A library cannot be imported.
    """
    providers = importlib.metadata.packages_distributions()
    packages = dict.fromkeys(providers[known[name].module][0] for name in names[1:])
    described = machine.describe(["tensorflow", "numpy", *packages])
    statements = {OURS: _START} | {name: f"import {known[name].module}" for name in names[1:]}
    usages = {text: programs.import_usage(text) for text in set(statements.values())}
    return described, {name: usages[text] for name, text in statements.items()}


def flags(value: str, fixed: Collection[str]) -> list[str]:
    """Return the further flags of lexrow.train, split as by a shell.

    Only their names are checked here, not their values.

    Args:
        value: The value of --train_flags.
        fixed: The names, without dashes, of the flags that the benchmark sets itself.

    Raises:
        UsageError: Quotes are wrong, or a flag is one of `fixed`.
    """
    try:
        arguments = shlex.split(value)
    except ValueError as error:
        raise UsageError(f"--train_flags={value}: {error}; mend the quotes") from None
    for flag in arguments:
        name = flag.lstrip("-").partition("=")[0]
        if flag.startswith("-") and name in fixed:
            raise UsageError(
                f"--train_flags={value}: --{name} is for the benchmark to set; leave it out here"
            )
    return arguments


def check_count(side: str, count: float, wanted: int, noun: str) -> None:
    """Check that a side has trained on the whole text.

    Args:
        side: The name of the side.
        count: The words or examples of all its epochs.
        wanted: The number that it was to train on.
        noun: The word for what is counted.

    Raises:
        RunError: The count is below 90 % of the wanted one.
    """
    if count < _ENOUGH * wanted:
        raise RunError(
            f"{side} trained on {count:,} {noun}, not on the {wanted:,} of the text and its epochs,"
            " so its speed means nothing; --keep=DIR keeps its log"
        )


def train(
    task: str,
    train_flags: Sequence[str],
    settings: Mapping[str, Any],
    log: Path,
    program: Sequence[str] = (f"{PACKAGE}.train",),
) -> tuple[processes.Usage, list[dict[str, float]]]:
    """Run lexrow.train to its end with the flags of configs/TASK.cfg, then others that win.

    The folder `configs` is that of the current folder.

    Args:
        task: The name of the configuration.
        train_flags: Further flags.
        settings: The flags that come last, by name; one is `workdir`.
        log: The file for its output.
        program: The module to run, and its arguments before the flags.

    Returns:
        The time and memory of the process, and the rows of metrics.jsonl in its workdir without
        those of scores.

    Raises:
        UsageError: The program ended with exit code 2.
        RunError: The program ended with another exit code than 0.
    """
    program = [*program, f"--flagfile=configs/{task}.cfg", *train_flags]
    usage = run(program, settings, log)
    rows = (Path(settings["workdir"]) / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return usage, [row for row in map(json.loads, rows) if "train_seconds" in row]


def read_config(folder: str, **changes: Any) -> Config:
    """Return the settings of a run, read from its flagfile.

    A flag that the file lacks has its default, and without a file all have.

    Args:
        folder: The workdir of the run.
        **changes: Other values, by setting.

    Raises:
        UsageError: The file cannot be read.
        KeyError: The file has an unknown flag.
        ValueError: The text of a flag is no number, and the flag needs one.
    """
    kinds = {name: type(field.default) for name, field in config_settings.fields().items()}
    flags = read_flags(Workdir(folder).flags)
    values = {
        name: text == "true" if kinds[name] is bool else kinds[name](text)
        for name, text in flags.items()
    }
    return config_settings.from_names(values | changes)


def run(
    program: Sequence[str], settings: Mapping[str, Any], log: Path, **files: Path
) -> processes.Usage:
    """Run a command of Lexrow to its end.

    Args:
        program: The module to run, and its first arguments.
        settings: The flags that come last, by name.
        log: The file for its output.
        **files: `input` for its stdin, by default empty; `output` for its stdout, by default `log`.

    Returns:
        The time and memory of the process.

    Raises:
        UsageError: The program ended with exit code 2.
        RunError: The program ended with another exit code than 0.
    """
    arguments = ["-m", *program, *(f"--{name}={value}" for name, value in settings.items())]
    return processes.run(program[0], arguments, log, **files)


def later_speed(rows: Sequence[Mapping[str, float]], name: str) -> float | None:
    """Return how much a count grows in a second of training after the first row.

    Return None if there is only one row, or no time between the first and the last.

    Args:
        rows: The rows of metrics.jsonl, all with the count and `train_seconds`.
        name: The name of the count.
    """
    first, last = rows[0], rows[-1]
    seconds = last["train_seconds"] - first["train_seconds"]
    return (last[name] - first[name]) / seconds if seconds else None


def mean_between(
    rows: Sequence[Mapping[str, float]], name: str, by: str, start: float = 0.0
) -> float | None:
    """Return the mean of a value of metrics.jsonl, or None if a row lacks it.

    Args:
        rows: The rows, at least one. The value of a row is the mean since the row before.
        name: The name of the value.
        by: The name of a count that grows from row to row, whose growth is the weight of a row.
        start: The count before the first row.

    Raises:
        ZeroDivisionError: There is no row, or the count did not grow.
    """
    if any(name not in row for row in rows):
        return None
    ends = [start, *(row[by] for row in rows)]
    steps = zip(rows, itertools.pairwise(ends), strict=True)
    return sum(row[name] * (end - begin) for row, (begin, end) in steps) / (ends[-1] - start)
