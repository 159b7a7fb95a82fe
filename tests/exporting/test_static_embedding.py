"""model2vec and sentence-transformers load the folder, and texts get the means of their words."""

import json
import os
import random
import sys

import numpy as np
import pytest
import tensorflow as tf

from app.errors import RunError, UsageError
from app.exporting import saved_model, static_embedding
from app.settings import CorpusConfig
from app.text.subwords import compose_unseen
from app.text.tokenize import make_tokenizer
from app.types import NgramRule, NgramVectors, WordVectors
from tests.text.test_subwords import random_strings

model2vec = pytest.importorskip("model2vec")

WORDS = ["the", "café", "中文", "straße", "[UNK]", "x.y", "1990", "don't"]
TEXTS = [
    "the café",
    " the\tthe\u3000x.y ",
    "an unknown café, the café",
    "中文 [UNK] 1990 don't",
    "nothing known",
    "",
    "the " * 600 + "café",
]
WHITESPACE, UNICODE = CorpusConfig(), CorpusConfig(tokenizer="unicode")


def drawn(tokens):
    matrix = np.random.default_rng(0).normal(size=(len(tokens), 6)).astype(np.float32)
    return WordVectors(list(tokens), matrix, np.arange(len(tokens), 0, -1, np.int64) ** 3)


def means(vectors, texts, config, sif=0.0):
    """The mean vector of the known words of each text, by our tokenizer and numpy."""
    shares = vectors.counts / vectors.counts.sum()
    weights = sif / (sif + shares) if sif else np.ones(len(shares))
    row_of = {token: row for row, token in enumerate(vectors.tokens)}
    split = [[word.decode() for word in words] for words in make_tokenizer(config)(texts).to_list()]
    rows = [[row_of[word] for word in words if word in row_of] for words in split]
    zeros = np.zeros(vectors.matrix.shape[1])
    return np.array(
        [(weights[r, None] * vectors.matrix[r]).mean(axis=0) if r else zeros for r in rows]
    )


@pytest.mark.parametrize("sif", [0.0, 1e-3])
@pytest.mark.parametrize("config", [WHITESPACE, UNICODE], ids=["whitespace", "unicode"])
def test_model2vec_encodes_texts_as_means(tmp_path, config, sif):
    vectors = drawn(WORDS)
    for _ in range(2):  # again over the first
        static_embedding.write(vectors, tmp_path / "out", config, sif)
    model = model2vec.StaticModel.from_pretrained(tmp_path / "out")
    found = model.encode(TEXTS)
    np.testing.assert_allclose(found, means(vectors, TEXTS, config, sif), rtol=1e-5, atol=1e-6)
    assert model.tokens[:-1] == tuple(WORDS) and model.tokens[-1] == "[UNK]_"
    assert sorted(os.listdir(tmp_path / "out")) == [
        "README.md", "config.json", "model.safetensors", "modules.json", "tokenizer.json",
    ]  # fmt: skip
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize("config", [WHITESPACE, UNICODE], ids=["whitespace", "unicode"])
def test_random_strings_are_split_as_we_split_them(tmp_path, config):
    letters = "abcXYZ éÉçßΣσς0123.,-'\"!?$€() \t\u00a0\u3000\u2028Приветعربיתहिन्दी漢字かなไทย한글"
    draw = random.Random(0)
    texts = ["".join(draw.choices(letters, k=draw.randrange(20))) for _ in range(1000)]
    split = make_tokenizer(config)(texts).to_list()
    words = sorted({word.decode() for words in split for word in words})
    vectors = drawn(words)
    static_embedding.write(vectors, tmp_path / "out", config, 0.0)
    found = model2vec.StaticModel.from_pretrained(tmp_path / "out").encode(texts)
    np.testing.assert_allclose(found, means(vectors, texts, config), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("drop_numbers", [False, True])
@pytest.mark.parametrize("drop_punctuation", [False, True])
@pytest.mark.parametrize("fold_case", [False, True])
def test_the_options_of_the_unicode_tokenizer(tmp_path, fold_case, drop_punctuation, drop_numbers):
    config = CorpusConfig(
        tokenizer="unicode",
        fold_case=fold_case,
        drop_punctuation=drop_punctuation,
        drop_numbers=drop_numbers,
    )
    text = "Grüße, “Ｗelt” 3.14 (1990) A4 …"
    words = [word.decode() for word in make_tokenizer(config)([text]).to_list()[0]]
    static_embedding.write(drawn(dict.fromkeys(words)), tmp_path / "out", config, 0.0)
    tokenizer = model2vec.StaticModel.from_pretrained(tmp_path / "out").tokenizer
    assert tokenizer.encode(text).tokens == words


@pytest.mark.slow
def test_sentence_transformers_encodes_texts_in_the_same_direction(tmp_path):
    peer = pytest.importorskip("sentence_transformers")  # needs torch
    vectors = drawn(WORDS)
    static_embedding.write(vectors, tmp_path / "out", WHITESPACE, 1e-3)
    model = peer.SentenceTransformer(str(tmp_path / "out"), device="cpu")
    found, wanted = model.encode(TEXTS), means(vectors, TEXTS, WHITESPACE, 1e-3)
    known = [0, 1]
    np.testing.assert_allclose(found[known], wanted[known], rtol=1e-5, atol=1e-6)
    lengths = [np.linalg.norm(rows, axis=1) for rows in (found, wanted)]
    np.testing.assert_allclose(
        (found * wanted).sum(axis=1), lengths[0] * lengths[1], rtol=1e-5, atol=1e-6
    )
    assert (lengths[0] <= lengths[1] + 1e-6).all()


def test_rows_that_cannot_be_used_are_left_out(tmp_path):
    matrix = np.array([[1, 2], [np.nan, 0], [3, 4], [5, 6]], np.float32)
    vectors = WordVectors(["a", "b", "a", "c"], matrix)
    static_embedding.write(vectors, tmp_path / "out", WHITESPACE, 0.0)
    model = model2vec.StaticModel.from_pretrained(tmp_path / "out")
    np.testing.assert_array_equal(model.encode(["a", "b", "c"]), [[1, 2], [0, 0], [5, 6]])


def test_folders_and_words_that_cannot_be(tmp_path):
    vectors = drawn(WORDS)
    with pytest.raises(UsageError, match="--sif=0.001 needs counts"):
        static_embedding.write(vectors._replace(counts=None), tmp_path / "out", WHITESPACE, 1e-3)
    with pytest.raises(UsageError, match="no word has a finite vector"):
        nothing = WordVectors([], np.zeros((0, 3), np.float32))
        static_embedding.write(nothing, tmp_path / "out", WHITESPACE, 0.0)
    assert not list(tmp_path.iterdir())
    (tmp_path / "mine").write_text("")
    with pytest.raises(UsageError, match="holds other files"):
        static_embedding.write(vectors, tmp_path, WHITESPACE, 0.0)


def test_without_tokenizers(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(UsageError, match=r'pip install "lexrow\[handover\]"'):
        static_embedding.write(drawn(WORDS), tmp_path / "out", WHITESPACE, 0.0)
    assert not list(tmp_path.iterdir())


def test_an_interrupted_export_leaves_the_earlier_folder(tmp_path, monkeypatch):
    vectors, folder = drawn(WORDS), tmp_path / "out"
    static_embedding.write(vectors, folder, WHITESPACE, 0.0)

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(json, "dumps", interrupted)
    with pytest.raises(KeyboardInterrupt):
        static_embedding.write(vectors, folder, WHITESPACE, 0.0)
    monkeypatch.undo()
    assert os.listdir(tmp_path) == ["out"]
    assert len(model2vec.StaticModel.from_pretrained(folder).tokens) == len(WORDS) + 1


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
    # A sum of 40,000 n-grams is rounded by the order in which a processor adds them.
    np.testing.assert_allclose(answer["vectors"][2:], expected, rtol=1e-5, atol=1e-4)
    assert not answer["vectors"][3].numpy().any()  # the end of a line has no n-grams
    assert model.signatures["lookup"](words=tf.zeros([0], tf.string))["vectors"].shape == (0, 4)
