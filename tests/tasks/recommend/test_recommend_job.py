"""Recommenders find what was planted, and refuse what cannot be."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from app.checkpoints.workdir import Workdir, write_flags
from app.errors import UsageError
from app.settings import checks, flag_values
from app.tasks import trained_vectors
from app.tasks.recommend import recommend_data, recommend_job, recommend_model
from app.tasks.recommend.ranking_metrics import Ranker
from app.training import loop
from app.training.run import check_flags

USERS, ITEMS, BLOCKS = 48, 40, 4


def config_of(folder, text, **values):
    (folder / "pairs.txt").write_text(text)
    usual = {
        "task": "recommend",
        "corpus": str(folder / "pairs.txt"),
        "workdir": str(folder / "run"),
        "dim": 8,
        "batch_tokens": 128,
        "steps_per_call": 2,
        "optimizer": "lazy_adam",
        "learning_rate": 0.1,
        "min_count": 1,
        "device": "CPU:0",
        "heldout_share": 0.15,
        "top": "9",
    }
    return flag_values.from_names(usual | values)


def trained(config):
    """The metrics of a run."""
    workdir = Workdir(config.run.workdir)
    with workdir.lock():
        job = recommend_job.make_job(config, workdir, False)
        check_flags(job, config.run)
        job.data.record()
        assert loop.train(job, config.run, workdir)
    return job.evaluator.scores()


def blocks():
    """Every user has all items of one block, and no other."""
    pairs = [
        f"user{user} item{item}"
        for user in range(USERS)
        for item in range(user % BLOCKS, ITEMS, BLOCKS)
    ]
    return "\n".join(pairs) + "\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    "values",
    [
        {"loss": "in_batch_softmax", "learning_rate": 0.05, "start": "random"},
        {"loss": "sampled_items", "learning_rate": 0.05, "start": "random"},
        {"loss": "sampled_items", "epochs": 4},
        {"loss": "bpr", "pair_negatives": 2},
    ],
)
def test_blocks_are_found(tmp_path, values):
    found = trained(config_of(tmp_path, blocks(), **{"epochs": 25} | values))
    assert found["recall@9"] == 1 and found["ndcg@9"] > 0.99, found


@pytest.mark.slow
def test_ratings_of_low_rank_are_found(tmp_path):
    random = np.random.default_rng(0)
    users, items = random.normal(size=(USERS, 2)), random.normal(size=(ITEMS, 2))
    ratings = 3 + users @ items.T + random.normal(size=(USERS, 1)) + random.normal(size=ITEMS)
    lines = [
        f"{user}\t{item}\t{ratings[user, item]}" for user in range(USERS) for item in range(ITEMS)
    ]
    values = {"loss": "squared_error", "dim": 2, "epochs": 40}
    config = config_of(tmp_path, "\n".join(lines), **values)
    found = trained(config)
    assert ratings.std() > 1.5
    assert found["rmse"] < 0.05 and found["mae"] < 0.05, found
    # What was saved scores the same.
    again = recommend_model.load_recommender(config, Workdir(config.run.workdir))
    heldout = recommend_data.read_split(config, (config.corpus.corpus,)).heldout
    ranker = Ranker(again.model, again.tables, 9)
    how = recommend_model.parse_top(config.ratings.top), USERS, config.run.seed
    assert recommend_job.heldout_scores(ranker, again.known, heldout, *how) == found


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"loss": "squared_error"}, "--loss=squared_error needs ratings"),
        ({"loss": "bpr", "weighted": True}, "--weighted needs ratings"),
        ({"loss": "bpr", "corpus": "docstrings"}, "--corpus=docstrings"),
    ],
)
def test_what_is_refused(tmp_path, values, message):
    with pytest.raises(UsageError, match=message):
        recommend_job.make_job(
            config_of(tmp_path, blocks(), **values), Workdir(tmp_path / "run"), False
        )


def test_scoring_makes_no_rows(tmp_path):
    config = config_of(tmp_path, blocks(), loss="in_batch_softmax", table="dynamic")
    job = recommend_job.make_job(config, Workdir(tmp_path / "run"), False)
    assert job.evaluator.scores()["recall@9"] >= 0
    assert [job.placed.tables[name].key_map.used for name in ("users", "items")] == [0, 0]


@pytest.mark.slow
def test_a_bias_is_no_direction(tmp_path):
    """Neighbours of items, and vectors for other programs, are without it; lists are not."""
    config = config_of(tmp_path, blocks(), loss="bpr", epochs=1, dim=3)
    trained(config)
    workdir = Workdir(config.run.workdir)
    write_flags(workdir.flags, flag_values.by_name(config))
    rows = trained_vectors.load(workdir.path)
    found = recommend_model.load_recommender(config, workdir)
    items = found.tables["items"].gather(tf.range(ITEMS)).numpy()
    np.testing.assert_array_equal(rows.matrix, items[:, :3])


def test_a_temperature_without_cosines_is_refused():
    given = {"task": "recommend", "loss": "in_batch_softmax", "temperature": 0.3, "workdir": "run"}
    with pytest.raises(UsageError, match="^--temperature=0.3 means nothing to --cosine=false"):
        checks.make_config(given | {"cosine": False})
    checks.make_config(given)


def test_weights_beside_predicted_ratings_are_refused():
    given = {"task": "recommend", "loss": "squared_error", "weighted": True, "workdir": "run"}
    defaults = flag_values.defaults(given)
    with pytest.raises(UsageError, match="^--weighted=True means nothing to --loss=squared_error"):
        checks.check(flag_values.from_names(defaults | given))
    checks.check(flag_values.from_names(defaults | given | {"loss": "bpr"}))


def test_weights_are_ratings_above_0(tmp_path):
    config = config_of(tmp_path, "a\tx\t0\na\ty\t1\nb\tx\t2\nb\ty\t1", loss="bpr", weighted=True)
    with pytest.raises(UsageError, match="--weighted: some ratings are not above 0"):
        recommend_job.make_job(config, Workdir(tmp_path / "run"), False)
    ratings = dataclasses.replace(config.ratings, min_rating="1")
    config = dataclasses.replace(config, ratings=ratings)
    job = recommend_job.make_job(config, Workdir(tmp_path / "run"), False)
    assert job.data.epoch_size == 3 and job.data.unit == "pairs"


@pytest.mark.parametrize("loss", ["sampled_items", "in_batch_softmax", "bpr"])
def test_dislikes_reach_the_loss(tmp_path, loss):
    """Each term is -log P, so a logged loss below 0 would have no minimum."""
    lines = [f"{line} 1" for line in blocks().splitlines()]
    lines += [f"user{user} item{(user + 1) % ITEMS} -1" for user in range(USERS)]
    text = "\n".join(["user item rating", *lines]).replace(" ", ",")
    config = config_of(tmp_path, text, loss=loss, epochs=8, log_seconds=0.0, heldout_share=0.0)
    workdir = Workdir(config.run.workdir)
    with workdir.lock():
        job = recommend_job.make_job(config, workdir, False)
        assert job.model.pair_loss.has_disliked
        assert loop.train(job, config.run, workdir)
    losses = [json.loads(line)["loss"] for line in workdir.metrics.read_text().splitlines()]
    assert len(losses) > 2 and min(losses) > 0


def test_another_corpus_is_refused(tmp_path):
    config = config_of(tmp_path, blocks(), loss="bpr", epochs=1)
    job = recommend_job.make_job(config, Workdir(config.run.workdir), False)
    (tmp_path / "run").mkdir()
    job.data.record()
    (tmp_path / "pairs.txt").write_text("a b\n")
    with pytest.raises(UsageError, match="is not what --workdir"):
        recommend_job.make_job(config, Workdir(config.run.workdir), True)


@pytest.mark.slow
def test_rows_of_other_users_are_not_gone_on_with(tmp_path):
    config = config_of(tmp_path, "u1 a\nu1 b\nu2 a\nu2 b\n", heldout_share=0.0, loss="bpr")
    workdir = Workdir(config.run.workdir)
    recommend_job.make_job(config, workdir, False).data.record()
    recommend_job.make_job(config, workdir, False)
    workdir.users.write_text("u1 \t2\nu2\t2\n")  # of a version that kept blanks around names
    recommend_job.make_job(config, workdir, False)
    workdir.users.write_text("u2\t2\nu1\t2\n")
    with pytest.raises(UsageError, match="users.tsv has other users than --corpus=.*txt; train in"):
        recommend_job.make_job(config, workdir, False)


def test_held_out_pairs_of_strangers_only(tmp_path):
    (tmp_path / "heldout.txt").write_text("x9 y9\nx8 y8\n")
    text, heldout = "u1 a\nu1 b\nu2 a\nu2 b\n", str(tmp_path / "heldout.txt")
    config = config_of(tmp_path, text, loss="bpr", heldout=heldout)
    told = "heldout.txt: nothing to score; 2 left out: .* whose user or item is not; give pairs of"
    with pytest.raises(UsageError, match=told):
        recommend_job.make_job(config, Workdir(config.run.workdir), False)
