"""The files that a value of --corpus stands for, and a fingerprint that tells when they change."""

from __future__ import annotations

import glob
import hashlib
import os
import re
from typing import Any

from ..config import CorpusConfig
from ..errors import UsageError
from . import docstrings, download, reading
from .meter import show_progress

_DOCSTRINGS = re.compile(r"(?:(?P<listed>.*),)?\s*(?P<item>docstrings:.*)", re.DOTALL)
_ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".7z", ".zst")

# Where and how much of a file is hashed to see in a millisecond that it is another one.
_SAMPLES = 16
_SAMPLE_BYTES = 4096


def resolve(config: CorpusConfig, flag: str = "corpus") -> tuple[str, ...]:
    """The files that `config.corpus` names, in order, each once.

    The value is a comma-separated list of files, globs (sorted; `**` crosses folders), `text8`
    (downloaded once to `config.data_dir`) and `docstrings` (extracted once to it). The names after
    `docstrings:` run to the end of the value, so it comes last: `mine.txt,docstrings:numpy,scipy`.
    A file that is called text8 is `./text8`. flag: what the value was given by, for messages.

    Raises UsageError when the value names nothing that can be read, RunError when a download or
    an extraction fails.
    """
    items = _items(config.corpus, flag)
    # Names are checked first: what is wrong should show before minutes of download.
    files = {item: _files(item, flag) for item in items if not _is_made(item)}
    sources: list[str] = []
    for item in items:
        if item in files:
            sources += files[item]
        elif item == "text8":
            sources.append(download.fetch(download.TEXT8, config.data_dir))
        else:
            packages = item.removeprefix("docstrings").removeprefix(":").split(",")
            names = tuple(name.strip() for name in packages if name.strip())
            sources.append(docstrings.extract(names or docstrings.PACKAGES, config.data_dir))
    return tuple(dict.fromkeys(sources))


def sample_fingerprint(sources: tuple[str, ...]) -> dict[str, Any]:
    """Return the part of a fingerprint that needs no whole read.

    Take it before the text is read, so that an edit made meanwhile shows in `modified`.

    Args:
        sources: the files of a corpus.

    Returns:
        A value for JSON. files, bytes: numbers. sha256: a hash of the names (without folders), the
        sizes and samples of the contents. modified: a hash of the times of the last changes, in
        nanoseconds; a copy on another machine has others.
    """
    digest, modified, sizes = hashlib.sha256(), hashlib.sha256(), []
    for path in sources:
        with reading.open_source(path) as file:
            status = os.fstat(file.fileno())
            size = status.st_size
            sizes.append(size)
            digest.update(f"{os.path.basename(path)}\0{size}\0".encode())
            modified.update(f"{status.st_mtime_ns}\0".encode())
            for sample in range(_SAMPLES):
                file.seek(max(size - _SAMPLE_BYTES, 0) * sample // (_SAMPLES - 1))
                digest.update(file.read(_SAMPLE_BYTES))
    return {
        "files": len(sizes),
        "bytes": sum(sizes),
        "sha256": digest.hexdigest(),
        "modified": modified.hexdigest(),
    }


def hash_contents(progress: reading.Progress) -> str:
    """Return the hash of all the text of a corpus, from a pass that has read it to its end."""
    return hashlib.sha256("".join(progress.digests).encode()).hexdigest()


def fingerprint(sources: tuple[str, ...]) -> dict[str, Any]:
    """Return the `outline` of the files with `contents`, the hash of all their text.

    Raises:
        RunError: a file cannot be read.
    """
    return {**sample_fingerprint(sources), "contents": _read_contents(sources)}


def recognize(sources: tuple[str, ...], known: dict[str, Any]) -> dict[str, Any] | None:
    """Return the fingerprint of the files if they have the text of a known one, else None.

    A file that was touched, moved or copied since is read whole to tell. A known fingerprint of an
    older version may have no `contents`; it is compared by size and samples.

    Raises:
        RunError: a file cannot be read.
    """
    found = sample_fingerprint(sources)
    if any(known.get(name) != found[name] for name in ("files", "bytes", "sha256")):
        return None
    if "contents" in known and known.get("modified") == found["modified"]:
        return known
    read = _read_contents(sources)
    return {**found, "contents": read} if known.get("contents", read) == read else None


def _read_contents(sources: tuple[str, ...]) -> str:
    progress = reading.Progress.of(sources, hashed=True)
    size = sum(map(os.path.getsize, sources))
    with show_progress("reading the text to see whether it has changed", size, "B") as show:
        for index, path in enumerate(sources):
            for _ in reading.raw_blocks(path, "none", reading.BLOCK_BYTES, progress, index):
                show(sum(progress.positions))
    return hash_contents(progress)


def _items(value: str, flag: str) -> list[str]:
    named = _DOCSTRINGS.fullmatch(value)
    listed = (named["listed"] or "") if named else value
    items = [item for item in map(str.strip, listed.split(",")) if item]
    if named:
        items.append(named["item"])
    if not items:
        raise UsageError(f"--{flag}={value}: nothing named; give files, `docstrings` or `text8`")
    return items


def _is_made(item: str) -> bool:
    return item in ("docstrings", "text8") or item.startswith("docstrings:")


def _files(item: str, flag: str) -> list[str]:
    path = os.path.expanduser(item)
    if os.path.isdir(path):
        pattern = os.path.join(glob.escape(item), "*")
        raise UsageError(f"--{flag}={item} is a folder; name its files: {pattern}")
    if not os.path.exists(path) and glob.has_magic(path):
        found = sorted(filter(os.path.isfile, glob.glob(path, recursive=True)))
        if not found:
            raise UsageError(f"--{flag}={item} matches no file; check the pattern (and quote it)")
    else:
        found = [path]
    for file in found:
        _check(file, item, flag)
    return found


def _check(path: str, item: str, flag: str) -> None:
    if not os.path.exists(path):
        raise UsageError(f"--{flag}={item}: no such file; check the path or give `docstrings`")
    if not os.path.isfile(path):
        raise UsageError(f"--{flag}={item}: {path} is no regular file; save the text to one first")
    if not os.access(path, os.R_OK):
        raise UsageError(f"--{flag}={item}: {path} may not be read; change its permissions")
    if path.lower().endswith(_ARCHIVES):
        raise UsageError(
            f"--{flag}={item}: {path} is an archive that is not read; unpack it, "
            "or compress the text by gzip, bzip2 or xz"
        )
