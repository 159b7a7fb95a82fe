"""Train word vectors by each strategy of distribution, with all processes on this machine.

    python -m tests.benchmarks.scaling --corpus=FILE --json=FILE

The sides train one at a time on the same text, in the same batches but for their order:

- none: one process;
- mirrored: one process with a replica on each GPU, if there are several;
- multi_worker N: N processes that train in step, by lexrow.cluster;
- multi_worker N sync S: N processes that exchange changes every S steps, each with a batch of its
  own.

The figures of a side:

- words/s: words of the text x epochs / `train_seconds` of metrics.jsonl; and the same after the
  first report, once TensorFlow has compiled;
- processor seconds of all its processes for a million words, once compiled (Linux): the cost of
  the exchange. Words/s cannot grow with workers, as all processes share the cores of this machine;
- bytes that a process sends in a step (`exchanged_bytes` of metrics.jsonl), and that all links
  carry for a word;
- the scores of the vectors.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from app.errors import RunError
from app.evaluation import score_report
from app.settings import CorpusConfig
from app.text import corpus
from tests.benchmarks import harness, programs
from tests.benchmarks.harness import Measure, Report, Table

MEASURES = (
    harness.TOTAL._replace(drawn=False),
    *harness.SPEEDS,
    Measure("processor_seconds", "processor s a million words", ",.2f", drawn=True),
    Measure("exchanged_bytes", "KB a step", ",.0f", 1e3),
    Measure("bytes_per_word", "bytes a word", ",.0f"),
    *harness.scores(tuple(score_report.benchmarks)),
)
_SETTINGS = ("corpus", "dim", "epochs", "min_count", "batch_tokens")
_FIXED = ("sync_steps", "task", "strategy", "micro_batches", "log_seconds")
_LOG_SECONDS = 2.0  # so that a short run has several reports, too
_POLL_SECONDS = 0.1
# Fields of /proc/PID/stat after the name: the parent, user time, system time, in ticks (proc(5)).
_PARENT, _USER, _SYSTEM = 1, 11, 12


class Side(NamedTuple):
    """A way to train.

    Attributes:
        program: The module to run and its arguments before the flags.
        workers: The number of processes that train.
        sync_steps: Steps between two exchanges; 0 for no flag.
        is_in_step: Whether the processes are replicas, each of which sends to all others.
    """

    program: list[str]
    workers: int = 1
    sync_steps: int = 0
    is_in_step: bool = False


def define(values: Any) -> None:
    """Define the flags of the case."""
    for name in ("corpus", "dim", "epochs", "min_count", "train_flags", "keep"):
        harness.define(values, name)
    harness.define(values, "batch_tokens", 4096, "Tokens of a step.")
    harness.define(values, "workers", "1,2", "Numbers of workers.", numbers=1)
    text = "Values of --sync_steps, each a further side for each number of workers above 1."
    harness.define(values, "sync_steps", "64,256", text, numbers=1)


def run(options: Any) -> Report:
    """Run every side `options.repeats` times; workdirs and logs are kept only in `options.keep`."""
    corpus.resolve(CorpusConfig(corpus=options.corpus))  # may extract the corpus
    with programs.session(options, {}, {*_SETTINGS, *_FIXED}) as session:
        sides = make_sides(options, len(session.machine["accelerators"]))

        def run_one(name: str, seed: int) -> dict[str, Any]:
            settings = {name: getattr(options, name) for name in _SETTINGS}
            settings |= {"seed": seed, "log_seconds": _LOG_SECONDS}
            return _train(sides[name], session.train_flags, settings, session.place(name, seed))

        runs = harness.by_turns({"": {name: name for name in sides}}, options.repeats, run_one)[""]
    title = (
        f"Word vectors, epochs {options.epochs}, dim {options.dim}, {options.batch_tokens:,} tokens"
        f" a step; all processes of a side share {session.machine['cores']} cores; "
        f"{harness.count_runs(options)} a side"
    )
    return Report(title, session.machine, [Table(runs, MEASURES)])


def make_sides(options: Any, gpus: int) -> dict[str, Side]:
    """Return the sides by name; `none` is the first."""
    sides = {"none": Side(["app.train"])}
    if gpus > 1:
        sides["mirrored"] = Side(["app.train", "--strategy=mirrored"])
    for count in options.workers:
        program = ["app.cluster", f"--workers={count}", "--"]
        sides[f"multi_worker {count}"] = Side(program, count, 0, count > 1)
        for steps in options.sync_steps if count > 1 else ():
            sides[f"multi_worker {count} sync {steps}"] = Side(program, count, steps, True)
    return sides


def _train(
    side: Side, train_flags: Sequence[str], settings: dict[str, Any], folder: Path
) -> dict[str, Any]:
    """Train one side with its workdir and log in `folder`, and return its figures and scores.

    Raises RunError if it stopped early.
    """
    from app.tasks import trained_vectors

    workdir = folder / "workdir"
    settings = settings | {"workdir": workdir}
    if side.sync_steps:  # every worker has a batch of its own
        settings["batch_tokens"] *= side.workers
        settings["sync_steps"] = side.sync_steps
    with marks_of(workdir / "metrics.jsonl") as marks:
        usage, rows = programs.train("words", train_flags, settings, folder, side.program)
    last = rows[-1]
    if last["epoch"] < settings["epochs"]:
        raise RunError(
            f"{folder.name} ended at epoch {last['epoch']} of {settings['epochs']}, so its speed "
            "means nothing; --keep=DIR keeps its log"
        )
    exchanged = programs.mean(rows, "exchanged_bytes", "step")
    senders = side.workers * (side.workers - 1) if side.is_in_step else 1
    scores = score_report.run(trained_vectors.load(workdir))
    return {
        **programs.speeds(usage, rows),
        "words": last["words"],
        "processor_seconds": processor_seconds(marks),
        "exchanged_bytes": exchanged,
        "bytes_per_word": exchanged and exchanged * senders * last["step"] / last["words"],
        **{score.name: score.value for score in scores},
        "scores": score_report.summary(scores),
    }


@contextlib.contextmanager
def marks_of(metrics: Path) -> Iterator[list[tuple[float, float]]]:
    """Yield a list to which a thread adds a mark whenever a file has a new line with `words`.

    A mark is the number of words, and the processor seconds so far of all descendants of this
    process that still run. Without /proc (on other systems than Linux) the list stays empty.
    """
    marks: list[tuple[float, float]] = []

    def look() -> None:
        with contextlib.suppress(OSError, ValueError, IndexError):  # no whole line yet
            row = json.loads(metrics.read_text(encoding="utf-8").splitlines()[-1])
            if row.get("words", 0) > (marks[-1][0] if marks else 0):
                marks.append((row["words"], descendant_seconds(os.getpid())))

    with programs.watching(look, _POLL_SECONDS):
        yield marks


def descendant_seconds(root: int, folder: Path = Path("/proc")) -> float:
    """Return the processor seconds of all running descendants of a process, without its own.

    Processes that end meanwhile are skipped.
    """
    ticks: dict[int, int] = {}
    children: dict[int, list[int]] = collections.defaultdict(list)
    for entry in folder.iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):  # the process has ended
                # The name, in brackets, may hold spaces and brackets.
                fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                number = int(entry.name)
                children[int(fields[_PARENT])].append(number)
                ticks[number] = int(fields[_USER]) + int(fields[_SYSTEM])

    def below(number: int) -> int:
        return sum(ticks[child] + below(child) for child in children[number])

    return below(root) / os.sysconf("SC_CLK_TCK")


def processor_seconds(marks: Sequence[tuple[float, float]]) -> float | None:
    """Return the processor seconds for a million words, from the first mark to the highest.

    Return None if they do not span any words.
    """
    if not marks:
        return None
    # Later marks lack the processes that have ended.
    (start, before), (end, after) = marks[0], max(marks, key=lambda mark: mark[1])
    return 1e6 * (after - before) / (end - start) if end > start else None


if __name__ == "__main__":
    harness.main(define, run)
