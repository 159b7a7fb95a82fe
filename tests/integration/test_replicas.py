"""Replicas on two logical CPU devices, or in two processes, train as one device on the same batch.

The processes outlive one another. What a person can get wrong in starting them is told in one line.
"""

import itertools
import os
import shutil
import signal

import numpy as np
import pytest

from app.checkpoints.checkpoint import list_checkpoints
from tests.integration.commands import done, logged, refusal, refused, train
from tests.integration.replicas import (
    APART,
    CASES,
    Workers,
    assert_same,
    rows,
    trained,
    trained_by_two,
    write_data,
)
from tests.processes import listening, until

FAST = ("adagrad",)
WORKERS = ("--strategy=multi_worker", "--micro_batches=2", "--cluster_timeout=100")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Workdirs of two epochs, the first and the second with the strategies in their names."""
    folder = tmp_path_factory.mktemp("mirrored")
    write_data(folder)
    trained(
        folder,
        *(
            f"adagrad,{strategy},{epoch},{folder}/{'-'.join(both)}"
            for both in [("none", "none"), ("none", "mirrored"), ("mirrored", "none")]
            for epoch, strategy in enumerate(both, 1)
        ),
    )
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", ["none-mirrored", "mirrored-none"])
def test_a_run_goes_on_with_another_strategy(folder, name):
    """And so each of them gives what the other does."""
    assert_same(folder / "none-none", folder / name)
    sent = {row["epoch"] > 1: row.get("exchanged_bytes", 0) for row in logged(folder / name)}
    mirrored = name == "none-mirrored"  # in the second epoch
    assert sent[mirrored] > 0 == sent[not mirrored]


@pytest.mark.slow
def test_every_task_trains_as_on_one_device(tmp_path):
    write_data(tmp_path)
    for strategies in [("none", "mirrored"), ("mirrored+gpu",)]:
        runs = itertools.product(CASES, strategies)
        trained(tmp_path, *(f"{case},{name},2,{tmp_path}/{case}-{name}" for case, name in runs))
    for case in CASES:
        assert_same(tmp_path / f"{case}-none", tmp_path / f"{case}-mirrored")
        if case != "rounded":  # a row has another number of the random ones
            assert_same(tmp_path / f"{case}-none", tmp_path / f"{case}-mirrored+gpu")


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["mirrored", "mirrored+gpu"])
@pytest.mark.parametrize("cases", [sorted(APART)[:5], sorted(APART)[5:]])
def test_a_run_that_exchanges_changes_resumes_bit_for_bit(tmp_path, cases, strategy):
    """Each goes on from a checkpoint in the middle of its second epoch."""
    write_data(tmp_path)
    trained(tmp_path, *(f"{case},{strategy},2,{tmp_path}/{case}" for case in cases))
    for case in cases:
        whole, resumed = tmp_path / case, tmp_path / f"{case}-resumed"
        shutil.copytree(whole, resumed)
        saved = list_checkpoints(resumed / "checkpoints")
        assert len(saved) > 3, "an epoch is one exchange, so nothing is shown"
        for path in saved[:2]:
            shutil.rmtree(path)
    trained(tmp_path, *(f"{case},{strategy},2,{tmp_path}/{case}-resumed" for case in cases))
    for case in cases:
        one, two = rows(tmp_path / case), rows(tmp_path / f"{case}-resumed")
        for name, values in one.items():
            np.testing.assert_array_equal(two[name], values, err_msg=f"{case} {name}")


@pytest.mark.parametrize(
    # "padding" has one block of text, and so none for the second worker.
    "cases",
    [FAST, pytest.param(sorted(CASES.keys() - {*FAST, "padding"}), marks=pytest.mark.slow)],
)
def test_workers_equal_one_device(tmp_path, cases):
    write_data(tmp_path)
    trained(tmp_path, *(f"{case},none,2,{tmp_path}/{case}-none" for case in cases))
    trained_by_two(
        tmp_path, *(f"{case},multi_worker,2,{tmp_path}/{case}-workers" for case in cases)
    )
    for case in cases:
        one, two = tmp_path / f"{case}-none", tmp_path / f"{case}-workers"
        assert_same(one, two)
        for name in ("vocab.tsv", "corpus.json", "labels.tsv"):  # each worker counts its share
            files = [path / name for path in (one, two) if (path / name).exists()]
            assert len({path.read_bytes() for path in files}) == min(len(files), 1), name


@pytest.mark.slow
@pytest.mark.parametrize(
    "cases",
    [
        ("adagrad_apart",),
        pytest.param(sorted(APART.keys() - {"padding_apart"}), marks=pytest.mark.slow),
    ],
)
def test_workers_that_exchange_changes_equal_replicas_of_one_process(tmp_path, cases):
    write_data(tmp_path)
    trained(tmp_path, *(f"{case},mirrored,2,{tmp_path}/{case}-mirrored" for case in cases))
    trained_by_two(
        tmp_path, *(f"{case},multi_worker,2,{tmp_path}/{case}-workers" for case in cases)
    )
    for case in cases:
        assert_same(tmp_path / f"{case}-mirrored", tmp_path / f"{case}-workers")


def losses(workdir):
    """The logged steps with a loss."""
    return [row for row in logged(workdir) if "loss" in row]


@pytest.mark.slow
@pytest.mark.parametrize("lost", [0, 1])
@pytest.mark.parametrize("apart", [(), ("--sync_steps=16",)], ids=["steps", "exchanges"])
def test_a_worker_that_is_killed_costs_nothing_but_time(tmp_path, corpus, lost, apart):
    """The lost one is the chief, or the other; both go back to the last checkpoint."""
    more = ("--checkpoint_minutes=0", "--epochs=8", "--device=", *apart)
    with Workers(tmp_path, *train(tmp_path / "run", corpus, *WORKERS, *more)) as workers:
        workers.start_all()
        until(lambda: len(losses(tmp_path / "run")) > 11)
        workers.start_again(lost)
        ended = workers.done()
    assert "resuming at step" in ended[0].err
    if not apart:
        assert f"worker {lost} (127.0.0.1:" in ended[1 - lost].err
        assert "starting again" in ended[1 - lost].err
    starter = ("tests.integration.on_two_devices",) if apart else ()
    strategy = ("--micro_batches=2", f"--strategy={'mirrored' if apart else 'none'}")
    done(tmp_path, *starter, *train(tmp_path / "alone", corpus, *more, *strategy))
    assert_same(tmp_path / "alone", tmp_path / "run")


@pytest.mark.slow
def test_all_stop_when_one_is_asked_to(tmp_path, corpus):
    argv = train(tmp_path / "run", corpus, *WORKERS, "--epochs=8", "--device=")
    with Workers(tmp_path, *argv) as workers:
        commands = workers.start_all()
        until(lambda: len(losses(tmp_path / "run")) > 5)
        os.kill(commands[1].process.pid, signal.SIGTERM)
        for ended in [command.ended() for command in commands]:
            assert ended.code == 130
            assert ended.err.splitlines()[-1].startswith("train: stopped as asked, and saved")


@pytest.mark.slow
def test_a_worker_that_does_not_come_back_is_named(tmp_path, corpus):
    argv = train(tmp_path / "run", corpus, *WORKERS, "--cluster_timeout=15", "--device=")
    with Workers(tmp_path, *argv) as workers:
        first, second = workers.start_all()
        until(lambda: losses(tmp_path / "run"))
        second.kill()
        ended = first.ended()
    last = ended.err.splitlines()[-1]
    assert ended.code == 1 and last.startswith("train: worker 1 (127.0.0.1:")
    assert "did not arrive within --cluster_timeout=15 s" in last


@pytest.mark.slow
def test_processes_without_a_common_workdir_are_told(tmp_path, corpus):
    """Each finds no note of the other."""
    argv = train("run", corpus, *WORKERS, "--device=", "--cluster_timeout=3")
    with Workers(tmp_path, *argv) as workers:
        for index, command in enumerate(workers.start_all()):
            line = refusal(command.ended(), code=1)
            assert f"worker {1 - index} (127.0.0.1:" in line
            assert "did not arrive" in line and "one --workdir that all processes share" in line


@pytest.mark.slow
def test_the_score_of_the_chief_ends_the_run_of_all(tmp_path):
    """Each process is given other held-out texts under the same name."""
    words = [(f"w{number}", "ab"[number % 7 > 3]) for number in range(200)]
    lines = [f"__label__{label} {word}" for word, label in words]
    (tmp_path / "corpus.txt").write_text("\n".join(lines * 3) + "\n")
    argv = ("app.train", f"--workdir={tmp_path}/run", f"--corpus={tmp_path}/corpus.txt")
    argv += ("--task=classify", "--heldout=heldout.txt", "--patience=1", "--epochs=12", *WORKERS)
    argv += ("--dim=8", "--batch_tokens=64", "--min_count=1", "--learning_rate=0.005", "--device=")
    # The second is right from its first epoch on, and so gets no better.
    for index, heldout in enumerate((lines, lines[:1])):
        (folder := tmp_path / f"worker{index}").mkdir()
        (folder / "heldout.txt").write_text("\n".join(heldout) + "\n")
    with Workers(tmp_path, *argv) as workers:
        workers.start_all()
        ended = workers.done()
    assert not any("starting again" in one.err or "retracing" in one.err for one in ended)
    scores = [row for row in logged(tmp_path / "run") if any("heldout" in name for name in row)]
    assert len(scores) > 2, scores


def cluster(folder, corpus, *more, count=2):
    """A cluster of which no process is started yet; its workdir is `run` in the folder."""
    flags = train(folder / "run", corpus, "--strategy=multi_worker", "--device=", *more)
    return Workers(folder, *flags, count=count)


def test_a_tf_config_that_cannot_be(tmp_path, corpus):
    argv = train(tmp_path / "run", corpus, "--strategy=multi_worker", "--device=")
    line = refused(tmp_path, "tests.integration.in_cluster", "worker 1", *argv)
    assert "TF_CONFIG=worker 1 is not JSON (Expecting value" in line
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("index", [0, 1])
def test_a_port_that_is_in_use(tmp_path, corpus, index):
    with cluster(tmp_path, corpus) as workers:
        host = workers.hosts[index]
        with listening(int(host.rpartition(":")[2])):
            line = refusal(workers.start(index).ended())
    what = f"TF_CONFIG names {host} for this process (worker {index}), and port "
    assert what in line and "Address already in use; end the process that listens there" in line


@pytest.mark.slow
def test_processes_that_do_not_arrive(tmp_path, corpus):
    with cluster(tmp_path, corpus, "--cluster_timeout=1", count=3) as workers:
        line = workers.start(0).ended().err.splitlines()[-1]
    absent = ", ".join(f"worker {index} ({workers.hosts[index]})" for index in (1, 2))
    assert f"{absent} did not arrive within --cluster_timeout=1 s; start them with the" in line


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "pretend", "message"),
    [
        (["--negatives=7"], [], "has --negatives=7 and the chief 5; start every process with"),
        ([], ["TensorFlow=2.20.0"], "has TensorFlow 2.20.0 and the chief 2."),
    ],
)
def test_workers_that_differ(tmp_path, corpus, more, pretend, message):
    with cluster(tmp_path, corpus) as workers:
        both = workers.start(0), workers.start(1, *more, pretend=pretend)
        first, second = (refusal(command.ended()) for command in both)
    assert f"worker 1 ({workers.hosts[1]}) {message}" in first and second == first


@pytest.mark.slow
def test_who_comes_late_to_a_run_that_is_finished_is_told(tmp_path, corpus):
    """A worker that was started again at the very end is not to be started again for ever."""
    done(tmp_path, *train(tmp_path / "run", corpus))
    with cluster(tmp_path, corpus, "--cluster_timeout=1") as workers:
        workers.start(1)
        (ended,) = workers.done()
    assert "worker 0 (127.0.0.1:" in ended.err
    assert "(ignored: the run is already finished)" in ended.err
