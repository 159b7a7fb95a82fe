"""The output layer that a language model has by default, and what its run says at the end."""

import shutil

import numpy as np
import pytest
import tensorflow as tf

from app.assembly import learning, placing
from app.assembly.learning import OutputSpec
from app.checkpoints.workdir import Workdir
from app.evaluation import score_report
from app.settings import checks
from app.settings.words_config import LanguageModelConfig
from app.system import machine
from app.tables import memory
from app.tables.disk.file import FileTable
from app.tasks import text_tasks
from app.tasks.language_model import language_model_job
from app.text.vocabulary import Vocabulary
from app.types import WordVectors
from tests.processes import peak_memory


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


# A language model with many words takes the memory of its plan, also for its output layer.


LOSSES = LanguageModelConfig.choices["loss"]


def make_config(folder, **values):
    given = {"dim": 4, "hidden": 300, "batch_tokens": 64, "row_tokens": 8, "steps_per_call": 2}
    given |= {"task": "language_model", "workdir": str(folder / "run"), "device": "CPU:0"}
    return checks.make_config(given | values)


def make_model(config, words):
    counts_V = 1 + 10**7 // np.arange(1, words + 1)
    return language_model_job.make_model(config, Vocabulary(range(words), counts_V, 0))


@pytest.mark.parametrize("loss", LOSSES)
def test_an_output_layer_starts_at_its_priors_by_parts(tmp_path, loss):
    model = make_model(make_config(tmp_path, loss=loss), 3000)
    for name, spec in model.tables().items():
        if spec.rows < 1000:
            continue
        expected_VD = spec.initial((spec.rows, spec.columns)).numpy()
        if name in model.priors:
            prior_V1 = np.reshape(model.priors[name], (-1, 1))
            zeros = np.zeros((spec.rows, spec.columns - 1), np.float32)
            np.testing.assert_array_equal(expected_VD, np.concatenate([zeros, prior_V1], axis=1))
        ids_U = np.array([2, 0, spec.rows - 1, 7])
        rows_UD = spec.initial.rows(tf.constant(ids_U), spec.columns)  # and no table as a whole
        np.testing.assert_array_equal(rows_UD, expected_VD[ids_U])


def place(config, model, words):
    """Places the tables; returns them and the bytes of the host that are planned."""

    def batches(epochs, first):
        draw = np.random.default_rng(1)
        shape = (2, 8, 9)
        for epoch in epochs:
            yield epoch, tf.constant(draw.integers(0, words, shape), tf.int32)

    micro_batch = text_tasks.micro_batch_spec(config.input, 1)
    placed = placing.place_tables(config, model, batches, micro_batch, Workdir(config.run.workdir))
    return placed, memory.totals(placed.memory)


def check_memory(folder, words):
    """Checks that making the tables takes the planned memory, and a fifth of the output's size."""
    config = make_config(folder, table="host", table_file=str(folder / "rows"), hot_rows="100")
    model = make_model(config, words)
    size = 4 * words * (config.model.hidden + 1)
    before = machine.resident_bytes()
    with peak_memory() as peak:
        placed, planned = place(config, model, words)
    assert planned[memory.FILE] > size
    assert peak[0] - before < size / 5
    assert peak[0] < 1.1 * sum(count for name, count in planned.items() if name != memory.FILE)
    (name,) = [name for name in model.priors if model.tables()[name].rows == words]
    table = placed.tables[name]
    assert isinstance(table, FileTable)
    ids_U = tf.constant([0, words // 2, words - 1])
    rows_UD = table.gather(ids_U).numpy()
    np.testing.assert_array_equal(rows_UD[:, :-1], 0)
    np.testing.assert_array_equal(rows_UD[:, -1], tf.gather(model.priors[name], ids_U))


def test_tables_in_a_file_are_made_in_the_memory_of_the_plan(tmp_path):
    check_memory(tmp_path, 400_000)


@pytest.mark.slow
def test_many_words_take_the_memory_of_the_plan(tmp_path):
    """Their rows are few numbers here, so that it is numbers for each word that are counted."""
    table = {"table": "host", "table_file": str(tmp_path / "rows"), "hot_rows": "100"}
    config = make_config(tmp_path, hidden=4, **table)
    model = make_model(config, 3_000_000)
    with peak_memory() as peak:
        _, planned = place(config, model, 3_000_000)
    assert peak[0] < 1.1 * (sum(planned.values()) - planned[memory.FILE])


@pytest.mark.slow
def test_ten_million_words_are(tmp_path):
    if shutil.disk_usage(tmp_path).free < 30e9:
        pytest.skip("needs 30 GB of disk")
    check_memory(tmp_path, 10_000_000)
