"""Our side of a case that trains: its flags, its run and what that logs; and who the peers are."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ... import __name__ as PACKAGE
from ...errors import UsageError
from . import child_processes
from .options import chosen

OURS = "lexrow"


class Peer(NamedTuple):
    """What a peer is imported as, and what `pip install` calls it."""

    module: str
    package: str


def peers(value: str, known: Mapping[str, Peer], case: str) -> list[str]:
    """The peers that --peers names. UsageError for one that is unknown or not installed."""
    names = chosen("peers", value, known, f"peer of {case}")
    for name in names:
        if importlib.util.find_spec(known[name].module) is None:
            package = known[name].package
            raise UsageError(f"--peers={value}: {name} is not installed; pip install {package}")
    return names


def packages(names: Sequence[str], known: Mapping[str, Peer]) -> list[str]:
    """What is installed of these peers, as `importlib.metadata` calls it, each once."""
    providers = importlib.metadata.packages_distributions()
    return list(dict.fromkeys(providers[known[name].module][0] for name in names))


def flags(value: str, fixed: Collection[str]) -> list[str]:
    """The flags of our side alone, of --train_flags; those in `fixed` are refused."""
    try:
        found = shlex.split(value)
    except ValueError as error:
        raise UsageError(f"--train_flags={value}: {error}; mend the quotes") from None
    for flag in found:
        name = flag.lstrip("-").partition("=")[0]
        if flag.startswith("-") and name in fixed:
            raise UsageError(
                f"--train_flags={value}: --{name} is for the benchmark to set; leave it out here"
            )
    return found


def train(
    task: str,
    train_flags: Sequence[str],
    settings: Mapping[str, Any],
    log: Path,
    program: Sequence[str] = (f"{PACKAGE}.train",),
) -> tuple[child_processes.Usage, list[dict[str, float]]]:
    """Runs app.train with the flags of configs/TASK.cfg; what it took, and its metrics.jsonl.

    settings: flags by name, `workdir` among them, which come last. program: what to run instead,
    with what it is given before those flags.
    """
    arguments = ["-m", *program, f"--flagfile=configs/{task}.cfg", *train_flags]
    arguments += [f"--{name}={value}" for name, value in settings.items()]
    usage = child_processes.run(program[0], arguments, log)
    rows = (Path(settings["workdir"]) / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return usage, [json.loads(row) for row in rows]
