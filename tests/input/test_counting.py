import collections
import functools
import gzip
import logging
import random

import numpy as np
import pytest

from app.errors import RunError, UsageError
from app.input import counting
from app.input.blocks import TextFiles
from app.settings import CorpusConfig, InputConfig, VocabularyConfig
from app.text import corpus
from app.types import ALONE
from tests.teams import together


def write(tmp_path, name: str, data: str | bytes) -> str:
    path = tmp_path / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return str(path)


def count_tokens(*sources, corpus=None, close=False, block_bytes=1 << 20, entries=1 << 20):
    files = TextFiles(sources, CorpusConfig(**corpus or {}), InputConfig(block_bytes=block_bytes))
    return counting.count_tokens(files, entries, close)


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
    with pytest.raises(UsageError, match="--min_count=3: .*'b', has a count of 2: lower"):
        count(source, min_count=3)


def test_replaced_bytes_are_told(tmp_path, caplog):
    source = write(tmp_path, "a.txt", b"word \xff\xff word\n")
    with caplog.at_level(logging.WARNING, logger="absl"):
        assert count(source).tokens == ["word", "\ufffd\ufffd"]
    assert f"{source}: 2 sequences are not UTF-8" in caplog.text


def test_a_damaged_source_stops_the_count(tmp_path):
    source = write(tmp_path, "a.txt.gz", gzip.compress(random.Random(5).randbytes(50_000))[:-100])
    with pytest.raises(UsageError, match="a.txt.gz is truncated or corrupt"):
        count(source)


@pytest.mark.slow
def test_other_text_is_counted_for_a_vocabulary(tmp_path):
    vocabulary = count(write(tmp_path, "a.txt", "b b b a a \u00e9"))
    counts, total = recount(vocabulary, write(tmp_path, "b.txt", "\u00e9 b \u00e9 x\ny b"))
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
    counts, total = recount(vocabulary, write(tmp_path, "b.txt", "b b x <unk>\ny b\n"), close=True)
    assert dict(zip(vocabulary.tokens, counts.tolist(), strict=True)) == {
        "a": 0,
        "b": 3,
        "<unk>": 3,
        "<eos>": 2,
    }
    assert total == counts.sum() == 8
    with pytest.raises(UsageError, match="none of its 3 tokens is in the vocabulary"):
        recount(vocabulary, write(tmp_path, "c.txt", "<unk> x\n"), close=True)


@pytest.mark.parametrize("close", [False, True])
def test_tokens_that_are_too_long_are_dropped_and_told_once(tmp_path, caplog, close):
    source = write(tmp_path, "a.txt", b"word " + b"\0" * 5000 + b"\nword " + b"x" * 1001 + b"\n")
    with caplog.at_level(logging.WARNING, logger="absl"):
        found = count(source, close=close)
    assert [token for token in found.tokens if not token.startswith("<")] == ["word"]
    assert found.total == (4 if close else 2)
    assert caplog.text.count("dropped 2 tokens of more than 1000 bytes") == 1


# Counts of a team are those of one process, whatever the number of processes.


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """Words of Zipf's law with ties, wide characters, damage, and files of unequal sizes."""
    draw = random.Random(5)
    folder = tmp_path_factory.mktemp("texts")
    words = [f"w{int(draw.paretovariate(0.7)) % 900}\u00e9" for _ in range(9000)]
    for place in range(0, len(words), 7):
        words[place] = f"new{place % 40} york{place % 40}"
    lines = [" ".join(words[start : start + 9]) for start in range(0, len(words), 9)]
    (folder / "a.txt").write_text("\n".join(lines[:600]) + "\n")
    (folder / "b.txt").write_bytes(b"\xff\xfe " + "\n".join(lines[600:]).encode())
    (folder / "c.txt").write_text("")
    (folder / "d.gz").write_bytes(gzip.compress("\n".join(lines[500:800]).encode()))
    return folder


def sources_of(texts, *names):
    return tuple(str(texts / name) for name in names)


PLAIN, MIXED = ("a.txt", "b.txt", "c.txt"), ("a.txt", "d.gz")
SETTINGS = InputConfig(block_bytes=2048, readers=2)


def vocabulary_of(sources, team=ALONE, entries=10**6, close=False, **limits):
    files = TextFiles(sources, CorpusConfig(), SETTINGS)
    counts = counting.count_tokens(files, entries, close, team=team)
    found = counting.select_tokens(*counts, VocabularyConfig(**limits), close)
    return found.tokens, found.counts.tolist(), found.total


@pytest.mark.slow
@pytest.mark.parametrize("names", [PLAIN, MIXED])
def test_a_team_counts_what_one_process_does(texts, names, caplog):
    count = functools.partial(vocabulary_of, sources_of(texts, *names))
    for flags in ({"min_count": 1}, {"close": True, "min_count": 3, "max_vocab_size": 50}):
        caplog.clear()
        expected, alone = count(**flags), set(caplog.messages)  # of bytes that are not UTF-8
        caplog.clear()
        assert together(3, functools.partial(count, **flags)) == [expected] * 3
        assert set(caplog.messages) == alone


@pytest.mark.slow
def test_a_team_whose_memory_is_short_drops_what_one_process_does(texts, caplog):
    sources = sources_of(texts, *PLAIN)
    expected = vocabulary_of(sources, entries=300, min_count=1)
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="absl"):
        found = together(2, lambda team: vocabulary_of(sources, team, entries=300, min_count=1))
    assert found == [expected] * 2
    assert "--vocab_memory_entries=300 is not enough for the counts of all workers" in caplog.text
    # Each share alone would fit: only the sum does not.
    whole = len(vocabulary_of(sources, min_count=1)[0])
    assert (
        together(2, lambda team: vocabulary_of(sources, team, entries=whole - 1, min_count=1))
        == [vocabulary_of(sources, entries=whole - 1, min_count=1)] * 2
    )


@pytest.mark.slow
@pytest.mark.parametrize(("entries", "score"), [(10**6, "word2phrase"), (1500, "npmi")])
def test_a_team_finds_the_phrases_of_one_process(texts, monkeypatch, entries, score):
    monkeypatch.setattr(counting, "_BUFFERED", 1000)
    flags = VocabularyConfig(
        phrases=2, phrase_score=score, phrase_min_count=3, vocab_memory_entries=entries
    )
    how = TextFiles(sources_of(texts, *PLAIN), CorpusConfig(), SETTINGS), flags
    expected = counting.find_phrases(*how)
    assert sum(len(table.pairs) for table in expected) > 20
    for found in together(3, lambda team: counting.find_phrases(*how, team)):
        for table, alone in zip(found, expected, strict=True):
            assert table.pairs == alone.pairs
            np.testing.assert_array_equal(table.counts, alone.counts)
            np.testing.assert_array_equal(table.scores, alone.scores)


@pytest.mark.slow
def test_a_process_without_text_is_named(tmp_path):
    path = tmp_path / "short.txt"
    path.write_text("few words\n")
    message = (
        rf"^--corpus={path}: no text is left for worker 1, worker 2, as it has 1 block\(s\) of "
        "--block_bytes=2048 for 3 workers; lower --block_bytes, or start fewer workers$"
    )
    files = TextFiles((str(path),), CorpusConfig(corpus=str(path)), SETTINGS)
    for count in (
        lambda team: counting.count_tokens(files, 99, team=team),
        lambda team: counting.count_pairs(files, 99, team=team),
    ):
        with pytest.raises(UsageError, match=message):
            together(3, count)
    path.write_text("")
    with pytest.raises(UsageError, match="no token in it"):
        together(2, lambda team: counting.count_tokens(files, 99, team=team))


def test_the_hash_of_the_text_is_that_of_one_process(texts):
    sources = sources_of(texts, *PLAIN, "d.gz")
    expected = corpus.fingerprint(sources)["contents"]
    assert together(3, lambda team: corpus.read_contents(sources, team)) == [expected] * 3


def test_other_text_on_a_machine_is_told_before_it_is_read(texts, tmp_path):
    sources = sources_of(texts, "a.txt")
    copy = tmp_path / "a.txt"
    copy.write_bytes((texts / "a.txt").read_bytes())
    paths = [sources, (str(copy),)]
    together(2, lambda team: corpus.check_same(paths[team.number], {}, team))
    corpus.check_same(("no such file",), {}, ALONE)
    copy.write_bytes(copy.read_bytes()[:-1])
    with pytest.raises(
        RunError, match=r"^--corpus: worker 1 has other text than worker 0 \(1 file"
    ):
        together(2, lambda team: corpus.check_same(paths[team.number], {}, team))
    with pytest.raises(RunError, match=r"^--workdir: worker 1 finds another corpus.json there"):
        together(2, lambda team: corpus.check_same(sources, {"words": team.number}, team))
