"""Flags from the fields of the configuration, and how every command ends."""

from __future__ import annotations

import copy
import dataclasses
import logging as std_logging
import math
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from absl import flags, logging

from ..checkpoints import workdir
from ..config import Config, flagfiles, settings
from ..errors import RunError, UsageError
from ..exporting import word2vec_reader
from ..system.console import hide_stderr
from ..types import WordVectors

# A home folder: in front, or behind a comma or a colon, where several files are named.
_HOME = re.compile(r"(?:^|(?<=[,:]))\s*~[^/,:]*")


class Text(flags.ArgumentParser):
    """Takes text that can be written to a file and be the name of one."""

    def parse(self, argument: str) -> str:
        """Return the value; ValueError where it cannot be."""
        if "\0" in argument:
            raise ValueError("a NUL character is in it; leave it out")
        try:
            argument.encode()
        except UnicodeEncodeError as error:
            raise ValueError("it is not UTF-8; give other text, or rename the file") from error
        return argument


class Paths(Text):
    """Takes names of files and folders, and expands `~` as a shell does."""

    def parse(self, argument: str) -> str:
        """Return the value; ValueError where it cannot be."""
        return _HOME.sub(lambda home: os.path.expanduser(home[0].strip()), super().parse(argument))


class Names(flags.ListParser):
    """Takes names between commas; one with a comma in it is between double quotes."""

    def parse(self, argument: str | list[str]) -> list[str]:
        """Return the value; ValueError where it cannot be."""
        return [Paths().parse(name) for name in super().parse(argument)]


class Float(flags.FloatParser):
    """Takes a number between two bounds, of which NaN is outside."""

    def is_outside_bounds(self, val: float) -> bool:
        """Return whether the value is outside."""
        return super().is_outside_bounds(val) or (self.lower_bound is not None and math.isnan(val))


def count(least: int) -> flags.IntegerParser:
    """Return what reads a number of words, items or the like."""
    return flags.IntegerParser(least, settings.MOST_ROWS)


_PARSERS = {
    bool: flags.BooleanParser(),
    int: flags.IntegerParser(),
    float: flags.FloatParser(),
    str: Text(),
    Path: Paths(),
}


def parser(field: dataclasses.Field) -> flags.ArgumentParser:
    """Return what reads the flag of a setting."""
    return _PARSERS[Path if field.metadata["path"] else type(field.default)]


def define() -> None:
    """Define a flag for every setting of a training run."""
    for name, field in settings.fields().items():
        choices = field.metadata["choices"]
        text = field.metadata["help"] + (f" One of {', '.join(choices)}." if choices else "")
        by_task = [f"{task}: {value}" for task, value in field.metadata["by_task"].items()]
        text += f" By default of {', '.join(by_task)}." if by_task else ""
        if isinstance(field.default, bool):  # which has a --noNAME too
            flags.DEFINE_bool(name, field.default, text, flag_values=flags.FLAGS)
        else:
            flags.DEFINE(parser(field), name, field.default, text, flag_values=flags.FLAGS)


def parse(arguments: Sequence[str]) -> list[str]:
    """Parse a command line, whose first argument is the program; return what is no flag.

    Raises:
        UsageError: A flag or a flagfile cannot be read.
    """
    program, *rest = arguments
    expanded, own = flagfiles.expand(rest)
    typed = copy.deepcopy(flags.FLAGS)
    try:
        typed([program, *own])
        others = flags.FLAGS([program, *expanded])[1:]
    except (flags.Error, LookupError, ValueError) as error:
        raise UsageError(str(error)) from error
    for name in flags.FLAGS:
        flags.FLAGS[name].is_typed = bool(typed[name].present)
    return others


def parsed(needs_workdir: bool = True) -> Config:
    """Return the settings of this run, checked.

    A flag that is not given takes the value that the workdir's `flags.cfg` has, if the workdir is
    there already, and if it means anything beside what is given. A value of a flagfile that means
    nothing beside what the person typed is left out, with a note.

    Raises:
        UsageError: A value cannot be, or would change the meaning of what the workdir holds.
    """
    values = {name: flags.FLAGS[name].value for name in settings.fields()}
    stored = stored_in(values["workdir"])
    given = {name for name in values if flags.FLAGS[name].present}
    task = values["task"] if "task" in given else stored.get("task", values["task"])
    for name, field in settings.fields().items():
        if name not in given:
            values[name] = stored.get(name, settings.default(field, task))
    for name, field in settings.fields().items():
        other, *known = field.metadata["only"] or (name, values[name])
        if name not in given and values[other] not in known:
            values[name] = settings.default(field, task)
    from_files = {name for name in given if not flags.FLAGS[name].is_typed}
    config = _checked(values, from_files, needs_workdir)
    values = settings.by_name(config)
    name = settings.changed(stored, values)
    if name:
        raise UsageError(
            f"--{name}={values[name]}: --workdir={values['workdir']} was made with "
            f"{stored[name]}; give that, or a new --workdir"
        )
    return config


def _checked(values: dict[str, Any], from_files: set[str], needs_workdir: bool) -> Config:
    """Check settings, without those of flagfiles that mean nothing beside the others."""
    values, from_files = dict(values), set(from_files)
    while True:
        config = settings.from_names(values)
        try:
            settings.check(config, needs_workdir)
            return config
        except settings.MeansNothing as error:
            if error.flag not in from_files or error.beside in from_files:
                raise
            logging.info(
                "--%s=%s of a flagfile means nothing beside --%s=%s: left out",
                *(error.flag, values[error.flag], error.beside, values[error.beside]),
            )
            from_files.remove(error.flag)
            field = settings.fields()[error.flag]
            values[error.flag] = settings.default(field, values["task"])


def stored_in(path: str | Path) -> dict[str, Any]:
    """Return the settings that the `flags.cfg` of a workdir has, by name; none without the file.

    Raises:
        UsageError: A value is none of its flag.
    """
    fields = settings.fields()
    texts = workdir.read_flags(Path(path) / "flags.cfg") if path else {}
    found = {}
    for name, text in texts.items():
        if name in fields and name != "workdir":
            try:
                found[name] = parser(fields[name]).parse(text)
                wrong = settings.fault(fields[name], found[name])
            except ValueError as error:
                wrong = str(error)
            if wrong:
                where = f"{path}/flags.cfg: --{name}={text}"
                raise UsageError(f"{where}: {wrong}; mend it, or choose a new --workdir")
    return found


def define_vectors() -> None:
    """Defines the flags that say which vectors a command works on."""
    flags.DEFINE(Paths(), "workdir", "", "The folder of a trained run.")
    flags.DEFINE(Paths(), "vectors", "", "A word2vec file, text or binary, instead of --workdir.")
    flags.DEFINE_enum("case", "fold", ["fold", "exact"], "`fold` compares words in lower case.")
    text = "Use the first N words only; 0 uses all."
    flags.DEFINE(count(0), "restrict", 0, text)


def vectors() -> WordVectors:
    """The vectors that --workdir or --vectors names."""
    given = flags.FLAGS
    if bool(given.workdir) == bool(given.vectors):
        raise UsageError("give either --workdir=DIR, of a trained run, or --vectors=FILE")
    if given.vectors:
        return word2vec_reader.read(given.vectors)
    start_tensorflow()  # which a file does without
    from ..tasks import trained_vectors as trained

    return trained.load(given.workdir)


def run(main: Callable[[Sequence[str]], None], arguments: bool = False) -> None:
    """Parses the flags, calls `main` with the other arguments, and exits.

    arguments: whether there may be others. Exit code 0; 2 with one line when a flag or a file is
    not what it should be; 1 with one line when something fails while running.
    """
    _set_up_logging()
    try:
        if {"--help", "-help", "-h"} & set(sys.argv[1:]):
            print(sys.modules["__main__"].__doc__, flags.FLAGS.main_module_help(), sep="\n")
            print(flags.FLAGS.module_help(__name__), flush=True)
            return
        others = parse(sys.argv)
        if others and not arguments:
            raise UsageError(f"{others[0]!r} is no flag; write it as --NAME=VALUE, see --help")
        main(others)
        sys.stdout.flush()
    except BrokenPipeError:  # nobody reads on, as with `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except UsageError as error:
        _end(error, 2)
    except RunError as error:
        _end(error, 1)
    except KeyboardInterrupt:
        _end("interrupted", 1)
    except _memory_errors() as error:
        reason = str(error).partition("\n")[0][:200] or "an allocation failed"
        remedy = "end other programs, or train with a lower --dim or --batch_tokens"
        _end(f"there is not enough memory ({reason}); {remedy}", 1)


def _memory_errors() -> tuple[type[Exception], ...]:
    """Return the errors that Python, and TensorFlow if it is started, raise without memory."""
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is None:
        return (MemoryError,)
    return MemoryError, tensorflow.errors.ResourceExhaustedError


def start_tensorflow() -> None:
    """Imports TensorFlow; what its C++ says of itself meanwhile is shown only if that fails.

    Those notes (which oneDNN, which drivers, which instructions) come before any log level counts.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with hide_stderr():
        import tensorflow

        tensorflow.config.list_physical_devices()


def _set_up_logging() -> None:
    logging.use_absl_handler()
    logging.set_verbosity(logging.INFO)
    handler = logging.get_absl_handler()
    handler.setFormatter(None)  # the message alone
    # TensorFlow's Python logs through absl too, at times in a voice that is nobody's.
    handler.addFilter(
        lambda record: record.levelno >= std_logging.WARNING or "tensorflow" not in record.pathname
    )
    # A checkpoint that cannot be loaded is reported in one line. TensorFlow would add a line for
    # every variable that it had not read by then.
    unread = (
        "Value in checkpoint could not be found",
        "Detecting that an object or model or tf.train.Checkpoint is being deleted",
    )
    std_logging.getLogger("tensorflow").addFilter(
        lambda record: not record.getMessage().startswith(unread)
    )


def _end(error: object, code: int) -> None:
    text = " ".join(f"{Path(sys.argv[0]).stem}: {error}".splitlines())
    # What a terminal would take for a command, or cannot show, is written as an escape.
    shown = (char if char.isprintable() else repr(char)[1:-1] for char in text)
    print("".join(shown), file=sys.stderr)
    sys.stderr.flush()
    sys.exit(code)
