"""Replicas in two processes train as one device on the same batch, and outlive one another."""

from __future__ import annotations

import json
import os
import signal

import pytest

from tests.integration.commands import Command, logged, refusal, train
from tests.integration.replicas import (
    APART,
    CASES,
    assert_same,
    cluster,
    trained,
    trained_by_two,
    write_data,
)
from tests.processes import until

FAST = ("adagrad",)
WORKERS = ("--strategy=multi_worker", "--micro_batches=2", "--cluster_timeout=100")


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


class Workers:
    """Two workers of one job, and what they say."""

    def __init__(self, folder, *argv):
        self._folder, self._argv, self._starts = folder, argv, 0
        self._configs = cluster(2)
        self.commands = [self.start(index) for index in range(2)]

    def start(self, index):
        """Starts one, again if need be."""
        self._starts += 1
        folder = self._folder / f"start{self._starts}"
        folder.mkdir()
        return Command(folder, "tests.integration.in_cluster", self._configs[index], *self._argv)

    def end(self):
        """Kills them all."""
        for command in self.commands:
            command.process.kill()
            command.process.join()


@pytest.fixture
def workers(tmp_path, corpus):
    """Two workers that save at every call; they end with the test."""
    run = tmp_path / "run"
    argv = train(run, corpus, *WORKERS, "--checkpoint_minutes=0", "--epochs=8", "--device=")
    found = Workers(tmp_path, *argv)
    yield found
    found.end()


def lines(workdir):
    """The logged steps."""
    try:
        found = (workdir / "metrics.jsonl").read_text().splitlines()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in found if "loss" in line]


@pytest.mark.slow
@pytest.mark.parametrize("lost", [0, 1])
def test_a_worker_that_is_killed_costs_nothing_but_time(tmp_path, corpus, workers, lost):
    until(lambda: len(lines(tmp_path / "run")) > 5)
    os.kill(workers.commands[lost].process.pid, signal.SIGKILL)
    workers.commands[lost].process.join()
    workers.commands[lost] = workers.start(lost)
    ended = [command.ended() for command in workers.commands]
    assert [one.code for one in ended] == [0, 0], ended
    assert f"worker {lost} (127.0.0.1:" in ended[1 - lost].err
    assert "starting again" in ended[1 - lost].err
    assert "resuming at step" in ended[0].err

    alone = tmp_path / "alone"
    argv = train(alone, corpus, "--micro_batches=2", "--epochs=8")
    assert Command(tmp_path, *argv).ended().code == 0
    assert_same(alone, tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("lost", [0, 1])
def test_a_worker_that_is_killed_between_exchanges(tmp_path, corpus, lost):
    """The lost one is the chief, or the other; both go back to the last exchange of all rows."""
    apart = ("--sync_steps=16", "--checkpoint_minutes=0", "--epochs=8", "--device=")
    found = Workers(tmp_path, *train(tmp_path / "run", corpus, *WORKERS, *apart))
    try:
        until(lambda: len(lines(tmp_path / "run")) > 11)
        os.kill(found.commands[lost].process.pid, signal.SIGKILL)
        found.commands[lost].process.join()
        found.commands[lost] = found.start(lost)
        ended = [command.ended() for command in found.commands]
    finally:
        found.end()
    assert [one.code for one in ended] == [0, 0], ended
    assert "resuming at step" in ended[0].err

    mirrored = ("--strategy=mirrored", "--micro_batches=2", *apart)
    argv = train(tmp_path / "mirrored", corpus, *mirrored)
    assert Command(tmp_path, "tests.integration.on_two_devices", *argv).ended().code == 0
    assert_same(tmp_path / "mirrored", tmp_path / "run")


@pytest.mark.slow
def test_all_stop_when_one_is_asked_to(tmp_path, workers):
    until(lambda: len(lines(tmp_path / "run")) > 5)
    os.kill(workers.commands[1].process.pid, signal.SIGTERM)
    for command in workers.commands:
        ended = command.ended()
        assert ended.code == 130
        assert ended.err.splitlines()[-1].startswith("train: stopped as asked, and saved")


@pytest.mark.slow
def test_a_worker_that_does_not_come_back_is_named(tmp_path, corpus):
    run = tmp_path / "run"
    found = Workers(tmp_path, *train(run, corpus, *WORKERS, "--cluster_timeout=15", "--device="))
    try:
        until(lambda: lines(run))
        os.kill(found.commands[1].process.pid, signal.SIGKILL)
        ended = found.commands[0].ended()
    finally:
        found.end()
    assert ended.code == 1
    last = ended.err.splitlines()[-1]
    assert last.startswith("train: worker 1 (127.0.0.1:")
    assert "did not arrive within --cluster_timeout=15 s" in last


@pytest.mark.slow
def test_processes_without_a_common_workdir_are_told(tmp_path, corpus):
    """Each finds no note of the other."""
    configs, commands = cluster(2), []
    for index, config in enumerate(configs):
        (folder := tmp_path / str(index)).mkdir()
        argv = train(folder / "run", corpus, *WORKERS, "--device=", "--cluster_timeout=3")
        commands.append(Command(folder, "tests.integration.in_cluster", config, *argv))
    for index, command in enumerate(commands):
        line = refusal(command.ended(), code=1)
        assert f"worker {1 - index} (127.0.0.1:" in line
        assert "did not arrive" in line and "and one --workdir that all processes share" in line


@pytest.mark.slow
def test_the_score_of_the_chief_ends_the_run_of_all(tmp_path):
    """Each process is given other held-out texts under the same name."""
    words = [(f"w{number}", "ab"[number % 7 > 3]) for number in range(200)]
    lines = [f"__label__{label} {word}" for word, label in words]
    (tmp_path / "corpus.txt").write_text("\n".join(lines * 3) + "\n")
    argv = ("app.train", f"--workdir={tmp_path}/run", f"--corpus={tmp_path}/corpus.txt")
    argv += ("--task=classify", "--heldout=heldout.txt", "--patience=1", "--epochs=12", *WORKERS)
    argv += ("--dim=8", "--batch_tokens=64", "--min_count=1", "--learning_rate=0.005", "--device=")
    commands = []
    # The second is right from its first epoch on, and so gets no better.
    for index, (config, heldout) in enumerate(zip(cluster(2), (lines, lines[:1]), strict=True)):
        (folder := tmp_path / str(index)).mkdir()
        (folder / "heldout.txt").write_text("\n".join(heldout) + "\n")
        module = "tests.integration.in_cluster"
        commands.append(Command(folder, module, config, *argv, within=folder))
    ended = [command.ended() for command in commands]
    assert [one.code for one in ended] == [0, 0], ended
    assert not any("starting again" in one.err for one in ended)
    assert not any("retracing" in one.err for one in ended)
    scores = [row for row in logged(tmp_path / "run") if any("heldout" in name for name in row)]
    assert len(scores) > 2, scores
