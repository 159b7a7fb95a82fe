"""TF_CONFIG: what it says, and what is wrong with it in one line."""

import json
import logging

import pytest

from app.distributed import cluster_spec
from app.errors import UsageError

WITH_CHIEF = {
    "chief": ["host-4.example:80"],
    "worker": ["10.0.0.2:2222", "10.0.0.3:2222"],
}
WORKERS = {"worker": ["10.0.0.2:2222", "[::1]:2222"]}


def config(cluster, kind="worker", index=0):
    return json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})


def test_what_it_names():
    found = cluster_spec.parse_tf_config("multi_worker", config(WITH_CHIEF, "worker", 1))
    assert found.task == ("worker", 1) and found.address == "10.0.0.3:2222"
    assert found.chief == ("chief", 0) and not found.is_chief
    assert found.everyone == (("chief", 0), ("worker", 0), ("worker", 1))
    assert found.others == (("chief", 0), ("worker", 0))
    assert found.name("worker", 1) == "worker 1 (10.0.0.3:2222)"
    assert found.name("chief", 0) == "chief (host-4.example:80)"


def test_it_goes_round():
    first = cluster_spec.parse_tf_config("multi_worker", config(WITH_CHIEF, "worker", 1))
    for kind, index in first.everyone:
        again = cluster_spec.parse_tf_config("multi_worker", first.as_tf_config(kind, index))
        assert again.tasks == first.tasks and again.task == (kind, index)


def test_without_a_chief_the_first_worker_is():
    assert cluster_spec.parse_tf_config("multi_worker", config(WORKERS)).is_chief
    assert not cluster_spec.parse_tf_config("multi_worker", config(WORKERS, index=1)).is_chief
    beside = {"chief": ["a:1"], **WORKERS, "ps": []}
    assert not cluster_spec.parse_tf_config("multi_worker", config(beside)).is_chief
    assert cluster_spec.parse_tf_config("multi_worker", config(beside, "chief")).is_chief


def test_an_index_may_be_a_text():
    assert cluster_spec.parse_tf_config("multi_worker", config(WORKERS, index="1")).index == 1


@pytest.mark.parametrize("strategy", ["none", "mirrored"])
def test_one_machine_does_without(strategy, caplog):
    assert cluster_spec.parse_tf_config(strategy, None) is None
    assert not caplog.text
    with caplog.at_level(logging.INFO, logger="absl"):
        assert cluster_spec.parse_tf_config(strategy, "{}") is None  # as managed clusters set it
    assert f"--strategy={strategy} trains on this machine alone" in caplog.text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "--strategy=multi_worker: TF_CONFIG is not set"),
        (" ", "--strategy=multi_worker: TF_CONFIG is not set"),
        ("{cluster}", "TF_CONFIG={cluster} is not JSON (Expecting property name"),
        ("[1]", 'TF_CONFIG=[1] has no "cluster"; give one such as {"cluster"'),
        ('{"task": {}}', 'TF_CONFIG={"task": {}} has no "cluster"'),
        ('{"cluster": []}', 'has no "cluster"'),
        (config({"master": ["a:1"]}), '"master" is none of chief, worker; write'),
        (config({"boss": ["a:1"]}), '"boss" is none of chief, worker; rename'),
        (config({"evaluator": ["a:1"]}), "leave it out, as the chief scores"),
        (config(WORKERS, "evaluator"), "leave it out, as the chief scores"),
        (config(WORKERS, ["worker"]), '["worker"] is none of chief, worker; rename'),
        (config({"worker": "a:1"}), '"worker" is "a:1"; give a list of HOST:PORT'),
        (config({"worker": {"0": "a:1"}}), '"worker" is {"0": "a:1"}; give a list'),
        (config({"worker": ["a"]}), 'worker 0 is at "a"; give HOST:PORT such as'),
        (config({"worker": ["a:0"]}), 'worker 0 is at "a:0"; give HOST:PORT'),
        (config({"worker": ["a:65536"]}), 'worker 0 is at "a:65536"; give HOST'),
        (config({"worker": [2222]}), "worker 0 is at 2222; give HOST:PORT"),
        (
            config({"worker": ["a:1", "b:1"], "chief": ["a:1"]}),
            "worker 0 and chief 0 are both at a:1; give each process a port of its own",
        ),
        (
            json.dumps({"cluster": WORKERS}),
            'TF_CONFIG has no "task" that says which process this is',
        ),
        (
            json.dumps({"cluster": WORKERS, "task": {"type": "worker"}}),
            'TF_CONFIG has no "task" that says which process this is',
        ),
        (config(WORKERS, index=2), "is worker 2, and its cluster has 2 of worker"),
        (config(WORKERS, index=-1), '"index" of "task" is -1; give a number'),
        (config(WORKERS, index=1.5), '"index" of "task" is 1.5; give a number'),
        (config(WORKERS, index=True), '"index" of "task" is true; give a number'),
        (config(WORKERS, "chief"), "is chief 0, and its cluster has 2 of worker"),
        (config(WORKERS | {"chief": ["a:1", "b:1"]}), "there are 2 chiefs (a:1,"),
        (config(WORKERS | {"ps": ["d:1"]}), "there are no parameter servers"),
        (config({"worker": []}), "and its cluster has no process; corr"),
    ],
)
def test_what_is_wrong_is_told(text, message):
    with pytest.raises(UsageError) as raised:
        cluster_spec.parse_tf_config("multi_worker", text)
    line = str(raised.value)
    assert message in line and "\n" not in line and line.startswith(("TF_CONFIG", "--strategy"))


def test_a_long_one_is_cut():
    with pytest.raises(UsageError) as raised:
        cluster_spec.parse_tf_config("multi_worker", "{" + "x" * 999)
    assert len(str(raised.value)) < 200
