"""model2vec and sentence-transformers load the folder, and texts get the means of their words."""

import json
import os
import random
import sys

import numpy as np
import pytest

from app.errors import UsageError
from app.exporting import static_embedding
from app.settings import CorpusConfig
from app.text.tokenize import make_tokenizer
from app.types import WordVectors

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
    random_numbers = np.random.default_rng(0)
    matrix = random_numbers.normal(size=(len(tokens), 6)).astype(np.float32)
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
