"""Scores and neighbors of words without a row, which have vectors by their n-grams."""

import numpy as np
import pytest

from app.errors import UsageError
from app.evaluation.benchmarks import score_pairs
from app.evaluation.lexicon import make_lexicon, unit_vectors
from app.evaluation.nearest_words import nearest, solve
from app.text.subwords import compose_unseen
from app.types import NgramRule, NgramVectors

RULE = NgramRule(3, 4, 200)


@pytest.fixture
def lexicon(make_vectors):
    rows = np.random.default_rng(1).normal(size=(RULE.buckets, 8)).astype(np.float32)
    ngrams = NgramVectors(RULE, rows)
    words = ["walked", "walking", "sings", "house", "Rome"]
    matrix = compose_unseen(words, ngrams)
    return make_lexicon(make_vectors(words, matrix)._replace(ngrams=ngrams))


def test_unknown_words_have_the_mean_of_their_ngrams(lexicon):
    units, known = unit_vectors(lexicon, ["walked", "walks", "WALKS", "</s>"])
    assert known.tolist() == [True, True, True, False]
    expected = compose_unseen(["walks"], lexicon.ngrams)[0]
    np.testing.assert_allclose(units[1], expected / np.linalg.norm(expected), rtol=1e-5)
    np.testing.assert_array_equal(units[1], units[2])  # case is ignored
    assert not units[3].any()


@pytest.mark.parametrize("kept", [range(0, 200, 7), [0], [199], []])
def test_a_bucket_without_a_row_is_zero(kept):
    kept = np.array(kept, np.int32)
    rows = np.random.default_rng(1).normal(size=(RULE.buckets, 8)).astype(np.float32)
    with_zeros = np.zeros_like(rows)
    with_zeros[kept] = rows[kept]
    words = ["walked", "日本語", "", "x" * 200]
    found = compose_unseen(words, NgramVectors(RULE, rows[kept], kept))
    expected = compose_unseen(words, NgramVectors(RULE, with_zeros))
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)


def test_every_pair_is_used(lexicon, tmp_path):
    path = tmp_path / "pairs"
    path.write_text("walks walked 9\nsing sings 8\nnever seen 1\nwalked house 2\n")
    scored = score_pairs(lexicon, path, "own")
    assert (scored.used, scored.skipped) == (4, 0)
    assert "unknown words have the vectors of their n-grams" in scored.protocol


def test_neighbors_of_an_unseen_inflection(lexicon):
    found = [neighbor.word for neighbor in nearest(lexicon, ["walks"], 9)[0]]
    assert len(found) == 5 and found[0] == "walked"
    assert len(solve(lexicon, "walks - walked + sings", 9)) == 3


def test_a_query_that_is_long(lexicon):
    assert len(nearest(lexicon, ["x" * 10_000], 3)[0]) == 3


@pytest.mark.parametrize("query", ["", "   ", "two words", "half\ud800", "\udcff", "</s>"])
def test_a_query_that_is_no_word(lexicon, query):
    with pytest.raises(UsageError, match="word"):
        nearest(lexicon, [query])


def test_without_ngrams_nothing_is_made_up(make_vectors):
    units, known = unit_vectors(make_lexicon(make_vectors(["a", "b"])), ["a", "c"])
    assert known.tolist() == [True, False] and not units[1].any()
