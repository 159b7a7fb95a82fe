"""A file of rows that goes back to a checkpoint, however much was overwritten since.

Training overwrites the file's rows in place. So that it can go back to a checkpoint, what a row was
is appended to a journal, `PATH.undo-<generation>`, before the row is first overwritten after that
checkpoint. A checkpoint holds the number of its generation only: undoing the newest journals down
to that one brings the file back to the moment at which the generation began. Undone twice, it is
the same file, so a kill while undoing does no harm. Until the first checkpoint there is nothing to
go back to and nothing is journalled; a run that is killed before starts with a new file.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import json
import os
import secrets
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from ...errors import RunError, UsageError
from ...system.checked_files import COUNT, read_json
from ...system.files import replacing
from ..initial import Constant, Initial
from .journal import Journal, journal_path, journals, needed, records, telling
from .sections import (
    Header,
    Mapping,
    Section,
    fill,
    read_header,
    reserve,
    unreadable,
)

# Rows that are not in memory are waited for one by one: 100,000 random rows of 1,200 bytes took
# 10 s with one thread, 1.5 with 16 and 1.1 with 64.
_THREADS = 32
_LEAST_ROWS = 256  # for a thread: fewer are copied before it has started
_SNAPSHOT = "file.json"


class TableFile:
    """A file that holds the rows of tables and of their slots; see `tables.disk.file.FileTable`.

    owner: a text that no other run has. resume: whether a checkpoint needs what the file holds;
    `restore` is to be called then before a row is written. If not, the file is made anew, and
    replaces one of the same owner.

    UsageError if the file is missing, truncated, another run's, or none of rows.
    """

    def __init__(self, path: Path, owner: str, resume: bool):
        self.path, self._resume = path, resume
        header = _header(path, owner, resume)
        if not resume:
            for journal in journals(path).values():
                journal.unlink()
            header = Header(owner, secrets.token_hex(8))
            with replacing(path) as temporary:
                header.write(temporary)
            journal_path(path, 0).touch()  # stays empty
        self._header, self._opened = header, os.stat(path)
        self._mappings = [Mapping(path, section) for section in header.sections]
        self._journalled = [np.zeros(section.rows, bool) for section in header.sections]
        self._generation = 0
        self._journal: Journal | None = None
        self._lock = threading.Lock()
        self._pool = concurrent.futures.ThreadPoolExecutor(_THREADS)

    def section(self, name: str, rows: int, columns: int, initial: Initial, dtype: tf.DType) -> int:
        """The number of a section of V rows and D columns; to be asked for before a row is written.

        UsageError if a file to resume has no such section. RunError if the disk has no room for it.
        """
        self._check_file()
        wanted = Section(name, rows, columns, dtype.name, self._header.end)
        if not self._resume:
            self._make(wanted, initial)
            return len(self._mappings) - 1
        held = self._header.find(name)
        if held is None or held.layout != wanted.layout:
            holds = f"holds {name!r} as {held.layout}" if held else f"does not hold {name!r}"
            raise UsageError(
                f"--table_file={self.path} {holds}, where {wanted.layout} is asked for; give the "
                "flags and the vocabulary that it was made with, or a new file and a new workdir"
            )
        return self._header.sections.index(held)

    def read(self, number: int, ids_U: np.ndarray) -> np.ndarray:
        """Return rows of a section as numbers of its dtype, (U, D); ids in range.

        Raises:
            RunError: The file was cut short.
        """
        self._check_size(number)
        return self._header.sections[number].numbers(self._take(number, ids_U))

    def parts(self, number: int) -> Iterator[np.ndarray]:
        """All rows of a section, (any number, D) of its dtype, part by part."""
        self._check_file()
        return self._header.sections[number].parts(self.path)

    def write(self, number: int, ids_U: np.ndarray, change: Callable[[], np.ndarray]) -> None:
        """Replaces rows of a section by what `change` gives, (U, D); ids in range and unique.

        RunError if the journal cannot be written, or the file was cut short; no row is replaced
        then.
        """
        assert self._generation or not self._resume, "restore comes first"
        with self._lock:
            self._check_size(number)
            rows_U = self._header.sections[number].items(change())
            if self._generation:
                journalled_V = self._journalled[number]
                new_N = ids_U[~journalled_V[ids_U]]
                if len(new_N):
                    self._journal.append(number, new_N, self._take(number, new_N))
                    journalled_V[new_N] = True
            self._put(number, ids_U, rows_U)

    def snapshot(self, folder: Path) -> None:
        """Write what `restore` needs to come back to this moment.

        Raises:
            OSError: It cannot be written.
            RunError: The file is no longer there, or it was cut short.
        """
        with self._lock:
            self._check_file()
            for mapping in self._mappings:
                mapping.flush()
            held = {"identity": self._header.identity, "generation": self._generation + 1}
        with open(folder / _SNAPSHOT, "w", encoding="utf-8") as file:
            json.dump(held, file)
            file.flush()
            os.fsync(file.fileno())

    def commit(self, folders: Sequence[Path]) -> None:
        """Begins the generation of the newest snapshot; removes journals that none of them needs.

        To be called once that snapshot would be found after a kill, before a row is written.
        folders: those of the snapshots that are kept, newest first. May be called again for
        another table of the file. RunError if the journal cannot be made.
        """
        newest, *others = folders
        kept = [generation_of(newest, self._header)]
        for folder in others:
            with contextlib.suppress(RunError):  # a damaged one needs none
                kept.append(generation_of(folder, self._header))
        with self._lock, telling(self.path):
            if kept[0] != self._generation:
                self._begin(kept[0], self._none_journalled())
            for generation, path in journals(self.path).items():
                if generation < min(kept):
                    path.unlink()

    def restore(self, folder: Path) -> None:
        """Brings the file back to the moment of a snapshot. May be called again for another table.

        Raises:
            DamagedError: The snapshot or a journal is damaged or missing.
            RunError: The snapshot is of another file.
        """
        generation = generation_of(folder, self._header)
        with self._lock:
            self._check_file()
            newer = needed(self.path, generation)
            # Rows that the journal of this generation has need not be appended to it again.
            journalled = self._none_journalled()
            end = 0
            for other, path in newer.items():
                for number, ids_U, rows_U, record_end in records(path):
                    self._put(number, ids_U, rows_U)
                    if other == generation:
                        journalled[number][ids_U] = True
                        end = record_end
            for mapping in self._mappings:
                mapping.flush()
            for other, path in newer.items():
                if other != generation:
                    path.unlink()
            self._begin(generation, journalled, end)

    def _make(self, section: Section, initial: Initial) -> None:
        """Appends a section; one that is zero takes no time."""
        try:
            reserve(self.path, section)
        except OSError as error:
            free = shutil.disk_usage(self.path.parent).free
            self.path.unlink(missing_ok=True)
            raise RunError(
                f"--table_file={self.path}: {error.strerror}: {section.name!r} takes "
                f"{section.bytes:,} bytes of {free:,}; free the disk or choose another folder"
            ) from error
        mapping = Mapping(self.path, section)
        if initial not in (tf.zeros, Constant(0.0)):
            fill(mapping.rows_V, section, initial)
        self._mappings.append(mapping)
        self._journalled.append(np.zeros(section.rows, bool))
        sections = (*self._header.sections, section)
        self._header = dataclasses.replace(self._header, sections=sections)
        self._header.write(self.path)

    def _check_size(self, number: int) -> None:
        """Raise RunError if the file was cut short.

        Comes before rows are touched: a page that is mapped and no longer in the file would end the
        process by a signal (SIGBUS). What a file loses after the check, in the middle of a call,
        still does. It takes less than a microsecond, where `os.stat` of the path takes ten.
        """
        if self._mappings[number].file_size() < self._header.end:
            raise self._lost("was cut short")

    def _check_file(self) -> None:
        """Raise RunError unless the path still names the file that was opened, and all of it."""
        try:
            found = os.stat(self.path)
        except OSError as error:
            raise self._lost(f"cannot be read ({error.strerror})") from error
        if not os.path.samestat(found, self._opened):
            raise self._lost("was replaced by another file")
        if found.st_size < self._header.end:
            raise self._lost("was cut short")

    def _lost(self, what: str) -> RunError:
        return RunError(
            f"--table_file={self.path} {what} while it was in use; put the whole file back and run "
            "again, or train in a new workdir"
        )

    def _take(self, number: int, ids_U: np.ndarray) -> np.ndarray:
        """Rows as items of bytes, (U,)."""
        rows_V = self._mappings[number].rows_V
        rows_U = np.empty(len(ids_U), rows_V.dtype)

        def take(part: slice) -> None:
            np.take(rows_V, ids_U[part], out=rows_U[part], mode="clip")  # "raise" would copy twice

        self._by_part(len(ids_U), take)
        return rows_U

    def _put(self, number: int, ids_U: np.ndarray, rows_U: np.ndarray) -> None:
        rows_V = self._mappings[number].rows_V

        def put(part: slice) -> None:
            rows_V[ids_U[part]] = rows_U[part]

        self._by_part(len(ids_U), put)

    def _by_part(self, count: int, act: Callable[[slice], None]) -> None:
        size = max(_LEAST_ROWS, -(-count // _THREADS))
        parts = [slice(start, start + size) for start in range(0, count, size)]
        list((self._pool.map if len(parts) > 1 else map)(act, parts))

    def _none_journalled(self) -> list[np.ndarray]:
        return [np.zeros_like(journalled_V) for journalled_V in self._journalled]

    def _begin(self, generation: int, journalled: list[np.ndarray], end: int = 0) -> None:
        self._journal = Journal(journal_path(self.path, generation), end)
        self._generation, self._journalled = generation, journalled


def _header(path: Path, owner: str, resume: bool) -> Header | None:
    """The header of a file that is there; None if there is none and none is needed."""
    if not resume and not path.exists():
        return None
    try:
        header = read_header(path)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"--table_file={path} {unreadable(error)}; to go on with a run give its whole file, to "
            "begin one give the name of a new file and a new workdir"
        ) from error
    if header.owner != owner:
        raise UsageError(
            f"--table_file={path} belongs to another run; give that run's --workdir or another file"
        )
    return header


def generation_of(folder: Path, header: Header) -> int:
    """Return the generation that begins at a snapshot.

    Raises:
        DamagedError: The snapshot is damaged or missing.
        RunError: It is of another file.
    """
    held = read_json(folder / _SNAPSHOT, {"identity": str, "generation": COUNT})
    if held["identity"] != header.identity:
        raise RunError(
            f"{folder} is of another file than the one given as --table_file; give that file"
        )
    return held["generation"]
