"""The harness of all benchmarks: flags, runs by turns, medians, JSON, a text and one picture.

A case defines its flags in a function `define(values)`, and measures in a function `run(options)`,
which returns a `Report`. `main` runs it as a command.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import json
import math
import os
import shutil
import signal
import statistics
import sys
import tempfile
import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from absl import flags

from app.cli import flags as command_flags
from app.cli import startup
from app.errors import RunError, UsageError
from app.profiling import profile_report
from app.settings.setting import MOST_ROWS
from app.system.console import aligned
from app.system.files import replacing

flags.disclaim_key_flags()  # a flag that this module defines is one of the case

Runs = dict[str, list[dict[str, Any]]]  # the figures of each run, by side
_WIDTH = 120  # characters of a line; a wider table has the measures as lines, if that is narrower
_WIDE_RANGE = 50  # bars of which one is so many times as long as another have a logarithmic scale
_OURS, _PEER, _INK = "#1f6fb4", "#b9bec4", "#333333"

# Flags that several cases have: the default and the help.
_SHARED: dict[str, tuple[Any, str]] = {
    "repeats": (1, "Runs of each side; the report has their medians."),
    "json": ("", "Write every number to this file."),
    "plot": ("", "Draw the comparison to this file (.png, .svg or .pdf)."),
    "keep": ("", "A folder in which to keep the files and logs of all runs."),
    "corpus": ("docstrings", "The text, as --corpus of lexrow.train."),
    "dim": (100, "The number of columns of a vector."),
    "epochs": (5, "Passes over the data."),
    "min_count": (5, "Words that occur less often are left out."),
    "train_flags": ("", "More flags of lexrow.train, for Lexrow."),
}


class Measure(NamedTuple):
    """A figure of every side.

    Attributes:
        key: Its name in the runs.
        title: Its name for people.
        spec: The format of the value divided by `per`.
        per: The unit in which people read it.
        by_difference: Whether two sides are compared by difference, not by ratio.
        drawn: Whether the picture shows it.
    """

    key: str
    title: str
    spec: str = ",.1f"
    per: float = 1.0
    by_difference: bool = False
    drawn: bool = False


TOTAL = Measure("total_seconds", "start to end, s", ",.1f", drawn=True)
PEAK = Measure("peak_bytes", "peak memory, MB", ",.0f", 1e6, drawn=True)
ABOVE_IMPORT = Measure("peak_bytes_above_import", "  above the import alone, MB", ",.0f", 1e6)
SPEEDS = (  # of `programs.speeds`
    Measure("words_per_second", "words/s of the loop", ",.0f"),
    Measure("later_words_per_second", "words/s, once compiled", ",.0f", drawn=True),
    Measure("input_wait", "waiting for input", ".1%"),
)


class Table(NamedTuple):
    """Sides with the same measures.

    Attributes:
        runs: The figures of each run by side; a run may have only `left_out`, the reason.
        measures: The figures to show.
        title: The heading.
        peers: The sides that are not Lexrow's, where they are here.
        compared: Pairs of sides; by default the first with every other.
    """

    runs: Runs
    measures: Sequence[Measure]
    title: str = ""
    peers: Collection[str] = ()
    compared: Sequence[tuple[str, str]] | None = None

    @property
    def medians(self) -> dict[str, dict[str, float | None]]:
        """The median of each measure by side, None for a figure that a run lacks."""
        return {
            side: {one.key: median([run.get(one.key) for run in runs]) for one in self.measures}
            for side, runs in self.runs.items()
        }

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The compared sides that were both measured."""
        first, *others = self.runs
        pairs = [(first, other) for other in others] if self.compared is None else self.compared
        return [pair for pair in pairs if set(pair) <= self.runs.keys()]


class Report(NamedTuple):
    """The result of a case.

    Attributes:
        title: The things that were compared.
        machine: The description by `programs.describe`.
        tables: The measured sides.
        figures: Further entries of the JSON file.
        notes: Paragraphs after the tables.
    """

    title: str
    machine: dict[str, Any]
    tables: Sequence[Table]
    figures: Mapping[str, Any] = {}
    notes: Sequence[str] = ()


class _Items(flags.ListParser):
    """A parser of comma-separated items, each of which another parser parses."""

    def __init__(self, one: flags.ArgumentParser):
        super().__init__()
        self._one = one

    def parse(self, argument: Any) -> list[Any]:
        """Return the items in their order, each once."""
        return list(dict.fromkeys(map(self._one.parse, super().parse(argument))))


def define(
    values: flags.FlagValues,
    name: str,
    default: Any = None,
    help: str = "",
    names: Collection[str] | None = None,
    numbers: int | None = None,
    choices: Sequence[str] | None = None,
    least: int = 1,
) -> None:
    """Define a flag; without a help, one that several cases have.

    Args:
        values: The flags of the case.
        name: The name.
        default: The default, whose type is that of the flag; None for the shared one, or all names.
        help: The help.
        names: The possible names of a comma-separated list.
        numbers: The least number of a comma-separated list.
        choices: The possible values of a text.
        least: The least value of a number.
    """
    if not help:
        default, help = (default or _SHARED[name][0]), _SHARED[name][1]
    parser, serializer = flags.ArgumentParser(), None
    if names or numbers is not None:
        default = ",".join(names) if default is None else default
        one: flags.ArgumentParser = command_flags.make_parser(0, bounds=(numbers, MOST_ROWS))
        one = flags.EnumParser(list(names)) if names else one
        parser, serializer = _Items(one), flags.CsvListSerializer(",")
        help += f" Comma-separated{', of ' * bool(names)}{', '.join(names or ())}; empty for none."
    elif choices:
        parser = flags.EnumParser(choices)
        help += f" One of: {', '.join(choices)}."
    elif not isinstance(default, str):
        parser = command_flags.make_parser(default, bounds=(least, MOST_ROWS))
    flags.DEFINE(parser, name, default, help, flag_values=values, serializer=serializer)
    values[name].is_of_case = True


def main(define_case: Callable[[flags.FlagValues], None], run: Callable[[Any], Report]) -> None:
    """Run a case as a command, whose name is that of the module in `sys.argv`.

    Args:
        define_case: Defines the flags of the case.
        run: Measures; called with the flags.
    """
    for name in ("repeats", "json", "plot"):
        define(flags.FLAGS, name)
    define_case(flags.FLAGS)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends child processes, too
    command_flags.run(lambda _: measure(Path(sys.argv[0]).stem, run, flags.FLAGS))


def measure(case: str, run: Callable[[Any], Report], options: Any) -> None:
    """Measure, print the report, and write the files of --json and --plot.

    Folders of output files are made before. All temporary files of this process and its children
    are in a folder that is removed.

    Raises:
        UsageError: A flag or an output file is not possible.
        RunError: A side failed (the report is written nevertheless), or a file cannot be written.
    """
    _check_outputs(options)
    with (
        temporary_folder("lexrow-benchmark-") as folder,
        mock.patch.object(tempfile, "tempdir", folder),
        mock.patch.dict(os.environ, TMPDIR=folder),
    ):
        startup.start_tensorflow()
        report = run(options)
    print(to_text(report), flush=True)
    if options.json:
        record = to_record(case, report, options)
        with replacing(options.json) as temporary:
            text = json.dumps(record, indent=1, allow_nan=False) + "\n"
            temporary.write_text(text, encoding="utf-8")
    if options.plot:
        draw(report, options.plot)
    runs = [(side, run) for t in report.tables for side, own in t.runs.items() for run in own]
    failed = [f"{side}: {run['left_out']}" for side, run in runs if run.get("failed")]
    if failed:
        raise RunError(f"{len(failed)} of {len(runs)} runs failed, first {failed[0]}")


def _check_outputs(options: Any) -> None:
    """Make the folders of --json, --plot and --keep; raise UsageError if that is not possible."""
    if options.plot:
        profile_report.check_picture(options.plot)
    for name in ("json", "plot", "keep"):
        value = getattr(options, name, "")
        if value and name != "keep" and Path(value).is_dir():
            raise UsageError(f"--{name}={value} is a folder; give the name of a file")
        folder = Path(value) if name == "keep" else Path(value).parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=folder).close() if value else None
        except OSError as error:
            raise UsageError(f"--{name}={value}: {error.strerror}; choose another") from error


def by_turns(
    groups: Mapping[str, Mapping[str, Any]],
    repeats: int,
    run: Callable[[Any, int], dict[str, Any]],
) -> dict[str, Runs]:
    """Run every side once in each repeat, and print the figures of each run as it ends.

    The order is reversed in every second repeat, so that a drift of the machine favours no side.

    Args:
        groups: The job of each side, by the title of its table and its name.
        repeats: The number of runs of each.
        run: Called as `run(job, seed)`, with seed from 1; returns the figures of a run, or only
            `left_out`, the reason why the side cannot run here.

    Returns:
        The figures by title and side. A run that raised RunError has `left_out`, and `failed`.
    """
    runs = {title: {side: [] for side in jobs} for title, jobs in groups.items()}
    sides = [(title, side) for title, jobs in groups.items() for side in jobs]
    for repeat in range(repeats):
        for title, side in sides if repeat % 2 == 0 else reversed(sides):
            name = f"{title}, {side}" if title else side
            print(f"run {repeat + 1} of {repeats}: {name}", file=sys.stderr, flush=True)
            try:
                figures = run(groups[title][side], repeat + 1)
            except RunError as error:
                figures = {"left_out": str(error), "failed": True}
            runs[title][side].append(figures)
            numbers = {k: v for k, v in figures.items() if isinstance(v, int | float)}
            shown = ", ".join(f"{key} {value:.6g}" for key, value in numbers.items())
            print(f"  {figures.get('left_out') or shown}", file=sys.stderr, flush=True)
    return runs


def median(values: Sequence[float | None]) -> float | None:
    """Return the median, None if a value is None."""
    return None if None in values else statistics.median(values)


def count_runs(options: Any, noun: str = "run") -> str:
    """Return the number of runs for a title, as `one run` or `medians of 3 runs`."""
    return f"medians of {options.repeats} {noun}s" if options.repeats > 1 else f"one {noun}"


def scores(names: Sequence[str], spec: str = ".3f") -> list[Measure]:
    """Return the measures of scores, which are drawn, and compared by difference."""
    return [Measure(name, name, spec, by_difference=True, drawn=True) for name in names]


def to_record(case: str, report: Report, options: Any) -> dict[str, Any]:
    """Return a report as JSON values.

    Returns:
        `case`, `machine`, `settings` (the flags but for --json and --plot) and the figures. A table
        is {"sides": {side: {"runs", "median"}}, "compared": {side: {key: {"ratio", "difference"}}}}
        with `first : second` where the first is not the first side of the table. A single table is
        part of the record; several are in `tables`, by title.
    """
    names = [name for name in options if getattr(options[name], "is_of_case", False)]
    settings = {name: options[name].value for name in names if name not in ("json", "plot")}
    tables = {table.title: _table_record(table) for table in report.tables}
    more = next(iter(tables.values())) if len(tables) == 1 else {"tables": tables}
    fixed = {"case": case, "machine": report.machine, "settings": settings}
    return fixed | dict(report.figures) | more


def _table_record(table: Table) -> dict[str, Any]:
    """Return a table for JSON; only figures that both sides have are compared."""
    middle = table.medians
    sides = {side: {"runs": runs, "median": middle[side]} for side, runs in table.runs.items()}
    start = next(iter(table.runs))
    compared = {
        second if first == start else f"{first} : {second}": {
            key: {"ratio": value / other if other else None, "difference": value - other}
            for key, value in middle[first].items()
            if value is not None and (other := middle[second][key]) is not None
        }
        for first, second in table.pairs
    }
    return {"sides": sides, "compared": compared}


def machine_line(machine: Mapping[str, Any]) -> str:
    """Return the description of a machine in one line."""
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    return (
        f"{'; '.join([machine['processor'], *machine['accelerators']])}; {machine['cores']} cores, "
        f"{machine['memory_bytes'] / 2**30:.0f} GiB; {machine['system']}; {versions}"
    )


def to_text(report: Report) -> str:
    """Return a report for people: title, machine, the times from start to end, tables and notes."""
    head = f"{report.title}\n{machine_line(report.machine)}"
    ends = [line for table in report.tables for line in _from_start_to_end(table)]
    tables = [table_text(table) for table in report.tables]
    return "\n\n".join(filter(None, [head, "\n".join(ends), *tables, *report.notes]))


def _from_start_to_end(table: Table) -> Iterator[str]:
    """Yield a sentence for each compared pair of sides that have the time from start to end."""
    middle = table.medians
    for first, second in table.pairs:
        ours, other = (middle[side].get(TOTAL.key) for side in (first, second))
        if ours and other:
            heading = f"{table.title}: " if table.title else ""
            yield (
                f"{heading}from start to end {first} takes {ours:,.1f} s and {second} {other:,.1f} "
                f"s: {first} is {other / ours:.2f} times as fast"
            )


def table_text(table: Table) -> str:
    """Return a table for people: medians, single runs, comparisons, and the sides left out.

    Measures that no side has are not shown.
    """
    middle = table.medians
    known = {key for own in middle.values() for key, value in own.items() if value is not None}
    shown = [measure for measure in table.measures if measure.key in known] or table.measures
    lines = [["", *(measure.title for measure in shown)]]
    for side, runs in table.runs.items():
        several = enumerate(runs, 1) if len(runs) > 1 else ()
        named = [(side, middle[side]), *((f"run {number}", run) for number, run in several)]
        lines += [[name, *(show(one, own.get(one.key)) for one in shown)] for name, own in named]
    for first, second in table.pairs:
        cells = [_compare(one, middle[first][one.key], middle[second][one.key]) for one in shown]
        lines.append([f"{first} : {second}", *cells])
    layouts = [
        aligned(own, "<" + ">" * (len(own[0]) - 1))
        for own in (lines, list(zip(*lines, strict=True)))
    ]
    # Widths within the limit are equal, so that the first form is then taken.
    text = min(layouts, key=lambda own: max(_WIDTH, *map(len, own)))
    reasons = {
        side: next((run["left_out"] for run in runs if "left_out" in run), None)
        for side, runs in table.runs.items()
    }
    left_out = [f"left out: {side}: {reason}" for side, reason in reasons.items() if reason]
    return "\n".join([*filter(None, [table.title]), *text, *left_out])


def show(measure: Measure, value: float | None) -> str:
    """Return a value as text, in the unit and format of its measure; n/a for None."""
    return "n/a" if value is None else format(value / measure.per, measure.spec)


def _compare(measure: Measure, first: float | None, second: float | None) -> str:
    """Return the difference or the ratio of two values as text, n/a where there is none."""
    if first is None or second is None or not (second or measure.by_difference):
        return "n/a"
    return f"{first - second:+.3f}" if measure.by_difference else f"{first / second:.2f} x"


def draw(report: Report, path: str) -> None:
    """Draw a panel of bars for each drawn measure of each table; dots are single runs.

    Args:
        report: The report.
        path: The file to write, whose suffix names the format; see `profile_report.check_picture`.
    """
    from matplotlib.figure import Figure  # optional

    panels = [
        (table, measure)
        for table in report.tables
        for measure in table.measures
        if measure.drawn and any(own[measure.key] is not None for own in table.medians.values())
    ]
    columns = max(1, min(3, len(panels)))
    rows = max(1, math.ceil(len(panels) / columns))
    sides = max((len(table.runs) for table, _ in panels), default=1)
    figure = Figure((3.6 * columns, rows * (0.75 + 0.36 * sides) + 0.9), layout="constrained")
    figure.suptitle(textwrap.fill(report.title, 32 * columns), x=0.01, ha="left", fontsize=12)
    figure.supxlabel(machine_line(report.machine), x=0.01, ha="left", fontsize=7)
    grid = figure.subplots(rows, columns, squeeze=False).flatten().tolist()
    for axes, (table, measure) in itertools.zip_longest(grid, panels, fillvalue=(None, None)):
        if table:
            _draw_bars(axes, table, measure)
        else:
            axes.set_axis_off()
    with replacing(path) as temporary:
        figure.savefig(temporary, format=Path(path).suffix[1:].lower(), dpi=150)


def _draw_bars(axes: Any, table: Table, measure: Measure) -> None:
    """Draw the medians of a measure, with a dot for each of several runs and the median as text."""
    middle = {side: own[measure.key] for side, own in table.medians.items()}
    middle = {side: value for side, value in middle.items() if value is not None}
    values = list(middle.values())
    colours = [_PEER if side in table.peers else _OURS for side in middle]
    bars = axes.barh(list(middle), values, 0.62, color=colours)
    axes.bar_label(bars, [f" {show(measure, value)} " for value in values], fontsize=9)
    for number, side in enumerate(middle):
        dots = [run[measure.key] for run in table.runs[side]]
        axes.plot(dots, [number] * len(dots), "." if len(dots) > 1 else "", color=_INK, ms=3)
    is_wide = 0 < min(values) * _WIDE_RANGE < max(values)
    if is_wide:
        axes.set_xscale("log")
    title = ": ".join(filter(None, [table.title, measure.title.strip()]))
    title += " (log scale)" if is_wide else ""
    axes.set_title("\n".join(textwrap.wrap(title, 46)), loc="left", fontsize=8)
    axes.margins(x=0.3)
    axes.invert_yaxis()
    axes.set_xticks([])
    axes.set_xticks([], minor=True)
    axes.spines[["top", "right", "bottom"]].set_visible(False)


@contextlib.contextmanager
def temporary_folder(prefix: str, parent: str | None = None) -> Iterator[str]:
    """Yield the path of a new empty folder, which is removed at the end of the block.

    A process that is killed leaves its folder. So this removes folders of the same prefix that no
    process uses: a process holds a lock on its own.

    Args:
        parent: The folder to make it in; by default the one for temporary files.
    """
    for abandoned in Path(parent or tempfile.gettempdir()).glob(f"{prefix}*"):
        with contextlib.suppress(OSError), _locked_folder(abandoned, fcntl.LOCK_EX | fcntl.LOCK_NB):
            shutil.rmtree(abandoned)
    with contextlib.ExitStack() as stack:
        is_removed = True
        while is_removed:  # by another process, before this one has locked it
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix=prefix, dir=parent))
            with contextlib.suppress(OSError):  # the file system may have no locks
                stack.enter_context(_locked_folder(folder, fcntl.LOCK_EX))
            is_removed = not os.path.exists(folder)
        yield folder


@contextlib.contextmanager
def _locked_folder(path: str | Path, operation: int) -> Iterator[None]:
    """Lock a folder of this user by `fcntl.flock`; raise an OSError if it cannot be, or is gone."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(descriptor).st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "the folder is another user's", str(path))
        fcntl.flock(descriptor, operation)
        os.stat(path)
        yield
    finally:
        os.close(descriptor)
