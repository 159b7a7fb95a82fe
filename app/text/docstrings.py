"""The corpus that is always there: the English in the docstrings of installed packages."""

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

# `stdlib` stands for the standard library, which is no package.
PACKAGES = ("tensorflow", "keras", "numpy", "stdlib")

# Part of the file's name: raise it when other text is extracted from the same packages.
_VERSION = 1
_SKIPPED_FOLDERS = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}
_TEST_FILE = re.compile(r"test_.*|.*_test\.py")
_UNDERLINE = re.compile(r"[\W_]+")
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_BLOCKS = (ast.stmt, ast.ExceptHandler, ast.match_case)


def extract(packages: tuple[str, ...], data_dir: str) -> str:
    """The path of a text file in `data_dir`, one paragraph of a docstring a line, made if missing.

    The packages' sources are parsed, never imported; tests are left out. The name of the file
    changes with the packages and their contents, so another version makes another file.

    Raises UsageError for a package that is not installed or has no Python source, RunError when
    the file cannot be written.
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
    """The paragraphs of a docstring, each one line; examples and underlines are left out.

    An example is a fenced block of code, or what follows a `>>>` up to the next empty line.
    """
    lines: list[str] = []
    fenced = example = False
    for line in inspect.cleandoc(docstring).splitlines():
        text = line.strip()
        if "```" in text:
            fenced ^= text.count("```") % 2 == 1
        elif fenced:
            continue
        elif not text:
            if lines:
                yield " ".join(lines)
            lines, example = [], False
        else:
            example = example or text.startswith(">>>")
            if not example and not _UNDERLINE.fullmatch(text):
                lines.append(text)
    if lines:
        yield " ".join(lines)


def _docstrings(path: str) -> Iterator[str]:
    """The docstrings of a Python file in their order; none for a file that does not parse."""
    with open(path, "rb") as file:
        source = file.read()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the strings of other people's code
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return
    # Docstrings hang on statements alone, and most of a tree is expressions.
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, _DOCUMENTED) and (docstring := ast.get_docstring(node, clean=False)):
            yield docstring
        children = [child for child in ast.iter_child_nodes(node) if isinstance(child, _BLOCKS)]
        pending.extend(reversed(children))


def _sources(package: str) -> list[str]:
    """The Python files of a package or module, sorted, without its tests."""
    files = [file for root in _roots(package) for file in _python_files(root)]
    if not files:
        raise UsageError(f"--corpus=docstrings:{package} has no Python source; leave it out")
    return files


def _roots(package: str) -> list[str]:
    if package == "stdlib":
        return [sysconfig.get_path("stdlib")]
    # A dotted name would import the package that holds it.
    spec = importlib.util.find_spec(package) if package.isidentifier() else None
    if spec is None:
        raise UsageError(
            f"--corpus=docstrings:{package}: no such top-level package is installed; "
            "install it, or name `stdlib` or another package"
        )
    return list(spec.submodule_search_locations or filter(None, [spec.origin]))


def _python_files(root: str) -> Iterator[str]:
    if root.endswith(".py"):
        yield root
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(set(folders) - _SKIPPED_FOLDERS)
        for name in sorted(names):
            if name.endswith(".py") and not _TEST_FILE.fullmatch(name):
                yield os.path.join(folder, name)


def _key(packages: tuple[str, ...], files: list[str]) -> str:
    """Twelve hex digits that follow the packages and the names and sizes of their files.

    Versions would need the distribution's name, which need not be the package's.
    """
    listing = [f"{os.path.basename(file)} {os.path.getsize(file)}" for file in files]
    text = "\n".join([str(_VERSION), *packages, *listing])
    return hashlib.sha256(text.encode()).hexdigest()[:12]
