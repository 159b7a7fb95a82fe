"""Which files a value of --corpus stands for, and a fingerprint to tell when they have changed."""

from __future__ import annotations

import glob
import hashlib
import os
import re
from typing import Any

from app.config import CorpusConfig
from app.errors import UsageError
from app.text import docstrings, download

_DOCSTRINGS = re.compile(r"(?:(?P<listed>.*),)?\s*(?P<item>docstrings:.*)", re.DOTALL)
_ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".7z", ".zst")

# Where and how much of a file is hashed: enough to see an edit almost anywhere, in a millisecond.
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


def fingerprint(sources: tuple[str, ...]) -> dict[str, Any]:
    """A small value for JSON that is equal as long as the corpus is.

    files and bytes tell what has grown; sha256 is of the names (without folders), sizes and
    samples of the contents, so that a moved or touched corpus stays the same.
    """
    digest = hashlib.sha256()
    sizes = []
    for path in sources:
        size = os.path.getsize(path)
        sizes.append(size)
        digest.update(f"{os.path.basename(path)}\0{size}\0".encode())
        with open(path, "rb") as file:
            for sample in range(_SAMPLES):
                file.seek(max(size - _SAMPLE_BYTES, 0) * sample // (_SAMPLES - 1))
                digest.update(file.read(_SAMPLE_BYTES))
    return {"files": len(sizes), "bytes": sum(sizes), "sha256": digest.hexdigest()}


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
