"""What a person can get wrong in training: one line that names it, and an exit code."""

from __future__ import annotations

import gzip
import math
import re

import numpy as np
import pytest

from app.tasks import trained_vectors
from tests.integration.commands import (
    WORDS,
    done,
    fresh,
    logged,
    newest_step,
    refusal,
    run,
    train,
    write_corpus,
)

BY_FLAGS = [
    ("--no_such_flag=1", "no_such_flag"),
    ("--dim=eight", "--dim=eight: give a whole number"),
    ("--epochs=1e3", "--epochs=1e3: give a whole number"),
    ("--learning_rate=high", "--learning_rate=high: give a number"),
    ("--dim=0", "--dim=0: give at least 1"),
    ("--learning_rate=-0.1", "--learning_rate=-0.1: give at least 0"),
    ("--learning_rate=nan", "--learning_rate=nan: give at least 0"),
    ("--model=glove", "--model=glove: not one of skipgram, cbow"),
    ("--row_tokens=24", "--batch_tokens=256 is no multiple of --row_tokens=24"),
    ("--group_tokens=48", "--group_tokens=48"),
    ("--profile_steps=9", "--profile_steps=9: give START,STOP such as"),
    ("--profile_steps=20,10", "--profile_steps=20,10: give START,STOP"),
    ("--profile_steps=2,4,4,8", "--profile_steps=2,4,4,8: give START,STOP such as 100,200, or sev"),
    ("--profile_steps=2,x", "--profile_steps=2,x: give START,STOP"),
    ("--profile_on_slow=0.5", "--profile_on_slow=0.5: give more than 1, or 0 for none"),
    ("--map_parallelism=0", "--map_parallelism=0: give at least 1, or -1"),
    ("--prefetch=-2", "--prefetch=-2: give at least -1"),
    ("--seed=-1", "--seed=-1"),
    ("--workdir=", "--workdir= is empty; name a folder"),
    ("--flagfile=none.cfg", "none.cfg"),
    ("stray", "'stray' is not a flag; write it as --NAME=VALUE"),
    ("--device=GPU:7", "--device=GPU:7: not here; choose from CPU:0"),
]

BY_FILES = [
    ("no_such_file", b"", 2, "--corpus={path}: no such file; check the path"),
    ("empty.txt", b"", 2, "--corpus={path}: no token in it; name files that hold text"),
    ("blank.txt", b" \n\t\n", 2, "--corpus={path}: no token in it"),
    ("rare.txt", b"one two three\n", 2, "--min_count=2: no token is seen that often"),
    (
        "cut.gz",
        gzip.compress(b"some words " * 999, mtime=0)[:-9],
        2,
        "{path} is truncated or corrupt",
    ),
    ("latin.txt", b"word\xff word\n", 1, "{path}: byte 0xff at offset 4 is not UTF-8; convert"),
]


def write(path, content):
    if not path.name.startswith("no_such"):
        path.write_bytes(content)
    return path


@pytest.mark.parametrize(("flag", "message"), BY_FLAGS)
def test_flags(tmp_path, corpus, flag, message):
    workdir = tmp_path / "run"
    assert message in refusal(run(tmp_path, *train(workdir, corpus, flag)))
    assert not workdir.exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "content", "code", "message"), BY_FILES, ids=[name for name, *_ in BY_FILES]
)
def test_text(tmp_path, name, content, code, message):
    path = write(tmp_path / name, content)
    ended = run(tmp_path, *train(tmp_path / "run", path, "--invalid_utf8=error"))
    assert message.format(path=path) in refusal(ended, code)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_bytes_that_are_not_utf8_are_replaced_and_counted(tmp_path):
    path = write(tmp_path / "a.txt", b"one two one\xff two\xfe\xfe one two\n" * 9)
    ended = done(tmp_path, *train(tmp_path / "run", path, "--subsample=0"))
    assert f"{path}: 27 sequences are not UTF-8; replaced by U+FFFD" in ended.err
    assert "one\N{REPLACEMENT CHARACTER}" in trained_vectors.load(tmp_path / "run").tokens


@pytest.mark.slow
def test_lines_of_one_word_have_no_examples(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("\n".join("abcde" * 40) + "\n")
    ended = done(tmp_path, *train(tmp_path / "run", path))
    assert "the measured steps from 1 to" in ended.err
    assert {row["loss"] for row in logged(tmp_path / "run") if "loss" in row} == {0.0}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("ba\t3\nbe\t2\nba\t1\n", "line 3: token 'ba' is on line 1 already; remove one"),
        ("ba\t3\nbe 2\n", "line 2: 'be 2' is not token<TAB>count"),
        ("ba\t3\nbe\t4\n", "line 2: count 4 is above the 3 before it"),
        ("", "is empty; give a file of token<TAB>count lines"),
        ("strange\t3\n", "tokens is in the vocabulary; give --vocab of such text"),
    ],
)
def test_a_vocabulary(tmp_path, corpus, content, message):
    (tmp_path / "words.tsv").write_text(content)
    ended = run(tmp_path, *train(tmp_path / "run", corpus, f"--vocab={tmp_path}/words.tsv"))
    assert message in refusal(ended)


def test_a_workdir_that_is_a_file(tmp_path, corpus):
    (tmp_path / "file").write_text("mine")
    for place in (tmp_path / "file", tmp_path / "file" / "run"):
        line = refusal(run(tmp_path, *train(place, corpus)))
        assert f"--workdir={place}: " in line and "choose a folder that can be written" in line
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.slow
@pytest.mark.parametrize(
    "when", ["--log_seconds=0", pytest.param("--log_seconds=1e7", marks=pytest.mark.slow)]
)
def test_a_loss_that_is_not_finite(tmp_path, corpus, when):
    workdir = tmp_path / "run"
    wild = ("--optimizer=sgd", "--learning_rate=1e4", when)
    ended = run(tmp_path, *train(workdir, corpus, *wild))
    assert ended.code == 1 and "Traceback" not in ended.err
    last = ended.err.splitlines()[-1]
    window = r"(steps \d+ and|the last checkpoint and step) \d+"
    assert re.search(f" is not finite between {window}; lower --learning_rate ", last)
    assert all(math.isfinite(value) for row in logged(workdir) for value in row.values())
    # Nothing is saved of it, so that going on as it says helps.
    assert newest_step(workdir) == -1
    done(tmp_path, "app.train", f"--workdir={workdir}", "--learning_rate=0.01", "--epochs=1")
    assert np.isfinite(trained_vectors.load(workdir).matrix).all()


@pytest.mark.slow
def test_a_text_of_one_word(tmp_path):
    path = write(tmp_path / "a.txt", b"word " * 50)
    line = refusal(run(tmp_path, *train(tmp_path / "run", path)))
    assert "the vocabulary has a single word, 'word'," in line
    assert not (tmp_path / "run" / "checkpoints").exists()


@pytest.mark.slow
def test_a_plan_needs_no_workdir_and_leaves_nothing(tmp_path, monkeypatch):
    corpus = write_corpus(tmp_path / "a.txt")
    ended = done(tmp_path, *train("", corpus, "--plan_only"))
    assert f"vocabulary  {len(WORDS)} words" in ended.out
    done(tmp_path, *train(tmp_path / "run", corpus, "--plan_only"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "stderr", "stdout"]


def test_a_real_process_says_one_line_as_well(tmp_path):
    for flag in ("--dim=0", f"--corpus={tmp_path}/none"):
        line = refusal(fresh("app.train", f"--workdir={tmp_path}/run", flag))
        assert line.startswith(f"train: {flag}: ")
