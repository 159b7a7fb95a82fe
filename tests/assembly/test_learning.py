"""Flags reach their loss, and a vocabulary that is too small for them is refused."""

import numpy as np
import pytest
import tensorflow as tf

from app.assembly import learning, strategies
from app.assembly.learning import LEAST_FACTOR, SCHEDULES, schedule_factor
from app.checkpoints.checkpoint import Position
from app.errors import UsageError
from app.losses.classes import classes
from app.settings import Config, InputConfig, ModelConfig, RecommendConfig, RunConfig
from tests.losses import toy

WORDS, TARGETS = 400, 50
COUNTS = toy.counts(WORDS)
DONE = [0.0, 0.25, 0.5, 0.75]


def make(counts=COUNTS, seed=1, **flags):
    wanted = learning.OutputSpec(np.asarray(counts), toy.DIM, TARGETS, seed)
    return learning.make_loss(ModelConfig(**flags), wanted)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({}, (128, 32)),
        ({"model": "cbow"}, (128, 32)),
        ({"group_tokens": 256, "shared_negatives": 96}, (256, 96)),
        ({"shared_negatives": 16}, (128, 16)),
        ({"group_tokens": 256}, (256, 32)),
    ],
)
def test_negatives_are_shared_by_default_or_as_given(flags, expected):
    vectors, samples = expected
    ids = make(**flags).lookups(tf.zeros((512, 1), tf.int32), 512, tf.constant([1, 1], tf.int64))
    assert len(ids["output"]) == 512 + 512 // vectors * samples


def rows(loss):
    return {name: spec.rows for name, spec in loss.tables().items()}


@pytest.mark.parametrize("name", learning.LOSSES)
@pytest.mark.parametrize("counts", [[1], [1, 1], [7] * 30, [9, 3, 0, 0]], ids=len)
def test_every_loss_takes_small_and_flat_vocabularies(name, counts):
    loss = make(counts, loss=name, group_tokens=4)
    targets_G1 = tf.zeros((4, 1), tf.int32)
    for table, ids in loss.lookups(targets_G1, 4, tf.constant([1, 1], tf.int64)).items():
        assert int(tf.reduce_max(ids)) < loss.tables()[table].rows
    assert all(spec.rows >= 1 for spec in loss.tables().values())


@pytest.mark.parametrize("name", learning.LOSSES)
def test_losses_with_one_row_for_each_word(name):
    sizes = list(rows(make(loss=name)).values())
    if name in learning.ROW_PER_WORD:
        assert sizes == [WORDS]
    elif name not in ("negative_sampling", "nce", "auto"):  # not for classifiers, or any of them
        assert sizes != [WORDS]


def test_flags_of_class_softmax():
    (starts,) = classes.partition(COUNTS, 2, "fewest_rows", 0, TARGETS)
    assert rows(make(loss="class_softmax")) == {"output": WORDS, "classes": len(starts) - 1}
    assert rows(make(loss="class_softmax", classes=8))["classes"] == 8
    upper, lower = classes.partition(COUNTS, 3, "equal_size", 30, TARGETS)
    found = make(loss="class_softmax", class_levels=3, class_rule="equal_size", classes=30)
    assert rows(found)["classes"] == len(lower) - 1
    assert rows(found)["superclasses"] == len(upper) - 1


def test_the_number_of_classes_is_logged(caplog):
    with caplog.at_level("INFO", logger="absl"):
        make(loss="class_softmax", classes=20)
    assert "20 classes of words, fewest_rows: a step touches" in caplog.text


def test_cutoffs_of_adaptive_softmax():
    assert rows(make(loss="adaptive_softmax", cutoffs="100, 200"))["head"] == 102
    one, same, other = (
        make(loss="adaptive_softmax", cutoffs="100", seed=seed).tables()["projection1"]
        for seed in (1, 1, 2)
    )
    shape = (one.rows, one.columns)
    np.testing.assert_array_equal(one.initial(shape), same.initial(shape))
    assert (one.initial(shape).numpy() != other.initial(shape).numpy()).any()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"loss": "class_softmax", "classes": 401}, "--classes=401: the vocabulary has 400 words"),
        ({"loss": "adaptive_softmax", "cutoffs": "9,9"}, "--cutoffs=9,9: cutoffs 9, 9: give"),
        ({"loss": "adaptive_softmax", "cutoffs": "400"}, "--cutoffs=400: cutoffs 400: give"),
    ],
)
def test_what_cannot_be_is_refused(flags, message):
    with pytest.raises(UsageError) as refused:
        make(**flags)
    assert str(refused.value).startswith(message)


def settled(micro, replicas, at=None, tokens=1024):
    config = RecommendConfig(
        run=RunConfig(task="recommend"), input=InputConfig(micro_batches=micro, batch_tokens=tokens)
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
    assert settled(0, 1, Position(step=8, epoch=1, batch=0, micro_batches=4)) == 1


def test_micro_batches_that_cannot_be():
    message = "--micro_batches=3: 2 replicas cannot share them evenly; give a multiple of 2, or 0"
    with pytest.raises(UsageError, match=f"^{message}$"):
        settled(3, 2)
    message = "^--batch_tokens=1024 is no multiple of --micro_batches=3; change one"
    with pytest.raises(UsageError, match=message):
        settled(0, 3)


def test_the_banner_tells_when_replicas_exchange():
    apart = Config(run=RunConfig(strategy="mirrored", sync_steps=32))
    line = "mirrored: 2 replica(s) that exchange changes of rows every 32 steps, 0 micro-batch(es)"
    assert strategies.describe(apart, 2).startswith(line)
    in_step = Config(run=RunConfig(strategy="mirrored"))
    assert "2 replica(s) in step" in strategies.describe(in_step, 2)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", [1, 1, 1, 1]),
        ("linear", [1, 0.75, 0.5, 0.25]),
        ("cosine", [1, (1 + 0.5**0.5) / 2, 0.5, (1 - 0.5**0.5) / 2]),
    ],
)
def test_the_course_of_a_schedule(schedule, expected):
    assert [schedule_factor(schedule, 0.0, done) for done in DONE] == pytest.approx(expected)


def test_every_schedule_is_above():
    assert SCHEDULES.keys() == {"constant", "linear", "cosine"}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_it_rises_first_and_then_runs_over_what_is_left(schedule):
    found = [schedule_factor(schedule, 0.2, done) for done in (0.05, 0.1, 0.15, 0.2)]
    assert found == pytest.approx([0.25, 0.5, 0.75, 1.0])
    found = [schedule_factor(schedule, 0.2, 0.2 + 0.8 * done) for done in DONE]
    assert found == pytest.approx([schedule_factor(schedule, 0.0, done) for done in DONE])


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("warmup", [0.0, 0.1, 0.99])
def test_it_is_above_0_and_at_most_1(schedule, warmup):
    for place in range(101):
        assert LEAST_FACTOR <= schedule_factor(schedule, warmup, place / 100) <= 1.0
    # An epoch may turn out longer than expected.
    assert schedule_factor(schedule, warmup, 1.5) == schedule_factor(schedule, warmup, 1.0)
    assert schedule_factor("linear", warmup, 1.0) == LEAST_FACTOR
