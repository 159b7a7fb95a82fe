import numpy as np
import pytest

from app.errors import UsageError
from app.evaluation import lexicon
from app.evaluation.lexicon import find_rows, make_lexicon, nearest_rows, unit_rows


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


@pytest.mark.parametrize(("choice", "flag"), [({"case": "x"}, "--case"), ({"restrict": -1}, "-1")])
def test_a_choice_that_cannot_be_is_named(make_vectors, choice, flag):
    with pytest.raises(UsageError, match=flag):
        make_lexicon(make_vectors(["a"]), **choice)


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
