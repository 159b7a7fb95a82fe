"""What scores and predictions would do on a GPU; see `tests.reference.gpu`."""

from __future__ import annotations

import pytest

from tests.integration.gpu_jobs import (
    CLASSIFY,
    JOINED,
    LANGUAGE,
    RECOMMEND,
    check,
    made,
    named,
    pretend,
)
from tests.reference import gpu
from tests.reference.gpu_calls import recorded

LOSSES = ("one_vs_all", "hierarchical_softmax", "class_softmax", "sampled_softmax")
CLASSES = {"loss": "class_softmax", "class_levels": 3, "class_devices": 2}
CASES = [
    CLASSIFY,
    *(CLASSIFY | {"loss": loss} for loss in LOSSES),
    CLASSIFY | CLASSES,
    *(CLASSIFY | {"table": table} for table in ("host", "sharded", "dynamic")),
    LANGUAGE,
    *(LANGUAGE | {"loss": loss} for loss in (*LOSSES[1:], "nce", "adaptive_softmax")),
    LANGUAGE | CLASSES,
    *(LANGUAGE | {"table": table} for table in ("host", "sharded")),
    LANGUAGE | {"cell": "lstm"},
    RECOMMEND,
    *(RECOMMEND | {"loss": loss} for loss in ("bpr", "squared_error")),
    *(RECOMMEND | {"loss": "bpr", "model": model} for model in ("gmf", "mlp", "neumf")),
    *(RECOMMEND | {"table": table} for table in ("host", "sharded", "dynamic")),
]


@pytest.fixture(autouse=True)
def on_a_gpu(monkeypatch):
    pretend(monkeypatch)


# The best blocks are sorted, and their places computed, as int32, which is on the host.
RANKED = {("TopKV2", "Neg"), ("TopKV2", "FloorDiv"), ("GatherV2", "Mul"), ("Const", "PadV2")}
LAYERS = {("LogicalAnd", "LoopCond")}  # items are scored some at a time
UNSEEN = {("Cast", "Sub")}  # the first rows of keys that have none are drawn by the key


def expected(values) -> set[tuple[str, str]]:
    if values["task"] == "recommend":
        return RANKED | (LAYERS if values.get("model") in ("mlp", "neumf") else set())
    if values["task"] == "classify":
        return UNSEEN if values.get("table") == "dynamic" else set()
    return {JOINED} if values["loss"] in ("class_softmax", "adaptive_softmax") else set()


@pytest.mark.slow
@pytest.mark.parametrize("values", CASES, ids=named)
def test_the_scores_of_a_run(data, tmp_path, monkeypatch, values):
    job, config, variables = made(data, tmp_path, values | {"heldout_share": 0.2})
    with recorded(monkeypatch) as calls:
        assert job.evaluator.scores()
    # A language model reads the text meanwhile, on the host.
    assert values["task"] == "language_model" or not calls.lacking
    assert calls.functions
    for function in calls.functions.values():
        check(gpu.report(function, variables.on_cpu(job, config)), expected(values))
