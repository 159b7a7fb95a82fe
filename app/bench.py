"""Run a benchmark of Lexrow and its peers.

python -m lexrow.bench words --corpus=FILE --json=FILE
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
import os
import signal
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from absl import flags as absl_flags

from . import __name__ as PACKAGE
from .benchmarks.harness import machine, options, picture, report
from .benchmarks.harness.export_options import ExportOptions
from .benchmarks.harness.keras_options import KerasOptions
from .benchmarks.harness.options import Options
from .benchmarks.harness.report import Result
from .benchmarks.harness.subwords_options import SubwordsOptions
from .cli import flags, startup
from .errors import UsageError
from .system.files import replacing, temporary_folder

# The options of each case; its flags are their fields.
CASES: dict[str, type[Options]] = {
    "words": options.WordsOptions,
    "subwords": SubwordsOptions,
    "sparse": options.SparseOptions,
    "keras": KerasOptions,
    "softmax": options.SoftmaxOptions,
    "tables": options.TablesOptions,
    "pipeline": options.PipelineOptions,
    "classify": options.ClassifyOptions,
    "recommend": options.RecommendOptions,
    "scaling": options.ScalingOptions,
    "export": ExportOptions,
}


def _run(name: str, settings: Options) -> Result:
    """Start TensorFlow, import the module of a case, and run the case with these options."""
    startup.start_tensorflow()  # hides the notes that TensorFlow's import prints
    return importlib.import_module(f"{PACKAGE}.benchmarks.{name}.{name}_case").run(settings)


def main(arguments: Sequence[str]) -> None:
    """Run the named case, print its table, and write the files of --json and --plot.

    The folders of all output files are made before the run. SIGTERM ends it as Ctrl-C does.

    Args:
        arguments: The arguments that are not flags: the name of one case.

    Raises:
        UsageError: The case, a flag or an output file is not possible.
        RunError: The run failed, or an output file cannot be written.
    """
    case = _case(arguments)
    settings = _settings(case)
    _check_outputs(settings)
    with _own_folder():
        result = _run(case, settings)
    print(report.to_text(result), flush=True)
    if settings.json:
        with replacing(settings.json) as temporary:
            text = json.dumps(report.to_json(result), indent=1, allow_nan=False) + "\n"
            temporary.write_text(text, encoding="utf-8")
    if settings.plot:
        picture.draw(result.panels, result.title, machine.line(result.machine), settings.plot)


@contextlib.contextmanager
def _own_folder() -> Iterator[None]:
    """Make a folder for all temporary files of this process and its children, and remove it.

    SIGTERM becomes a KeyboardInterrupt, so that child processes are ended, too.
    """
    usual = signal.signal(signal.SIGTERM, signal.default_int_handler)
    place, variable = tempfile.tempdir, os.environ.get("TMPDIR")
    with temporary_folder("lexrow-benchmark-") as folder:
        tempfile.tempdir = os.environ["TMPDIR"] = folder
        try:
            yield
        finally:
            tempfile.tempdir = place
            os.environ.pop("TMPDIR") if variable is None else os.environ.update(TMPDIR=variable)
            signal.signal(signal.SIGTERM, usual)


def define() -> None:
    """Define a global flag, without a default, for every option of every case."""
    for name, by_case in _fields().items():
        (parser,) = set(map(flags.parser, by_case.values()))  # a flag has one type in all cases
        absl_flags.DEFINE(parser, name, None, _help(by_case), flag_values=absl_flags.FLAGS)


def _fields() -> dict[str, dict[str, dataclasses.Field]]:
    """Return the dataclass fields: flag name -> case name -> the field of the flag in the case."""
    fields: dict[str, dict[str, dataclasses.Field]] = {}
    for name, case in CASES.items():
        for field in dataclasses.fields(case):
            fields.setdefault(field.name, {})[name] = field
    return fields


def _help(by_case: dict[str, dataclasses.Field]) -> str:
    """Return the help of a flag, with one text for all cases that share text and default.

    A default that is not empty ends its text. The cases are named before each text, unless all
    cases share one.
    """
    cases: dict[str, list[str]] = {}
    for name, field in by_case.items():
        default = "" if field.default == "" else f" (default: {field.default})"
        cases.setdefault(field.metadata["help"] + default, []).append(name)
    if list(cases.values()) == [list(CASES)]:
        return next(iter(cases))
    return " ".join(f"{', '.join(names)}: {text}" for text, names in cases.items())


def _settings(case: str) -> Options:
    """Return the options of a case: the given flags, and the defaults of all other options.

    Raise UsageError if a given flag is not an option of the case, or its value is not allowed.
    """
    fields, values = _fields(), absl_flags.FLAGS
    present = {name: values[name].value for name in fields if values[name].present}
    for name, value in present.items():
        if case not in fields[name]:
            raise UsageError(
                f"--{name}={value} means nothing to {case}, only to {', '.join(fields[name])}; "
                "leave it out"
            )
    return CASES[case](**present)


def _case(arguments: Sequence[str]) -> str:
    """Return the case that the arguments name; raise UsageError unless they name exactly one."""
    names = ", ".join(CASES)
    if len(arguments) != 1:
        raise UsageError(f"{' '.join(arguments) or 'no case'}: name one case of {names}")
    if arguments[0] not in CASES:
        raise UsageError(f"{arguments[0]}: no such case; choose from {names}")
    return arguments[0]


def _check_outputs(settings: Options) -> None:
    """Create the folders of the output files, and the folder of --keep.

    Raise UsageError if one cannot be written, the file of --json or --plot is a folder, --plot has
    an unknown suffix, or matplotlib is missing for it.
    """
    if settings.plot:
        picture.check(settings.plot)
    for name in ("json", "plot", "keep"):
        value = getattr(settings, name, "")
        if not value:
            continue
        if name != "keep" and Path(value).is_dir():
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
