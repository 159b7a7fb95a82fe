"""Which buckets of n-grams have a row, in new runs and in those of earlier versions."""

from __future__ import annotations

import numpy as np
import pytest

from app.checkpoints.workdir import Workdir
from app.errors import DamagedError
from app.settings import flag_values
from app.tasks.classify import classify_data

LINES = [f"__label__{'ab'[number % 2]} w{number % 7} the end" for number in range(40)]
OTHERS = ["__label__a the w1 w2 the", "__label__b new words the end"]


def fitted(tmp_path, lines, finished=False, **values):
    """The data, the features and the encoded texts of a run."""
    (tmp_path / "a.txt").write_text("".join(f"{line}\n" for line in lines))
    names = {"task": "classify", "corpus": str(tmp_path / "a.txt"), "heldout_share": 0.0}
    names |= {"min_count": 1, "word_ngrams": 2, "buckets": 5000} | values
    config, workdir = flag_values.from_names(names), Workdir(tmp_path)
    data = classify_data.load_data(config, workdir, finished)
    found = classify_data.fit_features(data.training, 99, data.words, config.labelled, workdir)
    return config, data, *found


@pytest.mark.slow
def test_a_new_run_has_a_row_for_each_bucket_that_occurs(tmp_path):
    config, data, features, texts = fitted(tmp_path, LINES)
    assert len(data.words.tokens) == 9
    # `the end`, a pair for each of seven words, and the first bucket.
    assert features.rows == texts.rows == 9 + 1 + 7 + 1
    assert texts.ids_F.max() < features.rows and np.diff(texts.starts_E).tolist() == [5] * 40
    classify_data.record(data, features, workdir := Workdir(tmp_path))
    assert dict(classify_data.about(data, features))["vocabulary"] == "9 words, 9 rows of n-grams"
    _, again, same, _ = fitted(tmp_path, LINES)
    assert same.rows == features.rows and again.words.tokens == data.words.tokens
    np.testing.assert_array_equal(same.buckets_N, features.buckets_N)
    # Other texts have no new rows, and their unknown n-grams count as zeros.
    *_, other, texts = fitted(tmp_path, OTHERS, finished=True)
    np.testing.assert_array_equal(other.buckets_N, features.buckets_N)
    assert texts.sizes_E.tolist() == [7, 3]
    # the, w1, w2, `w2 the`; the, end, `the end`
    assert np.diff(texts.starts_E).tolist() == [4, 3]
    assert texts.shares_F.tolist() == pytest.approx([2 / 7, *[1 / 7] * 3, *[1 / 3] * 3])
    np.savez(workdir.ngrams, buckets_N=features.buckets_N[::-1])
    with pytest.raises(DamagedError, match="ngrams.npz is damaged: it does not list 9 buckets"):
        classify_data.load_features(config.labelled, data.words, workdir)
    np.savez(workdir.ngrams, buckets_N=np.arange(4992, 5001, dtype=np.int32))
    with pytest.raises(DamagedError, match="it has the bucket 5000 of 5000"):
        classify_data.load_features(config.labelled, data.words, workdir)


@pytest.mark.slow
def test_a_run_that_was_killed_before_its_record_was_whole_is_new(tmp_path):
    config, data, features, _ = fitted(tmp_path, LINES)
    classify_data.record(data, features, workdir := Workdir(tmp_path))
    workdir.corpus.unlink()
    *_, again, _ = fitted(tmp_path, LINES)
    np.testing.assert_array_equal(again.buckets_N, features.buckets_N)


@pytest.mark.slow
def test_texts_of_one_word_have_a_bucket(tmp_path):
    *_, features, texts = fitted(tmp_path, ["__label__a one", "__label__b two"])
    assert features.buckets_N.tolist() == [0] and texts.ids_F.tolist() == [0, 1]


@pytest.mark.slow
def test_a_run_of_an_earlier_version_keeps_all_buckets(tmp_path):
    config, data, *_ = fitted(tmp_path, LINES)
    every = classify_data.make_features(config.labelled, data.words)
    classify_data.record(data, every, Workdir(tmp_path))
    *_, features, texts = fitted(tmp_path, LINES)
    assert features.buckets_N is None and features.rows == texts.rows == 9 + 5000
    assert not Workdir(tmp_path).ngrams.exists()


@pytest.mark.slow
def test_single_words_have_no_buckets(tmp_path):
    *_, features, texts = fitted(tmp_path, LINES, word_ngrams=1)
    assert features.buckets_N is None and features.rows == texts.rows == 9
