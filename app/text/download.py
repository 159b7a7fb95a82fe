"""Download a corpus once, and check it by its hash."""

from __future__ import annotations

import hashlib
import http.client
import os
import shutil
import tempfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

from absl import logging

from ..errors import RunError
from ..system.files import replacing
from .meter import show_progress

_CHUNK_BYTES = 1 << 20
_TIMEOUT_SECONDS = 30


class Archive(NamedTuple):
    """A zip file to download, and the file in it to keep.

    Attributes:
        url: Address of the zip file.
        member: Name of the file in it.
        size: Bytes of that file.
        sha256: Hash of that file, in hex.
    """

    url: str
    member: str
    size: int
    sha256: str


# The first 10^8 bytes of English Wikipedia of 2006, cleaned to a-z and single spaces; described at
# http://mattmahoney.net/dc/textdata.html, which gives the size. data/README.md cites the hash.
TEXT8 = Archive(
    url="http://mattmahoney.net/dc/text8.zip",
    member="text8",
    size=100_000_000,
    sha256="6e890197040d37d85beb962ae1f041ff1d9a9ca8d20c7d99c85027eebf51dca7",
)


def fetch(archive: Archive, data_dir: str) -> str:
    """Return the path of the archive's member in `data_dir`; download and unpack it if missing.

    The size and the hash are checked, also of a file that is there already.

    Raises:
        RunError: The file cannot be downloaded or written, or it is not the published one.
    """
    path = os.path.join(data_dir, archive.member)
    if os.path.exists(path):
        _check_content(path, archive, f"delete {path} and run again")
        return path
    logging.info("downloading %s to %s", archive.url, path)
    with replacing(path) as temporary, tempfile.TemporaryFile(dir=data_dir) as packed:
        _download(archive.url, packed, path)
        try:
            with (
                zipfile.ZipFile(packed) as file,
                file.open(archive.member) as member,
                open(temporary, "wb") as unpacked,
            ):
                shutil.copyfileobj(member, unpacked, _CHUNK_BYTES)
        except (zipfile.BadZipFile, zlib.error, KeyError, EOFError) as error:
            raise RunError(
                f"{archive.url} did not give a zip with {archive.member} in it; "
                f"fetch {archive.member} by other means and put it at {path}"
            ) from error
        _check_content(temporary, archive, f"fetch it by other means and put it at {path}")
    return path


def _download(url: str, target: IO[bytes], path: str) -> None:
    """Write the content of a URL to an open file, and show the progress.

    Args:
        path: Where the unpacked file belongs, for messages.
    """
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as response:
            total = int(response.headers.get("Content-Length") or 0)
            with show_progress(os.path.basename(path), total, "B") as show:
                for chunk in _chunks(response):
                    target.write(chunk)
                    show(target.tell())
    except (OSError, http.client.HTTPException) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()  # the error is also an open response
        raise RunError(
            f"cannot download {url}: {getattr(error, 'reason', error)}; check the network, "
            f"or put the unpacked file at {path}"
        ) from error


def _check_content(path: str | Path, archive: Archive, remedy: str) -> None:
    """Raise a RunError if a file has not the size and the hash of the archive's member."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for chunk in _chunks(file):
            digest.update(chunk)
    size = os.path.getsize(path)
    if (size, digest.hexdigest()) != (archive.size, archive.sha256):
        raise RunError(
            f"{archive.member} of {archive.url} should be {archive.size:,} bytes of sha256 "
            f"{archive.sha256}, but is {size:,} of {digest.hexdigest()}; {remedy}"
        )


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    """Return an iterator over the rest of an open file, at most a MiB at a time."""
    return iter(lambda: file.read(_CHUNK_BYTES), b"")
