from __future__ import annotations

import os
import sys

import pytest

from app.errors import UsageError
from app.text import docstrings

SOURCE = '''
"""Module text
over two lines.

Second paragraph.
"""
import no_such_module_at_all

if True:
    class Thing:
        """A thing.

        >>> Thing()
        output of it

        After the example.
        """
        async def run(self):
            "Runs \\ud800."
            def inner():
                """Inner text."""
            return "no docstring"
    try:
        pass
    except Exception:
        def late(): "Late text."
'''


@pytest.fixture
def package(tmp_path, monkeypatch):
    folder = tmp_path / "site" / "lexrow_sample"
    (folder / "tests").mkdir(parents=True)
    (folder / "__init__.py").write_text('"""First."""\nraise ImportError("imported")\n')
    (folder / "code.py").write_text(SOURCE)
    (folder / "broken.py").write_text('"""Broken."""\ndef (')
    (folder / "latin.py").write_bytes(b'# coding: latin-1\n"""Caf\xe9."""\n')
    (folder / "code_test.py").write_text('"""A test."""')
    (folder / "tests" / "code.py").write_text('"""A test."""')
    (folder.parent / "lexrow_single.py").write_text('"""Single module."""')
    monkeypatch.syspath_prepend(str(folder.parent))
    return folder


def test_extracts_a_paragraph_a_line_without_importing(package, tmp_path):
    path = docstrings.extract(("lexrow_sample", "lexrow_single"), str(tmp_path / "raw"))
    with open(path, encoding="utf-8") as file:
        assert file.read().splitlines() == [
            "First.",
            "Module text over two lines.",
            "Second paragraph.",
            "A thing.",
            "After the example.",
            "Runs ?.",
            "Inner text.",
            "Late text.",
            "Caf\u00e9.",
            "Single module.",
        ]
    assert "lexrow_sample" not in sys.modules
    assert os.listdir(tmp_path / "raw") == [os.path.basename(path)]


def test_is_made_once_for_a_state_of_the_packages(package, tmp_path):
    path = docstrings.extract(("lexrow_sample",), str(tmp_path))
    os.utime(path, (1, 1))
    assert docstrings.extract(("lexrow_sample",), str(tmp_path)) == path
    assert os.stat(path).st_mtime == 1
    (package / "more.py").write_text('"""More."""')
    assert docstrings.extract(("lexrow_sample",), str(tmp_path)) != path


def test_paragraphs_drop_code_and_underlines():
    text = """Summary.

    Examples
    --------
    Text before:
    >>> call()
    1
    ... more

    ```python
    code = 1

    more_code()
    ```
    Text after.
    ```one line```
    * A point
    """
    assert list(docstrings.paragraphs(text)) == [
        "Summary.",
        "Examples Text before:",
        "Text after. * A point",
    ]
    assert list(docstrings.paragraphs("")) == []


@pytest.mark.parametrize("name", ["no_such_package_", "os.path", "a b", "../x", "sys"])
def test_a_package_without_source_is_refused(tmp_path, name):
    with pytest.raises(UsageError, match=f"--corpus=docstrings:{name}.*; "):
        docstrings.extract((name,), str(tmp_path))
    assert os.listdir(tmp_path) == []


def test_an_unwritable_folder_is_told(package, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write .*docstrings-.*/file is a file"):
        docstrings.extract(("lexrow_sample",), str(tmp_path / "file"))


def test_standard_library_is_found_without_its_tests():
    files = docstrings._sources("stdlib")
    assert any(file.endswith(os.path.join("json", "decoder.py")) for file in files)
    assert not any("site-packages" in file or f"{os.sep}test{os.sep}" in file for file in files)
