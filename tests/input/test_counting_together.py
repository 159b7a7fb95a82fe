"""Counts of a team beside those of one process: equal, whatever the number of processes."""

from __future__ import annotations

import functools
import gzip
import logging
import random

import numpy as np
import pytest

from app.errors import RunError, UsageError
from app.input import counting
from app.settings import CorpusConfig, InputConfig, VocabularyConfig
from app.text import corpus
from app.types import ALONE
from tests.teams import together


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


def vocabulary(sources, team=ALONE, entries=10**6, close=False, **limits):
    how = CorpusConfig(), SETTINGS, entries, close
    counts = counting.count_tokens(sources, *how, team=team)
    found = counting.select_tokens(*counts, VocabularyConfig(**limits), close)
    return found.tokens, found.counts.tolist(), found.total


@pytest.mark.slow
@pytest.mark.parametrize("names", [PLAIN, MIXED])
def test_a_team_counts_what_one_process_does(texts, names, caplog):
    count = functools.partial(vocabulary, sources_of(texts, *names))
    for flags in ({"min_count": 1}, {"close": True, "min_count": 3, "max_vocab_size": 50}):
        caplog.clear()
        expected, alone = count(**flags), set(caplog.messages)  # of bytes that are not UTF-8
        caplog.clear()
        assert together(3, functools.partial(count, **flags)) == [expected] * 3
        assert set(caplog.messages) == alone


@pytest.mark.slow
def test_a_team_whose_memory_is_short_drops_what_one_process_does(texts, caplog):
    sources = sources_of(texts, *PLAIN)
    expected = vocabulary(sources, entries=300, min_count=1)
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="absl"):
        found = together(2, lambda team: vocabulary(sources, team, entries=300, min_count=1))
    assert found == [expected] * 2
    assert "--vocab_memory_entries=300 is not enough for the counts of all workers" in caplog.text
    # Each share alone would fit: only the sum does not.
    whole = len(vocabulary(sources, min_count=1)[0])
    alone = vocabulary(sources, entries=whole - 1, min_count=1)
    assert (
        together(2, lambda team: vocabulary(sources, team, entries=whole - 1, min_count=1))
        == [alone] * 2
    )


@pytest.mark.slow
@pytest.mark.parametrize(("entries", "score"), [(10**6, "word2phrase"), (1500, "npmi")])
def test_a_team_finds_the_phrases_of_one_process(texts, monkeypatch, entries, score):
    monkeypatch.setattr(counting, "_BUFFERED", 1000)
    flags = VocabularyConfig(
        phrases=2, phrase_score=score, phrase_min_count=3, vocab_memory_entries=entries
    )
    how = sources_of(texts, *PLAIN), CorpusConfig(), SETTINGS, flags
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
    given = CorpusConfig(corpus=str(path))
    for count in (
        lambda team: counting.count_tokens((str(path),), given, SETTINGS, 99, team=team),
        lambda team: counting.count_pairs((str(path),), given, SETTINGS, 99, team=team),
    ):
        with pytest.raises(UsageError, match=message):
            together(3, count)
    path.write_text("")
    with pytest.raises(UsageError, match="no token in it"):
        together(
            2, lambda team: counting.count_tokens((str(path),), given, SETTINGS, 99, team=team)
        )


def test_the_hash_of_the_text_is_that_of_one_process(texts):
    sources = sources_of(texts, *PLAIN, "d.gz")
    expected = corpus.fingerprint(sources)["contents"]
    assert together(3, lambda team: corpus.read_contents(sources, team)) == [expected] * 3


def test_files_are_dealt_by_size():
    assert corpus._deal([5, 1, 9, 4, 4], 2) == [[2, 4], [0, 3, 1]]
    assert corpus._deal([7], 3) == [[0], [], []]


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
