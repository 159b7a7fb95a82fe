"""Profiles of real runs: the bottleneck is named, and gone once the advice is followed."""

import dataclasses
import os
import time

import pytest
import tensorflow as tf

from app.checkpoints.workdir import Workdir
from app.errors import RunError, UsageError
from app.input import pipeline
from app.profiling import profile_report, profiles
from app.settings import (
    Config,
    CorpusConfig,
    InputConfig,
    ModelConfig,
    RunConfig,
    VocabularyConfig,
    flag_values,
)
from app.tasks.words import words_job
from app.training import loop, runner, step
from app.training.run import check_flags
from tests.integration.commands import write_corpus

# Seconds for each block of text: four blocks are a step, two at a time, which so wait far longer
# than a step computes, even if others use the cores.
SLEEP = 0.05


@pytest.fixture
def config(tmp_path):
    return Config(
        corpus=CorpusConfig(corpus=str(write_corpus(tmp_path / "a.txt", lines=1200))),
        vocabulary=VocabularyConfig(min_count=2),
        input=InputConfig(
            batch_tokens=1024, steps_per_call=1, block_bytes=1024, subsample=0.0, cache="none"
        ),
        model=ModelConfig(dim=64, compute_dtype="float32"),
        run=RunConfig(workdir=str(tmp_path / "run"), epochs=4, profile_steps="14,34"),
    )


@pytest.fixture
def sleeping(monkeypatch):
    """Makes the pipeline sleep for each block that it tokenises."""
    splitter = pipeline.make_phrase_splitter

    def slow(*corpus):
        def sleep(text):
            time.sleep(SLEEP)
            return text

        def tokenize(texts):
            return inner(tf.ensure_shape(tf.numpy_function(sleep, [texts], tf.string), texts.shape))

        inner = splitter(*corpus)
        return tokenize

    monkeypatch.setattr(pipeline, "make_phrase_splitter", slow)


def job(config):
    place = Workdir(config.run.workdir)
    place.path.mkdir(parents=True, exist_ok=True)
    return words_job.make_job(config, place, finished=False), place


def diagnosed(config):
    """What the profile says of a run of these settings."""
    made, place = job(config)
    check_flags(made, config.run)
    assert loop.train(made, config.run, place)
    return profile_report.diagnose(profiles.find_newest(place.path), config)


def following(change, config):
    """The settings once the advice is followed, in a workdir of their own."""
    name, _, value = change.what.removeprefix("--").partition("=")
    values = flag_values.by_name(config)
    changed = {name: type(values[name])(value), "workdir": f"{config.run.workdir}-changed"}
    return flag_values.from_names(values | changed)


@pytest.mark.slow
def test_a_stage_that_sleeps_is_named_and_the_advice_removes_it(config, sleeping):
    found = diagnosed(config)
    assert found.division.trusted
    assert found.division.verdict == "input-bound"
    assert found.stage.name == "tokenize"
    assert found.stage.share > 0.5
    told = profile_report.text(found)
    assert "verdict    input-bound" in told
    assert "the slowest stage is ParallelMap(tokenize)" in told
    change = found.changes[0]
    assert change.what == "--cache=memory" and change.speedup > 1.25
    mended = diagnosed(following(change, config))
    assert mended.division.trusted
    assert mended.division.verdict != "input-bound"
    assert mended.division.milliseconds < found.division.milliseconds / 1.25


@pytest.mark.slow
def test_a_normal_run_does_not_wait_for_its_input(config):
    """Its steps have enough to do that other work on the machine does not change the verdict."""
    found = diagnosed(dataclasses.replace(config, model=dataclasses.replace(config.model, dim=400)))
    assert found.division.verdict != "input-bound"
    assert found.steps == 1 and found.division.cpu_only
    assert found.work.parts.keys() >= {"lookup", "gather", "loss", "gradient", "update"}
    assert found.division.shares.keys() == profile_report.record(found)["shares"].keys()
    assert sum(found.division.shares.values()) == pytest.approx(1)


@pytest.mark.slow
def test_a_compiled_run(config, monkeypatch):
    """Its kernels are known by the operations that they were made of, also in threads that help."""

    def by_xla(*given, **_):
        return step.train_function(*given, by_xla=True)

    monkeypatch.setattr(runner, "train_function", by_xla)
    given = dataclasses.replace(config.input, steps_per_call=4, cache="memory")
    run = dataclasses.replace(config.run, epochs=8, profile_steps="40,80")
    found = diagnosed(dataclasses.replace(config, input=given, run=run))
    assert found.division.verdict == "device-bound" and found.steps == 4
    assert found.work.parts.keys() >= {"lookup", "gather", "loss", "gradient", "update"}
    assert not any("train_by_xla" in o.name for o in found.work.operations[:5])
    # At least the rows of 1,024 tokens and their gradients, read and written.
    assert found.kernels.number > 20 and found.kernels.bytes > 4 * 1024 * 64 * 4
    assert found.kernels.bandwidth == 0
    assert "a step, which read and write " in profile_report.text(found)


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "run/tensorboard/plugins/profile/2026_01_01_00_00_00"
    made.mkdir(parents=True)
    return made


def test_the_newest_of_several(tmp_path, folder):
    """By its name, which is its time: a copy's files may be of any age."""
    later = folder.with_name("2026_01_01_00_00_09")
    later.mkdir()
    for path, age in ((folder, 5), (later, 9)):
        (path / "host.xplane.pb").write_bytes(b"")
        os.utime(path / "host.xplane.pb", (1e9 - age, 1e9 - age))
    assert profiles.find_newest(tmp_path) == profiles.find_newest(tmp_path / "run") == later


def test_no_profile(tmp_path, folder):
    with pytest.raises(UsageError, match=r"^--workdir=.*/run: no profile there; record one with: "):
        profiles.find_newest(tmp_path / "run")
    with pytest.raises(
        UsageError, match=r"^--workdir=.*/none: no such folder; give that of a run$"
    ):
        profiles.find_newest(tmp_path / "none")


@pytest.mark.parametrize("content", [b"\x0a\xff\xff", b"no protocol buffer" * 9])
def test_a_damaged_file(folder, content, capfd):
    file = folder / "host.xplane.pb"
    file.write_bytes(content)
    with pytest.raises(RunError, match=r"host\.xplane\.pb is truncated or no profile; delete it"):
        profiles.read(file)


def test_a_file_without_a_step(folder):
    (folder / "host.xplane.pb").write_bytes(b"")
    with pytest.raises(RunError, match="has no whole step: record more of them"):
        profile_report.diagnose(folder, None)
