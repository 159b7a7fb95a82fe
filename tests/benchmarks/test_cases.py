from __future__ import annotations

import importlib
import re
import subprocess
import types

import numpy as np
import pytest
from absl import flags

from app.cli.flags import help_text
from app.errors import RunError, UsageError
from app.input.user_item_pairs import KnownItems
from app.tasks.recommend import ranking_metrics
from app.types import WordVectors
from tests.benchmarks import classify, harness, peers, programs, recommend, scaling, words
from tests.benchmarks.programs import Session, Usage
from tests.integration.commands import ROOT
from tests.replaced import SMALLER

PAIRED = ["tiger", "cat", "old", "new", "love", "sex", "smart", "stupid"]


def parsed(case, *arguments):
    """The flags of a case."""
    values = flags.FlagValues()
    for name in ("repeats", "json", "plot"):
        harness.define(values, name)
    importlib.import_module(f"tests.benchmarks.{case}").define(values)
    values(["case", *arguments])
    return values


def session(folder):
    usage = Usage(0.0, 1.0, 100)
    return Session(folder, folder, [], {}, {"lexrow": usage, "gensim": usage})


@pytest.mark.parametrize("case", SMALLER)
def test_every_case_has_its_flags_and_is_in_the_readme(case, monkeypatch):
    options = parsed(case)
    monkeypatch.setattr(flags, "FLAGS", options)
    shown = help_text("")
    assert all(f"  --{name}\n" in shown for name in options)
    assert options.repeats == 1 and options.json == ""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"`{case}`" in re.findall(r"The cases are.*?\n\n", readme, re.DOTALL)[0]


def test_every_side_of_words_gets_the_same_text_and_settings(tmp_path):
    given = []

    def stand_in(seconds):
        def train(text, folder, settings, _):
            given.append((seconds, text, folder.name, settings))
            matrix = np.random.default_rng(settings["seed"]).normal(size=(len(PAIRED), 4))
            figures = {"train_seconds": seconds, "words": 4000}
            return figures, WordVectors(PAIRED, matrix.astype(np.float32))

        return train

    sides = {"lexrow": stand_in(2.0), "gensim": stand_in(8.0)}
    text, options = tmp_path / "text", parsed("words", "--repeats=2", "--epochs=4")
    runs = words.compare(options, session(tmp_path), text, 1000, {"dim": 7}, sides)
    assert [name for _, _, name, _ in given] == ["lexrow-1", "gensim-1", "gensim-2", "lexrow-2"]
    assert {text for _, text, _, _ in given} == {text}
    assert [settings for *_, settings in given] == [{"dim": 7, "seed": s} for s in (1, 1, 2, 2)]
    assert [run["words_per_second"] for run in runs["lexrow"]] == [2000, 2000]
    scores = runs["gensim"][0]["scores"]
    assert scores["ws353"]["used"] >= 2 and scores["ws353"]["value"] == runs["gensim"][0]["ws353"]
    options = parsed("words", "--epochs=9")
    (tmp_path / "other").mkdir()
    runs = words.compare(options, session(tmp_path / "other"), text, 1000, {}, sides)
    assert runs["gensim"][0]["left_out"].startswith(
        "gensim trained on 4,000 words, not on the 9,000"
    )


def test_a_kept_run_is_not_replaced(tmp_path):
    session(tmp_path).place("lexrow", 1)
    with pytest.raises(UsageError, match=r"--keep=.* has lexrow-1 already; give another"):
        session(tmp_path).place("lexrow", 1)


def test_text_is_cut_into_lines_of_bounded_length(tmp_path):
    (tmp_path / "a").write_text("one\n\n" + "word " * 1500 + "\nlast")
    sizes = words.write_text(str(tmp_path / "a"), tmp_path / "text")
    lines = (tmp_path / "text").read_text().split("\n")
    assert [len(line.split()) for line in lines] == [1, 1000, 500, 1, 0]
    assert (sizes["words"], sizes["files"]) == (1502, ["a"])
    (tmp_path / "a").write_text(" \n\n")
    with pytest.raises(UsageError, match="no word in these files"):
        words.write_text(str(tmp_path / "a"), tmp_path / "text")


@pytest.mark.slow
def test_gensim_trains_on_every_word(tmp_path):
    pytest.importorskip("gensim")
    random = np.random.default_rng(0)
    lines = [" ".join(random.choice(PAIRED, size=900)) for _ in range(20)]
    (tmp_path / "text").write_text("\n".join(lines) + "\n")
    options = parsed("words", "--dim=8", "--epochs=2")
    settings = {name: getattr(options, name) for name in words.SHARED} | words.FIXED
    figures, vectors = words._gensim(
        tmp_path / "text", tmp_path, settings | {"seed": 1}, session(tmp_path)
    )
    assert figures["words"] >= 2 * 20 * 900 and set(vectors.tokens) == set(PAIRED)
    assert 0 < figures["train_seconds"] < figures["total_seconds"]


def test_texts_are_read_split_and_scored(tmp_path):
    lines = [f"__label__{'ab'[n % 2]} word{n}" for n in range(30)]
    (tmp_path / "texts").write_text("\n".join(lines) + "\n")
    found = classify.read(str(tmp_path / "texts"))
    assert found[1] == (["__label__b"], ["word1"])
    part = classify.split(found, tmp_path, 1)
    trained = part.train.read_text().splitlines()
    assert (part.examples, len(part.labels)) == (27, 3)
    tested = part.test.read_text().splitlines()
    restored = [f"{labels[0]} {text}" for labels, text in zip(part.labels, tested, strict=True)]
    assert sorted(trained + restored) == sorted(lines)
    (tmp_path / "out").write_text("a\t0.9\n__label__a 0.8\n\n")
    assert classify.accuracy(tmp_path / "out", [["__label__a"]] * 3) == pytest.approx(2 / 3)
    with pytest.raises(RunError, match="3 lines for 2 texts"):
        classify.accuracy(tmp_path / "out", [["__label__a"]] * 2)
    (tmp_path / "texts").write_text("no label\n" * 30)
    with pytest.raises(UsageError, match="no label in `no label`"):
        classify.read(str(tmp_path / "texts"))


def test_the_seconds_of_fasttext_are_those_of_its_last_line(tmp_path):
    (tmp_path / "log").write_text("words/sec/thread:  10 lr\rwords/sec/thread:  50 lr:  0.0\n")
    assert peers.fasttext_seconds(tmp_path / "log", 1000, 2) == 10


def test_lists_have_the_best_items_without_known_ones():
    random = np.random.default_rng(0)
    users_UD, items_VD = (random.normal(size=(n, 3)).astype(np.float32) for n in (300, 7))
    known = KnownItems(np.arange(0, 2 * 300 + 1, 2), np.tile([1, 4], 300).astype(np.int32))
    lists = recommend.Lists(users_UD, items_VD, 6)
    blocks = list(lists.blocks(np.arange(300, dtype=np.int32), known))
    assert [*np.concatenate([users for users, *_ in blocks])] == [*range(300)] and len(blocks) == 2
    ids_UK = np.concatenate([ids for _, ids, _ in blocks])
    scores_UV = users_UD @ items_VD.T
    scores_UV[:, [1, 4]] = -np.inf
    assert (ids_UK[:, :5] == np.argsort(-scores_UV, axis=1)[:, :5]).all()
    assert (ids_UK[:, 5] == -1).all()
    heldout = KnownItems(np.arange(301), ids_UK[:, 1])  # the second of each list
    metrics = ranking_metrics.score(lists, known, heldout, [1, 2])
    assert metrics["recall@1"] == 0 and metrics["recall@2"] == 1 and metrics["mrr@2"] == 0.5


def test_a_case_that_does_not_exist_is_one_line():
    command = ["make", "-o", "setup", "bench", "CASE=wrds"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    said = "CASE=wrds: no such case; choose from " + " ".join(SMALLER)
    assert ended.returncode == 2 and ended.stderr.splitlines()[0] == said


@pytest.mark.slow
def test_a_side_without_its_library_or_memory_is_left_out():
    job = {"optimizer": "lazy_adam", "side": "table", "dim": 4096, "settings": {}, "in_fit": ""}
    figures, _ = programs.run("sparse_sides:measure", job | {"rows": 2**30, "steps": 1, "seed": 1})
    assert figures["left_out"].startswith("OOM when allocating tensor with shape[1073741824,4096]")
    figures, _ = programs.run("no_module:measure", {})
    assert figures == {"left_out": "No module named 'tests.benchmarks.no_module'"}


def test_sides_of_scaling_are_commands():
    sides = scaling.make_sides(parsed("scaling", "--sync_steps=8"), gpus=0)
    assert [*sides] == [
        "none",
        "multi_worker 1",
        "multi_worker 2",
        "multi_worker 2 sync 8",
    ]
    assert sides["multi_worker 2"].program == ["app.cluster", "--workers=2", "--"]
    assert sides["multi_worker 2"].is_in_step and not sides["multi_worker 1"].is_in_step
    assert [*scaling.make_sides(parsed("scaling", "--workers="), gpus=2)] == ["none", "mirrored"]


def measured(case, **job):
    """The figures of a side that is trained in this process."""
    module = importlib.import_module(f"tests.benchmarks.{case}_sides")
    return module.measure(types.SimpleNamespace(steps=3, seed=1, **job))


@pytest.mark.parametrize(("side", "in_fit"), [("table", ""), ("fit", "SGD"), ("keras", "SGD")])
def test_sides_of_sparse_train(side, in_fit):
    sizes = {"rows": 50, "dim": 4, "settings": {"momentum": 0.9}}
    figures = measured("sparse", optimizer="momentum", side=side, in_fit=in_fit, **sizes)
    assert figures["step_ms"] > 0 and figures["table_bytes"] >= 2 * 50 * 4 * 4


@pytest.mark.parametrize("side", ["class_softmax", "dense"])
def test_sides_of_softmax_train(side):
    sizes = {"words": 30, "targets": 8, "dim": 4, "compute_dtype": "float32"}
    settings = {"loss": "class_softmax"}
    figures = measured("softmax", side=side, settings=settings, **sizes)
    assert figures["step_ms"] > 0 and figures["table_bytes"] > 30 * 4 * 4


@pytest.mark.slow
@pytest.mark.parametrize("side", ["sampled_softmax", "fit class_softmax", "keras"])
def test_sides_of_language_train(side):
    figures = measured("language", side=side, words=50, dim=4, streams=4, row_tokens=5)
    assert figures["tokens_per_s"] > 0 and figures["table_bytes"] > 2 * 50 * 4 * 4


@pytest.mark.slow
@pytest.mark.parametrize("side", ["device", "device_jit", "host_cache", "file", "dynamic", "keras"])
def test_sides_of_keras_train(tmp_path, side):
    sizes = {"users": 40, "items": 30, "dim": 4, "batch": 8, "hot_share": 10}
    figures = measured("keras", side=side, folder=str(tmp_path), **sizes)
    assert figures["steps_per_s"] > 0 and figures["table_bytes"] > 0
