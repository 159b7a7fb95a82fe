"""Time the export of word vectors in every format, and measure its memory.

A run of lexrow.train on made-up words, each of which occurs once, gives the workdir. It is not
timed. Then every format is written by a process of lexrow.export, one at a time. The figures of a
format:

- seconds: of the process, with its imports;
- peak memory: the most resident memory of the process, and the same as a multiple of the vectors;
- size: the bytes of the files that it has written.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from ... import __name__ as PACKAGE
from ...errors import UsageError
from ..harness import machine, report, trainer, trials
from ..harness.export_options import ExportOptions
from ..harness.option_values import items
from ..harness.report import Measure, Result, Table

MEASURES = (
    Measure("seconds", "s", ",.1f", better="lower", drawn=True),
    Measure("peak_bytes", "peak memory, MB", ",.0f", per=1e6, better="lower", drawn=True),
    Measure("peak_ratio", "x the vectors", ".2f", better="lower"),
    Measure("written_bytes", "files, MB", ",.0f", per=1e6),
)
# The flags of lexrow.train that make a row for each word in little time.
_SETTINGS = {
    "task": "words",
    "tokenizer": "whitespace",
    "documents": "line",
    "min_count": 1,
    "subsample": 0,
    "epochs": 1,
}
_LINE_WORDS = 1_000


def run(options: ExportOptions) -> Result:
    """Write each format `options.repeats` times.

    Args:
        options: The settings of the case.

    Raises:
        UsageError: A flag or a format is not possible.
        RunError: Training or an export failed.
    """
    train_flags = trainer.flags(
        options.train_flags, {*_SETTINGS, "dim", "corpus", "workdir", "vocab"}
    )
    formats = items(options.formats)
    if not formats:
        raise UsageError(f"--formats= is empty; give a format of {PACKAGE}.export")
    described = machine.describe(["tensorflow", "numpy"])
    vector_bytes = 4 * options.rows * options.dim
    with tempfile.TemporaryDirectory(prefix="lexrow-bench-") as scratch:
        folder = Path(scratch)
        _write_words(folder / "words.txt", options.rows)
        workdir = folder / "workdir"
        files = {"corpus": folder / "words.txt", "workdir": workdir}
        settings = _SETTINGS | {"dim": options.dim}
        trainer.train("base", train_flags, settings | files, folder / "log")

        def export(name: str, repeat: int) -> dict[str, Any]:
            """Write a format; return its figures."""
            with tempfile.TemporaryDirectory(dir=folder) as place:
                flags = {"workdir": workdir, "format": name, "output": f"{place}/vectors"}
                usage = trainer.run([f"{PACKAGE}.export"], flags, folder / "log")
                written = [file for file in Path(place).rglob("*") if file.is_file()]
                return {
                    "seconds": usage.seconds,
                    "peak_bytes": usage.peak_bytes,
                    "peak_ratio": usage.peak_bytes / vector_bytes,
                    "written_bytes": sum(file.stat().st_size for file in written),
                }

        runs = trials.alternate(formats, options.repeats, export)
    table = Table("", MEASURES, [report.make_row(name, runs[name], MEASURES) for name in formats])
    title = (
        f"Export of {options.rows:,} words x {options.dim} ({vector_bytes / 1e6:,.0f} MB); "
        f"{options.count_runs()} a format"
    )
    figures = {
        "vector_bytes": vector_bytes,
        "formats": {row.name: row.record for row in table.rows},
    }
    panels = report.make_panels(table, ours=len(formats))
    return Result("export", title, described, options.measured(), [table], figures, panels)


def _write_words(path: Path, count: int) -> None:
    """Write made-up words to a text, each once."""
    with open(path, "w", encoding="utf-8") as file:
        for first in range(0, count, _LINE_WORDS):
            words = range(first, min(first + _LINE_WORDS, count))
            file.write(" ".join(f"word{number}" for number in words) + "\n")
