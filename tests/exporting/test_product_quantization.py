"""Product-quantised rows, read by fastText and by us."""

import numpy as np
import pytest

from app.errors import RunError, UsageError
from app.exporting import fasttext_bin
from app.exporting.product_quantization import quantize
from app.text.fasttext import model_file

pytest.importorskip("faiss")
DRAW = np.random.default_rng(0)


def in_blocks(rows_VD, size=100):
    return lambda: (rows_VD[first : first + size] for first in range(0, len(rows_VD), size))


@pytest.mark.parametrize(("columns", "length"), [(6, 2), (7, 2), (3, 3), (1, 2)])
def test_few_distinct_rows_are_kept_almost(columns, length):
    rows_VD = DRAW.normal(size=(40, columns)).astype(np.float32)[DRAW.integers(0, 40, 700)]
    rows_VD[5] = 0
    found = quantize(in_blocks(rows_VD), len(rows_VD), length)
    assert found.shape == rows_VD.shape and found.quantizer.parts == -(-columns // length)
    np.testing.assert_allclose(found[:], rows_VD, atol=0.02)


@pytest.mark.slow
def test_many_rows_are_near(monkeypatch):
    rows_VD = DRAW.normal(size=(3000, 8)).astype(np.float32)
    monkeypatch.setattr("app.exporting.product_quantization._MOST_ROWS", 2000)  # a sample
    found = quantize(in_blocks(rows_VD), len(rows_VD), 2)[:]
    cosines = (found * rows_VD).sum(1) / np.linalg.norm(found, axis=1)
    assert (cosines / np.linalg.norm(rows_VD, axis=1)).min() > 0.97
    again = quantize(in_blocks(rows_VD, 77), len(rows_VD), 2)[:]
    np.testing.assert_array_equal(found, again)


def test_fasttext_reads_both_matrices(tmp_path):
    from tests import fasttext_peer  # skips without fastText

    inputs_VD, outputs_CD = (DRAW.normal(size=(300, 5)).astype(np.float32) for _ in range(2))
    words, labels = [f"w{n}" for n in range(280)], [f"__label__{n}" for n in range(300)]
    dictionary = fasttext_bin.make_dictionary(words, None, labels, np.ones(300, np.int64))
    dictionary = dictionary._replace(kept_buckets_K=np.arange(20)[::-1] * 3)
    args = fasttext_bin.make_args("softmax", "supervised", 5, word_ngrams=2, buckets=60)
    matrices = [quantize(in_blocks(rows), 300, 2) for rows in (inputs_VD, outputs_CD)]
    fasttext_bin.write_model(tmp_path / "a.ftz", args, dictionary, *matrices)
    ours = model_file.load(tmp_path / "a.ftz", is_supervised=True)
    assert isinstance(ours.input, model_file.QuantizedMatrix)
    assert ours.dictionary.kept_buckets_K.tolist() == dictionary.kept_buckets_K.tolist()
    peer = fasttext_peer.load(tmp_path / "a.ftz")
    for row in range(300):
        np.testing.assert_allclose(
            peer.get_input_vector(row), ours.input[np.array([row])][0], atol=1e-6
        )
    np.testing.assert_array_equal(ours.output[:], matrices[1][:])
    peer.save_model(str(tmp_path / "again.ftz"))
    assert model_file.load(tmp_path / "again.ftz", True).dictionary.words == ours.dictionary.words


def test_rows_that_cannot_be_quantised():
    rows_VD = DRAW.normal(size=(256, 2)).astype(np.float32)
    with pytest.raises(UsageError, match="needs 256 rows of words and n-grams.*there are 255; use"):
        quantize(in_blocks(rows_VD[:255]), 255, 2)
    with pytest.raises(UsageError, match=r"cannot have 3,000,000,000 rows of 2 columns; give a --"):
        quantize(in_blocks(rows_VD), 3_000_000_000, 2)
    rows_VD[3] = np.nan
    with pytest.raises(RunError, match="not finite"):
        quantize(in_blocks(rows_VD), 256, 2)
