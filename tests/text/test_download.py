from __future__ import annotations

import functools
import hashlib
import http.server
import io
import os
import threading
import zipfile

import pytest

from app.errors import RunError
from app.text import download

TEXT = b"the words of a small corpus " * 1000


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture
def served(tmp_path):
    """A folder and the address at which it is served."""
    folder = tmp_path / "served"
    folder.mkdir()
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def archive(url: str, text: bytes = TEXT) -> download.Archive:
    return download.Archive(
        f"{url}/words.zip", "words", len(text), hashlib.sha256(text).hexdigest()
    )


def zipped(member: str = "words") -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(member, TEXT)
    return packed.getvalue()


def test_fetches_once_and_keeps_only_the_text(served, tmp_path):
    folder, url = served
    (folder / "words.zip").write_bytes(zipped())
    path = download.fetch(archive(url), str(tmp_path / "raw"))
    with open(path, "rb") as file:
        assert file.read() == TEXT
    assert os.listdir(tmp_path / "raw") == ["words"]
    (folder / "words.zip").unlink()
    assert download.fetch(archive(url), str(tmp_path / "raw")) == path


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (zipped()[:-50], "did not give a zip with words"),
        (zipped("other"), "did not give a zip with words"),
        (b"<html>blocked</html>", "did not give a zip with words"),
        (zipped()[:45] + bytes(10) + zipped()[55:], "did not give a zip with words"),
        (None, "cannot download .*check the network"),
    ],
)
def test_a_bad_answer_leaves_nothing(served, tmp_path, data, message):
    folder, url = served
    if data is not None:
        (folder / "words.zip").write_bytes(data)
    with pytest.raises(RunError, match=f"{message}.*put .* at .*words") as raised:
        download.fetch(archive(url), str(tmp_path / "raw"))
    assert "\n" not in str(raised.value)
    assert os.listdir(tmp_path / "raw") == []


def test_another_text_is_refused_by_its_hash(served, tmp_path):
    folder, url = served
    (folder / "words.zip").write_bytes(zipped())
    with pytest.raises(RunError, match="should be 28,000 bytes of sha256 .* by other means"):
        download.fetch(archive(url, TEXT[::-1]), str(tmp_path / "raw"))
    assert os.listdir(tmp_path / "raw") == []


def test_a_bad_file_put_there_by_hand_is_told_but_kept(tmp_path):
    (tmp_path / "words").write_bytes(b"half of it")
    with pytest.raises(RunError, match=f"delete {tmp_path}/words and run again"):
        download.fetch(archive("http://127.0.0.1:1"), str(tmp_path))
    assert os.listdir(tmp_path) == ["words"]


def test_no_network(tmp_path):
    with pytest.raises(RunError, match="cannot download http://127.0.0.1:1/words.zip: "):
        download.fetch(archive("http://127.0.0.1:1"), str(tmp_path))
