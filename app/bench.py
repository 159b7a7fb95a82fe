"""Runs a benchmark beside its peers: python -m app.bench words --corpus=FILE --json=FILE"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from absl import flags as absl_flags

from . import __name__ as PACKAGE
from .benchmarks.harness import machine, options, picture
from .benchmarks.harness.options import (
    AdamOptions,
    ClassifyOptions,
    Options,
    PipelineOptions,
    RecommendOptions,
    ScalingOptions,
    SoftmaxOptions,
    SparseOptions,
    TablesOptions,
    WordsOptions,
)
from .benchmarks.harness.report import Report
from .cli import flags
from .errors import UsageError
from .system.files import replacing


class Case(NamedTuple):
    """A benchmark: what it can be told, and how it runs."""

    options: type[Options]
    run: Callable[[Any], Report]


def _run(name: str, settings: Options) -> Report:
    """Run a case; its module has its name."""
    folder = "sparse" if name == "adam" else name
    flags.start_tensorflow()  # quietly, which the import of a case would do in its own way
    return importlib.import_module(f"{PACKAGE}.benchmarks.{folder}.{name}_case").run(settings)


CASES = {
    name: Case(settings, functools.partial(_run, name))
    for name, settings in {
        "words": WordsOptions,
        "sparse": SparseOptions,
        "softmax": SoftmaxOptions,
        "tables": TablesOptions,
        "pipeline": PipelineOptions,
        "classify": ClassifyOptions,
        "recommend": RecommendOptions,
        "adam": AdamOptions,
        "scaling": ScalingOptions,
    }.items()
}


def main(arguments: Sequence[str]) -> None:
    """Runs the case, prints its table, and writes what --json and --plot ask for."""
    case = _case(arguments)
    settings = _settings(case)
    options.check(settings)
    _check_outputs(settings)
    report = CASES[case].run(settings)
    described = machine.line(report.record["machine"])
    print(f"{report.title}\n{described}\n\n{report.table}", flush=True)
    if settings.json:
        with replacing(settings.json) as temporary:
            text = json.dumps(report.record, indent=1, allow_nan=False) + "\n"
            temporary.write_text(text, encoding="utf-8")
    if settings.plot:
        picture.draw(report.panels, report.title, described, settings.plot)


def define() -> None:
    """Defines the flags of this command: a flag for every setting of some case."""
    for name, by_case in _fields().items():
        (parser,) = set(map(flags.parser, by_case.values()))  # cases agree on what a flag is
        absl_flags.DEFINE(parser, name, None, _help(by_case), flag_values=absl_flags.FLAGS)


def _fields() -> dict[str, dict[str, dataclasses.Field]]:
    """Flag -> case -> the field behind it."""
    found: dict[str, dict[str, dataclasses.Field]] = {}
    for name, case in CASES.items():
        for field in dataclasses.fields(case.options):
            found.setdefault(field.name, {})[name] = field
    return found


def _help(by_case: dict[str, dataclasses.Field]) -> str:
    """What the flag means to each case and its default there, said once where it is the same."""
    cases: dict[str, list[str]] = {}
    for name, field in by_case.items():
        default = "" if field.default == "" else f" (default: {field.default})"
        cases.setdefault(field.metadata["help"] + default, []).append(name)
    if list(cases.values()) == [list(CASES)]:
        return next(iter(cases))
    return " ".join(f"{', '.join(names)}: {text}" for text, names in cases.items())


def _settings(case: str) -> Options:
    """The flags that were given, over the defaults of the case; no other may have been given."""
    known = _fields()
    given = {name: absl_flags.FLAGS[name].value for name in known if absl_flags.FLAGS[name].present}
    for name, value in given.items():
        if case not in known[name]:
            raise UsageError(
                f"--{name}={value} means nothing to {case}, only to {', '.join(known[name])}; "
                "leave it out"
            )
    return CASES[case].options(**given)


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
        value = getattr(settings, name, "")
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
