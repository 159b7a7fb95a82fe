from __future__ import annotations

import collections
import gzip
import logging
import random

import numpy as np
import pytest

from app.errors import RunError, UsageError
from app.input import counting
from app.settings import CorpusConfig, InputConfig, VocabularyConfig


def write(tmp_path, name: str, data: str | bytes) -> str:
    path = tmp_path / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return str(path)


def count_tokens(*sources, corpus=None, close=False, block_bytes=1 << 20, entries=1 << 20):
    settings = InputConfig(block_bytes=block_bytes)
    return counting.count_tokens(sources, CorpusConfig(**corpus or {}), settings, entries, close)


def count(*sources, min_count=1, max_vocab_size=0, close=False, **settings):
    limits = VocabularyConfig(min_count=min_count, max_vocab_size=max_vocab_size)
    return counting.select_tokens(*count_tokens(*sources, close=close, **settings), limits, close)


def recount(vocabulary, source, close=False):
    tally, total = count_tokens(source, close=close)
    corpus = CorpusConfig(corpus="b.txt")
    return counting.look_up_counts(tally, total, vocabulary, corpus, close), total


@pytest.fixture
def words():
    draw = random.Random(3)
    return [f"w{int(draw.paretovariate(0.7)) % 3000}\u00e9" for _ in range(20_000)]


def test_counts_are_those_of_a_counter(tmp_path, words):
    halves = " ".join(words[:9000]), "\n".join(words[9000:])
    sources = [write(tmp_path, f"{i}.txt", half) for i, half in enumerate(halves)]
    expected = sorted(collections.Counter(words).items(), key=lambda item: (-item[1], item[0]))
    for documents in ("line", "file", "none"):
        found = count(*sources, corpus={"documents": documents}, block_bytes=5000)
        assert list(zip(found.tokens, found.counts.tolist(), strict=True)) == expected
        assert found.counts.dtype == np.int64
        assert found.total == len(words)


@pytest.mark.slow
def test_min_count_and_max_vocab_size(tmp_path):
    source = write(tmp_path, "a.txt", "b b b a a a c c d")
    assert count(source, min_count=2).tokens == ["a", "b", "c"]
    found = count(source, min_count=2, max_vocab_size=1)
    assert (found.tokens, found.counts.tolist(), found.total) == (["a"], [3], 9)


@pytest.mark.slow
def test_unicode_tokens(tmp_path):
    source = write(tmp_path, "a.txt", "The the, THE\n\u5b57 3\n")
    assert count(source, corpus={"tokenizer": "unicode"}).tokens == ["the", "3", "\u5b57"]


def test_pruning_bounds_what_is_held_and_says_so(tmp_path, caplog):
    frequent = [f"f{i}" for i in range(500)]
    rare = [f"r{i}" for i in range(4000)]
    text = "\n".join(" ".join([*frequent, *rare[i : i + 200]]) for i in range(0, 4000, 200))
    source = write(tmp_path, "a.txt", text)
    with caplog.at_level(logging.WARNING, logger="absl"):
        found = count(source, block_bytes=4096, entries=1000)
    assert len(found.tokens) <= 1000
    assert found.total == 24 * 500 - 4 * 500 + 4000
    assert set(frequent) <= set(found.tokens)
    assert "--vocab_memory_entries=1000 exceeded: dropped" in caplog.text
    assert "seen 1 times or fewer" in caplog.text


def test_prune_raises_the_threshold_until_enough_is_dropped():
    held = {b"a": 1, b"b": 2, b"c": 3, b"d": 9}
    for limit, left, threshold in ((4, held, 0), (3, [b"b", b"c", b"d"], 1), (1, [b"d"], 3)):
        counts = counting.TokenCounts(limit)
        counts.add(np.array([*held]), np.array([*held.values()]))
        counts.prune()
        assert counts.tally() == {token: held[token] for token in left}
        assert (counts.threshold, counts.total) == (threshold, 15)


@pytest.mark.parametrize("text", ["", " \n\n \t"])
def test_an_empty_corpus_is_refused(tmp_path, text):
    source = write(tmp_path, "a.txt", text)
    with pytest.raises(UsageError, match="--corpus=a.txt: no token in it; name"):
        count(source, corpus={"corpus": "a.txt"})


def test_a_corpus_below_min_count_is_refused(tmp_path):
    source = write(tmp_path, "a.txt", "b b a")
    with pytest.raises(UsageError, match="--min_count=3: .*'b', is seen 2 times: lower"):
        count(source, min_count=3)


def test_replaced_bytes_are_told(tmp_path, caplog):
    source = write(tmp_path, "a.txt", b"word \xff\xff word\n")
    with caplog.at_level(logging.WARNING, logger="absl"):
        assert count(source).tokens == ["word", "\ufffd\ufffd"]
    assert f"{source}: 2 sequences are not UTF-8" in caplog.text


def test_refused_bytes_are_told_with_their_place(tmp_path):
    source = write(tmp_path, "a.txt", b"word \xff\n")
    with pytest.raises(RunError, match="a.txt: byte 0xff at offset 5 .*--invalid_utf8=replace$"):
        count(source, corpus={"invalid_utf8": "error"})


def test_a_damaged_source_stops_the_count(tmp_path):
    packed = gzip.compress(random.Random(5).randbytes(50_000))
    source = write(tmp_path, "a.txt.gz", packed[:-100])
    with pytest.raises(UsageError, match="a.txt.gz is truncated or corrupt"):
        count(source)


@pytest.mark.slow
def test_other_text_is_counted_for_a_vocabulary(tmp_path):
    vocabulary = count(write(tmp_path, "a.txt", "b b b a a \u00e9"))
    source = write(tmp_path, "b.txt", "\u00e9 b \u00e9 x\ny b")
    counts, total = recount(vocabulary, source)
    assert vocabulary.tokens == ["b", "a", "\u00e9"]
    assert (counts.tolist(), counts.dtype, total) == ([2, 0, 2], np.int64, 6)


@pytest.mark.slow
def test_a_vocabulary_without_a_token_of_the_text_is_refused(tmp_path):
    vocabulary = count(write(tmp_path, "a.txt", "a b"))
    source = write(tmp_path, "b.txt", "x y z")
    with pytest.raises(UsageError, match="^--corpus=b.txt: none of its 3 tokens is in the vocabul"):
        recount(vocabulary, source)


def closed(*sources, **settings):
    return count(*sources, close=True, **settings)


@pytest.mark.slow
def test_a_closed_vocabulary_has_an_id_for_every_token(tmp_path):
    source = write(tmp_path, "a.txt", "b b a\n\n \nc a b\nd b\n")  # 8 words in 3 documents
    found = closed(source, max_vocab_size=4)
    assert found.tokens == ["b", "<eos>", "<unk>", "a"]
    assert found.counts.tolist() == [4, 3, 2, 2]
    assert found.total == 11
    found = closed(source, corpus={"documents": "none"})
    # What does not occur is counted once, as a file of tokens must have it.
    assert found.tokens == ["b", "a", "<eos>", "<unk>", "c", "d"]
    assert found.counts.tolist() == [4, 2, 1, 1, 1, 1]


@pytest.mark.slow
def test_marks_in_the_text_are_taken_for_what_they_stand_for(tmp_path):
    source = write(tmp_path, "a.txt", "<unk> b <unk> b <unk> <eos> c\n")
    found = closed(source, min_count=2)
    assert list(zip(found.tokens, found.counts, strict=True)) == [
        ("<unk>", 4),
        ("<eos>", 2),
        ("b", 2),
    ]
    with pytest.raises(UsageError, match="^--min_count=3: no token is seen that often"):
        closed(source, min_count=3)


@pytest.mark.slow
def test_a_closed_vocabulary_counts_other_text(tmp_path):
    vocabulary = closed(write(tmp_path, "a.txt", "a a a b b\n"))
    other = write(tmp_path, "b.txt", "b b x <unk>\ny b\n")
    counts, total = recount(vocabulary, other, close=True)
    assert dict(zip(vocabulary.tokens, counts.tolist(), strict=True)) == {
        "a": 0,
        "b": 3,
        "<unk>": 3,
        "<eos>": 2,
    }
    assert total == counts.sum() == 8
    with pytest.raises(UsageError, match="none of its 3 tokens is in the vocabulary"):
        strange = write(tmp_path, "c.txt", "<unk> x\n")
        recount(vocabulary, strange, close=True)


@pytest.mark.parametrize("close", [False, True])
def test_tokens_that_are_too_long_are_dropped_and_told_once(tmp_path, caplog, close):
    source = write(tmp_path, "a.txt", b"word " + b"\0" * 5000 + b"\nword " + b"x" * 1001 + b"\n")
    with caplog.at_level(logging.WARNING, logger="absl"):
        found = count(source, close=close)
    assert [token for token in found.tokens if not token.startswith("<")] == ["word"]
    assert found.total == (4 if close else 2)
    assert caplog.text.count("dropped 2 tokens of more than 1000 bytes") == 1
