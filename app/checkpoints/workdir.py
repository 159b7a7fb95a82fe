"""The workdir of a run: the paths of its files, and the lock that lets one job write there."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from absl import logging

from ..errors import DamagedError, RunError, UsageError
from ..settings import flag_values, flagfiles
from ..settings.flag_values import BEFORE, FORMER
from ..settings.setting import as_text, fault, parse
from ..system import checked_files
from ..system.checked_files import list_folder
from ..system.files import remove_folder, replacing, replacing_folder, sweep

# The number of flags in the first line of flags.cfg. Earlier versions did not write it.
_FLAGS_WRITTEN = re.compile(r"# All (\d+) flags ")


class Workdir:
    """The workdir of a run, with the paths of its files as attributes. It creates nothing.

    Args:
        path: The folder, which need not exist yet.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.grown = self.path / "grown"
        self.flags = self._path("flags.cfg")
        self.vocabulary = self._path("vocab.tsv")
        self.phrases = self._path("phrases.tsv")
        self.labels = self._path("labels.tsv")
        self.ngrams = self.path / "ngrams.npz"
        self.users = self.path / "users.tsv"
        self.items = self.path / "items.tsv"
        self.known = self.path / "known.npz"
        self.user_features = self.path / "user_features.tsv"
        self.item_features = self.path / "item_features.tsv"
        self.features = self.path / "features.npz"
        self.added = self.path / "added.json"
        self.corpus = self._path("corpus.json")
        self.checkpoints = self._path("checkpoints")
        self.best = self.path / "best"
        self.owner = self.path / "owner.json"
        self.metrics = self.path / "metrics.jsonl"
        self.trials = self.path / "trials.jsonl"
        # TensorBoard names a run by its folder. Earlier versions wrote to the folder above.
        self.tensorboard = self.path / "tensorboard" / self.path.resolve().name
        # What a Python program gave, in the files that a run reads.
        given = ("texts.txt", "texts.csv", "heldout.csv", "pairs.csv", "users.jsonl", "items.jsonl")
        self.given = tuple(self.path / name for name in given)

    def _path(self, name: str) -> Path:
        """Return the path of a file that `grow` replaces; the new one if a kill left it there."""
        grown = self.grown / name
        return grown if grown.exists() else self.path / name

    def replace_files(self, write: Callable[[Workdir], None]) -> None:
        """Replace several files of this workdir, all of them or none, also if it is killed.

        Args:
            write: Writes the new files to a workdir of its own: `flags.cfg` and others that
                `_path` gives.

        Raises:
            UsageError, RunError: The files cannot be written.
        """
        with replacing_folder(self.grown, "flags.cfg") as temporary:
            write(Workdir(temporary))
        self._move_grown()

    def _move_grown(self) -> None:
        """Move the files of `grown`, if any, to their places; `_path` finds them at any moment.

        Raise RunError if a file cannot be moved.
        """
        try:
            for source in list_folder(self.grown):
                target = self.path / source.name
                if target.is_dir():
                    remove_folder(target)
                os.replace(source, target)
            with contextlib.suppress(FileNotFoundError):
                self.grown.rmdir()
        except OSError as error:
            raise RunError(
                f"cannot move the files of {self.grown}: {error.strerror}; make {self.path} "
                "writable, and run the same command again"
            ) from error
        vars(self).update(vars(Workdir(self.path)))

    @property
    def trained(self) -> Path:
        """The folder of the trained tables: `best` if it has a checkpoint, else `checkpoints`.

        Raise RunError if `best` is no folder or cannot be read.
        """
        return self.best if list_folder(self.best, "step-") else self.checkpoints

    def has(self, path: Path) -> bool:
        """Return whether a file exists that every workdir with a checkpoint must have.

        Args:
            path: One of the files of this workdir.

        Raises:
            DamagedError: The file is missing, but there is a checkpoint.
        """
        if path.exists():
            return True
        if any((step / "state.json").exists() for step in list_folder(self.checkpoints, "step-")):
            raise checked_files.missing(path)
        return False

    def check_output(self, path: str | Path) -> None:
        """Raise UsageError if a file or folder to write would replace a part of this run.

        Other files and folders in the workdir may be written.

        Args:
            path: The file or folder, which need not exist.
        """
        target, folder = Path(path).resolve(), self.path.resolve()
        parts = (*self._files(), *self._folders(), self.grown, self.path / "lock")
        own = {folder / part.name for part in parts}
        if target == folder or own & {target, *target.parents}:
            raise UsageError(
                f"--output={path} belongs to the run of --workdir={self.path}; give another file "
                "or folder"
            )

    def model_files(self) -> list[Path]:
        """Return the files that a trained model is loaded from, with its newest checkpoint.

        What a Python program gave, such as the text of training, is not among them.
        """
        folders = (list_folder(folder, "step-") for folder in (self.checkpoints, self.best))
        steps = [[path for path in found if path.name[5:].isdigit()][-1:] for found in folders]
        inside = (path for newest in steps for step in newest for path in step.rglob("*"))
        files = (path for path in self._files() if path not in self.given)
        return [path for path in (*files, *inside) if path.is_file()]

    def _files(self) -> tuple[Path, ...]:
        """Return the files that a run writes, and those of its texts; without the lock."""
        texts = (self.vocabulary, self.phrases, self.labels, self.ngrams)
        names = (*texts, self.users, self.items, self.known)
        features = (self.user_features, self.item_features, self.features, self.added)
        others = (self.corpus, self.owner, self.metrics, self.trials, *self.given)
        return (self.flags, *names, *features, *others)

    def _folders(self) -> tuple[Path, ...]:
        """Return the folders that a run writes."""
        return (self.checkpoints, self.best, self.tensorboard.parent)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Make the workdir, and keep other jobs out of it during the `with` block.

        The lock ends with the process, so a killed job leaves none. Half-written files that a
        killed job left are removed at the start. At the end, folders and the file of the lock go
        if they were made here and the job wrote nothing: a refused start leaves nothing behind.

        Raises:
            UsageError: The workdir cannot be written, another job has the lock, or a folder or a
                device has the name of a file to write.
        """
        with contextlib.ExitStack() as stack:
            try:
                held = self.path / "lock"
                made = [path for path in (self.path, *self.path.parents) if not path.exists()]
                is_new = not held.exists()
                self.path.mkdir(parents=True, exist_ok=True)
                lock = stack.enter_context(open(held, "a"))
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not os.fstat(lock.fileno()).st_nlink:  # another job has just removed it
                    raise BlockingIOError
                if is_new:
                    stack.callback(_remove_unused, held, made)
            except BlockingIOError as error:
                raise UsageError(
                    f"--workdir={self.path}: another job is running there; "
                    "wait for it or choose another folder"
                ) from error
            except OSError as error:
                raise UsageError(
                    f"--workdir={self.path}: {error.strerror}; choose a folder that can be written"
                ) from error
            self._move_grown()  # a kill may have come before this
            if next((self.path / "cache").glob("*.tokens"), None):  # earlier versions wrote these
                logging.info("%s/cache is not read any more; you may delete it", self.path)
            # Refuse before anything is trained or changed.
            for path in self._files():
                if path.exists() and not path.is_file():
                    raise _wrong_kind(path, "a folder or a device, not a file")
            for path in self._folders():
                if path.exists() and not path.is_dir():
                    raise _wrong_kind(path, "no folder")
            whole = (*self._files(), self.grown, self.checkpoints)
            for path in (*whole, *(folder / "*" for folder in self._folders())):
                sweep(path)
            sweep(self.tensorboard / "*")
            yield


def _remove_unused(lock: Path, made: Sequence[Path]) -> None:
    """Remove the file of a lock if its folder has no other file, and the folders if empty."""
    with contextlib.suppress(OSError):
        if [path.name for path in lock.parent.iterdir()] == [lock.name]:
            lock.unlink()
            for folder in made:
                folder.rmdir()


def _wrong_kind(path: Path, kind: str) -> UsageError:
    """Return the error for a path of a run that has something else."""
    return UsageError(f"{path} is {kind}; remove it, or choose another --workdir")


def read_flags(path: Path) -> dict[str, str]:
    """Read the values of the flags in a flagfile: flag name -> text; empty if there is no file.

    Args:
        path: The flagfile, written by `write_flags`.

    Raises:
        UsageError: The file cannot be read, it was cut short, or it is missing beside a checkpoint.
    """
    try:
        Workdir(path.parent).has(path)
        lines = flagfiles.read(path)
        if lines[-1]:
            raise checked_files.damaged(path, "its last line is cut short")
        flags = flagfiles.values(lines)
        written = _FLAGS_WRITTEN.match(lines[0])
        if not flags or (written and len(flags) < int(written[1])):
            of_all = f" of its {written[1]}" if written else ""
            raise checked_files.damaged(path, f"it has only {len(flags)}{of_all} flags")
        return flags
    except DamagedError as error:
        raise UsageError(str(error)) from error
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        raise UsageError(
            f"cannot read {path}: {error}; mend it, or choose a new --workdir"
        ) from error


def read_settings(path: str | Path) -> dict[str, Any]:
    """Return the settings of the run in a workdir, without --workdir and unknown flags.

    Args:
        path: The workdir; empty for none.

    Returns:
        Flag name -> value, for flags of the task only, also of those that are newer than the
        workdir and changed what it did; empty if there is no run.

    Raises:
        UsageError: The flags cannot be read, or a value is not allowed for its flag.
    """
    texts = read_flags(Workdir(path).flags) if path else {}
    for (name, value), new_value in FORMER.items():
        if texts.get(name) == value:
            texts[name] = new_value
    for name, value in texts.items():
        if flag_values.is_gone(name, value):
            where = f"{path}/flags.cfg: --{name}={value}"
            raise UsageError(f"{where}: a run of an earlier version; choose a new --workdir")
    fields, stored = flag_values.fields_of(flag_values.task_of(texts)), {}
    for name in [name for name in fields if name in texts and name != "workdir"]:
        try:
            stored[name] = parse(fields[name], texts[name])
            wrong = fault(fields[name], stored[name])
        except ValueError as error:
            wrong = str(error)
        if wrong:
            where = f"{path}/flags.cfg: --{name}={texts[name]}: {wrong}"
            raise UsageError(f"{where}; mend it, or choose a new --workdir")
    return {name: value for name, value in BEFORE.items() if name in fields and stored} | stored


def write_flags(path: Path, settings: dict[str, Any]) -> None:
    """Write a flagfile with every setting, as a whole or not at all; it can repeat the run.

    Args:
        path: The flagfile, which is replaced.
        settings: The value of each flag by its name.

    Raises:
        UsageError: The path is a folder or a device.
        RunError: The file cannot be written.
    """
    with replacing(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.write(f"# All {len(settings)} flags of this run: lexrow train --flagfile=THIS\n")
        for name, value in settings.items():
            file.write(f"{flagfiles.line(name, as_text(value))}\n")


def owner_id(workdir: Workdir, resume: bool = False) -> str:
    """Return the random id of a run, and write it to the workdir if there is none yet.

    The run marks files outside of its workdir with this id.

    Args:
        resume: Whether the workdir must have an id already.

    Raises:
        DamagedError: The file of the id is damaged, or it is missing and `resume` is true.
        RunError: The file cannot be read or written.
    """
    content = checked_files.read_json(workdir.owner, {"owner": str}, optional=True)
    if content is None:
        if resume:
            raise checked_files.missing(workdir.owner)
        content = {"owner": secrets.token_hex(16)}
        write_json(workdir.owner, content)
    return content["owner"]


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file, as a whole or not at all; make its folder if there is none.

    Args:
        path: The file, which is replaced.
        value: A value that JSON can hold.

    Raises:
        UsageError: The path is a folder or a device.
        RunError: The file cannot be written.
    """
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
