"""Vectors of a file are found for words as the tokenizer of the run writes them."""

import numpy as np
import pytest

from app.exporting import word2vec
from app.settings import ClassifyConfig
from app.tables.device import DeviceTable
from app.tables.initial import Constant
from app.tasks.classify import classify_job, tuning
from app.text.vocabulary import Vocabulary
from app.types import WordVectors


@pytest.mark.parametrize(
    ("tokenizer", "expected"), [("whitespace", [[3, 3], [9, 9]]), ("unicode", [[1, 2], [9, 9]])]
)
def test_spellings_of_a_file(tmp_path, tokenizer, expected):
    matrix = np.array([[1, 2], [3, 3]], np.float32)
    word2vec.write(WordVectors(["Straße", "strasse"], matrix), str(tmp_path / "vectors"))
    table = DeviceTable(2, 2, Constant(9.0))
    words = Vocabulary(["strasse", "other"], np.array([2, 1]), 3)
    values = {"tokenizer": tokenizer, "dim": 2, "pretrained_vectors": str(tmp_path / "vectors")}
    config = tuning.with_values(ClassifyConfig(), values)
    classify_job._load_pretrained(config, words, {"input": table})
    np.testing.assert_array_equal(table.gather(np.arange(2)), expected)
