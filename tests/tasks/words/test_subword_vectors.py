"""Runs with subwords."""

import numpy as np
import pytest
import tensorflow as tf

from app.checkpoints import checkpoint, growth
from app.checkpoints.checkpoint import Position
from app.checkpoints.stored import read_rows
from app.checkpoints.table_checkpoints import Checkpoints
from app.checkpoints.workdir import Workdir, write_flags
from app.evaluation import score_report
from app.models.row_lists import SubwordRows
from app.settings.checks import make_config
from app.settings.flag_values import by_name
from app.tasks import trained_vectors
from app.tasks.words import words_job
from app.tasks.words.words_export import EXPORTS
from app.text import vector_files, vocabulary
from app.text.subwords import hash_words
from app.text.vocabulary import Vocabulary
from app.types import NgramRule

RULE = NgramRule(2, 3, 400)
OLD, NEW = "walk walks walked sing sings", "xylo xyloid"


def settings(folder, **flags):
    return make_config(
        {
            "task": "words",
            "corpus": str(folder / "text"),
            "workdir": str(folder / "run"),
            "dim": 4,
            "min_count": 1,
            "batch_tokens": 64,
            "row_tokens": 16,
            "window": 2,
            "group_tokens": 32,
            "shared_negatives": 8,
            "subsample": 0.0,
            "epochs": 1,
            "min_ngram": 2,
            "max_ngram": 3,
            "ngram_buckets": RULE.buckets,
            **flags,
        }
    )


def make_run(folder, **flags):
    """A finished run of no steps, whose rows are their initial values; return its place."""
    (folder / "text").write_text(f"{OLD}\n" * 20)
    config, place = settings(folder, **flags), Workdir(folder / "run")
    with place.lock():
        job = words_job.make_job(config, place, False)
        Checkpoints(place.checkpoints, job.placed.tables).save(Position(epoch=1, batches=1))
        write_flags(place.flags, by_name(config))
        job.data.record()
    return place


def by_bucket(place, rows):
    """The rows of the words and of the buckets, by name."""
    tokens = vocabulary.load(str(place.vocabulary)).tokens
    buckets = np.unique(hash_words(tokens, RULE).buckets_N).tolist()
    return dict(zip([*tokens, *buckets], rows.tolist(), strict=True))


def newest(place):
    return checkpoint.list_checkpoints(place.checkpoints)[0]


@pytest.mark.slow
def test_rows_of_words_and_buckets_stay_when_the_vocabulary_grows(tmp_path):
    place = make_run(tmp_path)
    before = {slot: by_bucket(place, read_rows(newest(place), "input", slot)) for slot in ROWS}
    (tmp_path / "text").write_text(f"{NEW} walk\n" * 30)
    config = settings(tmp_path, grow_vocab=True, epochs=2)
    with place.lock():
        job = words_job.make_job(config, place, True)
        growth.check_growth(job.growth, job.model.tables(), config.model.loss, place)
        grown = job.growth, job.model.tables(), job.placed.tables
        growth.grow_workdir(*grown, by_name(config), place)
    for slot, old in before.items():
        after = by_bucket(place, read_rows(newest(place), "input", slot))
        assert set(NEW.split()) <= after.keys() - old.keys()
        assert {name: after[name] for name in old} == old
    assert len(set(map(tuple, after.values()))) == 1  # accumulators


ROWS = ("", "accumulator")


@pytest.mark.slow
def test_a_file_for_fasttext_has_zeros_for_the_other_buckets(tmp_path):
    place = make_run(tmp_path)
    EXPORTS["fasttext"](settings(tmp_path), place, str(tmp_path / "model.bin"))
    found = vector_files.read(str(tmp_path / "model.bin"))
    ours = trained_vectors.load(place.path)
    assert found.tokens == ours.tokens
    np.testing.assert_allclose(found.matrix, ours.matrix, rtol=1e-5, atol=1e-7)
    expected = np.zeros((RULE.buckets, 4), np.float32)
    expected[ours.ngrams.buckets_N] = ours.ngrams.rows_ND
    np.testing.assert_array_equal(found.ngrams.rows_ND, expected)


def test_rows_of_another_vocabulary_are_refused():
    words = Vocabulary(OLD.split(), np.ones(5, np.int64), 5)
    with pytest.raises(ValueError, match="17 rows are not those of 5 words"):
        trained_vectors.compose_words(words, np.zeros((17, 4), np.float32), RULE)


def test_words_are_composed_as_in_training():
    words = Vocabulary(OLD.split(), np.ones(5, np.int64), 5)
    trained = SubwordRows(words.tokens, RULE)
    shape = (5 + len(trained.buckets_N), 30)
    rows_ND = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    expected = trained.compose(tf.range(5), lambda ids_U: tf.constant(rows_ND[ids_U]))
    found = trained_vectors.compose_words(words, rows_ND, RULE)
    np.testing.assert_allclose(found.matrix, expected, rtol=0, atol=2e-7)


def test_scores_of_an_epoch_compose_unknown_words_as_those_of_the_run(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "OLD", "tiger cats computer keyboard planet trains")
    place = make_run(tmp_path)
    job = words_job.make_job(settings(tmp_path), Workdir(tmp_path / "other"), False)
    found = job.watch()()
    Checkpoints(place.checkpoints, job.placed.tables).save(Position(step=1, epoch=1, batches=1))
    vectors = trained_vectors.load(place.path)
    expected = {score.name: score for score in score_report.run(vectors, ["ws353", "simlex999"])}
    assert expected["ws353"].used > 300
    for name, score in expected.items():
        assert found[name] == pytest.approx(score.value, abs=1e-6)
