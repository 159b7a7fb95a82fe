"""The flags of the commands, and how every command starts and ends.

The flags of a training run come from the fields of `lexrow.settings`, one flag for each field.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import errno
import itertools
import logging as std_logging
import os
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from absl import flags, logging

from ..checkpoints import workdir
from ..errors import RunError, StoppedError, UsageError, missing_package
from ..settings import Config, checks, flag_values, flagfiles, setting
from ..settings.flag_values import GONE, meant
from ..settings.setting import as_text
from ..system.files import remedy
from ..tasks import trained_vectors
from ..text import vector_files
from ..types import WordVectors
from . import startup

_HELP = {"--help", "-help", "-h"}
_OUTPUT_ERRORS = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EIO}


class Parser(flags.ArgumentParser):
    """A parser of the value of a flag.

    Args:
        field: The rules of the value, from `setting`.
        checks: Whether to refuse a value that the rules do not allow.
    """

    def __init__(self, field: dataclasses.Field, checks: bool = True):
        self.field, self._checks = field, checks

    def __deepcopy__(self, memo: Any) -> Parser:
        return self  # with its field, which cannot be copied

    def parse(self, argument: Any) -> Any:
        """Return the value of a text; raise ValueError, with the remedy, if it is none."""
        if not isinstance(argument, str):  # a default
            return argument
        value = setting.parse(self.field, argument)
        wrong = setting.fault(self.field, value) if self._checks else None
        if wrong:
            raise ValueError(wrong)
        return value


class Names(flags.ListParser):
    """A parser of file names with commas between them; one with a comma is in double quotes."""

    def parse(self, argument: str | list[str]) -> list[str]:
        """Return the names; raise ValueError if one is no file name."""
        return [setting.expand_home(name) for name in super().parse(argument)]


def make_parser(default: Any, help: str = "", **rules: Any) -> Parser:
    """Return the parser of values of the type of a default.

    Args:
        default: The value of the flag when it is not given.
        rules: See `setting.setting`.
    """
    field = setting.setting(default, help, **rules)
    field.type = type(default).__name__
    return Parser(field)


def define(name: str, default: Any, help: str, **rules: Any) -> None:
    """Define a global flag, whose type is that of its default.

    Args:
        default: The value when it is not given.
        rules: See `setting.setting`.
    """
    _add(name, default, make_parser(default, help, **rules))


def define_settings() -> None:
    """Define a global flag for every setting of a training run, of any task."""
    for name, field in flag_values.fields().items():
        _add(name, field.default, Parser(field, checks=False))


def _add(name: str, default: Any, parser: Parser) -> None:
    """Add a global flag; that of a bool also has the form --noNAME."""
    flag: flags.Flag = flags.Flag(parser, None, name, default, parser.field.metadata["help"])
    flag.boolean = parser.field.type == "bool"
    flags.FLAGS[name] = flag


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
    expanded, without_files = flagfiles.expand(rest)
    typed = copy.deepcopy(flags.FLAGS)
    try:
        typed([program, *without_files])
        others = flags.FLAGS([program, *expanded])[1:]
    except flags.UnrecognizedFlagError as error:
        raise UsageError(_unknown_flag(error.flagname, expanded, takes_names)) from error
    except (flags.Error, LookupError, ValueError) as error:
        raise UsageError(str(error).removeprefix("flag ")) from error  # as other messages begin
    for name in flags.FLAGS:
        flags.FLAGS[name].is_typed = bool(typed[name].present)
    return others


def _unknown_flag(name: str, arguments: Sequence[str], takes_names: bool) -> str:
    """Return the message for a flag, one of `arguments`, that the command does not have."""
    written = (text for text in arguments if text.lstrip("-").partition("=")[0] == name)
    argument = next(written, f"--{name}")
    if name in GONE:
        return f"{argument}: {GONE[name]}"
    negated = [f"no{flag}" for flag in flags.FLAGS if flags.FLAGS[flag].boolean]
    after = f"see --help, or write a name that begins with - after --, as in: -- {argument}"
    remedy = meant(name, [*flags.FLAGS, *negated]) or (after if takes_names else "see --help")
    return f"{argument}: no such flag; {remedy}"


def parsed() -> Config:
    """Return the checked settings of this run, from the parsed flags.

    A flag that is not given takes its value from the workdir's `flags.cfg`, if there is one, else
    the default of the task. Values of the workdir or of a flagfile that have no effect are left
    out, with a log message for those of a flagfile. A typed one is an error.

    Raises:
        UsageError: A value is not allowed, or does not fit the data in the workdir, or --workdir is
            empty.
    """
    known = (name for name in flag_values.fields() if flags.FLAGS[name].present)
    given = {name: flags.FLAGS[name].value for name in known}
    typed = {name for name in given if flags.FLAGS[name].is_typed}
    stored = workdir.read_settings(given.get("workdir", ""))
    config = checks.combine(given, stored, typed)
    checks.check_workdir(config.run)
    return config


def define_vectors(compares: bool = True) -> None:
    """Define the flags of `vectors`: --workdir, --vectors, --restrict and, to compare, --case.

    Args:
        compares: Whether the command compares words, so that it has --case.
    """
    define("workdir", "", "The workdir of a trained run.", path=True)
    define("vectors", "", "A file of word2vec or fastText instead of --workdir.", path=True)
    if compares:
        cases = ("fold", "exact")
        define("case", "fold", "How words are compared: `fold` ignores case.", choices=cases)
    define("restrict", 0, "Use only the first N words. 0 uses all.", bounds=(0, setting.MOST_ROWS))


def vectors() -> WordVectors:
    """Load the word vectors that `--workdir` or `--vectors` names. Start TensorFlow if need be.

    Raises:
        UsageError: Not exactly one of the two flags is given, or the file cannot be read.
        RunError: The workdir has no checkpoint that can be read.
    """
    given = flags.FLAGS
    if bool(given.workdir) == bool(given.vectors):
        raise UsageError("give either --workdir=DIR, of a trained run, or --vectors=FILE")
    if given.vectors:
        return vector_files.read(given.vectors)
    if trained_vectors.needs_tensorflow(given.workdir):
        startup.start_tensorflow()
    return trained_vectors.load(given.workdir)


def run(
    main: Callable[[Sequence[str]], None],
    arguments: bool = False,
    remedy: str = "write it as --NAME=VALUE, see --help",
) -> None:
    """Set up the log, parse the flags of `sys.argv`, and call the main function of a command.

    With --help, print the help instead. A failure ends the process with a one-line message: with
    exit code 2 for a UsageError or a missing package, 1 for a RunError, Ctrl-C, a lack of memory or
    a full standard output. Other exceptions are passed on. A closed output pipe is no failure.

    Args:
        main: The function; it is called with the arguments that are not flags.
        arguments: Whether the command takes arguments that are not flags.
        remedy: What to do instead, where it takes none.
    """
    set_up_logging()
    try:
        with checked_output():
            if _HELP & set(itertools.takewhile(lambda text: text != "--", sys.argv[1:])):
                print(help_text(_task_of_help()), flush=True)
                return
            others = parse(sys.argv, arguments)
            if others and not arguments:
                raise UsageError(f"{others[0]!r} is not a flag; {remedy}")
            main(others)
    except BrokenPipeError:  # the reader has closed the pipe, as `| head` does
        _drop_output()
    except (UsageError, RunError) as error:
        _end(error, error.exit_code)
    except KeyboardInterrupt:
        _end("interrupted", StoppedError.exit_code)
    except ModuleNotFoundError as error:
        message = missing_package(error)
        if not message:
            raise
        _end(message, UsageError.exit_code)
    except _memory_errors() as error:
        _end(_without_memory(error), 1)


def _task_of_help() -> str:
    """Return the --task beside `--help`, "" if there is none; raise UsageError for a wrong one.

    The global flags are set from the command line as far as it can be read.
    """
    if "task" not in flags.FLAGS:
        return ""
    with contextlib.suppress(UsageError):  # a wrong command line gets its help, too
        parse([argument for argument in sys.argv if argument not in _HELP])
    task = flags.FLAGS["task"].value
    if task not in flag_values.TASKS:
        raise UsageError(f"--task={task}: not one of {', '.join(flag_values.TASKS)}")
    return task


def set_up_logging() -> None:
    """Set up the log of this process: the messages of this package, and warnings of others."""
    logging.use_absl_handler()
    logging.set_verbosity(logging.INFO)
    handler = logging.get_absl_handler()
    handler.setFormatter(None)  # the message alone
    # TensorFlow's Python code logs through absl too. Its notes are not about the command.
    package = f"{Path(__file__).parents[1]}{os.sep}"
    handler.addFilter(
        lambda record: record.levelno >= std_logging.WARNING or record.pathname.startswith(package)
    )


@contextlib.contextmanager
def checked_output() -> Iterator[None]:
    """Raise RunError if standard output cannot be written in the block.

    An error of a full or failing disk without a file name is taken for one of standard output:
    others are converted where a file is written. A standard stream that is closed, as by `>&-`,
    becomes the null device: Python sets it to None, and the next file that is opened would get its
    descriptor.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        if error.filename is not None or error.errno not in _OUTPUT_ERRORS:
            raise
        advice = f"{remedy(error)}, or send the output elsewhere"
        raise RunError(f"cannot write standard output: {error.strerror}; {advice}") from error


def _drop_output() -> None:
    """Let standard output end in the null device, so that Python can flush it when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _end(error: object, code: int) -> None:
    """Print the command and an error to standard error, in one line, and exit the process.

    Line breaks become blanks, and other characters that cannot be printed become escapes. Standard
    output is written before; if it cannot be, the rest of it is dropped.

    Args:
        error: The exception or the message.
    """
    try:
        sys.stdout.flush()
    except OSError:  # `error` came first, or says this
        _drop_output()
    text = " ".join(f"{Path(sys.argv[0]).stem}: {error}".splitlines())
    # A character that a terminal cannot show, or takes for a command, is written as an escape.
    shown = (char if char.isprintable() else repr(char)[1:-1] for char in text)
    print("".join(shown), file=sys.stderr)
    sys.stderr.flush()
    sys.exit(code)


def _memory_errors() -> tuple[type[Exception], ...]:
    """Return the errors that Python and TensorFlow raise without memory; do not import TensorFlow.

    TensorFlow's error is left out if TensorFlow is not imported.
    """
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is None:
        return (MemoryError,)
    return MemoryError, tensorflow.errors.ResourceExhaustedError


def _without_memory(error: Exception) -> str:
    """Return the message for one of the `_memory_errors`.

    Args:
        error: The error; the first line of its message is quoted.
    """
    reason = str(error).partition("\n")[0][:200] or "an allocation failed"
    less, tensorflow = "train with a lower --dim or --batch_tokens", sys.modules.get("tensorflow")
    advice = f"end other programs, or {less}"
    is_of_tensorflow = tensorflow and not isinstance(error, MemoryError)
    if is_of_tensorflow and tensorflow.config.list_physical_devices("GPU"):
        advice = (
            f"end other programs on the GPU, which nvidia-smi lists, or {less}, or with "
            "--table=host and less --device_memory"
        )
    return f"there is not enough memory ({reason}); {advice}"


_WIDTH = 88


def help_text(task: str) -> str:
    """Return the help of the running command: its docstring, its own flags, and those of a run.

    Args:
        task: The value of `--task`; empty for a command without the flags of a training run.
    """
    hidden = set(flag_values.fields()) if task else set()
    for module, known in flags.FLAGS.flags_by_module_dict().items():
        hidden |= {flag.name for flag in known if module.startswith(("absl.", "tensorflow."))}
    own = []
    for flag in (flags.FLAGS[name] for name in flags.FLAGS):
        if flag.name not in hidden:
            field = getattr(flag.parser, "field", None)
            rules = field.metadata if field else {"help": flag.help}
            own.append(_flag(flag.name, flag.default, rules))
    texts = [str(sys.modules["__main__"].__doc__), *(["\n".join(["Flags:", *own])] if own else [])]
    return "\n\n".join(text.strip("\n") for text in (*texts, *training_flags(task)))


def training_flags(task: str) -> list[str]:
    """Return the help of the flags of a task by the dataclasses that define them; none for ""."""
    if not task:
        return []
    kind, groups = flag_values.TASKS[task], {}
    fields, usual = flag_values.fields_of(kind), flag_values.defaults({"task": task})
    for section in vars(kind()).values():
        for group in reversed(type(section).__mro__):
            names = [name for name in vars(group).get("__annotations__", ()) if name in fields]
            title = group.__name__.removesuffix("Config")
            shown = [_flag(name, usual[name], fields[name].metadata, fields) for name in names]
            groups[title] = "\n".join([f"{title}:", *shown]) if shown else ""
    for title in ("Distribution", "Profile"):  # few runs need them
        groups[title] = groups.pop(title)
    others = ", ".join(other for other in flag_values.TASKS if other != task)
    last = f"These are the flags of --task={task}. Others: {others}; give one beside --help."
    return [*filter(None, groups.values()), textwrap.fill(last, _WIDTH)]


def _flag(
    name: str, default: Any, rules: Mapping[str, Any], fields: flag_values.Fields | None = None
) -> str:
    """Return the wrapped lines of one flag: name, help, choices, default, and what it needs."""
    lines, choices = [rules["help"]], rules.get("choices")
    if choices:
        lines.append(f"One of: {', '.join(choices)}.")
    shown = ",".join(map(str, default)) if isinstance(default, list) else as_text(default)
    lines.append(f"Default: {'empty' if shown in ('', 'None') else shown}.")
    for other in flag_values.NEEDS.get(name, ()) if fields else ():
        values = flag_values.needed(name, other, fields)
        lines.append(f"Only with {' or '.join(f'--{other}={value}' for value in values)}.")
    indent = " " * 6
    wrapped = [
        textwrap.fill(
            text, _WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
        )
        for text in lines
    ]
    return "\n".join([f"  --{'[no]' if isinstance(default, bool) else ''}{name}", *wrapped])
