from __future__ import annotations

import random

import numpy as np
import pytest
import tensorflow as tf

from app.errors import RunError
from app.input import blocks, spans
from app.settings import CorpusConfig, InputConfig
from app.text import reading

PIECES = [
    b"word ",
    b"\xc3\xa9t\xc3\xa9 ",
    b"\n",
    b"\n\n",
    b"long" * 30,
    b"\xf0\x9f\x98\x80 ",
    b"\r\n",
]
DAMAGE = [b"\xff", b"\xe2\x82", b"\xed\xa0\x80 ", b"\xf0\x9f\x98 ", b"\xc0\xaf", b"\xef\xbf\xbd"]


def write(folder, name, data):
    (folder / name).write_bytes(data)
    return str(folder / name)


def random_sources(folder, draw, damaged):
    pieces = PIECES + (DAMAGE if damaged else [])
    texts = [b"".join(draw.choices(pieces, k=draw.choice([0, 3, 40, 400]))) for _ in range(5)]
    return tuple(
        write(folder, f"{number}.txt", draw.choice([b"", b"\xef\xbb\xbf"]) + text)
        for number, text in enumerate(texts)
    )


def index_of(sources, documents, size, invalid_utf8="replace"):
    corpus = CorpusConfig(documents=documents, invalid_utf8=invalid_utf8)
    return spans.build_index(sources, corpus, InputConfig(block_bytes=size))


@pytest.mark.slow
@pytest.mark.parametrize("documents", ["line", "file"])
@pytest.mark.parametrize("damaged", [False, True])
def test_blocks_by_number_are_those_of_the_dataset(tmp_path, documents, damaged):
    draw = random.Random(4)
    for size, readers in ((64, 2), (200, 4), (1 << 20, 9)):
        sources = random_sources(tmp_path, draw, damaged)
        progress = reading.Progress.make(sources)
        settings = CorpusConfig(documents=documents), InputConfig(block_bytes=size, readers=readers)
        dataset = blocks.block_dataset(sources, *settings, progress)
        expected = list(dataset.as_numpy_iterator())
        index = spans.build_index(sources, *settings)
        text = tf.function(spans.make_block_reader(sources, index))
        assert [text(tf.constant(number, tf.int64)).numpy() for number in range(len(index))] == (
            expected
        )
        assert (size == 1 << 20) or len(expected) > 10
        assert np.bincount(index[:, 0], index[:, 3], 5).tolist() == progress.replaced


def test_what_is_not_utf8_is_replaced_as_python_does(tmp_path):
    draw = random.Random(5)
    heads = [0x41, 0x80, 0xBF, 0xC1, 0xC2, 0xE0, 0xED, 0xEF, 0xF0, 0xF4, 0xF5, 0xFF, 0xA0, 0x90]
    data = b"\n".join(bytes(draw.choices(heads, k=draw.randrange(12))) for _ in range(5000))
    sources = (write(tmp_path, "a.txt", data),)
    index = index_of(sources, "line", 1 << 20, "replace")
    found = spans.make_block_reader(sources, index)(tf.constant(0, tf.int64)).numpy()
    assert found == data.decode(errors="replace").encode()


def test_no_text_has_no_blocks(tmp_path):
    sources = (write(tmp_path, "a.txt", b""), write(tmp_path, "b.txt", b"\xef\xbb\xbf"))
    assert index_of(sources, "line", 64, "replace").shape == (0, 4)


def test_what_is_not_utf8_can_be_refused(tmp_path):
    sources = (write(tmp_path, "a.txt", b"fine\n"), write(tmp_path, "b.txt", b"word \xff"))
    with pytest.raises(RunError, match=r"b.txt: byte 0xff at offset 5 is not UTF-8; convert"):
        index_of(sources, "line", 64, "error")


def test_a_source_that_has_changed_is_an_error(tmp_path):
    sources = (write(tmp_path, "a.txt", b"some words\n" * 20),)
    text = spans.make_block_reader(sources, index_of(sources, "line", 64, "replace"))
    write(tmp_path, "a.txt", b"other")
    with pytest.raises(tf.errors.OpError):
        text(tf.constant(3, tf.int64))
