"""What scores the held-out data of each task, within a run."""

import os
import signal

import numpy as np
import pytest

from app.checkpoints.checkpoint import newest_position
from app.checkpoints.workdir import Workdir
from app.errors import StoppedError, UsageError
from app.settings import checks
from app.tasks import all_tasks, text_tasks
from app.tasks.recommend import recommend_data, recommend_job
from app.training.run import train_and_evaluate

SMALL = {"dim": 4, "epochs": 1, "min_count": 1, "device": "CPU:0", "workdir": "run"}
PAIRS = "".join(f"user{user}\titem{(user * 7 + k) % 50}\n" for user in range(60) for k in range(20))
LINE = "__label__{} the cat and the dog sat on the mat with a hat and number {}\n"
LINES = "".join(LINE.format(number % 2, number) for number in range(99))
TASKS = {
    "recommend": (PAIRS, {"loss": "bpr", "top": "5", "batch_tokens": 256}),
    "classify": (LINES, {"heldout_share": 0.2, "batch_tokens": 256}),
    "language_model": (
        LINES,
        {"heldout_share": 0.2, "batch_tokens": 64, "row_tokens": 8, "hidden": 4},
    ),
}


def make_config(folder, task, **values):
    text, given = TASKS[task]
    (folder / "corpus.txt").write_text(text)
    given = {"task": task, "corpus": str(folder / "corpus.txt"), **SMALL, **given, **values}
    return checks.make_config(given | {"steps_per_call": 2})


@pytest.mark.parametrize("task", TASKS)
def test_scores_of_every_task_answer_a_stop(tmp_path, task):
    def check():
        raise StoppedError("asked")

    job = all_tasks.JOBS[task](make_config(tmp_path, task), Workdir(tmp_path / "run"), False)
    with pytest.raises(StoppedError, match="^asked$"):
        job.evaluator.scores(check)
    assert job.evaluator.scores(lambda: None)


def test_a_stop_after_the_last_epoch_says_how_to_score_what_is_saved(tmp_path, monkeypatch):
    def press(workdir):
        os.kill(os.getpid(), signal.SIGTERM)
        while True:
            pass

    monkeypatch.setattr(text_tasks, "write_and_score", press)
    (tmp_path / "corpus.txt").write_text(LINES)
    given = {"corpus": str(tmp_path / "corpus.txt"), **SMALL, "steps_per_call": 2, "cache": "none"}
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(StoppedError) as raised:
        train_and_evaluate(checks.make_config(given), tmp_path / "run")
    assert str(raised.value) == (
        "stopped while scoring; the run is finished and saved; score it with: "
        f"lexrow evaluate --workdir={tmp_path / 'run'}"
    )
    assert newest_position(tmp_path / "run" / "checkpoints").epoch == 1
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize(
    ("asked", "items", "pairs", "expected"),
    [
        ("all", 10**7, 1, 90_000),
        ("17", 10, 1, 17),
        ("99999999", 10, 1, 90_000),
        # Gowalla: 29,858 users and 40,981 places are ranked in 20 seconds.
        ("auto", 30_000, 810_128, 44_444),
        ("auto", 91_320, 1_300_000, 14_600),
        ("auto", 913_200, 100_000_000, 21_901),  # in the time of an epoch
        ("auto", 10**7, 1_300_000, 500),
    ],
)
def test_for_how_many_users_items_are_ranked(asked, items, pairs, expected):
    assert recommend_job.count_ranked_users(asked, 90_000, items, pairs) == expected


def test_a_sample_of_users_is_drawn_by_the_seed(tmp_path, capsys):
    config = make_config(tmp_path, "recommend", score_users="7")
    trained_in = Workdir(tmp_path / "run")
    train_and_evaluate(config, trained_in.path)
    assert "items are ranked for 7 of the 5" in capsys.readouterr().out
    trained = recommend_job.load_recommender(config, trained_in)
    ranked = []

    class Ranker(recommend_job.Ranker):
        def blocks(self, users_N, known):
            ranked.append(users_N)
            return super().blocks(users_N, known)

    heldout = recommend_data.read_split(config, (config.corpus.corpus,)).heldout
    ranker = Ranker(trained.model, trained.tables, 5)
    for users in (7, 7, 60):
        recommend_job.heldout_scores(ranker, trained.known, heldout, [5], users, config.run.seed)
    assert len(ranked[0]) == 7 and set(ranked[0]) <= set(ranked[2])
    np.testing.assert_array_equal(ranked[0], ranked[1])
    np.testing.assert_array_equal(ranked[2], np.unique(heldout.users_N))
    (tmp_path / "later.txt").write_text("".join(f"user{n}\titem{n + 20}\n" for n in range(30)))
    text, record = recommend_job.evaluate(config, trained_in, str(tmp_path / "later.txt"))
    assert "items are ranked, for 7 users drawn by --seed, but those" in text
    assert record["users"] > 7


@pytest.mark.parametrize("value", ["0", "-1", "some", "", "1.5"])
def test_no_number_of_users(tmp_path, value):
    with pytest.raises(UsageError, match="^--score_users=.*: give a number of users, `all` or"):
        make_config(tmp_path, "recommend", score_users=value)
