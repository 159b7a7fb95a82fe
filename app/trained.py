"""Train from Python: the texts that a program gives, the settings by name, and the result."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import inspect
import itertools
import logging
import numbers
import os
import re
import secrets
import shutil
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO, TypeVar

from absl import logging as absl_logging

from . import exporting
from .checkpoints.checkpoint import newest_position
from .checkpoints.workdir import Workdir, read_settings
from .cli import startup
from .errors import RunError, StoppedError, UsageError, missing_package
from .exporting import FORMATS
from .settings import Config, flag_values, flagfiles
from .settings.checks import combine, typed_values
from .settings.setting import fault, parse
from .system import console, signals
from .system.files import check_path, replacing
from .tasks import trained_vectors
from .text.columns import list_columns
from .text.corpus import MissingError, check_files
from .text.fasttext import model_file
from .text.vocabulary import join_words
from .types import WordVectors

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The file of a workdir with the texts that a program gave.
_TEXTS = "texts.txt"

# Settings that say how a command ends or what it prints, and those that have an argument.
_OF_COMMANDS = frozenset({"task", "workdir", "corpus", "plan_only", "data_dir"})
# Settings that people change most, which a signature names first.
_FIRST = frozenset({"dim", "epochs", "learning_rate", "loss", "min_count", "seed", "window"})
_PREFIX = "lexrow-"
_LONGEST_PATH = 1 << 16  # characters, of all paths with the commas between them
_FLAG = re.compile(r"(`[^`]*`)|--([a-z][a-z0-9_]*)")  # in a message, but not in its commands
# By task, the class of what a program gets.
_KINDS = {"words": "Words", "classify": "Texts", "recommend": "Items", "language_model": "Language"}


def takes_settings(task: str) -> Callable[[Callable], Callable]:
    """Return a decorator that shows the settings of a task in the signature of a function.

    The function takes them as `**settings`; `help()` then lists each with its type and default.
    """

    def decorate(function: Callable) -> Callable:
        """Set the signature of the function, and return it."""
        own = inspect.signature(function)
        parameters = [one for one in own.parameters.values() if one.kind != one.VAR_KEYWORD]
        usual = inspect.Parameter("preset", inspect.Parameter.KEYWORD_ONLY, default="")
        parameters.append(usual.replace(annotation="str"))
        taken = {one.name for one in parameters} | _OF_COMMANDS
        fields = flag_values.fields_of(flag_values.TASKS[task])
        defaults = flag_values.defaults({"task": task})
        for name in sorted(fields.keys() - taken, key=lambda name: (name not in _FIRST, name)):
            kind, default = inspect.Parameter.KEYWORD_ONLY, defaults[name]
            parameter = inspect.Parameter(name, kind, default=default)
            number = fields[name].metadata["numbers"]
            more = f" | {number.__name__} | Sequence[{number.__name__}]" if number else ""
            parameters.append(parameter.replace(annotation=f"{fields[name].type}{more}"))
        function.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        return function

    return decorate


class Run:
    """The workdir of a run that a Python program trains or has loaded.

    Args:
        path: The workdir. None: a temporary one, which is deleted with this object.
    """

    def __init__(self, path: str | os.PathLike[str] | None):
        if path is not None and os.path.isfile(check_path(path, "workdir")):
            raise NotADirectoryError(f"workdir={os.fspath(path)} is a file; name a folder")
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX) if path is None else path)
        self._written: dict[Path, _Written] = {}  # see `undoing`
        self._deletion: weakref.finalize | None = None
        if path is None:
            self._deletion = weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)

    def __reduce__(self) -> tuple:
        """Return what pickle and copy need: the files that a trained model is loaded from."""
        paths = self.workdir.model_files()
        files = {os.fspath(path.relative_to(self.path)): path.read_bytes() for path in paths}
        return _with_files, (files,)

    @property
    def workdir(self) -> Workdir:
        """The workdir."""
        return Workdir(self.path)

    @property
    def config(self) -> Any:
        """The settings of the run, of the class of its task."""
        with argument_names():
            return flag_values.from_names(read_settings(self.path))

    def config_of(self, task: str) -> Any:
        """Return the settings of the run.

        Raises:
            ValueError: The run is of another task, or there is none.
        """
        with argument_names():
            startup.check_task(self.path, read_settings(self.path), task)
        return self.config

    @property
    def epochs(self) -> int:
        """The epochs that the run has completed."""
        position = newest_position(self.workdir.checkpoints)
        return position.epoch if position else 0

    def corpus(
        self, texts: Any, argument: str = "corpus", wanted: str = "texts, as in [text]"
    ) -> tuple[str, bool]:
        """Return the value of --corpus for the texts of a program, and whether these are tokens.

        Texts that are in no file are written to one in the workdir, as every epoch reads them and
        so does a run that goes on. They are read once. A line break in a text becomes a blank, and
        a blank in a token the sign that joins phrases, as in `new_york`.

        Args:
            texts: A string is a value of --corpus, which names files; a path is a file. An iterable
                has texts, lists or arrays of tokens, or paths.
            argument: The name of the argument, for messages.
            wanted: What the list has that a message asks for.

        Raises:
            ValueError: There is no text, or an item is neither a text nor a list of tokens.
        """
        if isinstance(texts, str) and not _may_be_paths(texts):
            raise ValueError(
                f"{argument} is a text of {len(texts):,} characters, and not a path; give a list "
                f"of {wanted}"
            )
        if isinstance(texts, str):
            return texts, False
        if isinstance(texts, os.PathLike):
            return os.fspath(texts), False
        if not isinstance(texts, Iterable) or isinstance(texts, Mapping):
            raise ValueError(f"{argument} is {type(texts).__name__}; give a path or texts")
        items = iter(column_of(texts, argument))
        first = next(items, None)
        if first is None:
            raise ValueError(f"{argument} has no text; give at least one")
        items = itertools.chain([first], items)
        if isinstance(first, os.PathLike):
            return ",".join(map(os.fspath, items)), False
        if isinstance(first, str) and os.path.splitext(first)[1] and os.path.isfile(first):
            raise ValueError(
                f"{argument}[0]={first!r} names a file; give pathlib.Path({first!r}) to read it"
            )
        path = self.path / _TEXTS
        is_tokens = not isinstance(first, str)
        with self.writing(_TEXTS, argument) as file:
            for place, item in enumerate(given_items(items)):
                file.write(_line(item, is_tokens, f"{argument}[{place}]"))
        return os.fspath(path), is_tokens

    @contextlib.contextmanager
    def writing(self, name: str, argument: str) -> Iterator[TextIO]:
        """Yield a new file of the workdir, as `writing` does; no other run may be there.

        Args:
            name: The name of the file.
            argument: The name of the argument that it has, for messages.

        Raises:
            ValueError: Another run is being trained in the workdir, or it cannot be written.
        """
        path, earlier = self.path / name, None
        with argument_names(), self.workdir.lock():
            with writing(path) as file:
                yield file
                if path in self._written:
                    earlier = self._written[path].earlier
                elif path.exists():
                    earlier = self.path / f"{name}.{secrets.token_hex(4)}.earlier"
                    shutil.copy2(path, earlier)
            self._written[path] = _Written(_identity(path), earlier, argument)

    @contextlib.contextmanager
    def undoing(self) -> Iterator[None]:
        """Undo what `writing` has written in the block if it refuses to train on that.

        The earlier files stay until the block ends. They are not put back if training was stopped
        or failed (RunError), or has begun, as it goes on with the new ones; nor if another run is
        being trained in the workdir.
        """
        outer, self._written = self._written, {}
        flags = _identity(self.workdir.flags)
        try:
            yield
        except RunError:
            raise
        except Exception:
            with contextlib.suppress(UsageError), self.workdir.lock():
                if _identity(self.workdir.flags) == flags:  # training writes them when it begins
                    self._put_back()
            raise
        finally:
            for _, earlier, _ in self._written.values():
                if earlier:
                    earlier.unlink(missing_ok=True)
            self._written = outer

    def _put_back(self) -> None:
        """Put the earlier files back, but where another run has written its own since."""
        for path, (identity, earlier, _) in self._written.items():
            if _identity(path) == identity:
                path.unlink(missing_ok=True)
                if earlier:
                    os.replace(earlier, path)

    def config_with(self, **values: Any) -> Any:
        """Return the settings of the run with other values; raise ValueError for wrong ones."""
        with argument_names():
            stored = read_settings(self.path)
            typed = typed_values(values, stored.get("task", "words"))
            for name, value in typed.items():
                if wrong := fault(flag_values.fields()[name], value):
                    raise UsageError(f"{name}={value}: {wrong}")
            return flag_values.from_names({**stored, **typed})

    def settings(self, task: str, given: Mapping[str, Any], corpus: str = "") -> Config:
        """Return the settings of training, with those of the workdir where none are given.

        Raises:
            ValueError: A setting is not possible.
        """
        for name in given.keys() & _OF_COMMANDS:
            raise ValueError(f"{name} is no setting of this function; leave it out")
        own = {"task": task, "workdir": str(self.path), **({"corpus": corpus} if corpus else {})}
        with argument_names():
            stored = read_settings(self.path)
            usual = _preset(given["preset"], task) if given.get("preset") else {}
            typed = typed_values({name: given[name] for name in given if name != "preset"}, task)
            values = {**usual, **own, **typed}
            config = combine(values, stored, {*own, *typed})
        return dataclasses.replace(config, run=dataclasses.replace(config.run, workdir=""))

    def train(
        self,
        task: str,
        corpus: str,
        settings: Mapping[str, Any],
        verbose: bool | None = None,
        argument: str = "corpus",
    ) -> None:
        """Train a task in this workdir, from its newest checkpoint if it has one.

        Args:
            corpus: Value of --corpus.
            settings: Flag name -> value.
            verbose: Whether progress is shown, see `console.progress`.
            argument: How messages name the corpus.

        Raises:
            ValueError: A setting is not possible, or the corpus cannot be used.
            RunError: Training failed.
            KeyboardInterrupt: Ctrl-C stopped it, and what was trained is kept.
        """
        config = self.settings(task, settings, corpus)
        names = {str(path): written.argument for path, written in self._written.items()}
        with argument_names(names, {"corpus": argument}), console.progress(verbose):
            check_files(corpus)  # before the seconds that TensorFlow takes to start
            start_tensorflow()
            from .system import devices
            from .training.run import train_and_evaluate

            if settings.get("intra_op_threads"):  # of the whole process, so only on request
                devices.use_machine(config.run)

            try:
                train_and_evaluate(config, self.path, is_quiet=True)
            except StoppedError:
                if self._deletion:
                    self._deletion.detach()  # the folder stays, also after the program
                path, is_begun = str(self.path), self.workdir.flags.exists()
                kept = f"what was trained is kept: lexrow.load({path!r})"
                if not is_begun:
                    kept = f"the search is kept; the same call with workdir={path!r} goes on"
                raise KeyboardInterrupt(kept) from None


def train_on_text(
    task: str,
    corpus: Any,
    workdir: str | os.PathLike[str] | None,
    settings: Mapping[str, Any],
    verbose: bool | None,
) -> Run:
    """Train a task on running text, which is split at white space if lists of tokens are given."""
    run = Run(workdir)
    run.settings(task, settings)  # refuses a wrong one before anything is read
    with run.undoing():
        value, is_tokens = run.corpus(corpus)
        if is_tokens:
            settings = {"tokenizer": "whitespace", **settings}
        run.train(task, value, settings, verbose)
    return run


class _Written(NamedTuple):
    """A file of what a program gave: which it is, a copy of the one before, and the argument."""

    identity: tuple[int, int] | None
    earlier: Path | None
    argument: str


def _identity(path: Path) -> tuple[int, int] | None:
    """Return what tells a file from those that replace it; None if there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns


def _may_be_paths(value: str) -> bool:
    """Return whether a value of --corpus is short, on one line, or names a file."""
    if "\n" not in value and len(value) <= _LONGEST_PATH:
        return True
    parts = value[:_LONGEST_PATH].split(",")
    return any(os.path.isfile(os.path.expanduser(part.strip(' \r\n"'))) for part in parts)


def _preset(name: str, task: str) -> dict[str, Any]:
    """Return the settings of an example of `lexrow train --preset`, without its corpus.

    Raises:
        UsageError: There is no such example, or it is one of another task.
    """
    texts = flagfiles.values(flagfiles.read(flagfiles.preset(name)))
    texts.pop("corpus", None)
    of_task = texts.pop("task", "words")
    if of_task != task:
        raise UsageError(f"--preset={name}: an example of task={of_task}, not of {task}")
    fields = flag_values.fields_of(flag_values.TASKS[task])
    return {flag: parse(fields[flag], text) for flag, text in texts.items()}


def _with_files(files: Mapping[str, bytes]) -> Run:
    """Return a run in a temporary workdir of these files, by their paths in it."""
    run = Run(None)
    for name, content in files.items():
        (run.path / name).parent.mkdir(parents=True, exist_ok=True)
        (run.path / name).write_bytes(content)
    return run


def load_run(kind: type, run: Run, options: Mapping[str, Any] | None = None) -> Any:
    """Return what a program gets of a run, such as `Words`, loaded with options."""
    return kind.load(run.path, run, **options or {})  # type: ignore[attr-defined]


R = TypeVar("R", bound="Result")


class Result:
    """A trained model: the run that made it, and its pictures."""

    _run: Run | None
    _OURS: Mapping[str, str] = {}  # by a name of another library, what to write here

    if not TYPE_CHECKING:  # so that a checker of types knows which attributes there are

        def __getattr__(self, name: str) -> Any:
            """Raise AttributeError, which names ours for a name of another library."""
            if name in self._OURS:
                kind = type(self).__name__
                raise AttributeError(f"{kind} has no attribute {name!r}; use {self._OURS[name]}")
            return object.__getattribute__(self, name)  # raises the error

    @classmethod
    def load(cls: type[R], path: str | os.PathLike[str], run: Run | None = None) -> R:
        """Load the model of a workdir.

        Args:
            path: The workdir.
            run: The run of the workdir, if it is open already.

        Raises:
            FileNotFoundError: There is no such folder.
            ValueError: The workdir has no such model.
            RunError: The workdir has no checkpoint that can be read.

        Example:
            >>> Items.load(items.workdir)
            <Items: 12 items, 24 users>
        """
        check_there(path)
        with argument_names():
            return cls(run or Run(path))  # type: ignore[call-arg]

    @property
    def workdir(self) -> str | None:
        """The folder of the run; None for a file of another library."""
        return os.fspath(self._run.path) if self._run else None

    def __reduce__(self) -> tuple:
        if self._run is None:
            raise TypeError("this is a file of another library; load it where it is used")
        return load_run, (type(self), self._run)

    def report(self) -> Figure:
        """Draw the loss, the scores, the speed and the learning rate of the run over its steps.

        It needs matplotlib; `figure.savefig("run.png")` writes what it returns.

        Raises:
            ValueError: The run has no metrics, as that of a file of another library.
            ImportError: matplotlib is not installed.

        Example:
            >>> words.report().savefig("run.png")
        """
        from .tasks.pictures import report

        if self._run is None:
            raise ValueError("this is a file, and its training is not known; train or load a run")
        return report(self._run.workdir.metrics, repr(self))


def start_tensorflow() -> None:
    """Import TensorFlow without the messages of its C++ code, if the program has not done it.

    A program with several threads gets the first of them, as standard error could only be hidden
    for the whole process; but the threads of a notebook are its own.
    """
    if "tensorflow" in sys.modules:
        return
    startup.store_programs()
    startup.set_variables()
    # Our bars start the monitor of tqdm, which writes nothing by itself.
    others = [one for one in threading.enumerate() if type(one).__name__ != "TMonitor"]
    if len(others) == 1 or console.is_notebook():
        with signals.interrupted_after():  # a half-imported TensorFlow cannot be imported again
            startup.start_tensorflow()


@contextlib.contextmanager
def writing(path: Path) -> Iterator[TextIO]:
    """Yield a new file of UTF-8, which replaces the file of this name if the block succeeds.

    Raises:
        RunError: The file cannot be written.
    """
    try:
        with (
            replacing(path) as temporary,
            open(temporary, "w", encoding="utf-8", errors="replace", newline="") as file,
        ):
            yield file
    except _SourceError as error:
        raise error.__cause__ from None


class _SourceError(Exception):
    """Its cause is what an iterable of the program raised, which may be an OSError, too."""


def given_items(items: Iterable[Any]) -> Iterator[Any]:
    """Yield the items of a program within `writing`, which raises an error of theirs as it is."""
    try:
        yield from items
    except Exception as error:
        raise _SourceError from error


def table_columns(table: Any) -> list[str] | None:
    """Return the names of the columns of a table of pandas or pyarrow; None for anything else."""
    if hasattr(table, "itertuples"):
        return list(table.columns)
    names = getattr(table, "column_names", None)  # None also of a stream that does not know them
    return None if names is None else list(names)


def table_rows(table: Any, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a table of pandas or pyarrow, of some of its columns."""
    if hasattr(table, "itertuples"):
        yield from table[list(names)].itertuples(index=False, name=None)
        return
    for batch in table.select(list(names)).to_batches():
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def load(
    path: str | os.PathLike[str], *, limit: int = 0, dtype: str = "float32", tokenizer: str = ""
) -> Any:
    """Load what a workdir or a file of vectors holds.

    Args:
        path: The workdir of a run, a file of word vectors (word2vec, GloVe, fastText, or one of
            `Words.export`), or a classifier of fastText.
        limit: For word vectors, see `Words.load`; likewise `dtype` and `tokenizer`.

    Returns:
        `Words`, `Texts`, `Items` or `Language`.

    Raises:
        FileNotFoundError: There is no such file or folder.
        ValueError: The file is of no such kind, or the workdir has no run.
        RunError: The workdir has no checkpoint that can be read.

    Example:
        >>> words.export("vectors.bin", "word2vec_binary")
        >>> load("vectors.bin")
        <Words: 6 words, 8 columns>
    """
    path = check_path(path)
    if os.path.isdir(path):
        with argument_names():
            kind = read_settings(path).get("task", "words")
    else:
        kind = "classify" if model_file.is_classifier(path) else "words"
    options = {"limit": limit, "dtype": dtype, "tokenizer": tokenizer}
    usual = load.__kwdefaults__
    given = {name: value for name, value in options.items() if value != usual[name]}
    if kind != "words" and given:
        raise ValueError(f"{min(given)} is for word vectors, and {path} has none; leave it out")
    return getattr(importlib.import_module(__package__), _KINDS[kind]).load(path, **given)


def check_there(path: str | os.PathLike[str]) -> str:
    """Return a path as text; raise FileNotFoundError if neither a file nor a folder is there."""
    name = check_path(path)
    if not os.path.exists(name):
        raise FileNotFoundError(f"{name}: no such file or folder; check the path")
    return name


def column_of(values: Any, name: str) -> Iterable[Any]:
    """Return the values of an iterable; raise ValueError for others, and for a table.

    Of a table and of a mapping only names would be read.
    """
    if not isinstance(values, Iterable) or isinstance(values, Mapping):
        raise ValueError(f"{name} is {type(values).__name__}; give a list of {name}")
    if columns := table_columns(values):
        shown = list_columns([*map(str, columns)])
        raise ValueError(f"{name} is a table; give one of its columns, as {name}[...]: {shown}")
    return values.to_pylist() if hasattr(values, "to_pylist") else values  # of pyarrow


def as_bytes(texts: Iterable[Any]) -> list[bytes]:
    """Return texts in UTF-8; raise ValueError if an item is no text."""
    given = list(column_of(texts, "texts"))
    for place, text in enumerate(given):
        if not isinstance(text, str):
            raise ValueError(f"texts[{place}] is {type(text).__name__}, and not a text")
    return [text.encode("utf-8", "replace") for text in given]


def is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN in any type of number, or NA or NaT of pandas."""
    return value is None or type(value).__name__ in ("NAType", "NaTType") or value != value


def check_count(name: str, count: Any, what: str = "") -> None:
    """Raise an error if an argument is no number of results to return.

    Raises:
        TypeError: It is no whole number.
        ValueError: It is below 1.
    """
    if not isinstance(count, numbers.Integral):
        raise TypeError(f"{name} is {type(count).__name__}; give a whole number")
    if count < 1:
        raise ValueError(f"{name}={count}: ask for at least one{what}")


def check_limit(name: str, count: Any) -> None:
    """Raise an error, as `check_count` does, if an argument is no number of words or 0, for all."""
    if count != 0:
        check_count(name, count, " word, or give 0 for all")


def _line(item: Any, is_tokens: bool, name: str) -> str:
    """Return a text as a line, or its tokens with `_` for blanks in them; else raise ValueError."""
    if not is_tokens and isinstance(item, str):
        return " ".join(item.splitlines()) + "\n"
    is_list = isinstance(item, Iterable) and not isinstance(item, str | bytes | Mapping | Set)
    if is_tokens and is_list:
        tokens = list(item)
        for token in tokens:
            if not isinstance(token, str):
                raise ValueError(f"{name} has a token that is {type(token).__name__}; give text")
        return " ".join(map(join_words, tokens)) + "\n"
    wanted = "a list of tokens" if is_tokens and not name.endswith("[0]") else "a text"
    raise ValueError(f"{name} is {type(item).__name__}, and not {wanted}")


def export(
    path: str | os.PathLike[str],
    format: str,
    run: Run | None,
    options: Mapping[str, Any],
    vectors: WordVectors | None = None,
    limit: int = 0,
) -> None:
    """Write the result of a run, or vectors of a file, in a format of `lexrow export`.

    Args:
        run: The run; None for vectors of a file.
        options: Those of the format, by name.
        vectors: The vectors, for a format of vectors; None for those of the run.
        limit: The words that were loaded of the run; 0 for all.

    Raises:
        ValueError: There is no such format for the task, or it has no such option, or it writes all
            words of the run, and not all were loaded.
        RunError: The file cannot be written.
    """
    formats: Mapping[str, Callable[..., str]] = {}
    config, flags, path = Config(), {"output": "path"}, check_path(path)
    if run is not None or format == "saved_model":
        start_tensorflow()
    if run is not None:
        from .tasks import all_tasks

        config = run.config
        formats = all_tasks.EXPORTS.get(config.run.task, {})
        with argument_names(flags=flags):
            run.workdir.check_output(path)
    with argument_names():
        exporting.check(format, config.run.task, formats, options.keys())
    if format in formats and limit:
        raise ValueError(
            f"format={format!r} writes all words of {run and run.path}, and limit={limit} "
            "left some out; load them without limit"
        )
    with argument_names(flags=flags):
        if format in formats:
            formats[format](config, run.workdir, path, **options)
        else:
            found = vectors or trained_vectors.load(run.path)
            FORMATS[format](found, path, config.corpus, **options)


def _in_memory(text: str, name: str, argument: str) -> str:
    """Return a message with an argument for a file that has it, and with the places of its items.

    Args:
        text: The message.
        name: The path of the file, as `Run.writing` has it, or another text.
        argument: The name of the argument.
    """
    suffix = os.path.splitext(name)[1]

    def of_item(found: re.Match[str]) -> str:
        """Return the argument, or the item of it that a line has; CSV has a header."""
        if not found[1]:
            return argument
        item = int(found[1]) - 1 - (suffix == ".csv")
        return f"{argument}, row {found[1]}" if suffix == ".jsonl" else f"{argument}[{item}]"

    return re.sub(rf"(?:\b\w+=)?{re.escape(name)}(?:, line (\d+))?", of_item, text)


def _argument(found: re.Match[str], flags: Mapping[str, str]) -> str:
    """Return the argument of a flag that `_FLAG` finds, and a command as it is."""
    command, flag = found.groups()
    if command:
        return command
    if flag in flags:
        return flags[flag]
    field = flag_values.fields().get(flag.removeprefix("no"))
    is_negated = flag.startswith("no") and field is not None and field.type == "bool"
    return f"{flag[2:]}=False" if is_negated else flag


@contextlib.contextmanager
def argument_names(
    names: Mapping[str, str] | None = None, flags: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Raise errors and log warnings in the context with names of arguments instead of flags.

    That a package is missing gets its remedy.

    Args:
        names: Further texts to replace in the message, after `--` is removed from flags, such as
            the paths of files that have arguments of a program.
        flags: The arguments of flags of other names.
    """

    def with_arguments(text: str) -> str:
        """Return a message with the names of arguments."""
        text = re.sub(_FLAG, lambda found: _argument(found, flags or {}), text)
        for name, argument in (names or {}).items():
            text = _in_memory(text, name, argument)
        return text

    def rename(record: logging.LogRecord) -> bool:
        """Change the message of a warning."""
        if record.levelno >= logging.WARNING:
            record.msg, record.args = with_arguments(record.getMessage()), ()
        return True

    logger = absl_logging.get_absl_logger()
    logger.addFilter(rename)
    try:
        yield
    except (UsageError, RunError) as error:
        text = with_arguments(str(error))
        if isinstance(error, MissingError):
            raise FileNotFoundError(text) from error
        error.args = (text,)
        raise
    except ModuleNotFoundError as error:
        if message := missing_package(error):
            error.msg = message
        raise
    finally:
        logger.removeFilter(rename)
