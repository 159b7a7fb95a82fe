"""The flags of the commands, and how every command starts and ends.

The flags of a training run come from the fields of `lexrow.settings`, one flag for each field.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import itertools
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from absl import flags, logging

from ..checkpoints import workdir
from ..errors import RunError, StoppedError, UsageError
from ..settings import Config, checks, flagfiles, settings
from ..settings.foreign_names import meant
from ..settings.setting import fault
from ..text import vector_files
from ..types import WordVectors
from . import help_text, messages, startup
from .number_parsers import Float, Integer, count

_HELP = {"--help", "-help", "-h"}
# A home folder, at the start or after a comma or a colon, where a value names several files.
_HOME = re.compile(r"(?:^|(?<=[,:]))\s*~[^/,:]*")
# Flags of earlier versions that are gone: an empty value had no effect, and is ignored.
_GONE = {
    "data_service": "the tf.data service is gone, and each process reads its text itself; write "
    "the flag without a value, or leave it out"
}
_NAME_BYTES = 255  # NAME_MAX of Linux: no file system there takes a longer name of a file


class Text(flags.ArgumentParser):
    """A parser of text that can be written to a file."""

    def parse(self, argument: str) -> str:
        """Return the text as it is; raise ValueError for a NUL character or text not in UTF-8."""
        if "\0" in argument:
            raise ValueError("a NUL character is in it; leave it out")
        try:
            argument.encode()
        except UnicodeEncodeError as error:
            raise ValueError("it is not UTF-8; give other text, or rename the file") from error
        return argument


class Paths(Text):
    """A parser of file names, which expands `~` like a shell."""

    def parse(self, argument: str) -> str:
        """Return the text with `~` expanded at its start and after a comma or a colon.

        Raise ValueError for text that `Text` refuses, or with a name of more than 255 bytes.
        """
        path = _HOME.sub(lambda home: os.path.expanduser(home[0].strip()), super().parse(argument))
        if any(len(name.encode()) > _NAME_BYTES for name in re.split("[/,]", path)):
            raise ValueError(f"a name in it is longer than {_NAME_BYTES} bytes; shorten it")
        return path


class Names(flags.ListParser):
    """A parser of file names with commas between them; one with a comma is in double quotes."""

    def parse(self, argument: str | list[str]) -> list[str]:
        """Return the names, parsed like `Paths`; raise ValueError if one is no file name."""
        return [Paths().parse(name) for name in super().parse(argument)]


_PARSERS = {
    bool: flags.BooleanParser(),
    int: Integer(),
    float: Float(),
    str: Text(),
    Path: Paths(),
}


def parser(field: dataclasses.Field) -> flags.ArgumentParser:
    """Return the parser of the flag of a field, by the type of its default or its metadata `path`.

    Args:
        field: A dataclass field from `setting`.
    """
    return _PARSERS[Path if field.metadata["path"] else type(field.default)]


def define() -> None:
    """Define a global flag for every setting of a training run."""
    for name, field in settings.fields().items():
        text = field.metadata["help"]
        if isinstance(field.default, bool):  # DEFINE_bool also defines --noNAME
            flags.DEFINE_bool(name, field.default, text, flag_values=flags.FLAGS)
        else:
            flags.DEFINE(parser(field), name, field.default, text, flag_values=flags.FLAGS)


def parse(arguments: Sequence[str], takes_names: bool = False) -> list[str]:
    """Set the global flags from a command line and its flagfiles; mark typed ones by `is_typed`.

    Args:
        arguments: The command line; its first argument is the program.
        takes_names: Whether arguments that are not flags are names, such as words.

    Returns:
        The arguments that are not flags.

    Raises:
        UsageError: A flag or a flagfile cannot be read.
    """
    program, *rest = arguments
    expanded, without_files = map(_without_gone, flagfiles.expand(rest))
    typed = copy.deepcopy(flags.FLAGS)
    try:
        typed([program, *without_files])
        others = flags.FLAGS([program, *expanded])[1:]
    except flags.UnrecognizedFlagError as error:
        raise UsageError(_unknown_flag(error.flagname, expanded, takes_names)) from error
    except (flags.Error, LookupError, ValueError) as error:
        raise UsageError(str(error)) from error
    for name in flags.FLAGS:
        flags.FLAGS[name].is_typed = bool(typed[name].present)
    return others


def _without_gone(arguments: Sequence[str]) -> list[str]:
    """Return a command line without empty values of `_GONE`; raise UsageError for others."""
    left = []
    for argument in arguments:
        name, _, value = argument.lstrip("-").partition("=")
        if name not in _GONE or not argument.startswith("-"):
            left.append(argument)
        elif value:
            raise UsageError(f"{argument}: {_GONE[name]}")
    return left


def _unknown_flag(name: str, arguments: Sequence[str], takes_names: bool) -> str:
    """Return the message for a flag, one of `arguments`, that the command does not have."""
    written = (text for text in arguments if text.lstrip("-").partition("=")[0] == name)
    argument = next(written, f"--{name}")
    negated = [f"no{flag}" for flag in flags.FLAGS if flags.FLAGS[flag].boolean]
    after = f"see --help, or write a name that begins with - after --, as in: -- {argument}"
    remedy = meant(name, [*flags.FLAGS, *negated]) or (after if takes_names else "see --help")
    return f"{argument}: no such flag; {remedy}"


def parsed(needs_workdir: bool = True) -> Config:
    """Return the checked settings of this run, from the parsed flags.

    A flag that is not given takes its value from the workdir's `flags.cfg`, if there is one and if
    the value has an effect beside the given flags, else the default of the task. A value from a
    flagfile that has no effect beside the typed flags is left out, with a log message.

    Args:
        needs_workdir: Whether an empty `--workdir` is an error.

    Raises:
        UsageError: A value is not allowed, or does not fit the data in the workdir.
    """
    values = {name: flags.FLAGS[name].value for name in settings.fields()}
    stored = stored_in(values["workdir"])
    given = {name for name in values if flags.FLAGS[name].present}
    task = values["task"] if "task" in given else stored.get("task", values["task"])
    # Settings of another task may not be allowed; `check_fixed` then names the task.
    kept = stored if stored.get("task", task) == task else {}
    values = {"task": task} | kept | {name: values[name] for name in given}
    values = settings.defaults(values) | values
    for name, field in settings.fields().items():
        other, *known = field.metadata["only"] or (name, values[name])
        if name not in given and values[other] not in known:
            values[name] = settings.default(field, values)
    from_files = {name for name in given if not flags.FLAGS[name].is_typed}
    config = _checked(values, from_files, needs_workdir)
    checks.check_fixed(stored, config)
    return config


def _checked(values: dict[str, Any], from_files: set[str], needs_workdir: bool) -> Config:
    """Return the checked settings, with defaults for some flagfile values that have no effect.

    A flagfile value is replaced if it has no effect beside a value that is not from a flagfile,
    such as a typed one. It is logged. Beside another flagfile value it is an error.

    Args:
        values: Flag name -> value; not changed.
        from_files: The names of the flags that only a flagfile gives; not changed.
        needs_workdir: Whether an empty `--workdir` is an error.

    Raises:
        UsageError: Any other value is not allowed, or the values do not fit together.
    """
    values, from_files = dict(values), set(from_files)
    while True:
        config = settings.from_names(values)
        try:
            checks.check(config, needs_workdir)
            return config
        except checks.NoEffectError as error:
            if error.flag not in from_files or error.beside in from_files:
                raise
            logging.info(
                "--%s=%s of a flagfile is ignored: it has no effect with --%s=%s",
                *(error.flag, values[error.flag], error.beside, values[error.beside]),
            )
            from_files.remove(error.flag)
            field = settings.fields()[error.flag]
            values[error.flag] = settings.default(field, values)


def stored_in(path: str | Path) -> dict[str, Any]:
    """Return the settings in the `flags.cfg` of a workdir, without --workdir and unknown flags.

    Args:
        path: The folder; empty for none.

    Returns:
        Flag name -> value, also of newer settings (`before`); empty if the file does not exist.

    Raises:
        UsageError: A value is not allowed for its flag.
    """
    fields, stored = settings.fields(), {}
    texts = workdir.read_flags(workdir.Workdir(path).flags) if path else {}
    for name, text in texts.items():
        if text and name in _GONE:
            raise UsageError(f"{path}/flags.cfg: --{name}={text}: {_GONE[name]}")
        if name in fields and name != "workdir":
            try:
                stored[name] = parser(fields[name]).parse(text)
                wrong = fault(fields[name], stored[name])
            except ValueError as error:
                wrong = str(error)
            if wrong:
                where = f"{path}/flags.cfg: --{name}={text}: {wrong}"
                raise UsageError(f"{where}; mend it, or choose a new --workdir")
    older = {name: field.metadata["before"] for name, field in fields.items()}
    return {name: value for name, value in older.items() if value and stored} | stored


def define_vectors(compares: bool = True) -> None:
    """Define the flags that choose the word vectors of a command.

    Args:
        compares: Whether the command compares words, so that it has --case.
    """
    flags.DEFINE(Paths(), "workdir", "", "The workdir of a trained run.")
    flags.DEFINE(Paths(), "vectors", "", "A file of word2vec or fastText instead of --workdir.")
    if compares:
        cases = ["fold", "exact"]
        flags.DEFINE_enum("case", "fold", cases, "How words are compared: `fold` ignores case.")
    flags.DEFINE(count(0), "restrict", 0, "Use only the first N words. 0 uses all.")


def vectors() -> WordVectors:
    """Load the word vectors that `--workdir` or `--vectors` names. Start TensorFlow if need be.

    Raises:
        UsageError: Not exactly one of the two flags is given, or the file cannot be read.
        RunError: The workdir has no checkpoint that can be read.
    """
    given = flags.FLAGS
    if bool(given.workdir) == bool(given.vectors):
        raise UsageError("give either --workdir=DIR, of a trained run, or --vectors=FILE")
    if not given.vectors or vector_files.needs_tensorflow(given.vectors):
        startup.start_tensorflow()
    if given.vectors:
        return vector_files.read(given.vectors)
    from ..tasks import trained_vectors

    return trained_vectors.load(given.workdir)


def run(main: Callable[[Sequence[str]], None], arguments: bool = False) -> None:
    """Set up the log, parse the flags of `sys.argv`, and call the main function of a command.

    With --help, print the help instead. A failure ends the process with a one-line message: with
    exit code 2 for a UsageError or a missing package, 1 for a RunError, Ctrl-C, a lack of memory or
    a full standard output. Other exceptions are passed on. A closed output pipe is no failure.

    Args:
        main: The function; it is called with the arguments that are not flags.
        arguments: Whether the command takes arguments that are not flags.
    """
    messages.set_up_logging()
    try:
        with messages.checked_output():
            if _HELP & set(itertools.takewhile(lambda text: text != "--", sys.argv[1:])):
                print(help_text.command(_task_of_help(), __name__), flush=True)
                return
            others = parse(sys.argv, arguments)
            if others and not arguments:
                remedy = "write it as --NAME=VALUE, see --help"
                raise UsageError(f"{others[0]!r} is not a flag; {remedy}")
            main(others)
    except BrokenPipeError:  # the reader has closed the pipe, as `| head` does
        messages.drop_output()
    except (UsageError, RunError) as error:
        messages.end(error, error.exit_code)
    except KeyboardInterrupt:
        messages.end("interrupted", StoppedError.exit_code)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == __name__.partition(".")[0]:
            raise
        remedy = 'pip install "lexrow[train]", which has all that the commands need'
        messages.end(f"{error.name} is not installed; {remedy}", UsageError.exit_code)
    except messages.memory_errors() as error:
        messages.end(messages.without_memory(error), 1)


def _task_of_help() -> str:
    """Return the --task given beside `--help`, else ""; raise UsageError only for a wrong task.

    The global flags are set from the command line as far as it can be read.
    """
    if not help_text.has_training_flags():
        return ""
    with contextlib.suppress(UsageError):  # a wrong command line gets its help, too
        parse([argument for argument in sys.argv if argument not in _HELP])
    task = flags.FLAGS["task"].value if flags.FLAGS["task"].present else ""
    if task and (wrong := fault(settings.fields()["task"], task)):
        raise UsageError(f"--task={task}: {wrong}")
    return task
