"""Phrases: counts, scores and joined text, beside an oracle and beside gensim."""

import collections
import itertools
import logging

import numpy as np
import pytest
import tensorflow as tf
from gensim.models.phrases import Phrases
from gensim.test.utils import datapath

from app.errors import DamagedError
from app.input import counting
from app.input.blocks import TextFiles
from app.settings import CorpusConfig, InputConfig, VocabularyConfig
from app.text import phrase_table
from app.text.phrase_table import PhraseTable, make_joiner, make_phrase_splitter

WORD2PHRASE, NPMI = "word2phrase", "npmi"


def table(*pairs):
    """A table of pairs of words, each in one text."""
    names = [tuple(pair.split()) for pair in pairs]
    return PhraseTable(names, np.ones(len(names), np.int64), np.ones(len(names)))


def join(documents, *tables):
    words = [text.split() for text in documents]
    return as_lists(make_joiner(tables)(tf.ragged.constant(words, tf.string, ragged_rank=1)))


def as_lists(ragged):
    return [[token.decode() for token in row] for row in ragged.to_list()]


def find(sources, documents="line", entries=10**6, block_bytes=1 << 20, **flags):
    settings = VocabularyConfig(vocab_memory_entries=entries, **{"phrases": 1, **flags})
    corpus = CorpusConfig(documents=documents)
    files = TextFiles(tuple(map(str, sources)), corpus, InputConfig(block_bytes=block_bytes))
    return counting.find_phrases(files, settings)


@pytest.fixture(scope="module")
def sentences():
    """A real text: the sentences of a corpus that comes with gensim."""
    with open(datapath("lee_background.cor"), encoding="utf-8") as file:
        return [line.split() for line in file]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory, sentences):
    path = tmp_path_factory.mktemp("corpus") / "lee.txt"
    path.write_text("\n".join(map(" ".join, sentences)) + "\n", encoding="utf-8")
    return path


def test_phrases_are_joined_from_left_to_right():
    pairs = table("a b", "b c", "a a")
    assert join(["a b c", "b c a b", "a a a a a", "a a b", "x", "", "b", "a"], pairs) == [
        ["a_b", "c"],
        ["b_c", "a_b"],
        ["a_a", "a_a", "a"],
        ["a_a", "b"],
        ["x"],
        [],
        ["b"],
        ["a"],
    ]


def test_no_phrase_crosses_the_end_of_a_document():
    assert join(["x a", "", "b a", "b"], table("a b")) == [["x", "a"], [], ["b", "a"], ["b"]]
    assert join([], table("a b")) == []


def test_a_later_pass_joins_phrases_of_an_earlier_one():
    passes = table("new york", "times square"), table("new_york times_square", "new_york city")
    found = join(["new york times square", "new york city", "new jersey"], *passes)
    assert found == [["new_york_times_square"], ["new_york_city"], ["new", "jersey"]]


def by_words(worda_count, wordb_count, bigram_count, len_vocab, min_count, corpus_word_count):
    """Return the score of word2phrase.c; gensim's own has another number than that of words."""
    return (bigram_count - min_count) / (worda_count * wordb_count) * corpus_word_count


@pytest.mark.slow
@pytest.mark.parametrize(
    ("score", "scoring", "threshold"), [(WORD2PHRASE, by_words, 20.0), (NPMI, "npmi", 0.4)]
)
def test_counts_scores_and_text_are_those_of_gensim(corpus, sentences, score, scoring, threshold):
    joined, expected = sentences, []
    for _ in range(2):
        peer = Phrases(joined, min_count=3, threshold=threshold, scoring=scoring)
        counts = collections.Counter(itertools.chain(*map(itertools.pairwise, joined)))
        scores = {pair: peer.score_candidate(*pair, [])[1] for pair in counts}
        expected.append(({p: score for p, score in scores.items() if score is not None}, counts))
        joined = list(peer[joined])
    flags = {"phrase_score": score, "phrase_threshold": threshold, "phrase_min_count": 3}
    found = find([corpus], phrases=2, block_bytes=4096, **flags)
    assert len(found) == 2
    for ours, (theirs, counts) in zip(found, expected, strict=True):
        assert set(ours.pairs) == theirs.keys() and len(theirs) > 20
        assert ours.counts.tolist() == [counts[pair] for pair in ours.pairs]
        order = [*zip((-ours.scores).tolist(), ours.pairs, strict=True)]
        assert order == sorted(order)
        np.testing.assert_allclose(ours.scores, [theirs[pair] for pair in ours.pairs], rtol=1e-9)
    split = make_phrase_splitter(CorpusConfig(), found)
    assert as_lists(split(tf.constant(list(map(" ".join, sentences))))) == joined
    assert max(token.count("_") for token in itertools.chain(*joined)) >= 2


def test_default_scores_follow_the_default_thresholds():
    settings = VocabularyConfig(phrases=1)
    assert (settings.phrase_min_count, settings.score_threshold) == (5, 100.0)
    assert VocabularyConfig(phrases=1, phrase_score=NPMI).score_threshold == 0.5


@pytest.mark.slow
def test_memory_is_bounded_and_frequent_phrases_are_found(corpus, caplog, monkeypatch):
    monkeypatch.setattr(counting, "_BUFFERED", 1000)
    flags = {"phrase_min_count": 30, "phrase_threshold": 10.0, "block_bytes": 4096}
    whole = find([corpus], **flags)
    with caplog.at_level(logging.WARNING, logger="absl"):
        found = find([corpus], entries=8000, **flags)
    assert "--vocab_memory_entries=8000 exceeded while counting phrases" in caplog.text
    assert set(found[0].pairs) <= set(whole[0].pairs)
    assert len(found[0].pairs) > 0.8 * len(whole[0].pairs) > 5
    exact = dict(zip(whole[0].pairs, whole[0].counts.tolist(), strict=True))
    counts = zip(found[0].pairs, found[0].counts.tolist(), strict=True)
    assert all(count <= exact[pair] for pair, count in counts)


def test_pair_counts_never_hold_more_than_the_limit():
    counts = counting.PairCounts(limit=50)
    draw = np.random.default_rng(3)
    for _ in range(40):
        tokens = np.array([b"%d" % word for word in draw.choice(200, 20, replace=False)], object)
        pairs = np.stack([np.arange(20), np.roll(np.arange(20), 1)], axis=1)
        counts.add_pairs(counts.add(tokens, np.full(20, 2))[pairs], np.ones(20, np.int64))
        counts.prune()
        assert counts.size <= 50
    pairs, counts_P, of_tokens_P2 = counts.pairs(1)
    assert (of_tokens_P2.min(axis=1) >= counts_P).all()
    assert len(pairs) == len(set(pairs)) == len(counts_P)


@pytest.mark.slow
def test_a_text_without_pairs_has_no_phrases(tmp_path, caplog):
    path = tmp_path / "text.txt"
    path.write_text("a\n\nb\n" * 100)
    with caplog.at_level(logging.INFO, logger="absl"):
        assert find([path], phrases=3) == ()
    assert "pass 1 of --phrases: 0 phrases" in caplog.text
    path.write_text("")
    assert find([path]) == ()


@pytest.mark.slow
def test_documents_decide_which_words_are_adjacent(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("a b\nc d\n" * 50)
    flags = {"phrase_threshold": 0.1, "phrase_min_count": 1}
    (by_line,) = find([path], documents="line", **flags)
    (by_file,) = find([path], documents="file", **flags)
    assert sorted(by_line.pairs) == [("a", "b"), ("c", "d")]
    assert sorted(by_file.pairs) == [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")]


def test_tokens_that_are_too_long_are_neither_parts_nor_phrases(tmp_path):
    long, half = "x" * 1001, "y" * 600
    path = tmp_path / "text.txt"
    path.write_text(f"a {long} b\n{half} {half}z\n" * 50)
    (found,) = find([path], phrase_threshold=0.1, phrase_min_count=1)
    assert found.pairs == [("a", "b")]
    split = make_phrase_splitter(CorpusConfig(), (found,))
    assert as_lists(split(tf.constant([f"a {long} b"]))) == [["a_b"]]


@pytest.mark.slow
def test_tables_are_saved_and_loaded(tmp_path, corpus):
    phrases = find([corpus], phrases=2, phrase_threshold=20.0)
    path = tmp_path / "phrases.tsv"
    phrase_table.save(phrases, path)
    found = phrase_table.load(path, phrase_table.compute_digest(phrases))
    assert len(found) == len(phrases) == 2
    for ours, theirs in zip(found, phrases, strict=True):
        assert ours.pairs == theirs.pairs
        np.testing.assert_array_equal(ours.counts, theirs.counts)
        np.testing.assert_array_equal(ours.scores, theirs.scores)
    first = path.read_text(encoding="utf-8").splitlines()[:2]
    assert first[0] == "# pass\tfirst\tsecond\tcount\tscore"
    assert first[1].split("\t")[:3] == ["1", *phrases[0].pairs[0]]
    phrase_table.save((), path)
    assert phrase_table.load(path, phrase_table.compute_digest(())) == ()


@pytest.mark.parametrize("damage", [b"", b"cut", b"\x00" * 200])
def test_another_table_is_refused(tmp_path, damage):
    path, phrases = tmp_path / "phrases.tsv", (table("a b", "c d"),)
    phrase_table.save(phrases, path)
    digest = phrase_table.compute_digest(phrases)
    path.write_bytes(path.read_bytes()[:-5] if damage == b"cut" else damage)
    with pytest.raises(DamagedError, match="is not the table of phrases that this run was made"):
        phrase_table.load(path, digest)
    path.unlink()
    with pytest.raises(DamagedError, match="is missing"):
        phrase_table.load(path, digest)
