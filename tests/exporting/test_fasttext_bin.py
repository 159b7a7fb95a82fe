"""Files of fastText that we write, loaded by fastText, by gensim and by us."""

import numpy as np
import pytest
from gensim.models.fasttext import load_facebook_model, load_facebook_vectors

from app.errors import UsageError
from app.exporting import fasttext_bin
from app.text import vector_files
from app.text.fasttext import model_file
from app.types import WordVectors


@pytest.fixture
def counted(vectors):
    return vectors._replace(counts=np.arange(len(vectors.tokens), 0, -1))


def test_gensim_and_we_read_what_we_write(counted, tmp_path):
    fasttext_bin.write(counted, tmp_path / "a.bin")
    found = vector_files.read(tmp_path / "a.bin")
    assert found.tokens == counted.tokens and found.counts.tolist() == counted.counts.tolist()
    np.testing.assert_array_equal(found.matrix, counted.matrix)
    peer = load_facebook_vectors(str(tmp_path / "a.bin"))
    assert peer.index_to_key == counted.tokens
    np.testing.assert_array_equal(peer.vectors, counted.matrix)
    assert [peer.get_vecattr(word, "count") for word in counted.tokens] == [*counted.counts]
    assert [path.name for path in tmp_path.iterdir()] == ["a.bin"]


def test_gensim_trains_on(counted, tmp_path):
    fasttext_bin.write(counted, tmp_path / "a.bin")
    peer = load_facebook_model(str(tmp_path / "a.bin"))
    assert (peer.sg, peer.hs, peer.negative, peer.window, peer.wv.bucket) == (1, 0, 5, 5, 0)
    assert not peer.syn1neg.any() and peer.syn1neg.shape == counted.matrix.shape
    texts = [counted.tokens] * 20
    words, _ = peer.train(texts, total_examples=len(texts), epochs=1)
    assert words >= 0 and np.isfinite(peer.wv.vectors).all()


def test_fasttext_reads_what_we_write(counted, tmp_path):
    from tests import fasttext_peer  # skips without fastText

    fasttext_bin.write(counted._replace(counts=None), tmp_path / "a")
    peer = fasttext_peer.load(tmp_path / "a.bin")
    words, counts = peer.get_words(include_freq=True)
    assert words == counted.tokens and counts.tolist() == [1] * len(words)
    for word, row in zip(words, counted.matrix, strict=True):
        np.testing.assert_array_equal(peer.get_word_vector(word), row)
    assert vector_files.read(tmp_path / "a.vec").tokens == words
    assert {path.name for path in tmp_path.iterdir()} == {"a.bin", "a.vec"}
    peer.save_model(str(tmp_path / "again.bin"))
    assert (tmp_path / "again.bin").read_bytes() == (tmp_path / "a.bin").read_bytes()


def test_rows_come_in_blocks_and_missing_ones_are_zero(tmp_path, monkeypatch):
    monkeypatch.setattr(fasttext_bin, "_ZERO_ROWS", 2)
    rows = np.random.default_rng(0).normal(size=(9, 3)).astype(np.float32)
    args = fasttext_bin.make_args(
        "softmax", "supervised", 3, word_ngrams=2, buckets=7, min_count=4, epochs=6
    )
    labels = ["__label__x y", "__label__z"]
    dictionary = fasttext_bin.make_dictionary(
        ["a", "\u00e9"], np.array([5, 4]), labels, np.array([3, 3])
    )
    path = tmp_path / "a.bin"
    fasttext_bin.write_model(path, args, dictionary, iter([rows[:4], rows[4:]]), [rows[:1]])
    found = model_file.load(path, is_supervised=True)
    assert found.args == args
    assert found.dictionary.words == [b"a", "\u00e9".encode()] and found.dictionary.tokens == 9
    assert [label.decode() for label in found.dictionary.labels] == labels
    assert found.dictionary.counts_C.tolist() == [3, 3]
    np.testing.assert_array_equal(found.input[:], rows)
    np.testing.assert_array_equal(found.output[:], [rows[0], np.zeros(3)])


@pytest.mark.parametrize("words", [["a", ""], ["a", "b\0"], ["a", "b", "a"]])
def test_a_word_that_the_format_cannot_hold_is_refused(tmp_path, words):
    vectors = WordVectors(words, np.zeros((len(words), 1), np.float32))
    with pytest.raises(UsageError, match=r"--format=fasttext: '.*' is (empty|there twice).*rename"):
        fasttext_bin.write(vectors, tmp_path / "a.bin")
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written(counted, tmp_path):
    fasttext_bin.write(counted, tmp_path / "a.bin")
    before = (tmp_path / "a.bin").read_bytes()
    with pytest.raises(UsageError, match="is a folder or a device"):
        (tmp_path / "folder.bin").mkdir()
        fasttext_bin.write(counted, tmp_path / "folder.bin")
    with pytest.raises(UsageError, match="cannot write .*a.bin is a file"):
        fasttext_bin.write(counted, tmp_path / "a.bin" / "b.bin")
    assert (tmp_path / "a.bin").read_bytes() == before
