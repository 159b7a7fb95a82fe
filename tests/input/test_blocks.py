from __future__ import annotations

import gzip

import pytest
import tensorflow as tf

from app.errors import RunError, UsageError
from app.input import blocks
from app.settings import CorpusConfig, InputConfig
from app.text import reading


def write(tmp_path, **texts: bytes) -> tuple[str, ...]:
    paths = []
    for name, data in texts.items():
        path = tmp_path / f"{name}.txt"
        path.write_bytes(data)
        paths.append(str(path))
    return tuple(paths)


def make_dataset(sources, progress, documents="line", **settings):
    corpus = CorpusConfig(documents=documents)
    return blocks.share_dataset(sources, corpus, InputConfig(**settings), progress)


def read(sources, documents="line", **settings):
    progress = reading.Progress.make(sources)
    dataset = make_dataset(sources, progress, documents, **settings)
    with blocks.raise_read_errors(progress):
        return list(dataset.as_numpy_iterator()), progress


def test_one_source_gives_its_blocks_as_they_are(tmp_path):
    sources = write(tmp_path, a=b"one two three four five six\nseven\n")
    for documents in ("line", "none"):
        found, progress = read(sources, documents, block_bytes=16)
        assert found == list(reading.blocks(sources[0], documents, block_bytes=16))
        assert len(found) > 2
        assert progress.positions == [34]


@pytest.mark.slow
@pytest.mark.parametrize("documents", ["line", "file", "none"])
def test_sources_are_interleaved_in_one_order_and_never_share_a_block(tmp_path, documents):
    sources = write(tmp_path, a=b"a " * 40, b=b"b " * 9, c=b"c " * 20)
    found, _ = read(sources, documents, block_bytes=16, readers=2)
    assert "".join(text.decode()[0] for text in found).startswith("abab")
    assert all(len(set(text.split())) == 1 for text in found)
    for _ in range(3):
        assert read(sources, documents, block_bytes=16, readers=2)[0] == found
    words = b"".join(found).split()
    assert {name: words.count(name.encode()) for name in "abc"} == {"a": 40, "b": 9, "c": 20}


def test_a_damaged_source_is_reported_in_its_own_words_alone(tmp_path, capfd):
    good = write(tmp_path, good=b"words\n" * 1000)
    damaged = tmp_path / "bad.gz"
    damaged.write_bytes(gzip.compress(b"words\n" * 1000)[:-12])
    with pytest.raises(UsageError, match="^.*bad.gz is truncated or corrupt [^\n]*again$"):
        read((*good, str(damaged)), block_bytes=64)
    assert "Traceback" not in "".join(capfd.readouterr())


def test_one_failing_source_stops_the_others(tmp_path):
    sources = (*write(tmp_path, good=b"words\n" * 10_000), str(tmp_path / "gone.txt"))
    progress = reading.Progress.make(sources)
    dataset = make_dataset(sources, progress, block_bytes=64)
    assert len(list(dataset)) < 100
    with pytest.raises(RunError, match="gone.txt"), blocks.raise_read_errors(progress):
        raise KeyError("what a consumer may make of too little data")


def test_replaced_sequences_are_those_of_the_last_pass(tmp_path):
    sources = write(tmp_path, a=b"\xff \xff\n", b=b"fine\n", c=b"\xfe\n")
    progress = reading.Progress.make(sources)
    dataset = make_dataset(sources, progress)
    for _ in range(2):
        list(dataset)
        assert progress.replaced == [2, 0, 1]


def test_split_documents():
    text = tf.constant("one two\n\nthree\r")
    assert blocks.split_documents(text, "line").numpy().tolist() == [b"one two", b"", b"three\r"]
    assert blocks.split_documents(text, "file").numpy().tolist() == [b"one two\n\nthree\r"]
    assert blocks.split_documents(tf.constant("one\n"), "line").numpy().tolist() == [b"one", b""]
    assert blocks.split_documents(tf.constant(""), "line").shape == (1,)
