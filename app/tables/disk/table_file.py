"""A file of rows that can be brought back to a checkpoint.

Training overwrites the rows of the file in place. Before a row is first overwritten after a
checkpoint, its old content is appended to a journal, `PATH.undo-<generation>`. A checkpoint holds
only the number of the generation that it begins. The newest journals, down to that generation, are
undone to bring the file back; a kill meanwhile does no harm, as they can be undone again. Before
the first checkpoint there is no journal; a run that is killed then starts with a new file.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import glob
import io
import json
import os
import secrets
import shutil
import struct
import threading
import weakref
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ...errors import RunError, UsageError
from ...system.checked_files import COUNT, damaged, missing, read_json
from ...system.files import fsync, remedy, replacing
from ..initial import Constant, Initial
from .sections import Header, MappedRows, Section, fill, read_own_header, reserve

SNAPSHOT = "file.json"  # names the file and the generation that a snapshot begins

# A record begins with the CRC-32 of its rest, the section, the number of rows, and the bytes of a
# row. The ids, int64, and the rows follow.
_HEAD = struct.Struct("<IIQQ")
_CHECK_BYTES = 4
# The files of this process, by their run and path.
_locked: weakref.WeakValueDictionary[tuple[str, str], TableFile] = weakref.WeakValueDictionary()


class TableFile:
    """A file with the rows of tables and of their slots (see `tables.disk.file.FileTable`).

    The file is locked until this object is deleted, or `release` is called.

    Args:
        owner: The id of the run (see `checkpoints.workdir.owner_id`).
        resume: Whether a checkpoint needs the rows in the file. Then `restore` must be called
            before a row is written. If not, a file of this run and its journals are replaced.
        take_over: Whether an earlier object of this process and run, which TensorFlow may still
            hold when the run is repeated, gives up its lock.

    Raises:
        UsageError: The file is missing or truncated, belongs to another run, holds no rows, cannot
            be written, or is in use. It is unchanged then.
    """

    # The beginning and the end of messages about a file that changed.
    label = "--table_file="
    remedy = "put the whole file back and run again, or train in a new workdir"

    def __init__(self, path: Path, owner: str, resume: bool, take_over: bool = True):
        self.path, self._resume = path, resume
        read_own_header(path, owner, resume)  # another file is not opened to be written
        key = owner, os.path.realpath(path)
        if take_over and key in _locked:
            _locked[key].release()
        lock = _lock(path)
        try:
            header = read_own_header(path, owner, resume)  # another process may have made it
            if not resume:
                for journal in list_journals(path).values():
                    journal.unlink()
                header = Header(owner, secrets.token_hex(8))
                with contextlib.ExitStack() as former:
                    former.callback(lock.close)  # once the new file has its name
                    with replacing(path) as temporary:
                        header.write(temporary)
                        lock = _lock(temporary)
                journal_path(path, 0).touch()  # the journal before the first checkpoint stays empty
        except BaseException:
            lock.close()
            raise
        self.release: Callable[[], Any] = weakref.finalize(self, lock.close)
        _locked[key] = self
        self._header, self._opened = header, os.stat(path)
        self._mapped = [MappedRows(path, section) for section in header.sections]
        self._journalled: list[np.ndarray] = []  # which rows the journal has, by section
        self._generation = 0
        self._journal: Journal | None = None
        self._lock = threading.Lock()
        self._is_written = resume  # whether a row was changed, as by training

    def section(self, name: str, rows: int, columns: int, initial: Initial, dtype: tf.DType) -> int:
        """Return the number of a section, and make the section if the file is new.

        Call this for all sections before any row is written.

        Raises:
            UsageError: The file to resume has no such section, or one of another shape or dtype.
            RunError: The disk is too small, and the new file is removed; or the file was replaced.
        """
        self._check_file()
        new = Section(name, rows, columns, dtype.name, self._header.end)
        if not self._resume:
            self._make(new, initial)
            return len(self._mapped) - 1
        held = self._header.find(name)
        if held is None or held.layout != new.layout:
            holds = f"holds {name!r} as {held.layout}" if held else f"does not hold {name!r}"
            raise UsageError(
                f"--table_file={self.path} {holds}, where {new.layout} is asked for; give the "
                "flags and the vocabulary that it was made with, or a new file and a new workdir"
            )
        return self._header.sections.index(held)

    def read(self, number: int, ids_U: np.ndarray) -> np.ndarray:
        """Return rows of a section."""
        self._check_size(number)
        return self._header.sections[number].numbers(self._mapped[number].take(ids_U))

    def checked_section(self, number: int) -> Section:
        """Return a section, or raise RunError if the file was replaced or cut short."""
        self._check_file()
        return self._header.sections[number]

    def write(self, number: int, ids_U: np.ndarray, rows_UD: np.ndarray) -> None:
        """Replace rows of a section; journal a row before its first change after a snapshot.

        Raises:
            RunError: The journal cannot be written, or the file was cut short. No row is replaced.
        """
        assert self._generation or not self._resume, "restore comes first"
        with self._lock:
            self._check_size(number)
            rows_U = self._header.sections[number].items(rows_UD)
            if self._generation:
                journalled_V = self._journalled[number]
                new_N = ids_U[~journalled_V[ids_U]]
                if len(new_N):
                    self._journal.append(number, new_N, self._mapped[number].take(new_N))
                    journalled_V[new_N] = True
            self._is_written = True
            self._mapped[number].put(ids_U, rows_U)

    def snapshot(self, folder: Path) -> None:
        """Wait until the disk has all rows, and write the file that `restore` needs."""
        with self._lock:
            self._check_file()
            for mapped in self._mapped:
                mapped.flush()
            held = {"identity": self._header.identity, "generation": self._generation + 1}
        with open(folder / SNAPSHOT, "w", encoding="utf-8") as file:
            json.dump(held, file)
            file.flush()
            os.fsync(file.fileno())

    def commit(self, folders: Sequence[Path]) -> None:
        """Begin the generation of the newest snapshot, and remove journals that are not needed.

        Call this when the snapshot would survive a kill, before a row is written. Repeats are fine.

        Args:
            folders: The folders of all snapshots that are kept, newest first.

        Raises:
            RunError: The journal cannot be made, or the newest snapshot is damaged.
        """
        newest, *others = folders
        kept = [generation_of(newest, self._header)]
        for folder in others:
            with contextlib.suppress(RunError):  # a damaged snapshot needs no journal
                kept.append(generation_of(folder, self._header))
        with self._lock, write_errors(self.path):
            if kept[0] != self._generation:
                self._begin(kept[0], self._none_journalled())
            for generation, path in list_journals(self.path).items():
                if generation < min(kept):
                    path.unlink()

    def restore(self, folder: Path) -> None:
        """Bring the file back to a snapshot, begin its generation again, remove later journals.

        Raises:
            RunError: The snapshot is of another file, or the file was replaced or cut short.
        """
        generation = generation_of(folder, self._header)
        with self._lock:
            self._check_file()
            newer = list_journals_to_undo(self.path, generation)
            # The journal of this generation keeps its rows, which need not be appended again.
            journalled = self._none_journalled()
            end = 0
            for other, path in newer.items():
                for number, ids_U, rows_U, record_end in records(path, self._header.sections):
                    self._mapped[number].put(ids_U, rows_U)
                    if other == generation:
                        journalled[number][ids_U] = True
                        end = record_end
            for mapped in self._mapped:
                mapped.flush()
            for other, path in newer.items():
                if other != generation:
                    path.unlink()
            self._begin(generation, journalled, end)

    def _make(self, section: Section, initial: Initial) -> None:
        """Add a section with its rows.

        On a full disk raise RunError; a file in which no row was changed is then deleted.
        """
        try:
            reserve(self.path, section)
        except OSError as error:
            free = shutil.disk_usage(self.path.parent).free
            if self._is_written:
                os.truncate(self.path, self._header.end)
            else:
                self.path.unlink(missing_ok=True)
            raise RunError(
                f"{self.label}{self.path}: {error.strerror}: {section.name!r} takes "
                f"{section.bytes:,} bytes of {free:,}; {remedy(error)} or choose another folder"
            ) from error
        mapped = MappedRows(self.path, section)
        if initial != Constant(0.0):  # a new section has zeros
            fill(mapped.rows_V, section, initial)
        self._mapped.append(mapped)
        self._header = dataclasses.replace(self._header, sections=(*self._header.sections, section))
        self._header.write(self.path)

    def _check_size(self, number: int) -> None:
        """Raise RunError if the file was cut short.

        Access to a mapped page that is no longer in the file would kill the process (SIGBUS).
        """
        if self._mapped[number].file_size() < self._header.end:
            raise self._lost("was cut short")

    def _check_file(self) -> None:
        """Raise RunError unless the path still names the file that was opened, and all of it."""
        try:
            current = os.stat(self.path)
        except OSError as error:
            raise self._lost(f"cannot be read ({error.strerror})") from error
        if not os.path.samestat(current, self._opened):
            raise self._lost("was replaced by another file")
        if current.st_size < self._header.end:
            raise self._lost("was cut short")

    def _lost(self, event: str) -> RunError:
        """Return the error for an event, such as "was cut short", while the file was in use."""
        return RunError(f"{self.label}{self.path} {event} while it was in use; {self.remedy}")

    def _none_journalled(self) -> list[np.ndarray]:
        """Return an array of False for each section, (V,): the journal has none of its rows."""
        return [np.zeros(section.rows, bool) for section in self._header.sections]

    def _begin(self, generation: int, journalled: list[np.ndarray], end: int = 0) -> None:
        """Open the journal of a generation, cut to `end` bytes, and note which rows it has."""
        self._journal = Journal(journal_path(self.path, generation), end)
        self._generation, self._journalled = generation, journalled


def _lock(path: Path) -> io.FileIO:
    """Open a file, which is made if it is not there, and return it locked, until it is closed.

    Raises UsageError if it is in use or cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            file = io.FileIO(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Another process may have replaced the file before it was locked.
                if path.exists() and os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                    return file
            except OSError:
                file.close()
                raise
            file.close()
    except BlockingIOError as error:
        raise UsageError(
            f"--table_file={path} is in use by another run or model; name another file"
        ) from error
    except OSError as error:
        raise UsageError(
            f"--table_file={path} cannot be written: {error.strerror}; name a file that can"
        ) from error


class Record(NamedTuple):
    """The old content of some rows.

    Attributes:
        ids_U: The ids of the rows, (U,) int64.
    """

    section: int
    ids_U: np.ndarray
    rows_U: np.ndarray
    end: int


class Journal:
    """A file to append records to.

    Args:
        end: The number of bytes to keep; all bytes after them are removed at once.
    """

    def __init__(self, path: Path, end: int = 0):
        self._path, self._end = path, end
        with write_errors(path), path.open("ab") as file:
            file.truncate(end)
        fsync(path.parent)  # records are flushed, but not the name of a new file

    def append(self, section: int, ids_U: np.ndarray, rows_U: np.ndarray) -> None:
        """Append a record, and wait until the disk has it.

        Raises:
            RunError: The record cannot be written, and the file has no part of it; or another
                program changed or removed the file, so that no checkpoint could be restored.
        """
        ids = np.ascontiguousarray(ids_U, np.int64).view(np.uint8)
        rows = np.ascontiguousarray(rows_U).view(np.uint8)
        fields = section, len(ids_U), rows_U.itemsize
        check = zlib.crc32(_HEAD.pack(0, *fields)[_CHECK_BYTES:])
        check = zlib.crc32(rows, zlib.crc32(ids, check))
        with write_errors(self._path), open(self._path, "r+b", buffering=0) as file:
            if file.seek(0, os.SEEK_END) != self._end:
                raise RunError(
                    f"{self._path} was changed by another program; run again to go on from the "
                    "newest checkpoint that is whole"
                )
            try:
                for data in (_HEAD.pack(check, *fields), ids, rows):
                    part = memoryview(data)
                    while part:  # the system writes at most 2 GB in a call
                        part = part[os.write(file.fileno(), part) :]
                os.fdatasync(file.fileno())
            except OSError:
                file.truncate(self._end)  # later records must not follow a part of one
                raise
            self._end = file.tell()


def records(path: Path, sections: Sequence[Section]) -> Iterator[Record]:
    """Read the records of a journal one by one; the file is opened when the first is asked for.

    A last record that is incomplete or damaged is left out: `append` did not return, so its rows
    were not overwritten.

    Args:
        sections: The sections of the file, which must have the rows of the records.

    Raises:
        DamagedError: A record before the last is damaged, or has rows that the file has not.
    """
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        end = 0
        while size - end >= _HEAD.size:
            head = file.read(_HEAD.size)
            check, number, count, row_bytes = _HEAD.unpack(head)
            length = count * (row_bytes + np.dtype(np.int64).itemsize)
            end += _HEAD.size + length
            if end > size:
                return
            content = file.read(length)
            if check != zlib.crc32(content, zlib.crc32(head[_CHECK_BYTES:])):
                if end == size:
                    return
                raise damaged(path, f"a record that ends {size - end} bytes before its end")
            ids_U = np.frombuffer(content, np.int64, count)
            section = sections[number] if number < len(sections) else None
            are_ids = section and np.all((ids_U >= 0) & (ids_U < section.rows))
            if not are_ids or row_bytes != section.row_bytes:
                raise damaged(path, f"a record of rows that its section {number} has not")
            rows_U = np.frombuffer(content, f"V{row_bytes}", count, ids_U.nbytes)
            yield Record(number, ids_U, rows_U, end)


def journal_path(path: Path, generation: int) -> Path:
    """Return the path of the journal of a generation, whether or not there is one."""
    return path.with_name(f"{path.name}.undo-{generation}")


def list_journals(path: Path, first: int = 0) -> dict[int, Path]:
    """Return the paths of the journals that a file has, by generation, newest first.

    Args:
        first: The oldest generation to return.
    """
    prefix = f"{path.name}.undo-"
    files = path.parent.glob(f"{glob.escape(prefix)}*")
    suffixes = (other.name.removeprefix(prefix) for other in files)
    generations = {int(suffix) for suffix in suffixes if suffix.isdecimal()}
    return {n: journal_path(path, n) for n in sorted(generations, reverse=True) if n >= first}


def list_journals_to_undo(path: Path, generation: int) -> dict[int, Path]:
    """Return the journals to undo to get back to the beginning of a generation, newest first.

    These are the journals of this generation and of all later ones. There is none if the run was
    killed before the generation began; then the journal of the generation before must be there.

    Raises:
        DamagedError: One of the journals is missing.
    """
    newer = list_journals(path, generation)
    last = next(iter(newer), generation - 1)
    is_complete = list(newer) == list(range(last, generation - 1, -1))
    if not is_complete or (not newer and not journal_path(path, last).exists()):
        raise missing(f"{journal_path(path, generation)} or a later one")
    return newer


@contextlib.contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """Convert an OSError in the block to a RunError that names the file and the remedy."""
    try:
        yield
    except OSError as error:
        raise RunError(
            f"cannot write {path}: {error.strerror or error}; {remedy(error)} and run again, with "
            "the same --table_file: it goes on from the newest checkpoint"
        ) from error


def generation_of(folder: Path, header: Header) -> int:
    """Return the number of the generation that begins at a snapshot.

    Raises:
        DamagedError: The snapshot is damaged or missing.
        RunError: It is a snapshot of another file.
    """
    held = read_json(folder / SNAPSHOT, {"identity": str, "generation": COUNT})
    if held["identity"] != header.identity:
        raise RunError(
            f"{folder} is of another file than the one given as --table_file; give that file"
        )
    return held["generation"]
