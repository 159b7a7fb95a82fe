import pytest

from app.assembly import strategies
from app.checkpoints.checkpoint import Position
from app.errors import UsageError
from app.settings import Config, InputConfig, RecommendConfig, RunConfig


def settled(micro, replicas, at=None, tokens=1024):
    config = RecommendConfig(
        run=RunConfig(task="recommend"),
        input=InputConfig(micro_batches=micro, batch_tokens=tokens),
    )
    return strategies.with_micro_batches(config, replicas, at).input.micro_batches


def test_replicas_have_a_micro_batch_each_unless_told():
    assert [settled(0, replicas) for replicas in (1, 2, 4)] == [1, 2, 4]
    assert settled(4, 2) == settled(4, 1) == 4


def test_an_epoch_goes_on_as_it_was_begun_where_it_can():
    within = Position(step=8, epoch=1, batch=2, micro_batches=4)
    assert settled(0, 1, within) == settled(0, 2, within) == 4
    assert settled(0, 8, within) == 8  # who cannot share 4
    assert settled(2, 2, within) == 2  # which was asked for
    between = Position(step=8, epoch=1, batch=0, micro_batches=4)
    assert settled(0, 1, between) == 1


def test_micro_batches_that_cannot_be():
    message = "--micro_batches=3: 2 replicas cannot share them evenly; give a multiple of 2, or 0"
    with pytest.raises(UsageError, match=f"^{message}$"):
        settled(3, 2)
    message = "^--batch_tokens=1024 is no multiple of 3, which is --micro_batches=3; change one"
    with pytest.raises(UsageError, match=message):
        settled(0, 3)


def test_the_banner_tells_when_replicas_exchange():
    apart = Config(run=RunConfig(strategy="mirrored", sync_steps=32))
    line = "mirrored: 2 replica(s) that exchange changes of rows every 32 steps, 0 micro-batch(es)"
    assert strategies.describe(apart, 2).startswith(line)
    in_step = Config(run=RunConfig(strategy="mirrored"))
    assert "2 replica(s) in step" in strategies.describe(in_step, 2)
