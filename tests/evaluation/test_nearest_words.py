import numpy as np
import pytest
from gensim.models import KeyedVectors

from app.errors import UsageError
from app.evaluation.lexicon import make_lexicon
from app.evaluation.nearest_words import explain_unknown, find_unknown, nearest, solve

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
    ]:
        assert [found.word for found in ours] == [word for word, _ in theirs]
        np.testing.assert_allclose([f.cosine for f in ours], [c for _, c in theirs], rtol=1e-5)


def test_the_spelling_asked_for_is_the_one_used(make_vectors):
    words = make_lexicon(make_vectors(WORDS))
    for asked, other in [("rome", "Rome"), ("Rome", "rome"), ("ROME", "Rome")]:
        found = [neighbor.word for neighbor in nearest(words, [asked], 9)[0]]
        assert len(found) == len(WORDS) - 1
        assert other in found


def test_a_phrase_may_be_written_with_spaces(make_vectors):
    words = make_lexicon(make_vectors(["new_york", "New_York", "paris", "rome"]))
    expected = nearest(words, ["new_york", "New_York"], 3)
    assert nearest(words, ["new york", " new  york "], 3) == [expected[0]] * 2
    found, *_ = nearest(words, ["NEW YORK"], 3)
    assert [near.word for near in found] == [near.word for near in expected[0]]
    for unknown in ("york new", "", " ", "paris rome", "x " * 5000):
        with pytest.raises(UsageError, match="unknown word|is no word"):
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
        (lambda words: nearest(words, ["paris"], 0), "at least one"),
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
        ("york city new", "'york city new' is no word: give one without white space, in Unicode"),
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
