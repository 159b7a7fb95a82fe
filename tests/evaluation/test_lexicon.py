from __future__ import annotations

import numpy as np
import pytest

from app.errors import UsageError
from app.evaluation.lexicon import first_row, make_lexicon, unit_rows


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
