import functools
import hashlib
import http.server
import io
import json
import os
import subprocess
import sys
import tarfile
import threading
import zipfile

import pytest

from app.errors import RunError, UsageError
from app.input import blocks
from app.settings import CorpusConfig, InputConfig
from app.text import builtin_corpora, corpus, reading
from app.text.builtin_corpora import extract_docstrings, fetch_text8


def resolve(value, data_dir="unused"):
    return corpus.resolve(CorpusConfig(corpus=str(value), data_dir=str(data_dir)))


@pytest.fixture
def texts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("b.txt", "a.txt", "[1].txt", "deep/er/c.txt", "text8"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("words")
    return tmp_path


def test_files_globs_and_lists(texts):
    assert resolve("b.txt, a.txt,") == ("b.txt", "a.txt")
    assert resolve("?.txt") == ("a.txt", "b.txt")
    assert resolve("**/*.txt") == ("[1].txt", "a.txt", "b.txt", "deep/er/c.txt")
    assert resolve("b.txt,*.txt") == ("b.txt", "[1].txt", "a.txt")
    assert resolve("[1].txt") == ("[1].txt",)
    assert resolve("./text8") == ("./text8",)


def test_names_with_commas(texts):
    for name in ("x,y.txt", "x, y, z.txt"):
        (texts / name).write_text("words")
    assert resolve("x,y.txt") == ("x,y.txt",)  # as a whole it is a file
    assert resolve('a.txt,"x,y.txt", "x, y, z.txt",b.txt') == (
        *("a.txt", "x,y.txt", "x, y, z.txt", "b.txt"),
    )
    quoted = "check the path, or write a name with a comma in double quotes$"
    with pytest.raises(UsageError, match=f"--corpus=x: no such file; {quoted}"):
        resolve("a.txt,x,y.txt,b.txt")
    with pytest.raises(UsageError, match="--corpus=x: no such file; check the path$"):
        resolve("x,a.txt")


def test_home_is_expanded(texts, monkeypatch):
    monkeypatch.setenv("HOME", str(texts))
    assert resolve("~/a.txt") == (str(texts / "a.txt"),)


def test_made_corpora(texts, monkeypatch):
    extract = "extract_docstrings", lambda packages, folder: f"{folder}:{packages}"
    monkeypatch.setattr(builtin_corpora, *extract)
    monkeypatch.setattr(builtin_corpora, "fetch_text8", lambda folder: f"{folder}/text8")
    default = f"raw:{builtin_corpora.PACKAGES}"
    assert resolve("docstrings", "raw") == (default,)
    assert resolve("docstrings,a.txt", "raw") == (default, "a.txt")
    assert resolve("docstrings:", "raw") == (default,)
    assert resolve("docstrings:x, y", "raw") == ("raw:('x', 'y')",)
    assert resolve("a.txt, docstrings:x,y", "raw") == ("a.txt", "raw:('x', 'y')")
    assert resolve("text8,a.txt", "raw") == ("raw/text8", "a.txt")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("", "--corpus=: nothing named; give files"),
        (" , ", "nothing named"),
        ("gone.txt", "--corpus=gone.txt: no such file; check"),
        ("text8,gone.txt", "--corpus=gone.txt: no such file"),
        ("text8:x", "--corpus=text8:x: no such file"),
        ("*.md", r"--corpus=\*.md matches no file; check the pattern"),
        ("deep", "--corpus=deep is a folder; name its files: deep/\\*"),
        ("d[1]", r"--corpus=d\[1\] is a folder; name its files: d\[\[\]1\]/\*$"),
        ("/dev/null", "/dev/null is no regular file; save"),
        ("words.tar.gz", "words.tar.gz is a tar archive, which cannot be read; unpack"),
        ("docstrings:no_such_package_", "docstrings:no_such_package_: no such .* install"),
    ],
)
def test_bad_values_are_refused_in_one_line(texts, value, message):
    with tarfile.open(texts / "words.tar.gz", "w:gz") as archive:
        archive.add("a.txt")
    (texts / "d[1]").mkdir()
    with pytest.raises(UsageError, match=message) as raised:
        resolve(value)
    assert "\n" not in str(raised.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_refused(texts):
    (texts / "a.txt").chmod(0)
    with pytest.raises(UsageError, match="no permission to read"):
        resolve("a.txt")


def test_fingerprint_tells_changes_but_not_moves(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"word " * 100_000)
    before = corpus.fingerprint((str(path),))
    assert json.loads(json.dumps(before)) == before
    assert (before["files"], before["bytes"]) == (1, 500_000)

    os.utime(path, (0, 0))
    moved = tmp_path / "folder" / "a.txt"
    moved.parent.mkdir()
    path.rename(moved)
    assert {**corpus.fingerprint((str(moved),)), "modified": before["modified"]} == before

    with open(moved, "ab") as file:
        file.write(b"more")
    assert corpus.fingerprint((str(moved),))["bytes"] == 500_004
    moved.write_bytes(b"word " * 99_999 + b"wort ")
    assert corpus.fingerprint((str(moved),)) != before


def test_fingerprint_follows_the_order(tmp_path):
    paths = [str(tmp_path / name) for name in "ab"]
    for path in paths:
        with open(path, "w") as file:
            file.write(path)
    assert corpus.fingerprint(tuple(paths)) != corpus.fingerprint(tuple(reversed(paths)))


def test_reading_needs_no_tensorflow():
    code = "import sys, app.text.corpus, app.text.reading; sys.exit('tensorflow' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.fixture
def long_text(tmp_path):
    """A file that no sample is taken from everywhere, and its fingerprint."""
    path = tmp_path / "a.txt"
    path.write_bytes(b"word " * 100_000)
    return path, corpus.fingerprint((str(path),))


def edit(path, modified=None):
    """Change a byte where no sample lies, and set the time of the last change."""
    with open(path, "r+b") as file:
        file.seek(20_001)
        file.write(b"a")
    os.utime(path, ns=(modified, modified) if modified else None)


def test_an_edit_that_keeps_the_size_is_seen(long_text):
    path, known = long_text
    edit(path, path.stat().st_mtime_ns + 1)
    assert corpus.sample_fingerprint((str(path),))["sha256"] == known["sha256"]
    assert corpus.recognize((str(path),), known) is None


def test_a_file_that_was_touched_moved_or_copied_is_recognized(long_text, tmp_path, monkeypatch):
    path, known = long_text
    (tmp_path / "deep").mkdir()
    moved = path.rename(tmp_path / "deep" / "a.txt")
    with monkeypatch.context() as patched:  # nothing is read whole where the time is the same
        patched.setattr(corpus, "read_contents", None)
        assert corpus.recognize((str(moved),), known) == known
    os.utime(moved, ns=(1, 1))
    found = corpus.recognize((str(moved),), known)
    assert found["contents"] == known["contents"]
    assert found["modified"] != known["modified"]


def test_the_fingerprint_of_an_older_version_is_recognized_and_completed(long_text):
    path, known = long_text
    old = {name: known[name] for name in ("files", "bytes", "sha256")}
    assert corpus.recognize((str(path),), old) == known
    assert corpus.recognize((str(path),), {**old, "bytes": 1}) is None


def test_contents_are_those_of_any_pass_over_the_text(tmp_path):
    paths = (tmp_path / "a.txt", tmp_path / "b.txt")
    for path, text in zip(paths, (b"one two\n" * 5000, b"three\n" * 3000), strict=True):
        path.write_bytes(text)
    sources = tuple(map(str, paths))
    expected = corpus.fingerprint(sources)["contents"]
    for size, readers in ((64, 1), (1000, 2)):
        progress = reading.Progress.make(sources, hashed=True)
        settings = InputConfig(block_bytes=size, readers=readers)
        files = blocks.TextFiles(sources, CorpusConfig(), settings)
        assert len(list(blocks.share_dataset(files, progress))) > 50
        assert corpus.hash_contents(progress.digests) == expected
    assert corpus.fingerprint(sources[::-1])["contents"] != expected


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
