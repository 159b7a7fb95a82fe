"""The search for the settings of a classifier (--tune_seconds)."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import signal

import numpy as np
import pytest

from app.checkpoints.workdir import Workdir, read_settings
from app.errors import DamagedError, RunError, StoppedError, UsageError
from app.settings.checks import make_config
from app.tasks.classify import classifier_export, classify_data, fasttext_prediction, tuning
from app.tasks.classify.tuning import Trial, suggest
from app.text.fasttext import model_file
from app.training.run import train_and_evaluate

START = {"learning_rate": 0.2, "epochs": 5, "word_ngrams": 1, "dim": 100, "loss": "softmax"}
KINDS = {"good": ["warm", "funny", "fine"], "bad": ["dull", "long", "poor"]}


class Clock:
    """A clock that goes on by a second with each look, and may do something at one of them."""

    def __init__(self, looks: int = -1, action=lambda: None, tick: float = 1.0):
        self.now, self.looks, self.action, self.tick = 0.0, looks, action, tick

    def __call__(self) -> float:
        self.now += self.tick
        self.looks -= 1
        if self.looks == 0:
            self.action()
        return self.now


def texts(count: int = 240, several: bool = False) -> list[str]:
    """Lines of labels and words, a fifth of the labels at random."""
    draw, lines = random.Random(1), []
    for _ in range(count):
        kinds = draw.sample([*KINDS], 2 if several and draw.random() < 0.4 else 1)
        words = [word for kind in kinds for word in draw.choices(KINDS[kind], k=3)]
        words += [f"w{draw.randrange(150)}" for _ in range(4)]
        shown = kinds if draw.random() < 0.8 else [draw.choice([*KINDS])]
        lines.append(" ".join([*(f"__label__{kind}" for kind in shown), *words]))
    return lines


def make(tmp_path, **values):
    """The settings of a search with few columns, and its workdir."""
    lines = values.pop("lines", None) or texts()
    (tmp_path / "texts.txt").write_text("".join(f"{line}\n" for line in lines))
    names = {"task": "classify", "corpus": str(tmp_path / "texts.txt"), "tune_seconds": 400.0}
    names |= {"dim": 4, "heldout_share": 0.25, "log_seconds": 0.0, "buckets": 500}
    return make_config(names | values), Workdir(tmp_path / "run")


def tune(config, workdir, clock=None):
    """The result of a search, and its trials without their times."""
    workdir.path.mkdir(exist_ok=True)
    best = tuning.tune(config, workdir, clock or Clock())
    return best, [(trial.settings, trial.score) for trial in tuning.read_trials(workdir)]


def trials_of(count: int, progress: float = 0.0, start=START, several=False) -> list[dict]:
    """The settings of the first trials, if the first one remains the best."""
    trials: list[Trial] = []
    for _ in range(count):
        settings = suggest(start, trials, progress, 1, several)
        trials.append(Trial(settings, 0.5 if trials else 0.9, 1.0))
    return [trial.settings for trial in trials]


def test_suggestions():
    found = trials_of(60)
    assert found == trials_of(60) and found[0] == START
    assert found[1] == {**START, "word_ngrams": 2}
    assert trials_of(3, several=True)[2] == {**START, "loss": "one_vs_all"}
    for one in found:
        assert 0.005 <= one["learning_rate"] <= 5 and 1 <= one["epochs"] <= 100
        assert 4 <= one["dim"] <= 300 and 1 <= one["word_ngrams"] <= 5
    assert len({json.dumps(one) for one in found}) == 60
    changes = [any(one[name] != START[name] for name in ("word_ngrams", "dim")) for one in found]
    assert 10 < sum(changes) <= 21  # others need no new graph
    early, late = (
        np.std([np.log(one["learning_rate"]) for one in trials_of(60, progress)])
        for progress in (0, 1)
    )
    assert late < 0.6 * early
    # From the best one, and not from the last.
    done = [Trial(START, 0.5, 1.0), Trial({**START, "dim": 7, "word_ngrams": 2}, 0.8, 1.0)]
    assert suggest(START, [*done, done[0], done[0]], 0, 1, False)["dim"] == 7


def test_suggestions_where_there_is_little_to_choose():
    start = {"loss": "softmax"}
    first, second = Trial(start, 0.5, 1.0), Trial({"loss": "one_vs_all"}, 0.4, 1.0)
    assert suggest(start, [first], 0, 1, False) == second.settings
    assert suggest(start, [first, second], 0, 1, False) is None
    # The first one took too long.
    slow = Trial({"epochs": 50, "dim": 200}, None, 9.0)
    assert suggest(slow.settings, [slow], 0, 1, False) == {"epochs": 1, "dim": 8}


def test_what_is_searched():
    def names(**values):
        return tuning.searched(make_config({"task": "classify", "tune_seconds": 1.0, **values}))

    assert names() == [*START]
    assert names(dim=50, learning_rate=0.1) == ["epochs", "word_ngrams", "loss"]
    assert names(optimizer="lazy_adam", loss="hierarchical_softmax") == [*START][:-1]
    assert names(tune="dim, epochs", dim=50) == ["dim", "epochs"]
    assert "dim" not in names(pretrained_vectors="vectors.bin")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"tune": "dim,rate"}, "--tune=rate: not one of learning_rate, "),
        ({"tune_seconds": 0.0, "tune_bytes": 5}, "--tune_bytes=5 means nothing without"),
        ({"tune_seconds": -1.0}, "--tune_seconds=-1"),
        ({"table": "host"}, "cannot search with --strategy=none or --table=host"),
        ({"patience": 3}, "leave out --patience=3"),
        ({"heldout_share": 0.0}, "--heldout_share=0: --tune_seconds=400 needs texts to score on"),
        ({"tune": "loss", "loss": "hierarchical_softmax"}, "--tune=loss: it cannot be searched"),
        (
            {"learning_rate": 1, "epochs": 9, "word_ngrams": 2, "loss": "one_vs_all"},
            "each setting that can be searched has a value of its own",
        ),
        ({"lines": ["__label__a one"] * 40}, "every text to train on has the label 'a'"),
    ],
)
def test_bad_settings(tmp_path, values, message):
    with pytest.raises(UsageError, match=message):
        tune(*make(tmp_path, **values))


class Fake:
    """Stands for the trainer: a score that is best with 12 epochs, and a look for each of them."""

    refusal = None

    def __init__(self, *_):
        pass

    def score(self, settings, is_late):
        """Return the score of some settings, or None if it is too late for them."""
        epochs = settings.get("epochs", 5)
        if any(is_late(epoch / epochs) for epoch in range(epochs + 1)):
            return None
        rate = settings.get("learning_rate", 0.5)
        return 0.9 - abs(np.log(rate / 0.5)) / 10 - abs(epochs - 12) / 100


@pytest.fixture
def fake(monkeypatch):
    """Searches without training, in seconds of a clock that each look moves on."""
    monkeypatch.setattr(tuning, "_Trainer", Fake)
    monkeypatch.setattr(tuning.tune, "__defaults__", (Clock(),))


def best_of(trials):
    """The settings of the first trial of the best score."""
    return max(trials, key=lambda trial: trial[1] or 0)[0]


def test_a_search(tmp_path, fake, monkeypatch):
    config, workdir = make(tmp_path, tune="learning_rate,epochs")
    best, trials = tune(config, workdir)
    assert len(trials) > 9 and max(score for _, score in trials if score) > trials[0][1] + 0.03
    found = {"learning_rate": best.optimizer.learning_rate, "epochs": best.run.epochs}
    assert found == best_of(trials) and best.input.heldout_share == 0
    # In the middle of another search, an error: the next call does the rest.
    other, score, calls = Workdir(tmp_path / "other"), Fake.score, itertools.count(1)

    def fail_once(self, *arguments):
        """Score as ever, but the third time."""
        if next(calls) == 3:
            raise KeyError("broken")
        return score(self, *arguments)

    monkeypatch.setattr(Fake, "score", fail_once)
    with pytest.raises(KeyError):
        tune(config, other)
    assert len(tuning.read_trials(other)) == 2
    assert tune(config, other)[1] == trials
    assert next(calls) == len(trials) + 2
    # With less time than it had, there is nothing left to search.
    assert tune(tuning.with_values(config, {"tune_seconds": 9.0}), other)[1] == trials


def test_a_run_is_tuned_once(tmp_path, fake):
    values = {"tune": "learning_rate", "learning_rate": 0.1, "epochs": 1, "steps_per_call": 1}
    config, workdir = make(tmp_path, tune_seconds=60.0, **values)
    train_and_evaluate(config, workdir.path, is_quiet=True)
    stored, trials = read_settings(workdir.path), tuning.read_trials(workdir)
    assert stored["heldout_share"] == 0 and stored["tune_seconds"] == 60
    best = best_of([trial[:2] for trial in trials])
    assert stored["learning_rate"] == best["learning_rate"] != 0.1
    train_and_evaluate(config, workdir.path, is_quiet=True)  # nothing is left to do
    assert read_settings(workdir.path) == stored and tuning.read_trials(workdir) == trials
    more = tuning.with_values(config, {"tune_seconds": 90.0})
    message = "--tune_seconds=90: the training in --workdir=.* has begun"
    with pytest.raises(UsageError, match=message):
        train_and_evaluate(more, workdir.path, is_quiet=True)


def test_time(tmp_path, fake):
    config, workdir = make(tmp_path, tune="learning_rate,epochs", tune_seconds=2.0)
    with pytest.raises(RunError, match="--tune_seconds=2: no trial had time to end"):
        tune(config, workdir)
    assert all(trial.score is None for trial in tuning.read_trials(workdir))
    config, workdir = make(tmp_path, tune="epochs", tune_seconds=60.0)
    _, trials = tune(config, workdir := Workdir(tmp_path / "other"))
    found = tuning.read_trials(workdir)
    assert sum(trial.seconds for trial in found) <= 63 and None in [score for _, score in trials]
    # A trial for which there is no time is given up soon after its first steps.
    assert max(one.seconds for one in found if one.score is None) < 30


def test_deadline():
    late = tuning._Deadline(Clock(), 20.0, lambda: False)
    assert not late.is_near(0.0)  # 1 s; then the graph is made
    assert not late.is_near(0.1) and not late.is_near(0.12)
    assert not late.is_near(0.2)  # 0.1 in 2 s at 4 s: until 20 s
    assert late.is_near(0.21)  # slower
    assert tuning._Deadline(Clock(), 20.0, lambda: True).is_near(0.9)


def test_ctrl_c(tmp_path, fake):
    config, workdir = make(tmp_path, tune="learning_rate,epochs")
    clock = Clock(60, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(StoppedError, match=r"the [1-9]\d* trials in .*trials.jsonl are kept"):
        tune(config, workdir, clock)
    kept = tuning.read_trials(workdir)
    best, trials = tune(tuning.with_values(config, {"tune_seconds": 1.0}), workdir)
    assert len(trials) == len(kept)
    assert best.run.epochs == max(kept, key=lambda trial: trial.score).settings["epochs"]


SHORT = {"tune": "learning_rate", "tune_seconds": 30.0}


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    """The workdir of a search."""
    config, workdir = make(tmp_path_factory.mktemp("searched"), **SHORT)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tuning, "_Trainer", Fake)
        tune(config, workdir)
    return workdir.path


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"dim": 5}, UsageError, "--dim=5: the trials in --workdir=.* were made with 4; give that"),
        ({"lines": texts(200)}, UsageError, "--corpus is not what the trials in .* are of"),
        ("not JSON\n", DamagedError, "trials.jsonl is damaged: a line of it is no JSON"),
        ("[" * 100_000 + "\n", DamagedError, "trials.jsonl is damaged: a line of it is no JSON"),
        ('{"score": "high"}\n', DamagedError, "trials.jsonl is damaged: a line of it has other"),
        (
            '{"settings": {"table_file": "/stolen"}, "score": 1.0, "seconds": 0.1}\n',
            DamagedError,
            "trials.jsonl is damaged: a line of it has other",
        ),
        ("{}", DamagedError, "its last line is cut short"),
    ],
)
def test_trials_of_something_else(tmp_path, searched, fake, change, error, message):
    shutil.copytree(searched, tmp_path / "run")
    if isinstance(change, str):
        with (tmp_path / "run" / "trials.jsonl").open("a") as file:
            file.write(change)
        change = {}
    with pytest.raises(error, match=message):
        tune(*make(tmp_path, **SHORT, **change))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["heldout", "pretrained_vectors"])
def test_trials_with_another_file_of_the_same_name(tmp_path, fake, name):
    path = tmp_path / "file.txt"
    values = {**SHORT, name: str(path)}
    rows = {"heldout": texts(20), "pretrained_vectors": ["warm 1 2 3 4", "dull 4 3 2 1"]}[name]
    path.write_text("".join(f"{row}\n" for row in rows))
    config, workdir = make(tmp_path, **values)
    first = tune(config, workdir)
    assert tune(config, workdir) == first
    path.write_text("".join(f"{row}\n" for row in reversed(rows)))
    with pytest.raises(UsageError, match=f"^--{name} is not what the trials in .* are of; give"):
        tune(config, workdir)


@pytest.mark.slow
def test_a_trial_scores_as_the_run_does(tmp_path):
    """Also with several labels, after another trial, and in a graph that was used before."""
    config, workdir = make(tmp_path, lines=texts(several=True))
    data = classify_data.load_data(config, workdir, False)
    trainer = tuning._Trainer(config, workdir, data)
    first = {"learning_rate": 0.5, "epochs": 3, "loss": "one_vs_all"}
    scores = [trainer.score({**first, "epochs": 2, "loss": "softmax"}, lambda share: False)]
    scores += [trainer.score(first, lambda share: False) for _ in range(2)]
    assert scores[1] == scores[2] and 0 < scores[1] < 1
    assert trainer.score(first, lambda share: share > 0.5) is None
    values = {**first, "tune_seconds": 0.0}
    train_and_evaluate(tuning.with_values(config, values), workdir.path, is_quiet=True)
    rows = [json.loads(line) for line in workdir.metrics.read_text().splitlines()]
    assert [one for one in rows if "heldout_f1" in one][-1]["heldout_f1"] == scores[1]


@pytest.mark.slow
def test_size(tmp_path):
    draw = random.Random(2)
    lines = [f"{line} v{draw.randrange(900)} v{draw.randrange(900)}" for line in texts(600)]
    values = {"tune": "epochs,word_ngrams", "tune_bytes": 14_000, "tune_seconds": 90.0}
    config, workdir = make(tmp_path, lines=lines, learning_rate=0.5, **values)
    best, trials = tune(config, workdir)
    assert best.labelled.fasttext_features and len(trials) > 2
    # The file of a run with the same texts is as small, and scores alike.
    path, settings = tmp_path / "again", {**trials[1][0], "heldout_share": 0.25, "tune": ""}
    settings |= {"tune_seconds": 0.0, "tune_bytes": 0}
    again = tuning.with_values(best, settings)
    train_and_evaluate(again, path, is_quiet=True)
    file = tmp_path / "model.ftz"
    export = classifier_export.EXPORTS["fasttext_quantized"]
    export(again, Workdir(path), str(file), bytes=14_000)
    assert 13_000 < file.stat().st_size <= 14_000
    model = model_file.load(str(file), is_supervised=True)
    labels, score = fasttext_prediction.make_scorer(model)
    order = np.random.default_rng(config.run.seed).permutation(len(lines))[:150]
    right = 0
    for number in order:
        words = [word for word in lines[number].split() if not word.startswith("__label__")]
        (chances_1C,) = score([" ".join(words).encode()])
        right += f"__label__{labels[chances_1C.argmax()]}" in lines[number].split()
    assert right / len(order) == pytest.approx(trials[1][1], abs=0.02)
    with pytest.raises(UsageError, match="--bytes=900: the file of this classifier has [0-9,]+ b"):
        export(again, Workdir(path), str(file), bytes=900)
    assert file.stat().st_size > 900
    small, workdir = make(tmp_path, lines=lines, **{**values, "tune_bytes": 900})
    with pytest.raises(UsageError, match="--tune_bytes=900: the file of this classifier has"):
        tune(small, Workdir(tmp_path / "small"))
