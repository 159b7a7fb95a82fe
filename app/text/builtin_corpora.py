"""Make the corpora that need no file of the user: docstrings of installed packages, and text8."""

from __future__ import annotations

import ast
import hashlib
import http.client
import importlib.util
import inspect
import os
import re
import shutil
import sysconfig
import tempfile
import urllib.error
import urllib.request
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from absl import logging

from ..errors import RunError, UsageError
from ..system.console import show_progress
from ..system.files import hash_file, replacing

# `stdlib` means the standard library, which is not a package.
PACKAGES = ("tensorflow", "keras", "numpy", "stdlib")

# Part of the file's name. Increase it when a change here extracts other text from a package.
_VERSION = 1
_SKIPPED_FOLDERS = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}
_TEST_FILE = re.compile(r"test_.*|.*_test\.py")
_UNDERLINE = re.compile(r"[\W_]+")
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_BLOCKS = (ast.stmt, ast.ExceptHandler, ast.match_case)

# The first 10^8 bytes of English Wikipedia of 2006, cleaned to a-z and single spaces; described at
# http://mattmahoney.net/dc/textdata.html, which gives the size. data/README.md cites the hash.
_URL, _MEMBER, _SIZE = "http://mattmahoney.net/dc/text8.zip", "text8", 100_000_000
_SHA256 = "6e890197040d37d85beb962ae1f041ff1d9a9ca8d20c7d99c85027eebf51dca7"
_CHUNK_BYTES = 1 << 20
_TIMEOUT_SECONDS = 30


# Docstrings.


def extract_docstrings(packages: tuple[str, ...], data_dir: str) -> str:
    """Return the path of a text file with a paragraph of a docstring per line; write it if missing.

    The packages are parsed, never imported, and tests are left out. The name of the file depends on
    the packages and the names and sizes of their files, so another version makes another file. The
    start is logged, and progress is shown.

    Args:
        packages: Names of packages or modules; `stdlib` for the standard library.

    Raises:
        UsageError: A package is not installed or has no Python source.
        RunError: The file cannot be written.
    """
    files = [file for package in packages for file in _sources(package)]
    # Versions would need the name of the distribution, which may differ from the package's.
    listing = [f"{os.path.basename(file)} {os.path.getsize(file)}" for file in files]
    key = hashlib.sha256("\n".join([str(_VERSION), *packages, *listing]).encode()).hexdigest()
    path = os.path.join(data_dir, f"docstrings-{key[:12]}.txt")
    if os.path.exists(path):
        return path
    logging.info("extracting the docstrings of %s to %s", ", ".join(packages), path)
    with (
        show_progress("docstrings", len(files), " files") as show,
        replacing(path) as temporary,
        # A docstring may hold lone surrogates, which have no encoding.
        open(temporary, "w", encoding="utf-8", errors="replace", newline="\n") as output,
    ):
        for position, file in enumerate(files, 1):
            for docstring in _docstrings(file):
                output.writelines(f"{text}\n" for text in paragraphs(docstring))
            show(position)
    return path


def paragraphs(docstring: str) -> Iterator[str]:
    """Yield the paragraphs of a docstring, each as one line, without examples and underlines.

    An example is a block of code between lines with three backquotes, or a `>>>` with the lines up
    to the next empty line.
    """
    lines: list[str] = []
    in_fence = in_example = False
    for line in [*inspect.cleandoc(docstring).splitlines(), ""]:
        text = line.strip()
        if "```" in text:
            in_fence ^= text.count("```") % 2 == 1
        elif not text and not in_fence:
            if lines:
                yield " ".join(lines)
            lines, in_example = [], False
        elif not in_fence:
            in_example = in_example or text.startswith(">>>")
            if not in_example and not _UNDERLINE.fullmatch(text):
                lines.append(text)
    if lines:  # before a block of code without an end
        yield " ".join(lines)


def _docstrings(path: str) -> Iterator[str]:
    """Yield the docstrings of a Python file in order; none if it does not parse."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as on invalid escapes in other people's code
            tree = ast.parse(Path(path).read_bytes())
    except (SyntaxError, ValueError, RecursionError):
        return
    # Only statements have docstrings, and most nodes of a tree are expressions.
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, _DOCUMENTED) and (docstring := ast.get_docstring(node, clean=False)):
            yield docstring
        children = [child for child in ast.iter_child_nodes(node) if isinstance(child, _BLOCKS)]
        pending.extend(reversed(children))


def _sources(package: str) -> list[str]:
    """Return the Python files of a package or module, in a fixed order, without its tests.

    Nothing is imported. Raise UsageError if it is not installed or has no Python source.
    """
    if package == "stdlib":
        roots = [sysconfig.get_path("stdlib")]
    else:
        # find_spec of a dotted name would import the parent package.
        spec = importlib.util.find_spec(package) if package.isidentifier() else None
        if spec is None:
            raise UsageError(
                f"--corpus=docstrings:{package}: no such top-level package is installed; "
                "install it, or name `stdlib` or another package"
            )
        roots = list(spec.submodule_search_locations or filter(None, [spec.origin]))
    files = [file for root in roots for file in _python_files(root)]
    if not files:
        raise UsageError(f"--corpus=docstrings:{package} has no Python source; leave it out")
    return files


def _python_files(root: str) -> Iterator[str]:
    """Yield the file `root` if its name ends in .py, else all Python files below a folder by name.

    Tests (test_*.py, *_test.py, and folders of tests) and folders of installed packages are left
    out.
    """
    if root.endswith(".py"):
        yield root
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(set(folders) - _SKIPPED_FOLDERS)
        for name in sorted(names):
            if name.endswith(".py") and not _TEST_FILE.fullmatch(name):
                yield os.path.join(folder, name)


# text8.


def fetch_text8(data_dir: str) -> str:
    """Return the path of text8 in `data_dir`; download and unpack it if it is not there.

    The size and the hash are checked, also of a file that is there already.

    Raises:
        RunError: The file cannot be downloaded or written, or it is not the published one.
    """
    path = os.path.join(data_dir, _MEMBER)
    if os.path.exists(path):
        _check_content(path, f"delete {path} and run again")
        return path
    logging.info("downloading %s to %s", _URL, path)
    with replacing(path) as temporary, tempfile.TemporaryFile(dir=data_dir) as packed:
        _download(packed, path)
        try:
            with (
                zipfile.ZipFile(packed) as file,
                file.open(_MEMBER) as member,
                open(temporary, "wb") as unpacked,
            ):
                shutil.copyfileobj(member, unpacked, _CHUNK_BYTES)
        except (zipfile.BadZipFile, zlib.error, KeyError, EOFError) as error:
            raise RunError(
                f"{_URL} did not give a zip with {_MEMBER} in it; "
                f"fetch {_MEMBER} by other means and put it at {path}"
            ) from error
        _check_content(temporary, f"fetch it by other means and put it at {path}")
    return path


def _download(target: IO[bytes], path: str) -> None:
    """Write the archive of text8 to an open file, and show the progress."""
    try:
        with urllib.request.urlopen(_URL, timeout=_TIMEOUT_SECONDS) as response:
            total = int(response.headers.get("Content-Length") or 0)
            with show_progress(os.path.basename(path), total, "B") as show:
                for chunk in iter(lambda: response.read(_CHUNK_BYTES), b""):
                    target.write(chunk)
                    show(target.tell())
    except (OSError, http.client.HTTPException) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()  # the error is also an open response
        raise RunError(
            f"cannot download {_URL}: {getattr(error, 'reason', error)}; check the network, "
            f"or put the unpacked file at {path}"
        ) from error


def _check_content(path: str | Path, remedy: str) -> None:
    """Raise a RunError if a file has not the size and the hash of text8."""
    with open(path, "rb") as file:
        digest = hash_file(file)
    size = os.path.getsize(path)
    if (size, digest) != (_SIZE, _SHA256):
        raise RunError(
            f"{_MEMBER} of {_URL} should be {_SIZE:,} bytes of sha256 {_SHA256}, but is {size:,} "
            f"of {digest}; {remedy}"
        )
