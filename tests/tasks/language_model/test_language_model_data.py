import dataclasses
import json
import math
import os
import signal

import numpy as np
import pytest

from app.checkpoints.checkpoint import is_finished
from app.checkpoints.workdir import Workdir
from app.errors import RunError, UsageError
from app.settings.flag_values import by_name, from_names
from app.tasks.language_model import language_model_data
from app.tasks.language_model import language_model_job as task
from app.tasks.words import words_data
from app.text.vocabulary import Vocabulary
from app.training import loop
from app.training.run import check_flags
from tests.reference import tables

# After each word one of two others: 1 bit a word, but for the first of a line and its end.
NEXT = {"a": "bc", "b": "cd", "c": "da", "d": "ab"}


def planted(lines=60, length=50, seed=0):
    draw = np.random.default_rng(seed)
    text = []
    for _ in range(lines):
        row = ["a"]
        for choice in draw.integers(2, size=length - 1):
            row.append(NEXT[row[-1]][choice])
        text.append(" ".join(row))
    return "\n".join(text) + "\n"


def config(corpus, workdir, loss="softmax", epochs=3, vocab="", **given):
    given = {"heldout_share": 0.1, **given, "batch_tokens": 80, "row_tokens": 5, "epochs": epochs}
    given |= {"steps_per_call": 1, "block_bytes": 2048, "min_count": 1, "vocab": vocab}
    given |= {
        "loss": loss,
        "dim": 6,
        "hidden": given.get("hidden", 8),
        "compute_dtype": "float32",
        "device": "CPU:0",
    }
    given |= {"optimizer": "lazy_adam", "learning_rate": 0.1, "log_seconds": 0.0}
    return from_names(given | {"task": "language_model", "corpus": corpus, "workdir": str(workdir)})


def load_text(config, place):
    return words_data.load_text(config, place, finished=False, ends_documents=True)


class Run:
    """A run in a folder, as lexrow train makes it. during: called before each batch."""

    def __init__(self, folder, corpus, during=lambda *_: None, **settings):
        self.config = config(corpus, folder, **settings)
        self.place = Workdir(folder)
        folder.mkdir(exist_ok=True)
        self.job = task.make_job(self.config, self.place, is_finished(self.place))
        check_flags(self.job, self.config.run)
        self.job.data.record()
        self.text = load_text(self.config, self.place)
        made = self.job.data.batches

        def batches(epochs, first):
            for index, (epoch, batch) in enumerate(made(epochs, first)):
                during(index)
                yield epoch, batch

        self.job = dataclasses.replace(
            self.job, data=dataclasses.replace(self.job.data, batches=batches)
        )

    def train(self):
        return loop.train(self.job, self.config.run, self.place, flags=by_name(self.config))

    def rows(self):
        return [json.loads(line) for line in self.place.metrics.read_text().splitlines()]

    def heldout(self):
        return [row for row in self.rows() if "heldout_loss" in row]

    def state(self):
        found = tables.contents(self.job.placed.tables)
        return {name: values.tobytes() for name, values in found.items()}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "a.txt"
    path.write_text(planted())
    return str(path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory, corpus):
    """A finished run that nothing disturbed."""
    run = Run(tmp_path_factory.mktemp("whole") / "run", corpus)
    assert run.train()
    return run


@pytest.mark.slow
def test_a_planted_text_is_learned_to_its_entropy(whole):
    assert sorted(whole.text.vocabulary.tokens) == ["<eos>", "<unk>", "a", "b", "c", "d"]
    rows = whole.heldout()
    assert [row["epoch"] for row in rows] == [1, 2, 3]
    # Of 51 tokens a line 49 are 1 bit, and "a" follows <eos>. Few units cannot count to the <eos>
    # that ends a line, so that it costs some bits more.
    least = 2 ** (49 / 51)
    assert least < rows[-1]["heldout_perplexity"] < 1.12 * least
    assert rows[-1]["heldout_loss"] == pytest.approx(math.log(rows[-1]["heldout_perplexity"]))
    steps = [row for row in whole.rows() if "loss" in row]
    # At first words have their share of the text, whatever comes before them.
    share = np.array(whole.text.vocabulary.counts) / whole.text.vocabulary.counts.sum()
    unigram = math.exp(-(share * np.log(share)).sum())
    assert steps[0]["perplexity"] == pytest.approx(unigram, rel=0.05)
    assert steps[-1]["perplexity"] == pytest.approx(math.exp(steps[-1]["loss"]))
    assert {"state"} == {name for name, table in whole.job.placed.tables.items() if not table.slots}


@pytest.mark.slow
@pytest.mark.parametrize("given", [{}, {"dropout": 0.1, "tie_weights": True, "hidden": 6}])
def test_a_run_that_was_stopped_goes_on_bit_for_bit(tmp_path, corpus, whole, given):
    in_an_epoch = len(whole.rows()) // 3
    if given:
        whole = Run(tmp_path / "whole", corpus, **given)
        assert whole.train()

    def ask(index):
        if index == in_an_epoch:
            os.kill(os.getpid(), signal.SIGTERM)

    assert not Run(tmp_path / "run", corpus, ask, **given).train()
    again = Run(tmp_path / "run", corpus, cache="none", **given)
    assert again.train()
    assert again.state() == whole.state()
    for name in ("step", "epoch", "loss", "words", "heldout_loss"):
        assert [row.get(name) for row in again.rows()] == [row.get(name) for row in whole.rows()]


@pytest.mark.slow
def test_scoring_changes_nothing(whole):
    before = whole.state()
    expected = {name: value for name, value in whole.heldout()[-1].items() if "heldout" in name}
    assert whole.job.evaluator.scores() == expected
    assert whole.state() == before


@pytest.mark.slow
def test_a_trained_model_scores_other_text(tmp_path, corpus):
    other = tmp_path / "other.txt"
    other.write_text(planted(lines=8, seed=9) + "a x\n")
    run = Run(tmp_path / "run", corpus, loss="class_softmax", heldout=str(other), epochs=1)
    run.train()
    (found,) = run.heldout()
    assert found["heldout_tokens"] == 8 * 51 + 3
    # Nothing of the corpus is left out then.
    assert len(run.rows()) - 1 >= 60 * 51 / 80
    score, step = task.load_scorer(run.config, run.text.vocabulary, run.place)
    again = score(
        language_model_data.read_files(
            str(other), run.text.vocabulary, run.config.corpus, run.config.input
        )
    )
    assert step == run.rows()[-1]["step"]
    assert again.loss == pytest.approx(found["heldout_loss"], rel=1e-6)
    assert (again.tokens, again.words) == (8 * 51 + 3, 8 * 50 + 1)


def test_to_score_needs_no_file_of_rows(tmp_path):
    """One that was made anew would be in the place of a run's that has no checkpoint yet."""
    settings = config("a.txt", tmp_path / "run", table="host", table_file=str(tmp_path / "rows"))
    words = Vocabulary(["<unk>", "a", "<eos>"], np.array([3, 2, 1], np.int64), 6)
    with pytest.raises(RunError, match="there is no checkpoint"):
        task.load_scorer(settings, words, Workdir(tmp_path / "run"))
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_nothing_to_score(tmp_path, whole):
    def heldout(**given):
        settings = dataclasses.replace(whole.config.input, **given)
        files = whole.text.files._replace(settings=settings)
        return language_model_data.make_heldout_pass(dataclasses.replace(whole.text, files=files))

    strange = tmp_path / "strange.txt"
    strange.write_text("x y z\n" * 9)
    with pytest.raises(UsageError, match=f"^--heldout={strange}: no word of it is in the vocab"):
        heldout(heldout=str(strange))
    with pytest.raises(UsageError, match="^--heldout=none.txt: no such file"):
        heldout(heldout="none.txt")
    with pytest.raises(UsageError, match="^--heldout_share=1e-06 leaves no token of any block"):
        heldout(heldout_share=1e-6)
    assert heldout(heldout_share=0.0) is None


@pytest.mark.slow
def test_a_vocabulary_needs_its_marks(tmp_path, corpus):
    path, place = tmp_path / "vocab.tsv", Workdir(tmp_path / "run")
    settings = config(corpus, place.path, vocab=str(path))
    path.write_text("a\t9\n<eos>\t3\nb\t2\n")
    with pytest.raises(UsageError, match=f"^--vocab={path}: has no <unk>, which --task=language"):
        load_text(settings, place)
    path.write_text("a\t9\n<eos>\t3\n<unk>\t2\n")
    assert load_text(settings, place).words == 60 * 51


def test_a_score_that_is_no_number_stops_the_run():
    found = language_model_data.Score(math.nan, 5, 5)
    with pytest.raises(RunError, match="^the loss on the text held out is not finite; lower"):
        language_model_data.heldout_metrics(found)
    assert language_model_data.loss_metrics(1e9) == language_model_data.loss_metrics(700.0)
