"""The output layer that a language model has by default, and what its run says at the end."""

from __future__ import annotations

import numpy as np
import pytest

from app.assembly import learning
from app.assembly.learning import OutputSpec
from app.checkpoints.workdir import Workdir
from app.evaluation import score_report
from app.settings import checks
from app.tasks import text_tasks
from app.tasks.language_model import language_model_job
from app.types import WordVectors


@pytest.mark.parametrize(
    ("words", "targets", "is_whole"),
    [(50, 1024, True), (10_000, 1024, True), (10_000, 16, False), (1_000_000, 1024, False)],
)
def test_the_default_touches_no_more_rows_than_there_are_words(words, targets, is_whole):
    config = checks.make_config({"task": "language_model"})
    counts_V = 1 + 10**7 // np.arange(1, words + 1)
    made = learning.make_loss(config.model, OutputSpec(counts_V, 4, targets, 1))
    assert (sum(spec.rows for spec in made.tables().values()) == words) == is_whole


def test_a_language_model_has_no_scores_of_word_vectors(tmp_path, monkeypatch):
    draw = np.random.default_rng(0)
    tokens = [f"word{number}" for number in range(50)]
    vectors = WordVectors(
        tokens, draw.normal(size=(50, 4)).astype(np.float32), np.arange(50, 0, -1)
    )
    monkeypatch.setattr(text_tasks.trained_vectors, "load", lambda path: vectors)
    (tmp_path / "text.txt").write_text("a b c d e f g\n" * 300)
    given = {"task": "language_model", "corpus": str(tmp_path / "text.txt"), "min_count": 1}
    given |= {"dim": 4, "batch_tokens": 64, "row_tokens": 8, "steps_per_call": 2}
    config = checks.make_config({**given, "workdir": str(tmp_path / "run"), "device": "CPU:0"})
    place = Workdir(tmp_path / "run")
    report = language_model_job.make_job(config, place, False).finish(place)
    assert not any(name in report for name in (*score_report.benchmarks, "scores", "--pairs"))
    assert f"lexrow evaluate --workdir={place.path} --heldout=FILE" in report
    assert "nearest words:" in report
    of_words = text_tasks.write_and_score(place)
    assert f"lexrow evaluate --workdir={place.path} --pairs=FILE" in of_words
    assert "ws353" in of_words or "no scores" in of_words
