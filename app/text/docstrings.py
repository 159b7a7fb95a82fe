"""Extract a corpus of English from the docstrings of installed packages."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import inspect
import os
import re
import sysconfig
import warnings
from collections.abc import Iterator

from absl import logging

from ..errors import UsageError
from ..system.files import replacing
from .meter import show_progress

# `stdlib` means the standard library, which is not a package.
PACKAGES = ("tensorflow", "keras", "numpy", "stdlib")

# Part of the file's name. Increase it when a change here extracts other text from a package.
_VERSION = 1
_SKIPPED_FOLDERS = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}
_TEST_FILE = re.compile(r"test_.*|.*_test\.py")
_UNDERLINE = re.compile(r"[\W_]+")
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_BLOCKS = (ast.stmt, ast.ExceptHandler, ast.match_case)


def extract(packages: tuple[str, ...], data_dir: str) -> str:
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
    path = os.path.join(data_dir, f"docstrings-{_key(packages, files)}.txt")
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
    for line in inspect.cleandoc(docstring).splitlines():
        text = line.strip()
        if "```" in text:
            in_fence ^= text.count("```") % 2 == 1
        elif in_fence:
            continue
        elif not text:
            if lines:
                yield " ".join(lines)
            lines, in_example = [], False
        else:
            in_example = in_example or text.startswith(">>>")
            if not in_example and not _UNDERLINE.fullmatch(text):
                lines.append(text)
    if lines:
        yield " ".join(lines)


def _docstrings(path: str) -> Iterator[str]:
    """Yield the docstrings of a Python file in order; none if it does not parse."""
    with open(path, "rb") as file:
        source = file.read()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as on invalid escapes in other people's code
            tree = ast.parse(source)
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
    """Return the Python files of a package or module, in a fixed order, without its tests."""
    files = [file for root in _roots(package) for file in _python_files(root)]
    if not files:
        raise UsageError(f"--corpus=docstrings:{package} has no Python source; leave it out")
    return files


def _roots(package: str) -> list[str]:
    """Return the folders of a package, or the file of a module, or the folder of the stdlib.

    Nothing is imported. The file of a module may be no Python source.
    """
    if package == "stdlib":
        return [sysconfig.get_path("stdlib")]
    # find_spec of a dotted name would import the parent package.
    spec = importlib.util.find_spec(package) if package.isidentifier() else None
    if spec is None:
        raise UsageError(
            f"--corpus=docstrings:{package}: no such top-level package is installed; "
            "install it, or name `stdlib` or another package"
        )
    return list(spec.submodule_search_locations or filter(None, [spec.origin]))


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


def _key(packages: tuple[str, ...], files: list[str]) -> str:
    """Return twelve hex digits that depend on the packages, and the names and sizes of their files.

    Versions would need the name of the distribution, which may differ from the package's.
    """
    listing = [f"{os.path.basename(file)} {os.path.getsize(file)}" for file in files]
    text = "\n".join([str(_VERSION), *packages, *listing])
    return hashlib.sha256(text.encode()).hexdigest()[:12]
