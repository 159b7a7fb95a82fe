import numpy as np
import pytest
import tensorflow as tf

from app.errors import RunError, UsageError
from app.exporting import saved_model
from app.text.subwords import compose_unseen
from app.types import NgramRule, NgramVectors, WordVectors
from tests.text.test_subwords import random_strings


@pytest.fixture
def lookup(vectors, tmp_path):
    saved_model.write(vectors, tmp_path / "model")
    model = tf.saved_model.load(tmp_path / "model")
    assert set(model.signatures) == {"lookup", "serving_default"}
    # The model is kept alive by the closure: a signature alone does not own its variables.
    return lambda words: model.signatures["lookup"](words=tf.constant(words, tf.string))


def test_known_words_get_their_vectors(vectors, lookup):
    answer = lookup(vectors.tokens[::-1])
    np.testing.assert_array_equal(answer["vectors"], vectors.matrix[::-1])
    assert answer["known"].numpy().all()
    assert answer["known"].dtype == tf.bool


def test_unknown_words_get_zeros_and_are_told(vectors, lookup):
    answer = lookup(["none", "the", "", "THE"])
    assert answer["known"].numpy().tolist() == [False, True, False, False]
    np.testing.assert_array_equal(answer["vectors"][0], np.zeros(5))
    np.testing.assert_array_equal(answer["vectors"][1], vectors.matrix[1])


def test_phrases_may_be_written_with_spaces(tmp_path):
    words, matrix = ["new_york", "new york", "los_angeles"], np.array([[1], [2], [3]], np.float32)
    saved_model.write(WordVectors(words, matrix), tmp_path / "model")
    model = tf.saved_model.load(tmp_path / "model")
    queries = ["new york", " new\tyork", "los  angeles", "los", " ", ""]
    found = model.signatures["lookup"](words=tf.constant(queries))
    assert found["vectors"].numpy()[:, 0].tolist() == [2, 1, 3, 0, 0, 0]


def test_no_words_get_no_vectors(lookup):
    answer = lookup([])
    assert answer["vectors"].shape == (0, 5)
    assert answer["known"].shape == (0,)


def test_neither_words_nor_matrix_are_in_the_graph(tmp_path):
    words = [f"a_long_word_{n}" for n in range(20_000)]
    saved_model.write(WordVectors(words, np.zeros((20_000, 8), np.float32)), tmp_path / "model")
    assert (tmp_path / "model" / "saved_model.pb").stat().st_size < 100_000
    assert (tmp_path / "model" / "assets" / "words.txt").read_text().split() == words


def test_repeated_words_and_vectors_that_are_not_numbers(tmp_path):
    matrix = np.array([[np.nan], [2], [3]], np.float32)
    saved_model.write(WordVectors(["x", "a", "a"], matrix), tmp_path / "model")
    model = tf.saved_model.load(tmp_path / "model")
    answer = model.signatures["lookup"](words=tf.constant(["a", "unknown"]))
    assert answer["vectors"].numpy().tolist() == [[2], [0]]


def test_only_a_saved_model_is_replaced(vectors, tmp_path):
    model, other = tmp_path / "model", tmp_path / "other"
    for _ in range(2):
        saved_model.write(vectors, model)
    other.mkdir()
    saved_model.write(vectors, other)
    (other / "saved_model.pb").unlink()
    with pytest.raises(UsageError, match="other holds other files.*new or empty"):
        saved_model.write(vectors, other)
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="is a file"):
        saved_model.write(vectors, tmp_path / "file")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "model", "other"]


def test_a_failure_leaves_the_earlier_model(vectors, tmp_path, monkeypatch):
    folder = tmp_path / "model"
    saved_model.write(vectors, folder)

    def full(*_, **__):
        raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")

    monkeypatch.setattr(tf.saved_model, "save", full)
    with pytest.raises(RunError, match="No space left"):
        saved_model.write(vectors, folder)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert tf.saved_model.contains_saved_model(folder)


@pytest.mark.parametrize(("tokens", "message"), [([], "no word"), (["a\nb"], "line break")])
def test_words_that_cannot_be_saved_are_refused(tmp_path, tokens, message):
    vectors = WordVectors(tokens, np.zeros((len(tokens), 2), np.float32))
    with pytest.raises(UsageError, match=message):
        saved_model.write(vectors, tmp_path / "model")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("buckets", [None, range(97), range(0, 97, 3), [96], []])
def test_unseen_strings_get_the_mean_of_their_ngrams(tmp_path, buckets):
    random = np.random.default_rng(0)
    rows = random.normal(size=(97, 4)).astype(np.float32)
    ngrams = NgramVectors(NgramRule(3, 6, 97), rows)
    if buckets is not None:
        kept = np.array(buckets, np.int32)
        ngrams = ngrams._replace(rows_ND=rows[kept], buckets_N=kept)
    known = ["the", "日本語"]
    vectors = WordVectors(known, random.normal(size=(2, 4)).astype(np.float32), None, ngrams)
    saved_model.write(vectors, tmp_path / "model")
    model = tf.saved_model.load(tmp_path / "model")
    words = [*known, "", "</s>", "x" * 10_000, *random_strings(1000)]
    answer = model.signatures["lookup"](words=tf.constant([word.encode() for word in words]))
    assert answer["known"].numpy().tolist() == [word in known for word in words]
    np.testing.assert_array_equal(answer["vectors"][:2], vectors.matrix)
    expected = compose_unseen(words[2:], ngrams)
    np.testing.assert_allclose(answer["vectors"][2:], expected, rtol=1e-5, atol=1e-6)
    assert not answer["vectors"][3].numpy().any()  # the end of a line has no n-grams
    empty = model.signatures["lookup"](words=tf.zeros([0], tf.string))
    assert empty["vectors"].shape == (0, 4)
