"""A recommender as a person trains, scores, asks and exports it."""

import functools
import json
import random
import re

import numpy as np
import pytest

from app.checkpoints.checkpoint import list_checkpoints
from app.checkpoints.stored import read_rows
from tests.integration import commands
from tests.integration.commands import ROOT, done, export, logged, refused, run

SMALL = (
    "--task=recommend",
    "--dim=6",
    "--batch_tokens=64",
    "--steps_per_call=2",
    "--epochs=3",
    "--optimizer=lazy_adam",
    "--learning_rate=0.05",
    "--compute_dtype=float32",
    "--device=CPU:0",
    "--log_seconds=0",
    "--top=3,5",
)
train = functools.partial(commands.train, small=SMALL)


def write_pairs(path, users=60):
    """Lines of a user and items, of which each likes some more."""
    draw = random.Random(0)
    lines = []
    for user in range(users):
        items = {draw.randrange(user % 3, 50, draw.choice([1, 3, 3, 3])) for _ in range(15)}
        lines.append(" ".join([f"user{user}", *(f"item{item}" for item in sorted(items))]))
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    return write_pairs(tmp_path_factory.mktemp("pairs") / "pairs.txt")


@pytest.fixture(scope="module")
def trained(tmp_path_factory, pairs):
    """A finished run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "run" / "told").write_text(done(folder, *train(folder / "run", pairs)).out)
    return folder / "run"


def rows(workdir):
    return {
        name: read_rows(list_checkpoints(workdir / "checkpoints")[0], name)
        for name in ("users", "items")
    }


def test_from_training_to_scores_answers_and_vectors(tmp_path, pairs, trained):
    assert "a user and then items in each line" in (trained / "told").read_text()
    scored = [row for row in logged(trained) if "ndcg@5" in row]
    assert [row["epoch"] for row in scored] == [1, 2, 3]
    assert {"pairs_per_second", "loss"} <= logged(trained)[0].keys()

    other = tmp_path / "other.txt"
    other.write_text("user0 item1 item5 unheard\nnobody item1\n")
    ended = done(
        tmp_path,
        *("app.evaluate", f"--workdir={trained}", f"--heldout={other}"),
        *("--top=2,7", f"--json={tmp_path}/scores.json"),
    )
    scores = json.loads((tmp_path / "scores.json").read_text())
    assert scores["users"] <= 1 and scores["left_out"] >= 2
    assert f"recall@7       {scores['recall@7']:.4f}" in ended.out

    line = refused(tmp_path, "app.evaluate", f"--workdir={trained}")
    assert "holds a run of --task=recommend; give --heldout" in line

    ask = ("app.recommend", f"--workdir={trained}", "--json", "--k=4")
    answers = [json.loads(line) for line in done(tmp_path, *ask, "user7", "user0").out.splitlines()]
    assert [answer["user"] for answer in answers] == ["user7", "user0"]
    (tmp_path / "chosen").write_text("item1\nitem5\n")
    new = [
        json.loads(done(tmp_path, *ask, f"--items{given}").out)
        for given in ("=item5,item1", f"_file={tmp_path}/chosen")
    ]
    assert new[0] == new[1] and new[0]["user"] is None and len(new[0]["items"]) == 4
    assert not {"item1", "item5"} & set(new[0]["items"])
    given = done(tmp_path, *ask[:2], "--include_known", "--k=99", stdin="user0\n").out
    assert len(given.splitlines()) == 1 + len((trained / "items.tsv").read_text().splitlines())
    output = tmp_path / "vectors"
    export(tmp_path, trained, "vectors", "vectors")
    near = done(tmp_path, "app.neighbors", f"--workdir={trained}", "item3", "--k=2").out
    assert near.startswith("item3\n") and near.count("  item") == 2
    users, items = (np.load(output / f"{name}.npy") for name in ("users", "items"))
    user_keys, item_keys = (
        (output / f"{name}.tsv").read_text().splitlines() for name in ("users", "items")
    )
    for answer in answers:
        inner = items @ users[user_keys.index(answer["user"])]
        for item, score in zip(answer["items"], answer["scores"], strict=True):
            assert inner[item_keys.index(item)] == pytest.approx(score, abs=1e-6)
    export(tmp_path, trained, "word2vec", "items.txt")
    assert (tmp_path / "items.txt").read_text().startswith(f"{len(item_keys)} 6\n{item_keys[0]} ")


@pytest.mark.slow
def test_the_example_of_the_guide_ranks_as_the_model(tmp_path, trained, capsys):
    guide = (ROOT / "app/tasks/recommend/README.md").read_text(encoding="utf-8")
    _, reference = guide.split("## In the shell")
    program = "\n".join(re.findall(r"```python\n(.*?)```", reference, re.DOTALL))
    output = tmp_path / "vectors"
    export(tmp_path, trained, "vectors", "vectors")
    user = (output / "users.tsv").read_text().split("\n")[0]
    ask = ("app.recommend", f"--workdir={trained}", "--json", "--k=5", "--include_known", user)
    (answer,) = done(tmp_path, *ask).out.splitlines()
    exec(program.replace("data/runs/ratings_vectors", str(output)), {})
    assert capsys.readouterr().out.splitlines() == [str(json.loads(answer)["items"])] * 2
    ended = export(tmp_path, trained, "faiss", "index")
    assert "searched whole; finds 100.0% of the best 20 items of 60 users" in ended.out


def test_items_in_formats_of_word_vectors(tmp_path, trained):
    items = (trained / "items.tsv").read_text().splitlines()
    for form in ("safetensors", "parquet"):
        ended = export(tmp_path, trained, form, "x")
        assert ended.out == f"{tmp_path}/x: {len(items)} vectors of 6 numbers, as {form}\n"
    encoder = ("app.export", f"--workdir={trained}", "--format=static_embedding")
    assert "no format of --task=recommend" in refused(tmp_path, *encoder, f"--output={tmp_path}/y")


@pytest.mark.slow
def test_who_is_not_known(tmp_path, trained):
    ended = run(tmp_path, "app.recommend", f"--workdir={trained}", "user3", "nobody", "--k=2")
    assert ended.code == 2 and len(ended.out.splitlines()) == 3
    assert ended.err.splitlines()[-1].endswith(
        f"1 user(s) not known to --workdir={trained}: 'nobody'; give users of it, or the items of "
        "a new user by --items"
    )
    line = refused(tmp_path, "app.recommend", f"--workdir={trained}", "--", "user300")
    assert "'user300' (did you mean 'user30' or 'user" in line
    ask = ("app.recommend", f"--workdir={trained}", "--k=3")
    ended = done(tmp_path, *ask, "--items=item1,itm5,unheard")
    assert "--items: 2 item(s) not known to --workdir" in ended.err
    assert "'itm5' (did you mean 'item5'" in ended.err and "'unheard'; left out" in ended.err
    assert ended.out == done(tmp_path, *ask, "--items=item1").out != ""
    line = refused(tmp_path, *ask, "--items=unheard")
    assert "--items: 1 item(s) not known to --workdir" in line and line.endswith(
        "'unheard'; give items of it"
    )
    names = [line.split("\t")[0] for line in (trained / "items.tsv").read_text().splitlines()]
    every = ("app.recommend", f"--workdir={trained}", f"--items={','.join(names)}")
    assert f"--items names all {len(names)} items, so no item" in refused(tmp_path, *every)
    assert len(done(tmp_path, *every, "--include_known", "--k=99").out.splitlines()) == len(names)
    (tmp_path / "odd").write_bytes(bytes(range(32, 127)) * 20)
    assert len(refused(tmp_path, *ask, f"--items_file={tmp_path}/odd")) < len(str(trained)) + 200
    line = refused(tmp_path, "app.recommend", f"--workdir={tmp_path}", "user3")
    assert "no run of --task=recommend there; give another workdir, or train" in line
    line = refused(tmp_path, "app.predict", f"--workdir={trained}", stdin="text")
    assert "no run of --task=classify there, but one of --task=recommend; give another" in line


@pytest.mark.slow
@pytest.mark.parametrize("table", ["host", "sharded"])
def test_rows_elsewhere_end_as_those_on_the_device(tmp_path, pairs, trained, table):
    more = ("--hot_rows=7", "--stage_steps=4") if table == "host" else ()
    done(tmp_path, *train(tmp_path / "run", pairs, f"--table={table}", *more))
    expected = rows(trained)
    for name, found in rows(tmp_path / "run").items():
        np.testing.assert_array_equal(found, expected[name])


@pytest.mark.slow
def test_the_configuration_trains(tmp_path, pairs):
    """On what is in its comment."""
    config = ("app.train", f"--flagfile={ROOT}/configs/recommend.cfg", f"--corpus={pairs}")
    done(tmp_path, *config, "--loss=bpr", "--epochs=1", f"--workdir={tmp_path}/run")
