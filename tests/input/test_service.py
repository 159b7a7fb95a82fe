"""Rows by a tf.data service of real processes are those of a run without, whatever is killed."""

from __future__ import annotations

import dataclasses
import gzip
import logging
import pathlib
import socket

import numpy as np
import pytest

from app.checkpoints.workdir import Workdir
from app.errors import RunError, UsageError
from app.input import block_receiver, service
from app.settings import Config, CorpusConfig, InputConfig, VocabularyConfig
from app.tasks.words import words_data
from tests.integration.commands import write_corpus
from tests.services import running

EPOCHS = range(2)


@pytest.fixture
def impatient(monkeypatch):
    """A service that dies is known to be dead sooner."""
    monkeypatch.setattr(block_receiver, "PATIENCE_SECONDS", 0.5)
    monkeypatch.setattr(block_receiver, "SILENCE_SECONDS", 0.5)
    monkeypatch.setattr(block_receiver, "START_SECONDS", 1.0)


@pytest.fixture
def plain(tmp_path):
    """A run without a service on several files, one of which is not all UTF-8."""
    paths = [write_corpus(tmp_path / f"{n}.txt", lines, n) for n, lines in enumerate((2500, 900))]
    (tmp_path / "2.txt").write_bytes(b"\xef\xbb\xbfba be \xff bu\n\xc3\n" * 200)
    corpus = ",".join(map(str, (*paths, tmp_path / "2.txt")))
    return Config(
        corpus=CorpusConfig(corpus=corpus),
        vocabulary=VocabularyConfig(min_count=1),
        input=InputConfig(
            batch_tokens=64, row_tokens=16, steps_per_call=2, block_bytes=1024, subsample=0.05
        ),
    )


@pytest.fixture
def place(tmp_path):
    return Workdir(tmp_path / "run")


def served(config, address):
    """The same run by the service at an address."""
    return dataclasses.replace(
        config, input=dataclasses.replace(config.input, data_service=address)
    )


def batches(config, place):
    text = words_data.load_text(
        config, place, finished=False
    )  # of which nothing is in the workdir yet
    return words_data.make_batches(text, config, place)


def arrays(found):
    return [(epoch, tokens.numpy()) for epoch, tokens in found]


def same(found, expected):
    assert [epoch for epoch, _ in found] == [epoch for epoch, _ in expected]
    for (_, one), (_, other) in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    return True


@pytest.mark.slow
@pytest.mark.parametrize("phrases", [0, 1])
def test_batches_are_those_of_a_run_without(tmp_path, plain, place, caplog, phrases):
    limits = dataclasses.replace(
        plain.vocabulary, phrases=phrases, phrase_threshold=1.1, phrase_min_count=2
    )
    plain = dataclasses.replace(plain, vocabulary=limits)
    tokens = words_data.load_text(plain, place, finished=False).vocabulary.tokens
    assert any("_" in token for token in tokens) == bool(phrases)
    expected = arrays(batches(plain, place)(EPOCHS, 0))
    assert len(expected) > 100
    with running(tmp_path) as servers:
        mine = batches(served(plain, f"grpc://{servers.address}"), place)
        assert same(arrays(mine(EPOCHS, 0)), expected)
        first = len(expected) // 3  # a run that is resumed in its first epoch
        assert same(arrays(mine(EPOCHS, first)), expected[first:])
        assert expected[first][0] == 0
    assert "this process" not in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize(
    "killed",
    [
        "a worker",
        *(
            pytest.param(killed, marks=pytest.mark.slow)
            for killed in ("all workers", "the dispatcher", "everything")
        ),
    ],
)
def test_no_row_is_lost_or_doubled(tmp_path, plain, place, caplog, impatient, killed):
    expected = arrays(batches(plain, place)(EPOCHS, 0))
    with running(tmp_path) as servers, caplog.at_level(logging.INFO, logger="absl"):
        victims = {
            "a worker": servers.workers[:1],
            "all workers": servers.workers,
            "the dispatcher": [servers.dispatcher],
            "everything": [*servers.workers, servers.dispatcher],
        }[killed]
        found = []
        for epoch, tokens in batches(served(plain, servers.address), place)(EPOCHS, 0):
            found.append((epoch, tokens.numpy()))
            if len(found) == 10:
                for process in victims:
                    process.kill()
        assert same(found, expected)
        if killed != "a worker":
            port = servers.address.rpartition(":")[2]
            assert f"the data service at {servers.address} is gone (" in caplog.text
            assert f"lexrow cluster --data_workers=2 --port={port}\n" in caplog.text
        assert caplog.text.count("has not sent block") <= len(EPOCHS)


@pytest.mark.slow
def test_a_worker_that_comes_later_goes_on(tmp_path, plain, place, caplog, monkeypatch):
    monkeypatch.setattr(block_receiver, "SILENCE_SECONDS", 1e9)
    expected = arrays(batches(plain, place)(EPOCHS, 0))
    with running(tmp_path, workers=1) as servers:
        found = []
        for epoch, tokens in batches(served(plain, servers.address), place)(EPOCHS, 0):
            found.append((epoch, tokens.numpy()))
            if len(found) == 10:
                servers.workers[0].kill()
                servers.workers.append(servers.work())
    assert same(found, expected)
    assert "is gone" not in caplog.text


@pytest.mark.slow
def test_text_that_changes_meanwhile_is_told(tmp_path, plain, place):
    with running(tmp_path) as servers:
        found = batches(served(plain, servers.address), place)(EPOCHS, 0)
        next(found)
        (tmp_path / "0.txt").write_bytes(b"other text")
        with pytest.raises(
            RunError, match="^cannot read the text again: .* check whether it was changed"
        ):
            list(found)


def test_an_address_where_no_service_answers(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        message = f"^--data_service={address}: nobody answers there; start it with: "
        message += "lexrow cluster --data_workers=2 "
        with pytest.raises(UsageError, match=message):
            service.check_service(address, ())
    with running(tmp_path, workers=0) as servers:
        with pytest.raises(UsageError, match=f"{servers.address}: it has no workers; start"):
            service.check_service(servers.address, ())


@pytest.mark.slow
def test_compressed_text_is_refused(tmp_path):
    plain, packed = str(tmp_path / "a.txt"), str(tmp_path / "a")
    pathlib.Path(plain).write_bytes(b"words\n")
    pathlib.Path(packed).write_bytes(gzip.compress(b"words\n"))
    with running(tmp_path, workers=1) as servers:
        service.check_service(servers.address, (plain,))
        with pytest.raises(UsageError, match="a is compressed, .*; write its text as UTF-8, or"):
            service.check_service(f"grpc://{servers.address}", (plain, packed))
        with pytest.raises(UsageError, match="a.txt is compressed, in UTF-16 or has columns"):
            service.check_service(servers.address, (plain,), "text")
