"""What the banner says of XLA, beside what XLA compiles, for jobs that are made as for a GPU."""

import pytest
import tensorflow as tf

from app.settings import flag_values
from app.training.step import train_function
from tests.integration import gpu_jobs
from tests.integration.gpu_jobs import CLASSIFY, LANGUAGE, RECOMMEND, WORDS, named

SUBWORDS = {"min_ngram": 2, "max_ngram": 4, "ngram_buckets": 500}
# The tasks, and what else of each is varied than the loss and the table.
VARIED = [
    (WORDS, ({"model": "cbow"}, SUBWORDS)),
    (CLASSIFY, ({"word_ngrams": 2, "buckets": 100},)),
    (RECOMMEND, ({"item_features": "items.csv"},)),
    (
        LANGUAGE,
        ({"cell": "lstm"}, {"micro_batches": 2}, {"tie_weights": True, "dropout": 0.2}),
    ),
]


def losses(task):
    choices = flag_values.fields_of(flag_values.task_of(task))["loss"].metadata["choices"]
    return [{"loss": loss} for loss in choices if loss != "auto"]


KINDS = [
    {**task, **more, **table}
    for task, varied in VARIED
    for more in (*losses(task), *varied)
    for table in ({}, {"table": "host", "hot_rows": "5"})
]
# Which losses and models there are changes nothing for these; the last have all rows on the device.
KINDS += [task | {"table": "sharded", "hot_rows": "5"} for task, _ in VARIED]
KINDS += [task | {"table": "dynamic"} for task in (WORDS, CLASSIFY, RECOMMEND)]
KINDS += [task | {"table": "host"} for task in (WORDS | SUBWORDS, CLASSIFY, LANGUAGE)]


@pytest.fixture(autouse=True)
def on_a_gpu(monkeypatch):
    gpu_jobs.pretend(monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("values", KINDS, ids=named)
def test_the_banner_names_each_kind_of_step_that_xla_does_not_compile(data, tmp_path, values):
    if "item_features" in values:
        rows = "".join(f"i{item},{item % 4}|x\n" for item in range(40))
        (tmp_path / "items.csv").write_text(f"item,block\n{rows}")
        values = values | {"item_features": str(tmp_path / "items.csv")}
    job, config, _ = gpu_jobs.made(data, tmp_path / "run", values)
    batch = gpu_jobs.first_batch(job, config)
    made = job.model, job.placed.staging.tables, job.optimizer, 1, job.placed.micro_batches
    function = train_function(*made, by_xla=True)
    arguments = batch, tf.constant(0, tf.int64), tf.constant(0.1)
    function.get_concrete_function(*arguments)
    assert function.is_by_xla == (not job.placed.uncompiled), job.placed.uncompiled
    if function.is_by_xla:
        assert "ENTRY" in function.chosen.experimental_get_compiler_ir(*arguments)(stage="hlo")
