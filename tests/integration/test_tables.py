"""Runs on every kind of table end as those on the device, also when killed, and go on from one
kind to another; a plan says what they take."""

import functools
import re

import numpy as np
import pytest

from app.checkpoints.checkpoint import list_checkpoints
from app.checkpoints.stored import read_rows
from app.system import machine
from app.text import vocabulary
from tests.integration.commands import (
    SMALL,
    Command,
    done,
    newest_step,
    refused,
    run,
    tensors,
    train,
)

STAGED = ("--table=host", "--hot_rows=7", "--stage_steps=5")
SHARDED = (*STAGED, "--table=sharded")
MANY = 12_000
UNITS = {"MB": 1e6, "GB": 1e9}
HALF = ("--table_dtype=bfloat16", "--slot_dtype=float16", "--optimizer=lazy_adam")
HALF_SLOTS = ("momentum", "velocity")
train_dynamic = functools.partial(train, small=(*SMALL, "--table=dynamic", "--table_gb=0.1"))


def rows(workdir, slots=("accumulator",)):
    """All rows and slots of the newest checkpoint, whatever kind its tables are of."""
    found = {}
    for name in ("input", "output"):
        newest = list_checkpoints(workdir / "checkpoints")[0]
        found[name] = read_rows(newest, name)
        found |= {f"{name}.{slot}": read_rows(newest, name, slot) for slot in slots}
    return found


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


def in_file(folder):
    return (*STAGED, f"--table_file={folder}/rows")


def test_staged_rows_end_as_those_on_the_device(tmp_path, corpus, trained):
    done(tmp_path, *train(tmp_path / "run", corpus, *STAGED))
    assert tensors(tmp_path / "run") == tensors(trained)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [STAGED, SHARDED])
def test_staged_rows_of_half_precision_end_as_those_on_the_device(tmp_path, corpus, kind):
    for name, flags in (("one", ()), ("other", kind)):
        command = train(tmp_path / name, corpus, *HALF, *flags)
        done(tmp_path, *(("tests.integration.on_two_devices", *command) if flags else command))
    assert_same(*(rows(tmp_path / name, HALF_SLOTS) for name in ("one", "other")))


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["class_softmax", "sampled_softmax"])
def test_tied_words_end_alike_in_every_kind_of_table(tmp_path, corpus, loss):
    given = ("--task=language_model", f"--loss={loss}", "--tie_weights", "--dropout=0.2")
    given += ("--dim=8", "--min_count=2", "--batch_tokens=256", "--row_tokens=16", "--epochs=2")
    given += ("--device=CPU:0", "--compute_dtype=float32", f"--corpus={corpus}")
    kinds = {"host": STAGED, "file": in_file(tmp_path), "sharded": ("--table=sharded",)}
    found = {}
    for name, flags in ({"device": ()} | kinds).items():
        done(tmp_path, "app.train", *given, *flags, f"--workdir={tmp_path / name}")
        newest = list_checkpoints(tmp_path / name / "checkpoints")[0]
        assert not (newest / "input").exists()
        found[name] = {
            f"{table}.{slot}": read_rows(newest, table, slot)
            for table in ("output", "kernel", "bias")
            for slot in ("", "momentum", "velocity")
        }
    for name in kinds:
        assert_same(found["device"], found[name])


@pytest.mark.slow
def test_a_run_goes_on_with_another_kind_of_table(tmp_path, corpus):
    kinds = {"one": ((), ()), "other": (("--table=sharded",), in_file(tmp_path))}
    for name, (first, second) in kinds.items():
        done(tmp_path, *train(tmp_path / name, corpus, "--epochs=1", *first))
        again = done(tmp_path, "app.train", f"--workdir={tmp_path / name}", "--epochs=2", *second)
    assert "table 'input' of kind sharded becomes one of kind file" in again.err
    assert_same(rows(tmp_path / "one"), rows(tmp_path / "other"))
    # Flags that mean nothing to the new kind are forgotten.
    workdir = f"--workdir={tmp_path / 'other'}"
    ended = done(tmp_path, "app.train", workdir, "--table=device")
    assert "table 'output' of kind file becomes one of kind device" in ended.err


def test_a_run_that_does_not_fit_is_refused(tmp_path, corpus):
    command = train(tmp_path / "run", corpus, *STAGED, "--device_memory=0.00001")
    assert "the run does not fit: CPU:0 has 10.00 kB free, and" in refused(tmp_path, *command)


@pytest.mark.slow
def test_words_that_get_rows_as_they_come(tmp_path, corpus):
    workdir = tmp_path / "run"
    assert "vocabulary  grows with the text" in done(tmp_path, *train_dynamic(workdir, corpus)).out
    words = vocabulary.load(str(workdir / "vocab.tsv"))
    first = done(tmp_path, "app.neighbors", f"--workdir={workdir}", words.tokens[0])
    assert any(word in first.out for word in words.tokens[1:])
    plan = done(tmp_path, *train_dynamic(workdir, corpus, "--plan_only"))
    assert "words and their counts" in plan.out
    done(tmp_path, *train_dynamic(workdir, corpus, "--epochs=3"))
    again = vocabulary.load(str(workdir / "vocab.tsv"))
    assert again.counts.sum() == pytest.approx(1.5 * words.counts.sum(), rel=0.01)


@pytest.mark.slow
def test_too_few_rows_and_another_kind_of_table_end_in_one_line(tmp_path, corpus):
    command = train_dynamic(tmp_path / "few", corpus, "--table_gb=0.000001", "--dim=300")
    assert "--table_gb=1e-06: a word takes" in refused(tmp_path, *command)
    few = run(tmp_path, *train_dynamic(tmp_path / "few", corpus, "--table_gb=0.000003"))
    assert few.code == 1 and "rows are full" in few.err.splitlines()[-1]
    one, other = tmp_path / "one", tmp_path / "other"
    usual = ("--epochs=1", "--table_gb=2.0", "--min_count=5")  # which a workdir keeps
    done(tmp_path, *train(one, corpus, "--min_count=5", "--epochs=1"))
    found = run(tmp_path, *train_dynamic(one, corpus, *usual))
    assert found.code == 1 and "by id, and --table=dynamic" in found.err.splitlines()[-1]
    done(tmp_path, *train_dynamic(other, corpus, *usual))
    found = run(tmp_path, *train(other, corpus, "--min_count=5", "--table=device"))
    assert found.code == 1 and "by key and not by id" in found.err.splitlines()[-1]


@pytest.fixture(scope="module")
def many_words(tmp_path_factory):
    """A corpus of so many words, each of which comes three times."""
    path = tmp_path_factory.mktemp("text") / "words.txt"
    lines = (" ".join(f"w{word + line}" for word in range(60)) for line in range(0, MANY, 60))
    path.write_text("\n".join(lines) * 3)
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    "flags",
    [
        ("--optimizer=lazy_adam",),
        ("--table_dtype=bfloat16",),
        ("--table=host", "--hot_rows=3000", "--stage_steps=2"),
        ("--table=dynamic", "--table_gb=0.25"),
    ],
)
def test_a_run_takes_what_was_planned(tmp_path, many_words, flags):
    workdir = tmp_path / "run"
    more = ("--dim=2000", "--epochs=1", "--min_count=2", "--subsample=0", *flags)
    planned = done(tmp_path, *train(workdir, many_words, *more, "--plan_only"))
    (memory,) = re.findall(r"^memory +(.*)$", planned.out, re.MULTILINE)
    found = re.findall(r"([\d.]+) ([MG]B)", memory)
    expected = sum(float(number) * UNITS[unit] for number, unit in found)
    command, peak = Command(tmp_path, *train(workdir, many_words, *more)), 0
    status = machine.Path(f"/proc/{command.process.pid}/status")
    while command.process.is_alive() and newest_step(workdir) < 0:  # then vectors are scored
        taken = machine.read_field(status, "RssAnon")
        peak = max(peak, int(taken.split()[0]) * 1024 if taken else 0)
    assert command.ended().code == 0
    assert peak == pytest.approx(expected, rel=0.1)
