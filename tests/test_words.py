"""Word vectors in Python."""

from __future__ import annotations

import copy
import itertools
import json
import pickle
import subprocess
import sys

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

import app as lexrow
from app import trained as trained_module
from app import words as module
from app.types import NgramRule, NgramVectors, WordVectors
from app.words import Words
from tests import examples
from tests.examples import QUICK

ROYAL = {
    "king": [1.0, 1.0, 0.1],
    "queen": [1.0, -1.0, 0.1],
    "man": [0.1, 1.0, 0.0],
    "woman": [0.1, -1.0, 0.0],
    "New_York": [0.0, 0.1, 1.0],
}


@pytest.fixture
def royal() -> Words:
    matrix = np.array(list(ROYAL.values()), np.float32)
    return Words(WordVectors(list(ROYAL), matrix, np.array([9, 7, 5, 3, 1])))


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Words:
    """Words of a run: b stands between a and c, e between d and f."""
    lists = itertools.chain.from_iterable((["a", "b", "c"], ["d", "e", "f"]) for _ in range(200))
    path = tmp_path_factory.mktemp("door") / "run"
    return lexrow.train_words(lists, workdir=path, dim=8, epochs=3, batch_tokens=256, **QUICK)


def test_examples(royal, trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pairs.tsv").write_text("king\tman\t9\nking\twoman\t1\n")
    examples.run(module, {"words": royal})
    but = "app.trained.Result.load"  # see test_items
    examples.run(trained_module, {"words": trained}, but)


def test_looking_up(royal):
    assert len(royal) == 5
    assert list(royal) == royal.tokens == list(ROYAL)
    assert "king" in royal and "King" not in royal and "new york" not in royal
    assert "New York" in royal  # a phrase, written with a space
    np.testing.assert_array_equal(royal["king"], np.float32(ROYAL["king"]))
    np.testing.assert_array_equal(royal[["man", "New York"]], royal.vectors[[2, 4]])
    with pytest.raises(KeyError, match="'quen': unknown word; did you mean 'queen'"):
        royal["quen"]


def test_nearest_words_equal_a_product_of_unit_vectors(royal):
    unit = royal.vectors / np.linalg.norm(royal.vectors, axis=1, keepdims=True)
    cosines = unit @ (unit[0] - unit[2] + unit[3])
    cosines /= np.linalg.norm(unit[0] - unit[2] + unit[3])
    expected = sorted(((cosines[row], royal.tokens[row]) for row in (1, 4)), reverse=True)
    found = royal.most_similar(positive=["king", "woman"], negative=["man"])
    assert [word for word, _ in found] == [word for _, word in expected]
    np.testing.assert_allclose([c for _, c in found], [c for c, _ in expected], rtol=1e-5)
    by_vector = royal.most_similar(["king", royal["woman"]], royal["man"], topn=1)
    assert royal.most_similar(np.array(["king"])) == royal.most_similar("king")
    assert by_vector[0][0] == "queen"  # words that are given as vectors are not left out
    some = royal.most_similar("king", restrict_to=3)
    expected = [pair for pair in royal.most_similar("king") if pair[0] in ("queen", "man")]
    assert [word for word, _ in some] == [word for word, _ in expected]
    # Products of tables of other heights differ in their last bits on some processors.
    np.testing.assert_allclose([c for _, c in some], [c for _, c in expected], atol=1e-6)
    assert royal.similarity("king", "man") == pytest.approx(float(unit[0] @ unit[2]))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((), ValueError, "no word is given"),
        (("king", "king"), ValueError, "cancel out"),
        ((np.zeros(3),), ValueError, "zero or not finite"),
        ((np.ones(2),), ValueError, "shape .2,.; give one of 3 columns"),
        (([("king", 1.0)],), ValueError, r"^\('king', 1.0\) is neither a word nor a vector"),
        (("king", (), "5"), TypeError, "^topn is str; give a whole number$"),
        ((5,), ValueError, r"a vector has the shape \(\); give one of 3 columns"),
        (("king", (), 0), ValueError, "topn=0: ask for at least one"),
        (("king", np.int64(5)), ValueError, "negative=5: give words; topn is how many"),
        (("king", 2.5), ValueError, "negative=2.5: give words; topn is how many"),
        (("king", (), 1, -1), ValueError, "restrict_to=-1"),
        (("king", (), 1, 2.5), TypeError, "restrict_to is float; give a whole number"),
        (("kings",), KeyError, "did you mean 'king'"),
    ],
)
def test_bad_queries(royal, arguments, error, message):
    with pytest.raises(error, match=message):
        royal.most_similar(*arguments)
    if "restrict_to" in message:
        with pytest.raises(error, match=message):
            royal.evaluate([], restrict_to=arguments[-1])


@pytest.mark.parametrize(
    ("name", "ours"), [("wv", "itself"), ("index_to_key", ".tokens"), ("save", r".export\(path\)")]
)
def test_a_name_of_gensim_leads_to_ours(royal, name, ours):
    with pytest.raises(
        AttributeError, match=rf"^Words has no attribute '{name}'; use words.?{ours}$"
    ):
        getattr(royal, name)
    with pytest.raises(AttributeError, match="'Words' object has no attribute 'nothing'"):
        _ = royal.nothing


@pytest.mark.parametrize("texts", [[["king", "man"], ["queen"]], [None]])
def test_what_is_no_text_is_named(royal, texts):
    assert texts[0] not in royal
    for ask in (royal.__getitem__, royal.doesnt_match, lambda given: royal.similarity(given, "a")):
        with pytest.raises(TypeError, match="^5 is no word; give text, or words.vectors"):
            ask(5)
    for function in (royal.encode, royal.tokenize):
        with pytest.raises(ValueError, match=r"texts\[0\] is .*, and not a text"):
            function(texts)


def test_texts_have_the_means_of_their_words(royal):
    texts = ["king queen nothing", "", "man man woman"]
    expected = [royal.vectors[:2].mean(0), np.zeros(3), royal.vectors[[2, 2, 3]].mean(0)]
    np.testing.assert_allclose(royal.encode(texts), expected, rtol=1e-6)
    np.testing.assert_allclose(royal.encode(texts[0]), expected[0], rtol=1e-6)
    weights = 0.1 / (0.1 + royal.counts / royal.counts.sum())
    expected = (royal.vectors[:2] * weights[:2, None]).mean(0)
    np.testing.assert_allclose(royal.encode("king queen", sif=0.1), expected, rtol=1e-6)
    without = Words(WordVectors(royal.tokens, royal.vectors))
    with pytest.raises(ValueError, match="sif=0.1 needs counts"):
        without.encode("king", sif=0.1)


def test_a_word_without_a_row_has_the_vectors_of_its_ngrams():
    rule = NgramRule(3, 4, 50)
    rows = np.random.default_rng(1).normal(size=(50, 4)).astype(np.float32)
    vectors = WordVectors(["word"], rows[:1], ngrams=NgramVectors(rule, rows))
    words = Words(vectors)
    assert "words" in words and "" not in words
    np.testing.assert_allclose(
        words["words"] / np.linalg.norm(words["words"]),
        words.encode("words") / np.linalg.norm(words.encode("words")),
        rtol=1e-5,
    )
    assert words.most_similar("words")[0][0] == "word"


def test_gensim_and_pandas_get_the_same(royal):
    keyed = royal.to_gensim()
    assert keyed.index_to_key == royal.tokens
    assert [word for word, _ in keyed.most_similar("king")] == [
        word for word, _ in royal.most_similar("king")
    ]
    assert keyed.get_vecattr("queen", "count") == 7
    frame = royal.to_pandas()
    assert frame.index.tolist() == royal.tokens
    np.testing.assert_array_equal(frame.loc["man"], royal["man"])


def test_training_from_lists_of_tokens(trained):
    assert sorted(trained.tokens) == list("abcdef")
    assert trained.counts.tolist() == [200] * 6
    again = lexrow.load(trained.workdir)
    np.testing.assert_array_equal(again.vectors, trained.vectors)
    assert repr(again) == "<Words: 6 words, 8 columns>"


def test_files_are_loaded_as_they_were_written(trained, tmp_path):
    for format, name in (
        ("word2vec", "v.txt"),
        ("word2vec_binary", "v.bin"),
        ("fasttext", "f.bin"),
    ):
        trained.export(tmp_path / name, format)
        again = lexrow.load(tmp_path / name)
        assert again.tokens == trained.tokens
        np.testing.assert_allclose(again.vectors, trained.vectors, rtol=1e-5)
    with pytest.raises(ValueError, match="^format=pdf: no format of task=words; choose from"):
        trained.export(tmp_path / "v.pdf", "pdf")


def test_words_are_pickled(royal, trained, tmp_path):
    for words in (royal, trained):
        again = pickle.loads(pickle.dumps(words))
        assert again.tokens == words.tokens
        np.testing.assert_array_equal(again.vectors, words.vectors)
        np.testing.assert_array_equal(again.counts, words.counts)
    assert again.workdir != trained.workdir
    assert b"a b c" not in pickle.dumps(trained)  # a line of its text
    assert "g" in again.train([["a", "g"]] * 50)
    again.export(tmp_path / "vectors.txt")  # by the settings of the run
    royal.export(tmp_path / "royal.txt")
    unicode = Words.load(tmp_path / "royal.txt", tokenizer="unicode")
    assert unicode.tokenize("The KING!") == ["the", "king"]
    np.testing.assert_array_equal(unicode.encode("The KING!"), royal["king"])


def test_training_on_adds_words(tmp_path):
    small = {"dim": 4, "epochs": 1, "batch_tokens": 256, "subsample": 0.0, **QUICK}
    words = lexrow.train_words([["a", "b"]] * 99, **small)
    before = words["a"]
    assert words.train(["a new b"] * 50, epochs=1) is words
    assert set(words.tokens) == {"a", "b", "new"}
    assert not np.array_equal(words["a"], before)
    assert words.vectors.shape == (3, 4)


def test_vectors_of_a_file_cannot_be_trained(royal):
    with pytest.raises(ValueError, match="vectors of a file"):
        royal.train(["a text"])


@pytest.mark.parametrize(("name", "others"), [("app", {"numpy", "absl"}), ("app.words", set())])
def test_importing_starts_no_tensorflow(name, others):
    program = f"import sys, {name}; print(*sys.modules)"
    printed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    assert not set(printed.split()) & {"tensorflow", *others}


def test_plain_vectors_need_no_tensorflow(trained, tmp_path):
    file = tmp_path / "vectors.bin"
    trained.export(file, format="word2vec_binary")
    answers = [trained.most_similar("b", topn=3)] * 2
    code = f"""
import runpy, sys
sys.modules["tensorflow"] = None  # an import fails
import app
print([app.load(path).most_similar("b", topn=3) for path in ({trained.workdir!r}, {str(file)!r})])
app.load({str(file)!r}).plot(["a", "b", "c"])
sys.argv = ["neighbors", "--workdir={trained.workdir}", "b"]
runpy.run_module("app.neighbors", run_name="__main__")
"""
    printed = subprocess.run(
        [sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True
    ).stdout.splitlines()
    for found, expected in zip(eval(printed[0]), answers, strict=True):
        assert [word for word, _ in found] == [word for word, _ in expected]
        np.testing.assert_allclose([c for _, c in found], [c for _, c in expected], rtol=1e-6)
    assert printed[1] == "b"


def test_words_of_ngrams_need_no_tensorflow(tmp_path):
    small = {"dim": 4, "epochs": 1, "batch_tokens": 256, "max_ngram": 3, "ngram_buckets": 99}
    path = tmp_path / "run"
    words = lexrow.train_words([["ab", "abc", "bcd"]] * 99, workdir=path, **small, **QUICK)
    words.export(tmp_path / "v.bin", "fasttext")
    code = f"""
import pickle, sys
sys.modules["tensorflow"] = None  # an import fails
import app
for path in ({str(path)!r}, {str(tmp_path / "v.bin")!r}):
    words = pickle.loads(pickle.dumps(app.load(path)))
    print([words[name].tolist() for name in ("abc", "abcd")], words.most_similar("abcd", topn=2))
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
    for line in ended.stdout.splitlines():
        vectors, similar = eval(line.replace("] [", "], ["))
        np.testing.assert_allclose(vectors, words[["abc", "abcd"]], rtol=1e-5, atol=1e-7)
        assert [name for name, _ in similar] == [n for n, _ in words.most_similar("abcd", topn=2)]


FILES = {
    "word2vec": "v.vec",
    "word2vec_binary": "v.bin",
    "fasttext": "v.bin",
    "safetensors": "v.safetensors",
    "parquet": "v.parquet",
}


@pytest.mark.parametrize("format", FILES)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_what_is_exported_is_loaded_whole_and_in_part(royal, tmp_path, format, dtype):
    path = tmp_path / FILES[format]
    royal.export(path, format)
    whole = lexrow.load(path, dtype=dtype)
    assert whole.tokens == royal.tokens and whole.vectors.dtype == dtype
    np.testing.assert_array_equal(whole.vectors, royal.vectors.astype(dtype))
    if not format.startswith("word2vec"):
        np.testing.assert_array_equal(whole.counts, royal.counts)
    part = lexrow.load(path, limit=2, dtype=dtype)
    assert part.tokens == royal.tokens[:2] and len(part.vectors) == 2
    assert part["king"].dtype == np.float32
    similar = whole.most_similar("king", topn=3)
    expected = royal.most_similar("king", topn=3)
    assert [word for word, _ in similar] == [word for word, _ in expected]
    np.testing.assert_allclose([c for _, c in similar], [c for _, c in expected], atol=2e-3)
    whole.export(tmp_path / "again.vec")  # half floats as float32
    again = lexrow.load(tmp_path / "again.vec").vectors
    np.testing.assert_array_equal(again, whole.vectors.astype(np.float32))


def test_a_part_of_a_workdir_is_loaded(trained):
    part = lexrow.load(trained.workdir, limit=2, dtype="float16")
    assert part.tokens == trained.tokens[:2] and part.vectors.base is None
    np.testing.assert_array_equal(part.vectors, trained.vectors[:2].astype(np.float16))
    np.testing.assert_array_equal(part.counts, trained.counts[:2])


def test_a_limit_that_leaves_nothing_out_is_none(royal, trained, tmp_path):
    royal.export(tmp_path / "v.bin", "word2vec_binary")
    royal.export(tmp_path / "v.parquet", "parquet")
    for path in (trained.workdir, tmp_path / "v.bin", tmp_path / "v.parquet"):
        count = len(lexrow.load(path))
        parts = [lexrow.load(path, limit=limit) for limit in (count - 1, count, count + 9)]
        assert [part._is_part for part in parts] == [True, False, False]
        assert len(lexrow.load(path, limit=count)) == count
    whole = lexrow.load(trained.workdir, limit=len(trained))
    assert whole.encode("a", sif=0.1).any()
    whole.export(tmp_path / "whole.bin", "fasttext")


def test_a_part_stays_one_and_gives_nothing_of_the_whole(royal, trained, tmp_path):
    royal.export(tmp_path / "v.parquet", "parquet")
    for path in (trained.workdir, tmp_path / "v.parquet"):
        part = lexrow.load(path, limit=2, dtype="float16")
        for again in (pickle.loads(pickle.dumps(part)), copy.copy(part)):
            assert again.tokens == part.tokens and again.vectors.dtype == np.float16
            with pytest.raises(ValueError, match="^sif=0.1 needs the counts of all words, and lim"):
                again.encode("a", sif=0.1)
            with pytest.raises(ValueError, match="^sif=0.1 needs the counts of all words, and lim"):
                again.export(tmp_path / "out", "static_embedding", sif=0.1)
    part = pickle.loads(pickle.dumps(lexrow.load(trained.workdir, limit=2, dtype="float16")))
    with pytest.raises(ValueError, match="^format='fasttext' writes all words of .*, and limit=2"):
        part.export(tmp_path / "out", "fasttext")
    assert not (tmp_path / "out").exists()
    count = len(trained) + 1  # stays the limit when there are more words
    part = lexrow.load(trained.workdir, limit=count, dtype="float16")
    assert len(part.train([["a", "new", "newer"]] * 50)) == count
    assert part._is_part and part.vectors.dtype == np.float16


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"limit": -1}, "^limit=-1: ask for at least one word"),
        ({"dtype": "int8"}, "^dtype='int8': give float32"),
    ],
)
def test_parts_that_cannot_be_loaded(trained, options, message):
    with pytest.raises(ValueError, match=message):
        lexrow.load(trained.workdir, **options)


@pytest.mark.parametrize("name", ["v.safetensors", "v.parquet"])
def test_a_damaged_export(royal, tmp_path, name):
    path = tmp_path / name
    royal.export(path, name[2:])
    whole = path.read_bytes()
    for content in (b"", b"word 1 2\n", whole[: len(whole) // 2], whole[: len(whole) - 9]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=f"^{path}: .*; copy it again, or give a file of"):
            lexrow.load(path)


def _safetensors(path, tokens=("a", "b"), vectors=((1, 2), (3, 4)), counts=(2, 1), header=None):
    vectors, counts = np.array(vectors, "<f4"), np.array(counts, "<i8")
    text = np.frombuffer(json.dumps(tokens).encode(), np.uint8)
    parts, body = {}, b""
    for name, kind, part in (
        ("vectors", "F32", vectors),
        ("counts", "I64", counts),
        ("tokens", "U8", text),
    ):
        span = [len(body), len(body) + part.nbytes]
        parts[name] = {"dtype": kind, "shape": part.shape, "data_offsets": span}
        body += part.tobytes()
    start = json.dumps(parts if header is None else header).encode()
    path.write_bytes(len(start).to_bytes(8, "little") + start + body)


def _parquet(path, tokens=("a", "b"), vectors=((1, 2), (3, 4)), counts=(2, 1)):
    kind = pyarrow.list_(pyarrow.float32())
    columns = {"token": tokens, "vector": pyarrow.array(vectors, kind), "count": counts}
    parquet.write_table(pyarrow.table(columns), path, row_group_size=1)


@pytest.mark.parametrize(
    ("write", "damage", "message"),
    [
        (_parquet, {"vectors": [[1, 2], [3]]}, "a vector is of 1 numbers, where the first has 2"),
        (_parquet, {"vectors": [[1], [2, 3, 4]]}, "a vector is of 3 numbers, where the first has"),
        (_parquet, {"vectors": [[1, 2], None]}, "a vector is missing, where the first has 2"),
        (_parquet, {"vectors": [[], []]}, "a vector is of 0 numbers"),
        (_parquet, {"tokens": ["a", None]}, "a token is no text"),
        (_parquet, {"tokens": [1, 2]}, "a token is no text"),
        (_parquet, {"counts": ["x", "y"]}, "2 tokens, and counts"),
        (_safetensors, {"tokens": ["a", None]}, "a token is no text"),
        (_safetensors, {"tokens": "ab"}, "a token is no text"),
        (_safetensors, {"tokens": ["a", "b", "c"]}, r"3 tokens, and vectors \(2, 2\)"),
        (_safetensors, {"counts": [2]}, r"2 tokens, and counts \(1,\)"),
        (_safetensors, {"header": ["vectors"]}, "no tensors .*the header is no JSON object"),
    ],
)
@pytest.mark.parametrize("limit", [0, 2])
def test_a_table_that_does_not_fit_together(tmp_path, write, damage, message, limit):
    path = tmp_path / f"v.{write.__name__[1:]}"
    write(path)
    assert lexrow.load(path).counts.tolist() == [2, 1]
    write(path, **damage)
    with pytest.raises(ValueError, match=f"^{path}: {message}.*; copy it again, or give a file of"):
        lexrow.load(path, limit=limit)


@pytest.mark.parametrize("write", [_safetensors, _parquet])
def test_of_a_repeated_word_the_first_row_is_loaded(tmp_path, write):
    path = tmp_path / f"v.{write.__name__[1:]}"
    write(path, tokens=["a", "a"])
    words = lexrow.load(path)
    assert words.tokens == ["a"] and words.counts.tolist() == [2]
    np.testing.assert_array_equal(words.vectors, [[1, 2]])


@pytest.mark.parametrize("format", FILES)
def test_a_number_beyond_half_floats(tmp_path, format):
    path = tmp_path / FILES[format]
    matrix = np.float32([[1, 2], [1e6, 0]])
    Words(WordVectors(["a", "b"], matrix)).export(path, format)
    np.testing.assert_array_equal(lexrow.load(path).vectors, matrix)
    with pytest.raises(ValueError, match=f"^{path}, row 2: the vector of 'b' has a number beyond"):
        lexrow.load(path, dtype="float16")
