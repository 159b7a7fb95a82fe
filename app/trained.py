"""Train from Python: the texts that a program gives, the settings by name, and the result."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .checkpoints.checkpoint import newest_position
from .checkpoints.workdir import Workdir, read_settings
from .errors import RunError, StoppedError, UsageError
from .settings import Config, flag_values
from .settings.checks import make_config
from .system.files import replacing
from .text.phrase_table import join_words

# The file of a workdir with the texts that a program gave.
_TEXTS = "texts.txt"

# Settings that say how a command ends or what it prints, and those that have an argument.
_OF_COMMANDS = frozenset({"task", "workdir", "corpus", "plan_only", "data_dir"})
_PREFIX = "lexrow-"
_KEPT: list[Run] = []  # until the end of the process, as a message names their folders


def takes_settings(task: str) -> Callable[[Callable], Callable]:
    """Return a decorator that shows the settings of a task in the signature of a function.

    The function takes them as `**settings`; `help()` then lists each with its type and default.
    """

    def decorate(function: Callable) -> Callable:
        """Set the signature of the function, and return it."""
        own = inspect.signature(function)
        parameters = [one for one in own.parameters.values() if one.kind != one.VAR_KEYWORD]
        taken = {one.name for one in parameters} | _OF_COMMANDS
        for name, field in sorted(flag_values.fields_of(flag_values.TASKS[task]).items()):
            if name not in taken:
                kind = inspect.Parameter.KEYWORD_ONLY
                default = inspect.Parameter(
                    name, kind, default=field.default, annotation=field.type
                )
                parameters.append(default)
        function.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        return function

    return decorate


class Run:
    """The workdir of a run that a Python program trains or has loaded.

    Args:
        path: The workdir. None: a temporary one, which is deleted with this object.
    """

    def __init__(self, path: str | os.PathLike[str] | None):
        self.path = Path(path or tempfile.mkdtemp(prefix=_PREFIX))
        if path is None:
            weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)

    @property
    def config(self) -> Config:
        """The settings of the run."""
        return flag_values.from_names(read_settings(self.path))

    @property
    def epochs(self) -> int:
        """The epochs that the run has completed."""
        position = newest_position(Workdir(self.path).checkpoints)
        return position.epoch if position else 0

    def corpus(self, texts: Any, argument: str = "corpus") -> tuple[str, bool]:
        """Return the value of --corpus for the texts of a program, and whether these are tokens.

        Texts that are in no file are written to one in the workdir, as every epoch reads them and
        so does a run that goes on. They are read once. A line break in a text becomes a blank, and
        a blank in a token the sign that joins phrases, as in `new_york`.

        Args:
            texts: A string is a value of --corpus, which names files; a path is a file. An iterable
                has texts, lists of tokens, or paths.
            argument: The name of the argument, for messages.

        Raises:
            ValueError: There is no text, or an item is neither a text nor a list of tokens.
        """
        if isinstance(texts, str):
            return texts, False
        if isinstance(texts, os.PathLike):
            return os.fspath(texts), False
        if not isinstance(texts, Iterable):
            raise ValueError(f"{argument} is {type(texts).__name__}; give a path or texts")
        items = iter(texts)
        first = next(items, None)
        if first is None:
            raise ValueError(f"{argument} has no text; give at least one")
        items = itertools.chain([first], items)
        if isinstance(first, os.PathLike):
            return ",".join(map(os.fspath, items)), False
        path = self.path / _TEXTS
        is_tokens = not isinstance(first, str)
        with (
            replacing(path) as temporary,
            open(temporary, "w", encoding="utf-8", errors="replace") as file,
        ):
            for place, item in enumerate(items):
                file.write(_line(item, is_tokens, f"{argument}[{place}]"))
        return os.fspath(path), is_tokens

    def train(self, task: str, corpus: str, settings: Mapping[str, Any]) -> None:
        """Train a task in this workdir, from its newest checkpoint if it has one.

        Args:
            corpus: Value of --corpus.
            settings: Flag name -> value.

        Raises:
            ValueError: A setting is not possible, or the corpus cannot be used.
            RunError: Training failed.
            KeyboardInterrupt: Ctrl-C stopped it, and what was trained is kept.
        """
        for name in settings.keys() & _OF_COMMANDS:
            raise ValueError(f"{name} is no setting of this function; leave it out")
        with argument_names():
            config = make_config({"task": task, "corpus": corpus, **settings})
            from .training.run import train_and_evaluate

            try:
                train_and_evaluate(config, self.path, is_quiet=True)
            except StoppedError as error:
                _KEPT.append(self)
                kept = f"what was trained is kept: lexrow.load({str(self.path)!r})"
                raise KeyboardInterrupt(kept) from error


def _line(item: Any, is_tokens: bool, name: str) -> str:
    """Return a text, or the tokens of one, as a line of a file; raise ValueError for others."""
    if not is_tokens and isinstance(item, str):
        return " ".join(item.splitlines()) + "\n"
    if is_tokens and isinstance(item, Sequence) and not isinstance(item, str | bytes):
        if all(isinstance(token, str) for token in item):
            return " ".join(map(join_words, item)) + "\n"
    wanted = "list of tokens" if is_tokens else "text"
    raise ValueError(f"{name} is {type(item).__name__}, and not a {wanted} as those before it")


@contextlib.contextmanager
def argument_names(names: Mapping[str, str] | None = None) -> Iterator[None]:
    """Raise each UsageError of the context with the names of arguments instead of flags.

    Args:
        names: Further texts to replace in the message, after `--` is removed from flags.
    """
    try:
        yield
    except UsageError as error:
        text = re.sub(r"--(?:no(?=[a-z_]+[;,:]))?(?=[a-z])", "", str(error))
        for name, argument in (names or {}).items():
            text = text.replace(name, argument)
        raise type(error)(text) from error
