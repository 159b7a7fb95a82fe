"""Blocks that are kept while a text is counted equal those that are read and split again."""

from __future__ import annotations

import numpy as np
import pytest

from app.config import CorpusConfig, InputConfig, VocabularyConfig
from app.input import cache, pipeline
from app.text import counting
from app.text.kept_tokens import KeptTokens
from app.text.phrase_table import PhraseTable
from app.text.reading import Progress
from app.text.shares import ALL, Share
from app.text.vocabulary import Vocabulary

# Documents without a word, with rare words only, and with rare words at their start.
TEXT = "a b c a\n\nrare1\nrare2 b a b\n \nc c rare3 a\n" * 40 + "b a " + "x" * 2000 + " a\nb"
INPUT = InputConfig(block_bytes=128)
B_A = PhraseTable([("b", "a")], np.array([9]), np.array([9.0]))


def keep(sources, corpus, limit=1 << 30, entries=1 << 20, phrases=()):
    kept = KeptTokens(limit)
    tally, total = counting.count_tokens(
        sources, corpus, INPUT, entries, phrases=phrases, kept=kept
    )
    return kept, tally, total


def read_again(sources, corpus, vocabulary, share, phrases=()):
    tokenize = pipeline.make_block_tokenizer(corpus, vocabulary, phrases)
    progress = Progress.make(sources)
    blocks = pipeline.map_blocks(sources, corpus, INPUT, progress, tokenize, share)
    return [*blocks.as_numpy_iterator()]


@pytest.fixture
def sources(tmp_path):
    paths = tmp_path / "a.txt", tmp_path / "b.txt"
    paths[0].write_text(TEXT)
    paths[1].write_text("a a b rare4 c\n" * 30)
    return tuple(map(str, paths))


@pytest.mark.parametrize("share", [ALL, Share(1, 3)])
@pytest.mark.parametrize("documents", ["line", "file", "none"])
@pytest.mark.parametrize("phrases", [(), (B_A,)])
def test_kept_blocks_are_those_that_are_read(sources, documents, share, phrases):
    corpus = CorpusConfig(documents=documents)
    kept, tally, total = keep(sources, corpus, phrases=phrases)
    vocabulary = counting.select_tokens(tally, total, VocabularyConfig(min_count=31))
    kept.identify([*tally], vocabulary)
    expected = read_again(sources, corpus, vocabulary, share, phrases)
    assert len(expected) > 3
    for _ in range(2):  # the first pass replaces numbers by ids
        blocks = [*cache.read_kept(kept, share).as_numpy_iterator()]
        assert [block.tolist() for block in blocks] == [block.tolist() for block in expected]
        assert all(block.dtype == np.int32 for block in blocks)


def test_a_given_vocabulary_gives_the_ids(sources):
    corpus, vocabulary = CorpusConfig(), Vocabulary(["c", "unseen", "a"], np.array([3, 2, 1]), 6)
    kept, tally, _ = keep(sources, corpus)
    kept.identify([*tally], vocabulary)
    expected = read_again(sources, corpus, vocabulary, ALL)
    blocks = [*cache.read_kept(kept, ALL).as_numpy_iterator()]
    assert [block.tolist() for block in blocks] == [block.tolist() for block in expected]


def test_too_many_tokens_are_not_kept(sources):
    tokens = keep(sources, CorpusConfig())[2]
    assert keep(sources, CorpusConfig(), limit=4 * tokens)[0].is_complete
    assert not keep(sources, CorpusConfig(), limit=4 * tokens - 1)[0].is_complete


def test_nothing_is_kept_when_counts_are_dropped(sources):
    assert not keep(sources, CorpusConfig(), entries=3)[0].is_complete


def test_which_caches_keep_tokens():
    for kind, keeps in {"auto": True, "memory": True, "none": False, "disk": False}.items():
        assert (cache.make_kept(kind) is not None) is keeps
