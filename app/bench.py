"""Runs a benchmark beside its peers: python -m app.bench words --corpus=FILE --json=FILE"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from absl import flags as absl_flags

from app import flags
from app.benchmarks import machine, options, picture, words
from app.benchmarks.options import Options
from app.benchmarks.report import Report
from app.errors import UsageError
from app.files import replacing

CASES: dict[str, Callable[[Options], Report]] = {"words": words.run}

_DEFINE = {int: absl_flags.DEFINE_integer, str: absl_flags.DEFINE_string}


def main(arguments: Sequence[str]) -> None:
    """Runs the case, prints its table, and writes what --json and --plot ask for."""
    names = [field.name for field in dataclasses.fields(Options)]
    settings = Options(**{name: absl_flags.FLAGS[name].value for name in names})
    case = _case(arguments)
    options.check(settings)
    _check_outputs(settings)
    report = CASES[case](settings)
    described = machine.line(report.record["machine"])
    print(f"{report.title}\n{described}\n\n{report.table}", flush=True)
    if settings.json:
        with replacing(settings.json) as temporary:
            text = json.dumps(report.record, indent=1, allow_nan=False) + "\n"
            temporary.write_text(text, encoding="utf-8")
    if settings.plot:
        picture.draw(report.panels, report.title, described, settings.plot)


def define() -> None:
    """Defines the flags of this command."""
    for field in dataclasses.fields(Options):
        _DEFINE[type(field.default)](field.name, field.default, field.metadata["help"])


def _case(arguments: Sequence[str]) -> str:
    known = ", ".join(CASES)
    if len(arguments) != 1:
        raise UsageError(f"{' '.join(arguments) or 'no case'}: name one case of {known}")
    if arguments[0] not in CASES:
        raise UsageError(f"{arguments[0]}: no such case; choose from {known}")
    return arguments[0]


def _check_outputs(settings: Options) -> None:
    """Before hours of work: whether their results have a place to go."""
    if settings.plot:
        picture.check(settings.plot)
    for name in ("json", "plot", "keep"):
        value = getattr(settings, name)
        if name != "keep" and value and Path(value).is_dir():
            raise UsageError(f"--{name}={value} is a folder; give the name of a file")
        folder = Path(value) if name == "keep" else Path(value).parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"--{name}={value}: {error.strerror}; choose another") from error
        if not os.access(folder, os.W_OK):
            raise UsageError(f"--{name}={value}: {folder} may not be written; choose another")


if __name__ == "__main__":
    define()
    flags.run(main, arguments=True)
