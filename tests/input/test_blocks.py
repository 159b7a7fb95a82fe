import gzip
import random

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
    files = blocks.TextFiles(sources, corpus, InputConfig(**settings))
    return blocks.share_dataset(files, progress)


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
    assert len(list(make_dataset(sources, progress, block_bytes=64))) < 100
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


# Shares: by position in plain files, and by count in compressed ones.

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


def write_file(folder, name, data):
    (folder / name).write_bytes(data)
    return str(folder / name)


def random_sources(folder, draw, damaged):
    pieces = PIECES + (DAMAGE if damaged else [])
    texts = [b"".join(draw.choices(pieces, k=draw.choice([0, 3, 40, 400]))) for _ in range(5)]
    return tuple(
        write_file(folder, f"{number}.txt", draw.choice([b"", b"\xef\xbb\xbf"]) + text)
        for number, text in enumerate(texts)
    )


def blocks_of(sources, share, **settings):
    of_corpus = {
        name: settings.pop(name) for name in ("documents", "text_column") if name in settings
    }
    corpus = CorpusConfig(**of_corpus)
    progress = reading.Progress.make(sources)
    files = blocks.TextFiles(sources, corpus, InputConfig(**settings))
    dataset = blocks.share_dataset(files, progress, share)
    with blocks.raise_read_errors(progress):
        return list(dataset.as_numpy_iterator()), progress


@pytest.mark.slow
@pytest.mark.parametrize("documents", ["line", "file"])
@pytest.mark.parametrize("damaged", [False, True])
def test_shares_are_the_blocks_of_the_whole_text_dealt_in_turn(tmp_path, documents, damaged):
    draw = random.Random(7)
    for size, readers, total in ((64, 2, 3), (200, 4, 2), (1 << 20, 9, 2)):
        settings = {"documents": documents, "block_bytes": size, "readers": readers}
        sources = random_sources(tmp_path, draw, damaged)
        whole, progress = blocks_of(sources, blocks.ALL, **settings)
        found = [blocks_of(sources, blocks.Share(n, total), **settings) for n in range(total)]
        for number, (of_share, _) in enumerate(found):
            assert of_share == whole[number::total]
        replaced = zip(*(part.replaced for _, part in found), strict=True)
        assert list(map(sum, replaced)) == progress.replaced


@pytest.mark.slow
def test_long_lines_and_words_are_cut_at_the_same_places(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "_TAIL_BYTES", 8)
    text = b"a" * 100 + b"\n" + "\u00e9".encode() * 90 + b" b\n" + b"word " * 50 + b"\n\n"
    sources = (write_file(tmp_path, "a.txt", text), write_file(tmp_path, "b.txt", text[5:]))
    for size in (16, 31, 64):
        whole, _ = blocks_of(sources, blocks.ALL, block_bytes=size)
        of_shares = [blocks_of(sources, blocks.Share(n, 2), block_bytes=size)[0] for n in (0, 1)]
        assert of_shares == [whole[0::2], whole[1::2]]


def test_a_share_of_compressed_text(tmp_path):
    text = b"some words of a line\n" * 40
    sources = (
        write_file(tmp_path, "a.gz", gzip.compress(text)),
        write_file(tmp_path, "b.txt", text),
    )
    whole, _ = blocks_of(sources, blocks.ALL, block_bytes=64)
    assert blocks_of(sources, blocks.Share(1, 2), block_bytes=64)[0] == whole[1::2]


def test_a_share_of_a_column(tmp_path):
    lines = [f"some words of line {number}" for number in range(40)]
    rows = "".join(f'{{"n": 1, "text": "{line}"}}\n' for line in lines).encode()
    plain = (write_file(tmp_path, "a.txt", "\n".join([*lines, ""]).encode()),) * 2
    sources = (write_file(tmp_path, "a", rows), write_file(tmp_path, "b", gzip.compress(rows)))
    settings = {"text_column": "text", "block_bytes": 64}
    whole, _ = blocks_of(sources, blocks.ALL, **settings)
    assert whole == blocks_of(plain, blocks.ALL, block_bytes=64)[0]
    assert blocks_of(sources, blocks.Share(1, 2), **settings)[0] == whole[1::2]


def test_only_the_blocks_of_the_share_are_read(tmp_path, monkeypatch):
    sources = (write_file(tmp_path, "a.txt", b"some words of a line\n" * 4000),)
    read, spans = [], blocks._read_span
    monkeypatch.setattr(blocks, "_read_span", lambda *span: read.append(span[2]) or spans(*span))
    of_share, _ = blocks_of(sources, blocks.Share(1, 4), block_bytes=4096)
    assert sum(read) == sum(map(len, of_share)) < 25_000


def test_a_file_that_shrinks_is_an_error(tmp_path, monkeypatch):
    sources = (write_file(tmp_path, "a.txt", b"some words\n" * 20),)
    found = blocks.find_blocks

    def then_shrink(*arguments):
        index = found(*arguments)
        write_file(tmp_path, "a.txt", b"other")
        return index

    monkeypatch.setattr(blocks, "find_blocks", then_shrink)
    with pytest.raises(RunError, match=r"a.txt has become shorter while it was read"):
        blocks_of(sources, blocks.Share(1, 2), block_bytes=64)
    monkeypatch.setattr(blocks, "find_blocks", found)
    with pytest.raises(RunError, match="cannot read .*none.txt"):
        blocks_of((*sources, str(tmp_path / "none.txt")), blocks.Share(0, 2), block_bytes=64)
