from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest
import tensorflow as tf

from app.benchmarks.scaling import scaling_meter, scaling_programs
from app.build import threads
from app.checkpoints.workdir import Workdir, write_flags
from app.config import Config, CorpusConfig, InputConfig, ModelConfig, RunConfig, VocabularyConfig
from app.config.settings import by_name
from app.tasks.words import words_data
from app.training.step import split_steps
from tests.integration.commands import fresh, write_corpus


def test_processor_time_is_of_all_that_came_from_a_process(tmp_path):
    for number, parent, ticks in ((1, 0, 9), (7, 1, 100), (8, 7, 20), (9, 8, 3), (10, 1, 50)):
        (tmp_path / str(number)).mkdir()
        fields = [str(number), "(a) name)", "S", str(parent), *"000000000", str(ticks), "1"]
        (tmp_path / str(number) / "stat").write_text(" ".join(fields))
    (tmp_path / "11").mkdir()  # it has ended meanwhile
    (tmp_path / "self").mkdir()
    per_second = 1 / scaling_meter.descendant_seconds(8, tmp_path) * 4
    assert scaling_meter.descendant_seconds(7, tmp_path) * per_second == pytest.approx(21 + 4)
    assert scaling_meter.descendant_seconds(10, tmp_path) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="the system does not tell")
def test_marks_come_with_the_lines(tmp_path):
    metrics = tmp_path / "metrics.jsonl"
    code = "sum(range(10**7)); print('done', flush=True); input()"
    with scaling_meter.measuring(metrics) as marks:
        command = [sys.executable, "-c", code]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen(command, **pipes) as process:
            process.stdout.readline()
            metrics.write_text("one\ntwo\n")
            while not marks:
                time.sleep(0.01)
            process.communicate(b"\n")
    assert marks[0].lines == 2 and marks[0].seconds > 0.05


@pytest.fixture
def run_before(tmp_path):
    """The workdir of a run, as far as the programs look at it."""
    place = Workdir(tmp_path / "workdir")
    place.path.mkdir()
    config = Config(
        run=RunConfig(workdir=str(place.path), device="CPU:0"),
        corpus=CorpusConfig(corpus=str(write_corpus(tmp_path / "corpus"))),
        vocabulary=VocabularyConfig(min_count=2),
        input=InputConfig(batch_tokens=256, row_tokens=16, subsample=0.05),
        model=ModelConfig(dim=8, window=2, group_tokens=32, compute_dtype="float32"),
    )
    write_flags(place.flags, by_name(config))
    text = words_data.load_text(config, place, finished=False)
    words_data.record(text, place)
    return str(place.path)


@pytest.mark.slow
def test_the_programs_take_the_settings_of_the_run(run_before):
    config = scaling_programs.read_config(run_before, batch_tokens=128, steps=3, micro_batches=4)
    assert (config.model.window, config.input.subsample, config.run.audit) == (2, 0.05, True)
    assert (config.input.batch_tokens, config.input.micro_tokens) == (128, 32)
    own = Workdir(run_before).vocabulary.read_bytes().count(b"\n")
    tables = scaling_programs.make_job(config, 4).placed.tables
    assert {table.rows for table in tables.values()} == {own}
    job = scaling_programs.make_job(config, 4, own + 1000)
    assert {table.rows for table in job.placed.tables.values()} == {own + 1000}
    calls = scaling_programs.first_calls(job, 2)
    assert [int(first) for _, first in calls] == [0, 3]
    assert calls[0][0].shape == (3, 8, 20)
    for batches in split_steps(*calls[0], 1, 4):
        for ids in [ids for batch in batches for ids in job.model.lookups(batch).values()]:
            assert int(tf.reduce_max(ids)) < own  # no word is drawn that the text does not have


@pytest.mark.slow
def test_more_words_in_use_are_more_rows_up_to_all_tokens(run_before):
    config = scaling_programs.read_config(run_before, batch_tokens=256, steps=3, micro_batches=2)
    found = [scaling_programs.zipf_bytes(config, size, 8, 4) for size in (20, 2000, 200_000)]
    assert found == sorted(found)
    # Ids and rows of 128 centres, and of 8 rows of 20 words and 4 groups of 32 with negatives.
    negatives = 4 * config.model.samples_of_group
    assert found[0] <= 4 * 9 * 40 and found[-1] <= 4 * 9 * (128 + 160 + negatives)


@pytest.mark.slow
def test_the_costs_of_a_step(run_before, monkeypatch):
    monkeypatch.setattr(threads, "use_machine", lambda settings: None)
    monkeypatch.setattr(scaling_programs, "_ROUNDS", 2)
    monkeypatch.setattr(scaling_programs, "_STEPS", 2)
    job = {"workdir": run_before, "columns": 8, "batch_tokens": 256, "workers": [2, 16]}
    costs = scaling_programs.measure_costs(job)
    assert costs["step_seconds"] > 0 and costs["gradient_seconds"] > 0
    (_, one), (_, two), many = costs["rows"]
    assert two < one < 2 * two and many == (16, None)
    ((workers, reason),) = costs["left_out"]
    assert workers == 16 and "--group_tokens=32 does not divide --batch_tokens=256" in reason


@pytest.mark.slow
def test_the_bytes_that_replicas_exchange_do_not_depend_on_the_rows(run_before, tmp_path):
    found = []
    for rows in (100, 20_000):
        job = {"workdir": run_before, "rows": rows, "columns": 4, "batch_tokens": 256}
        job |= {"steps": 2, "calls": 2, "result": str(tmp_path / "result"), "part": "exchange"}
        ended = fresh("app.benchmarks.scaling.scaling_programs", json.dumps(job))
        assert ended.code == 0, ended.err
        found.append(json.loads((tmp_path / "result").read_text()))
    less, more = found
    assert less["exchanged_bytes"] == more["exchanged_bytes"] > 1000
    assert less["zipf_bytes"] < more["zipf_bytes"]
    assert more["table_bytes"] == 200 * less["table_bytes"] and less["step_ms"] > 0
