"""Resolve a value of --corpus to files, and compute a fingerprint that changes with their text."""

from __future__ import annotations

import dataclasses
import glob
import hashlib
import itertools
import json
import os
import re
from collections.abc import Iterable
from typing import Any

from ..errors import RunError, UsageError
from ..settings import CorpusConfig
from ..system.console import show_progress
from ..types import ALONE, Team
from . import builtin_corpora, reading

_ITEM = re.compile(r'\s*"([^"]*)"|([^,]+)')
_DOCSTRINGS = re.compile(r"(?:(?P<listed>.*),)?\s*(?P<item>docstrings:.*)", re.DOTALL)

# Number and size of the parts of a file that are hashed, to recognize a changed file quickly.
_SAMPLES = 16
_SAMPLE_BYTES = 4096
_MOST_PARTS = 9  # of a name with commas that is looked for


class MissingError(UsageError):
    """A name of --corpus is no file."""


def resolve(config: CorpusConfig, flag: str = "corpus") -> tuple[str, ...]:
    """Return the files that `config.corpus` names, in order, each once.

    The value is a comma-separated list of files, globs (sorted; `**` matches nested folders),
    `text8` (downloaded once to `config.data_dir`) and `docstrings` (extracted once to it). A name
    with a comma is in double quotes, unless it is the whole value. The names after `docstrings:`
    run to the end of the value, so it comes last: `mine.txt,docstrings:numpy,scipy`. A file that is
    called text8 is `./text8`.

    Args:
        config: Has the value and the folder of downloads.

    Raises:
        UsageError: The value names nothing, or an item cannot be read: no such file, a folder,
            neither text nor Parquet, or no package of this name.
        RunError: A download or an extraction fails.
    """
    # Names are checked first, so that errors show before minutes of download.
    sources: list[str] = []
    for item, files in check_files(config.corpus, flag).items():
        sources += files
        if item == "text8":
            sources.append(builtin_corpora.fetch_text8(config.data_dir))
        elif not files:
            packages = item.removeprefix("docstrings").removeprefix(":").split(",")
            names = tuple(name.strip() for name in packages if name.strip())
            how = names or builtin_corpora.PACKAGES, config.data_dir
            sources.append(builtin_corpora.extract_docstrings(*how))
    return tuple(dict.fromkeys(sources))


def check_files(value: str, flag: str = "corpus") -> dict[str, list[str]]:
    """Return the files that each item of a value of --corpus names, none for a built-in corpus.

    Raises:
        UsageError: The value names nothing, or an item is no such file or cannot be read.
    """
    items = _split_items(value, flag)
    try:
        return {item: [] if _is_builtin(item) else _expand_item(item, flag) for item in items}
    except MissingError as error:
        if not _has_name_with_comma(value):
            raise
        raise UsageError(f"{error}, or write a name with a comma in double quotes") from error


def resolve_heldout(config: CorpusConfig, files: str) -> tuple[str, ...]:
    """Return the files of --heldout, whose value has the form of --corpus.

    For the result, downloads and errors see `resolve`.

    Args:
        config: Has the folder of downloads; its own value of --corpus is ignored.
        files: The value of --heldout.
    """
    return resolve(dataclasses.replace(config, corpus=files), flag="heldout")


def sample_fingerprint(sources: tuple[str, ...]) -> dict[str, Any]:
    """Return sizes and hashes of files by samples of their text: a quick part of `fingerprint`.

    Compute it before the text is read, so that an edit during the read changes `modified`.

    Returns:
        A value for JSON. `files` and `bytes` are numbers. `sha256` is a hash of the names (without
        folders), the sizes and samples of the contents. `modified` is a hash of the modification
        times in nanoseconds; a copy on another machine has others.

    Raises:
        RunError: A file cannot be read.
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


def hash_contents(digests: Iterable[str]) -> str:
    """Return the hash of all the text of a corpus, from the digests of its files.

    Args:
        digests: Those of a pass that has read every file to its end (see `reading.Progress`).
    """
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def fingerprint(sources: tuple[str, ...], team: Team = ALONE) -> dict[str, Any]:
    """Return `sample_fingerprint` of the files and, as `contents`, the hash of all their text.

    The whole text is read, and progress is shown. All processes of a team call this together, and
    each reads files of its own.

    Raises:
        RunError: A file cannot be read.
    """
    return {**sample_fingerprint(sources), "contents": read_contents(sources, team)}


def recognize(sources: tuple[str, ...], known: dict[str, Any]) -> dict[str, Any] | None:
    """Return the fingerprint of the files if they have the text of a known fingerprint, else None.

    Files with other modification times are read whole to decide. If all agree, the text is not
    read, and `known` itself is returned. A fingerprint of an earlier version may have no
    `contents`; then size and samples decide.

    Raises:
        RunError: A file cannot be read.
    """
    sample = sample_fingerprint(sources)
    if any(known.get(name) != sample[name] for name in ("files", "bytes", "sha256")):
        return None
    if "contents" in known and known.get("modified") == sample["modified"]:
        return known
    contents = read_contents(sources)
    return {**sample, "contents": contents} if known.get("contents", contents) == contents else None


def read_contents(sources: tuple[str, ...], team: Team = ALONE) -> str:
    """Read all text of the files, as `fingerprint` does, and return the hash of `hash_contents`."""
    mine = range(team.number, len(sources), len(team.names))

    def read_mine() -> bytes:
        """Return the digests of the files that this process reads, "" for others, as JSON."""
        progress = reading.Progress.make(sources, hashed=True)
        size = sum(os.path.getsize(sources[index]) for index in mine)
        what = "reading the text to see whether it has changed"
        with show_progress(what, size, "B") as show:
            for index in mine:
                how = sources[index], "none", reading.BLOCK_BYTES, progress, index
                for _ in reading.raw_blocks(*how):
                    show(sum(progress.positions))
        return json.dumps(progress.digests).encode()

    digests = map(json.loads, team.gather_parts(read_mine))
    return hash_contents("".join(of_file) for of_file in zip(*digests, strict=True))


def check_same(sources: tuple[str, ...], recorded: dict[str, Any], team: Team) -> None:
    """Check that no process of a team has other files than the first, or another workdir.

    Names without folders, sizes and samples of the files are compared, so that nothing is read
    whole. All processes of the team call this together.

    Args:
        recorded: The corpus.json of the workdir, {} if there is none.

    Raises:
        RunError: They differ, or a file cannot be read.
    """
    if team is ALONE:
        return

    def describe() -> bytes:
        """Return what all processes must have alike, as JSON."""
        sample = sample_fingerprint(sources)
        del sample["modified"]  # copies on several machines differ in it
        return json.dumps([sample, recorded], sort_keys=True).encode()

    values = list(map(json.loads, team.gather_parts(describe)))
    first_sample, first_recorded = values[0]
    for name, (found, seen) in zip(team.names, values, strict=True):
        if found != first_sample:
            raise RunError(
                f"--corpus: {name} has other text than {team.names[0]} ({_in_words(found)} and "
                f"{_in_words(first_sample)}); give all of them files with the same names and "
                "content"
            )
        if seen != first_recorded:
            raise RunError(
                f"--workdir: {name} finds another corpus.json there than {team.names[0]}; give "
                "all of them one folder, on a file system that they share"
            )


def _in_words(sample: dict[str, Any]) -> str:
    """Return a fingerprint in words."""
    return f"{sample['files']} file(s), {sample['bytes']:,} bytes, hash {sample['sha256'][:8]}"


def _split_items(value: str, flag: str) -> list[str]:
    """Return the items between the commas of a value of --corpus, without blanks around them.

    An item `docstrings:...` takes the rest of the value, with its commas. Raise UsageError if
    there is no item.
    """
    if os.path.isfile(_path(value)):  # its name may have commas
        return [value]
    match = _DOCSTRINGS.fullmatch(value)
    before = (match["listed"] or "") if match else value
    parts = [(quoted or plain).strip() for quoted, plain in _ITEM.findall(before)]
    items = [*filter(None, parts), *([match["item"]] if match else [])]
    if not items:
        raise UsageError(f"--{flag}={value}: nothing named; give files, `docstrings` or `text8`")
    return items


def _has_name_with_comma(value: str) -> bool:
    """Return whether some successive parts of a value, with the commas between, name a file."""
    parts = value.split(",")
    runs = itertools.product(range(len(parts)), range(2, _MOST_PARTS + 1))
    names = (",".join(parts[start : start + count]) for start, count in runs)
    return any("," in name and os.path.isfile(_path(name)) for name in names)


def _path(item: str) -> str:
    """Return the path of an item, in which `~` is the home folder."""
    return os.path.expanduser(item.strip())


def _is_builtin(item: str) -> bool:
    """Return whether an item is `text8`, `docstrings` or `docstrings:...`, and so not a file."""
    return item in ("docstrings", "text8") or item.startswith("docstrings:")


def _expand_item(item: str, flag: str) -> list[str]:
    """Return the files that a path or a glob names, sorted; `~` is the home folder.

    A path that exists is not a glob. Raise UsageError if there is none, or one cannot be read.
    """
    path = _path(item)
    if os.path.isdir(path):
        pattern = os.path.join(glob.escape(item), "*")
        raise UsageError(f"--{flag}={item} is a folder; name its files: {pattern}")
    if not os.path.exists(path) and glob.has_magic(path):
        files = sorted(filter(os.path.isfile, glob.glob(path, recursive=True)))
        if not files:
            raise UsageError(f"--{flag}={item} matches no file; check the pattern (and quote it)")
    else:
        files = [path]
    for file in files:
        _check_readable(file, item, flag)
    return files


def _check_readable(path: str, item: str, flag: str) -> None:
    """Raise a UsageError if a file is missing, irregular, not readable, or no text or Parquet."""
    if not os.path.exists(path):
        raise MissingError(f"--{flag}={item}: no such file; check the path")
    if not os.path.isfile(path):
        raise UsageError(f"--{flag}={item}: {path} is no regular file; save the text to one first")
    if not os.access(path, os.R_OK):
        raise UsageError(f"--{flag}={item}: no permission to read {path}; change its permissions")
    reading.recognize_file(path)
