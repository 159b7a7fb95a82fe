"""Flags from the fields of the configuration, and how every command ends."""

from __future__ import annotations

import logging as std_logging
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from absl import flags, logging

from app import settings
from app.config import Config
from app.console import hushed
from app.errors import RunError, UsageError
from app.exporting import word2vec_reader
from app.training import workdir
from app.types import WordVectors

_DEFINE = {
    bool: flags.DEFINE_bool,
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    str: flags.DEFINE_string,
}


def define() -> None:
    """Defines a flag for every setting of a training run."""
    for name, field in settings.fields().items():
        choices = field.metadata["choices"]
        text = field.metadata["help"] + (f" One of {', '.join(choices)}." if choices else "")
        by_task = [f"{task}: {value}" for task, value in field.metadata["by_task"].items()]
        text += f" By default of {', '.join(by_task)}." if by_task else ""
        _DEFINE[type(field.default)](name, field.default, text)


def parsed(needs_workdir: bool = True) -> Config:
    """The settings of this run, checked.

    A flag that is not given takes the value that the workdir's `flags.cfg` has, if the workdir is
    there already, and if it means anything beside what is given. UsageError for a value that
    cannot be, and for one that would change the meaning of what the workdir holds.
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
    config = settings.from_names(values)
    settings.check(config, needs_workdir)
    name = settings.changed(stored, values)
    if name:
        raise UsageError(
            f"--{name}={values[name]}: --workdir={values['workdir']} was made with "
            f"{stored[name]}; give that, or a new --workdir"
        )
    return config


def stored_in(path: str | Path) -> dict[str, Any]:
    """The settings that the `flags.cfg` of a workdir has, by name; none if there is no such file.

    UsageError for a value that is none of its flag.
    """
    fields = settings.fields()
    texts = workdir.read_flags(Path(path) / "flags.cfg") if path else {}
    parsers = {
        bool: flags.BooleanParser(),
        int: flags.IntegerParser(),
        float: flags.FloatParser(),
        str: flags.ArgumentParser(),
    }
    found = {}
    for name, text in texts.items():
        if name in fields and name != "workdir":
            try:
                found[name] = parsers[type(fields[name].default)].parse(text)
            except ValueError as error:
                where = f"{path}/flags.cfg: --{name}={text}"
                raise UsageError(f"{where}: {error}; mend it, or choose a new --workdir") from error
    return found


def define_vectors() -> None:
    """Defines the flags that say which vectors a command works on."""
    flags.DEFINE_string("workdir", "", "The folder of a trained run.")
    flags.DEFINE_string("vectors", "", "A word2vec file, text or binary, instead of --workdir.")
    flags.DEFINE_enum("case", "fold", ["fold", "exact"], "`fold` compares words in lower case.")
    flags.DEFINE_integer("restrict", 0, "Use the first N words only; 0 uses all.", lower_bound=0)


def vectors() -> WordVectors:
    """The vectors that --workdir or --vectors names."""
    given = flags.FLAGS
    if bool(given.workdir) == bool(given.vectors):
        raise UsageError("give either --workdir=DIR, of a trained run, or --vectors=FILE")
    if given.vectors:
        return word2vec_reader.read(given.vectors)
    start_tensorflow()  # which a file does without
    from app.training import vectors as trained

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
        others = flags.FLAGS(sys.argv)[1:]
        if others and not arguments:
            raise UsageError(f"{others[0]!r} is no flag; write it as --NAME=VALUE, see --help")
        main(others)
        sys.stdout.flush()
    except BrokenPipeError:  # nobody reads on, as with `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (flags.Error, UsageError) as error:
        _end(error, 2)
    except RunError as error:
        _end(error, 1)
    except KeyboardInterrupt:
        _end("interrupted", 1)


def start_tensorflow() -> None:
    """Imports TensorFlow; what its C++ says of itself meanwhile is shown only if that fails.

    Those notes (which oneDNN, which drivers, which instructions) come before any log level counts.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with hushed():
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


def _end(error: object, code: int) -> None:
    print(f"{Path(sys.argv[0]).stem}: {error}".replace("\n", " "), file=sys.stderr)
    sys.stderr.flush()
    sys.exit(code)
