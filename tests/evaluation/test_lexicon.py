import numpy as np
import pytest
from gensim.models import KeyedVectors

from app.errors import UsageError
from app.evaluation import lexicon
from app.evaluation.benchmarks import score_pairs
from app.evaluation.lexicon import (
    explain_unknown,
    find_rows,
    find_unknown,
    make_lexicon,
    nearest,
    nearest_rows,
    solve,
    unit_rows,
    unit_vectors,
)
from app.text.subwords import compose_unseen
from app.types import NgramRule, NgramVectors

WORDS = ["paris", "france", "italy", "rome", "Rome", "well-known"]


def test_gensim_gives_the_same_neighbors(make_vectors):
    vectors = make_vectors([f"w{n}" for n in range(60)])
    words = make_lexicon(vectors)
    peer = KeyedVectors(8)
    peer.add_vectors(vectors.tokens, vectors.matrix)
    for ours, theirs in [
        (nearest(words, ["w7"], 5)[0], peer.most_similar("w7", topn=5)),
        (
            solve(words, "w1 - w2 + w3", 5),
            peer.most_similar(positive=["w1", "w3"], negative=["w2"], topn=5),
        ),
        # As many words as there are, in no more memory.
        (nearest(words, ["w7"], 2**31 - 1)[0], peer.most_similar("w7", topn=60)),
    ]:
        assert [word for word, _ in ours] == [word for word, _ in theirs]
        np.testing.assert_allclose([c for _, c in ours], [c for _, c in theirs], rtol=1e-5)


def test_the_spelling_asked_for_is_the_one_used(make_vectors):
    words = make_lexicon(make_vectors(WORDS))
    for asked, other in [("rome", "Rome"), ("Rome", "rome"), ("ROME", "Rome")]:
        found = [word for word, _ in nearest(words, [asked], 9)[0]]
        assert len(found) == len(WORDS) - 1
        assert other in found


def test_a_phrase_may_be_written_with_spaces(make_vectors):
    words = make_lexicon(make_vectors(["new_york", "New_York", "paris", "rome"]))
    expected = nearest(words, ["new_york", "New_York"], 3)
    assert nearest(words, ["new york", " new  york "], 3) == [expected[0]] * 2
    found, *_ = nearest(words, ["NEW YORK"], 3)
    assert [word for word, _ in found] == [word for word, _ in expected[0]]
    for unknown in ("york new", "", " ", "paris rome", "x " * 5000):
        with pytest.raises(UsageError, match="unknown word|is no word|is no phrase"):
            nearest(words, [unknown])


def test_words_with_a_hyphen_are_words(make_vectors):
    words = make_lexicon(make_vectors(WORDS))
    assert solve(words, "- paris + well-known", 1) == solve(words, "well-known - paris", 1)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda words: nearest(words, ["pariss"]), "'pariss': unknown word; did you mean 'paris'"),
        (lambda words: nearest(words, ["qqq"]), "'qqq': unknown word; use a word of the vocab"),
        (lambda words: solve(words, "paris - frence"), "'frence'.*'france'"),
        (lambda words: solve(words, "paris-france"), "unknown"),
        (lambda words: solve(words, "paris france"), "not a sum.*with spaces"),
        (lambda words: solve(words, "paris +"), "not a sum"),
        (lambda words: solve(words, ""), "not a sum"),
        (lambda words: solve(words, "paris - paris"), "cancel out"),
    ],
)
def test_a_question_without_answer_gets_a_remedy(make_vectors, ask, message):
    with pytest.raises(UsageError, match=message):
        ask(make_lexicon(make_vectors(WORDS)))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("new york", "'new york' is no word here, only a part of others; use 'new_york_city' or "
         "'in_New_York'"),
        ("NEW_YORK", "'NEW_YORK' is no word here, only a part of others; use 'new_york_city' or "
         "'in_New_York'"),
        ("city", "'city' is no word here, only a part of others; use 'new_york_city'"),
        ("white house", "'white house' is no phrase here; give its words one by one"),
        ("new york cyti", "'new york cyti': unknown word; did you mean 'new_york_city'?"),
        ("nothing", "'nothing' has a zero vector, to which no word is near; use another word"),
        ("Nothing", "'Nothing' has a zero vector, to which no word is near; use another word"),
        ("", "'' is no word: give one without white space, in Unicode"),
        ("_", "'_': unknown word; use a word of the vocabulary"),
    ],
)  # fmt: skip
def test_why_a_word_has_no_vector(make_vectors, asked, message):
    vectors = make_vectors(["new_york_city", "in_New_York", "nothing", "paris"])
    vectors.matrix[2] = 0
    words = make_lexicon(vectors)
    assert find_unknown(words, ["paris", asked, "PARIS", asked]) == [asked]
    assert explain_unknown(words, asked) == message
    for ask in (lambda: nearest(words, ["paris", asked]), lambda: solve(words, f"paris + {asked}")):
        with pytest.raises(UsageError, match="zero|word"):
            ask()


def test_another_letter_case_is_suggested_where_case_counts(make_vectors):
    with pytest.raises(UsageError, match="did you mean 'rome' or 'Rome'"):
        nearest(make_lexicon(make_vectors(WORDS), case="exact"), ["ROME"])


def first_row(words, word):
    return next(iter(find_rows(words, word)), None)


def test_folding_gives_a_word_to_its_most_frequent_spelling(make_vectors):
    words = make_lexicon(make_vectors(["Us", "us", "US", "them"]))
    assert first_row(words, "US") == 0
    assert words.rows["us"] == (0, 1, 2)
    exact = make_lexicon(make_vectors(["Us", "us", "US", "them"]), case="exact")
    assert first_row(exact, "US") == 2
    assert first_row(exact, "uS") is None


def test_spellings_are_compared_in_the_form_of_the_text(make_vectors):
    tokens = ["Straße", "caf\u00e9", "istanbul", "new_york", "\u00ad", "\u200d"]
    folded = make_lexicon(make_vectors(tokens))
    queries = ["STRASSE", "Cafe\u0301", "İstanbul", "New\u200bYork", "\u00ad", "\u200d", "", "x"]
    assert [first_row(folded, word) for word in queries] == [0, 1, 2, 3, 4, 5, None, None]
    exact = make_lexicon(make_vectors(tokens)._replace(form="NFKC"), case="exact")
    rows = [
        first_row(exact, word) for word in ["cafe\u0301", "Caf\u00e9", "Stra\u00adße", "ISTANBUL"]
    ]
    assert rows == [1, None, 0, None]


def test_restrict_keeps_the_first_words_and_the_protocol_says_so(make_vectors):
    words = make_lexicon(make_vectors(["a", "b", "c"]), restrict=2)
    assert first_row(words, "c") is None
    assert "first 2 of 3 words" in words.protocol
    assert "all 3 words" in make_lexicon(make_vectors(["a", "b", "c"]), restrict=9).protocol


def test_a_vector_without_direction_makes_its_word_unknown(make_vectors):
    matrix = [[1, 0], [0, 0], [np.nan, 1], [np.inf, 1], [3e38, 3e38], [0, 1e-30]]
    words = make_lexicon(make_vectors("abcdef", matrix))
    assert words.words == ["a", "e", "f"]
    assert "3 words with a zero or non-finite vector" in words.protocol
    np.testing.assert_allclose(np.linalg.norm(unit_rows(words, slice(None)), axis=1), 1, rtol=1e-6)


def test_no_words_at_all(make_vectors):
    assert make_lexicon(make_vectors([])).words == []


@pytest.mark.parametrize("k", [1, 4])
def test_blocks_of_any_size_find_what_a_full_sort_finds(make_vectors, monkeypatch, k):
    words = make_lexicon(make_vectors([str(n) for n in range(50)]))
    queries = np.random.default_rng(1).normal(size=(23, 8)).astype(np.float32)
    excluded = [[n, n + 20] if n % 3 else [] for n in range(23)]
    cosines = queries @ (words.matrix / words.norms[:, None]).T
    cosines /= np.linalg.norm(queries, axis=1, keepdims=True)
    for query, rows in enumerate(excluded):
        cosines[query, rows] = -np.inf
    wanted = np.argsort(-cosines, axis=1)[:, :k]
    monkeypatch.setattr(lexicon, "_QUERIES_PER_BLOCK", 5)
    for rows_per_block in (3, 7, 64):
        monkeypatch.setattr(lexicon, "_ROWS_PER_BLOCK", rows_per_block)
        rows, values = nearest_rows(words, queries, k, excluded)
        np.testing.assert_array_equal(rows, wanted)
        np.testing.assert_allclose(values, np.take_along_axis(cosines, wanted, 1), rtol=1e-5)


@pytest.mark.parametrize("k", [1, 3])
def test_a_tie_goes_to_the_more_frequent_word(make_vectors, monkeypatch, k):
    monkeypatch.setattr(lexicon, "_ROWS_PER_BLOCK", 2)
    words = make_lexicon(make_vectors("abcdef", [[0, 1], [1, 0], [2, 0], [1, 0], [4, 0], [0, 1]]))
    rows, _ = nearest_rows(words, np.array([[1, 0]], np.float32), k, [[]])
    assert rows.tolist() == [[1, 2, 3][:k]]


def test_fewer_words_than_asked_for(make_vectors):
    words = make_lexicon(make_vectors("ab", [[1, 0], [0, 1]]))
    rows, cosines = nearest_rows(words, np.array([[1, 0]], np.float32), 3, [[0]])
    assert rows.tolist() == [[1, -1, -1]]
    assert cosines[0, 1] == -np.inf


# Scores and neighbors of words without a row, which have vectors by their n-grams.


RULE = NgramRule(3, 4, 200)


@pytest.fixture
def unseen_lexicon(make_vectors):
    rows = np.random.default_rng(1).normal(size=(RULE.buckets, 8)).astype(np.float32)
    ngrams = NgramVectors(RULE, rows)
    words = ["walked", "walking", "sings", "house", "Rome"]
    return make_lexicon(make_vectors(words, compose_unseen(words, ngrams))._replace(ngrams=ngrams))


def test_unknown_words_have_the_mean_of_their_ngrams(unseen_lexicon):
    units, known = unit_vectors(unseen_lexicon, ["walked", "walks", "WALKS", "</s>"])
    assert known.tolist() == [True, True, True, False]
    expected = compose_unseen(["walks"], unseen_lexicon.ngrams)[0]
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


def test_every_pair_is_used(unseen_lexicon, tmp_path):
    path = tmp_path / "pairs"
    path.write_text("walks walked 9\nsing sings 8\nnever seen 1\nwalked house 2\n")
    scored = score_pairs(unseen_lexicon, path, "own")
    assert (scored.used, scored.skipped) == (4, 0)
    assert "unknown words have the vectors of their n-grams" in scored.protocol


def test_neighbors_of_an_unseen_inflection(unseen_lexicon):
    found = [word for word, _ in nearest(unseen_lexicon, ["walks"], 9)[0]]
    assert len(found) == 5 and found[0] == "walked"
    assert len(solve(unseen_lexicon, "walks - walked + sings", 9)) == 3


def test_a_query_that_is_long(unseen_lexicon):
    assert len(nearest(unseen_lexicon, ["x" * 10_000], 3)[0]) == 3


@pytest.mark.parametrize("query", ["", "   ", "two words", "half\ud800", "\udcff", "</s>"])
def test_a_query_that_is_no_word(unseen_lexicon, query):
    with pytest.raises(UsageError, match="word"):
        nearest(unseen_lexicon, [query])


def test_without_ngrams_nothing_is_made_up(make_vectors):
    units, known = unit_vectors(make_lexicon(make_vectors(["a", "b"])), ["a", "c"])
    assert known.tolist() == [True, False] and not units[1].any()
