import json
import os
import subprocess
import sys
import tarfile

import pytest

from app.errors import UsageError
from app.input import blocks
from app.settings import CorpusConfig, InputConfig
from app.text import builtin_corpora, corpus, reading


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
        found = blocks.share_dataset(sources, CorpusConfig(), settings, progress)
        assert len(list(found)) > 50
        assert corpus.hash_contents(progress) == expected
    assert corpus.fingerprint(sources[::-1])["contents"] != expected
