"""Files that fastText writes, and files that are not as it writes them."""

import struct

import numpy as np
import pytest

from app.errors import UsageError
from app.exporting import fasttext_bin
from app.text import subwords, vector_files
from app.text.fasttext import model_file
from app.text.fasttext.model_file import QuantizedMatrix
from app.types import WordVectors
from tests import fasttext_peer

QUANTIZED = {"qnorm": True, "qout": True, "dsub": 3, "cutoff": 600, "retrain": False}
MODELS = {
    "words": ("skipgram", {"minn": 0, "maxn": 0}),
    "subwords": ("cbow", {"minn": 3, "maxn": 5}),
    "softmax": ("supervised", {"loss": "softmax"}),
    "tree": ("supervised", {"loss": "hs", "wordNgrams": 2}),
    "quantized": ("supervised", {"quantize": {"qnorm": False, "qout": False, "dsub": 2}}),
    "pruned": ("supervised", {"wordNgrams": 2, "maxn": 3, "minn": 2, "quantize": QUANTIZED}),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The file of each model, and whether it is a classifier."""
    found = {}
    for name, (model, settings) in MODELS.items():
        path = fasttext_peer.train(tmp_path_factory.mktemp(name), model, **settings)
        found[name] = path, model == "supervised"
    return found


@pytest.mark.parametrize("name", MODELS)
def test_everything_in_a_file_is_read(files, name):
    path, is_supervised = files[name]
    found, peer = model_file.load(path, is_supervised), fasttext_peer.load(path)
    args = peer.f.getArgs()
    assert (found.args.dim, found.args.window, found.args.epochs) == (args.dim, args.ws, args.epoch)
    assert (found.args.word_ngrams, found.args.buckets) == (args.wordNgrams, args.bucket)
    assert (found.args.min_ngram, found.args.max_ngram) == (args.minn, args.maxn)
    assert model_file.MODELS[found.args.model] == args.model.name
    assert (found.args.negatives, found.args.subsample) == (args.neg, args.t)
    words, counts = peer.get_words(include_freq=True)
    assert [word.decode() for word in found.dictionary.words] == words
    assert found.dictionary.counts_V.tolist() == counts.tolist()
    if is_supervised:
        labels, counts = peer.get_labels(include_freq=True)
        assert [label.decode() for label in found.dictionary.labels] == labels
        assert found.dictionary.counts_C.tolist() == counts.tolist()
    rows = np.arange(found.input.shape[0])
    expected = [peer.get_input_vector(row) for row in rows]
    np.testing.assert_allclose(found.input[rows], expected, atol=1e-7)
    if not peer.is_quantized():
        rows = np.arange(found.output.shape[0])
        np.testing.assert_array_equal(found.output[rows], peer.get_output_matrix())
    assert (found.dictionary.kept_buckets_K is not None) == (name == "pruned")
    assert isinstance(found.input, QuantizedMatrix) == peer.is_quantized()


@pytest.mark.parametrize("name", MODELS)
def test_a_truncated_file_is_named(files, name, tmp_path):
    path, is_supervised = files[name]
    whole, cut = path.read_bytes(), tmp_path / "cut.bin"
    places = np.linspace(4, len(whole) - 1, 60).astype(int).tolist()
    for place in [*places, *range(4, 120), *range(len(whole) - 30, len(whole))]:
        cut.write_bytes(whole[:place])
        with pytest.raises(UsageError, match=r"cut\.bin: ends within the [a-z ]+, after .*again$"):
            model_file.load(cut, is_supervised)


def test_the_first_bytes_show_the_format(files, tmp_path):
    path, _ = files["words"]
    assert model_file.is_fasttext(path) and not model_file.is_fasttext(tmp_path)
    assert not model_file.is_fasttext(tmp_path / "none.bin")
    (tmp_path / "empty.bin").write_bytes(b"")
    (tmp_path / "short.bin").write_bytes(path.read_bytes()[:3])
    for name in ("empty.bin", "short.bin"):
        assert not model_file.is_fasttext(tmp_path / name)
        with pytest.raises(UsageError, match="does not begin as a file of fastText does; give a"):
            model_file.load(tmp_path / name, False)
    for place, message in ((tmp_path, "not a regular file"), (tmp_path / "no", "No such file")):
        with pytest.raises(UsageError, match=f"{message}.*; give a .bin or .ftz file of fastText"):
            model_file.load(place, False)


def test_word_vectors_are_no_classifier_nor_the_reverse(files):
    with pytest.raises(UsageError, match="a classifier of fastText, not word vectors; give a file"):
        model_file.load(files["softmax"][0], False)
    with pytest.raises(UsageError, match="word vectors of fastText, not a classifier; give a file"):
        model_file.load(files["words"][0], True)


@pytest.mark.parametrize("version", [-1, 10, 13])
def test_another_version(files, tmp_path, version):
    path = changed(files["words"][0], tmp_path, 4, struct.pack("<i", version))
    with pytest.raises(UsageError, match=rf"version {version} of .*; give a file of version 11 or"):
        model_file.load(path, False)


def test_version_11_of_a_classifier_has_no_ngrams_of_characters(files, tmp_path):
    path = changed(files["softmax"][0], tmp_path, 4, struct.pack("<i", 11))
    field = model_file.Args._fields.index("max_ngram")
    path = changed(path, tmp_path, 8 + 4 * field, struct.pack("<i", 6))
    assert model_file.load(path, True).args.max_ngram == 0


SIZES = model_file.SIGNATURE.size + model_file.ARGS.size


@pytest.mark.parametrize(
    ("place", "content", "message"),
    [
        (8, struct.pack("<i", 0), r"damaged \(dim 0\)"),
        (8, struct.pack("<i", 7), r"damaged \(305 x 10 numbers in the input matrix, not \(30"),
        (8, struct.pack("<i", 2**31 - 1), r"damaged \(dim 2147483647\)"),
        (8 + 4 * 6, struct.pack("<i", 9), r"damaged \(loss 9\)"),
        (8 + 4 * 7, struct.pack("<i", 0), r"damaged \(model 0\)"),
        (8 + 4 * 8, struct.pack("<i", -1), r"damaged \(bucket -1\)"),
        (8 + 4 * 8, struct.pack("<i", 99), r"damaged \(305 x 10 numbers in the input matrix"),
        (8 + 4 * 10, struct.pack("<i", 6), r"damaged \(bucket 0\)"),
        (SIZES, struct.pack("<3i", 9, 4, 4), r"damaged \(9 entries of 4 words and 4 labels\)"),
        (SIZES, struct.pack("<3i", 0, 5, -5), r"damaged \(0 entries of 5 words and -5 labels\)"),
        (SIZES, struct.pack("<3i", 2**30, 2**30, 0), r"damaged|ends within the dictionary"),
        (SIZES, struct.pack("<3i", 305, 304, 1), r"damaged \(entry 304 of the dictionary"),
        (SIZES + 20, struct.pack("<q", -2), r"damaged \(\d+ entries"),
        (SIZES + 20, struct.pack("<q", 2**60), r"ends within the dictionary"),
        (SIZES + 20, struct.pack("<q", 0), r"damaged \(a pruned model whose rows are not quant"),
    ],
)
def test_a_damaged_file_is_named(files, tmp_path, place, content, message):
    path = changed(files["words"][0], tmp_path, place, content)
    with pytest.raises(UsageError, match=rf"changed\.bin: ({message}).*; copy or download the fil"):
        model_file.load(path, False)


def test_bytes_after_the_model(files, tmp_path):
    path, _ = files["words"]
    longer = tmp_path / "longer.bin"
    longer.write_bytes(path.read_bytes() + b"more")
    with pytest.raises(UsageError, match=r"longer.bin: damaged \(4 bytes follow the model\); copy"):
        model_file.load(longer, False)


def changed(path, folder, place, content):
    """Write a copy of a file with other bytes at a place."""
    data = bytearray(path.read_bytes())
    data[place : place + len(content)] = content
    (folder / "changed.bin").write_bytes(data)
    return folder / "changed.bin"


# Word vectors of fastText's files, by this reader and by fastText.


@pytest.mark.parametrize("model", ["skipgram", "cbow"])
@pytest.mark.parametrize("ngrams", [(0, 0), (3, 6), (1, 2)])
def test_vectors_are_those_of_fasttext(tmp_path, model, ngrams):
    path = fasttext_peer.train(tmp_path, model, minn=ngrams[0], maxn=ngrams[1])
    peer, found = fasttext_peer.load(path), vector_files.read(path)
    words, counts = peer.get_words(include_freq=True)
    assert found.tokens == words and found.counts.tolist() == counts.tolist()
    assert "</s>" in words and "\u65e5\u672c" in words
    expected = [peer.get_word_vector(word) for word in words]
    np.testing.assert_allclose(found.matrix, expected, atol=1e-6)
    if not ngrams[1]:
        assert found.ngrams is None
        return
    unseen = sorted(set(fasttext_peer.random_strings(1000)) - set(words))
    expected = [peer.get_word_vector(word) for word in unseen]
    np.testing.assert_allclose(subwords.compose_unseen(unseen, found.ngrams), expected, atol=1e-6)


def test_vectors_that_are_not_finite_are_refused(tmp_path):
    vectors = WordVectors(["one", "two"], np.array([[1, 2], [3, np.nan]], np.float32))
    fasttext_bin.write(vectors, str(tmp_path / "a.bin"))
    with pytest.raises(UsageError, match="a.bin, row 2: the vector of 'two' has nan, which is not"):
        vector_files.read(tmp_path / "a.bin")
