import functools
import hashlib
import http.server
import io
import os
import sys
import threading
import zipfile

import pytest

from app.errors import RunError, UsageError
from app.text import builtin_corpora
from app.text.builtin_corpora import extract_docstrings, fetch_text8

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
    path = extract_docstrings(("lexrow_sample", "lexrow_single"), str(tmp_path / "raw"))
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
    path = extract_docstrings(("lexrow_sample",), str(tmp_path))
    os.utime(path, (1, 1))
    assert extract_docstrings(("lexrow_sample",), str(tmp_path)) == path
    assert os.stat(path).st_mtime == 1
    (package / "more.py").write_text('"""More."""')
    assert extract_docstrings(("lexrow_sample",), str(tmp_path)) != path


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
    assert list(builtin_corpora.paragraphs(text)) == [
        "Summary.",
        "Examples Text before:",
        "Text after. * A point",
    ]
    assert list(builtin_corpora.paragraphs("")) == []


@pytest.mark.parametrize("name", ["no_such_package_", "os.path", "a b", "../x", "sys"])
def test_a_package_without_source_is_refused(tmp_path, name):
    with pytest.raises(UsageError, match=f"--corpus=docstrings:{name}.*; "):
        extract_docstrings((name,), str(tmp_path))
    assert os.listdir(tmp_path) == []


def test_an_unwritable_folder_is_told(package, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write .*docstrings-.*/file is a file"):
        extract_docstrings(("lexrow_sample",), str(tmp_path / "file"))


def test_standard_library_is_found_without_its_tests():
    files = builtin_corpora._sources("stdlib")
    assert any(file.endswith(os.path.join("json", "decoder.py")) for file in files)
    assert not any("site-packages" in file or f"{os.sep}test{os.sep}" in file for file in files)


TEXT8 = b"the words of a small corpus " * 1000


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


def publish(monkeypatch, url: str, text: bytes = TEXT8) -> None:
    """Set the address and the content of text8."""
    values = {"URL": f"{url}/text8.zip", "SIZE": len(text)}
    values["SHA256"] = hashlib.sha256(text).hexdigest()
    for name, value in values.items():
        monkeypatch.setattr(builtin_corpora, f"_{name}", value)


@pytest.fixture
def served(tmp_path, monkeypatch):
    """A folder that is served at the address of text8."""
    folder = tmp_path / "served"
    folder.mkdir()
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        publish(monkeypatch, f"http://127.0.0.1:{server.server_address[1]}")
        yield folder
        server.shutdown()
        thread.join()


def zipped(member: str = "text8") -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(member, TEXT8)
    return packed.getvalue()


def test_fetches_once_and_keeps_only_the_text(served, tmp_path):
    (served / "text8.zip").write_bytes(zipped())
    path = fetch_text8(str(tmp_path / "raw"))
    with open(path, "rb") as file:
        assert file.read() == TEXT8
    assert os.listdir(tmp_path / "raw") == ["text8"]
    (served / "text8.zip").unlink()
    assert fetch_text8(str(tmp_path / "raw")) == path


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (zipped()[:-50], "did not give a zip with text8"),
        (zipped("other"), "did not give a zip with text8"),
        (b"<html>blocked</html>", "did not give a zip with text8"),
        (zipped()[:45] + bytes(10) + zipped()[55:], "did not give a zip with text8"),
        (None, "cannot download .*check the network"),
    ],
)
def test_a_bad_answer_leaves_nothing(served, tmp_path, data, message):
    if data is not None:
        (served / "text8.zip").write_bytes(data)
    with pytest.raises(RunError, match=f"{message}.*put .* at .*text8") as raised:
        fetch_text8(str(tmp_path / "raw"))
    assert "\n" not in str(raised.value)
    assert os.listdir(tmp_path / "raw") == []


def test_another_text_is_refused_by_its_hash(served, tmp_path, monkeypatch):
    monkeypatch.setattr(builtin_corpora, "_SHA256", hashlib.sha256(TEXT8[::-1]).hexdigest())
    (served / "text8.zip").write_bytes(zipped())
    with pytest.raises(RunError, match="should be 28,000 bytes of sha256 .* by other means"):
        fetch_text8(str(tmp_path / "raw"))
    assert os.listdir(tmp_path / "raw") == []


def test_a_bad_file_put_there_by_hand_is_told_but_kept(tmp_path):
    (tmp_path / "text8").write_bytes(b"half of it")
    with pytest.raises(RunError, match=f"delete {tmp_path}/text8 and run again"):
        fetch_text8(str(tmp_path))
    assert os.listdir(tmp_path) == ["text8"]


def test_no_network(tmp_path, monkeypatch):
    publish(monkeypatch, "http://127.0.0.1:1")
    with pytest.raises(RunError, match="cannot download http://127.0.0.1:1/text8.zip: "):
        fetch_text8(str(tmp_path))
