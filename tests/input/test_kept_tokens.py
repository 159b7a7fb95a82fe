"""Blocks that are kept while a text is counted equal those that are read and split again."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from app.input import counting, pipeline, token_cache
from app.input.blocks import ALL, Share, share_of
from app.input.token_cache import KeptTokens
from app.settings import CorpusConfig, InputConfig, VocabularyConfig
from app.text.phrase_table import PhraseTable
from app.text.reading import Progress
from app.text.vocabulary import Vocabulary
from app.types import ALONE
from tests.teams import together

# Documents without a word, with rare words only, and with rare words at their start.
TEXT = "a b c a\n\nrare1\nrare2 b a b\n \nc c rare3 a\n" * 40 + "b a " + "x" * 2000 + " a\nb"
INPUT = InputConfig(block_bytes=128)
B_A = PhraseTable([("b", "a")], np.array([9]), np.array([9.0]))


def keep(sources, corpus, limit=1 << 30, entries=1 << 20, phrases=(), team=ALONE):
    kept = KeptTokens(limit, share_of(team))
    tally, total = counting.count_tokens(
        sources, corpus, INPUT, entries, phrases=phrases, team=team, kept=kept
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


@pytest.mark.slow
@pytest.mark.parametrize("share", [ALL, Share(1, 3)])
@pytest.mark.parametrize("documents", ["line", "file", "none"])
@pytest.mark.parametrize("phrases", [(), (B_A,)])
def test_kept_blocks_are_those_that_are_read(sources, documents, share, phrases):
    corpus = CorpusConfig(documents=documents)
    kept, tally, total = keep(sources, corpus, phrases=phrases)
    vocabulary = counting.select_tokens(tally, total, VocabularyConfig(min_count=31))
    kept.identify(vocabulary)
    expected = read_again(sources, corpus, vocabulary, share, phrases)
    assert len(expected) > 3
    for _ in range(2):  # the first pass replaces numbers by ids
        blocks = [*token_cache.read_kept(kept, share).as_numpy_iterator()]
        assert [block.tolist() for block in blocks] == [block.tolist() for block in expected]
        assert all(block.dtype == np.int32 for block in blocks)


@pytest.mark.slow
@pytest.mark.parametrize("parts", [1, 2])
def test_a_process_of_a_team_keeps_its_share(sources, parts):
    corpus = CorpusConfig()
    kept_by_process = together(3, lambda team: keep(sources, corpus, team=team))
    for process, (kept, tally, total) in enumerate(kept_by_process):
        vocabulary = counting.select_tokens(tally, total, VocabularyConfig(min_count=31))
        kept.identify(vocabulary)
        for number in range(3 * parts):
            share = Share(number, 3 * parts)
            assert kept.covers(share) is (number % 3 == process)
            if kept.covers(share):
                blocks = [*token_cache.read_kept(kept, share).as_numpy_iterator()]
                expected = read_again(sources, corpus, vocabulary, share)
                assert len(expected) > 1
                assert [block.tolist() for block in blocks] == [b.tolist() for b in expected]
        assert not any(map(kept.covers, [ALL, Share(process, 2), Share(process, 4)]))


@pytest.mark.slow
def test_a_team_keeps_nothing_when_counts_are_dropped(sources):
    tokens = len(keep(sources, CorpusConfig())[1])
    # Too few entries for a share, too few for all shares together, and enough.
    for entries, keeps in ((3, False), (tokens - 1, False), (tokens, True)):
        count = functools.partial(keep, sources, CorpusConfig(), entries=entries)
        found = together(2, lambda team, count=count: count(team=team)[0].is_complete)
        assert found == [keeps, keeps]


@pytest.mark.slow
def test_a_given_vocabulary_gives_the_ids(sources):
    corpus, vocabulary = CorpusConfig(), Vocabulary(["c", "unseen", "a"], np.array([3, 2, 1]), 6)
    kept, _, _ = keep(sources, corpus)
    kept.identify(vocabulary)
    expected = read_again(sources, corpus, vocabulary, ALL)
    blocks = [*token_cache.read_kept(kept, ALL).as_numpy_iterator()]
    assert [block.tolist() for block in blocks] == [block.tolist() for block in expected]


@pytest.mark.slow
def test_too_many_tokens_are_not_kept(sources):
    tokens = keep(sources, CorpusConfig())[2]
    assert keep(sources, CorpusConfig(), limit=4 * tokens)[0].is_complete
    assert not keep(sources, CorpusConfig(), limit=4 * tokens - 1)[0].is_complete


def test_nothing_is_kept_when_counts_are_dropped(sources):
    assert not keep(sources, CorpusConfig(), entries=3)[0].is_complete


def test_which_caches_keep_tokens():
    for kind, keeps in {"auto": True, "memory": True, "none": False, "disk": False}.items():
        assert (token_cache.make_kept(kind, ALL) is not None) is keeps
