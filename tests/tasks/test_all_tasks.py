import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from app.assembly import learning
from app.optimizers.adagrad import adagrad, rowwise_adagrad
from app.optimizers.adam import lazy_adam, lazy_adamw
from app.optimizers.ftrl import ftrl
from app.optimizers.sgd import momentum, sgd
from app.settings import OptimizerConfig
from app.settings.flag_values import TASKS, fields
from app.tasks import all_tasks
from app.tasks.language_model import language_model_job
from app.tasks.words import words_job


@pytest.mark.parametrize(
    ("name", "classes"),
    [
        ("task", all_tasks.JOBS),
        ("cell", language_model_job.CELLS),
        ("optimizer", learning.OPTIMIZERS),
        ("model", words_job.MODELS),
    ],
)
def test_every_choice_has_a_class(name, classes):
    assert set(fields()[name].metadata["choices"]) == set(classes)


@pytest.mark.parametrize(
    ("name", "task", "classes"),
    [
        ("loss", "words", learning.LOSSES),
        ("loss", "classify", learning.LOSSES),
    ],
)
def test_every_choice_of_a_task_has_a_class(name, task, classes):
    assert set(TASKS[task].choices[name]) <= set(classes)


RULES = [
    ({"optimizer": "sgd"}, sgd()),
    ({"optimizer": "momentum"}, momentum()),
    ({"optimizer": "momentum", "momentum": 0.5}, momentum(0.5)),
    ({"optimizer": "momentum", "nesterov": True}, momentum(nesterov=True)),
    ({"optimizer": "adagrad"}, adagrad()),
    ({"optimizer": "adagrad", "initial_accumulator": 0.5}, adagrad(0.5)),
    ({"optimizer": "rowwise_adagrad"}, rowwise_adagrad()),
    ({"optimizer": "rowwise_adagrad", "initial_accumulator": 0.5}, rowwise_adagrad(0.5)),
    ({"optimizer": "rowwise_adagrad", "learning_rate_power": -0.3}, rowwise_adagrad(power=-0.3)),
    ({"optimizer": "ftrl"}, ftrl()),
    ({"optimizer": "ftrl", "l1": 0.2}, ftrl(l1=0.2)),
    ({"optimizer": "ftrl", "l2": 0.2}, ftrl(l2=0.2)),
    ({"optimizer": "ftrl", "initial_accumulator": 0.5}, ftrl(initial=0.5)),
    *(
        ({"optimizer": name} | options, make(**options))
        for name, make in (("lazy_adam", lazy_adam), ("lazy_adamw", lazy_adamw))
        for options in (
            {},
            {"beta_1": 0.5},
            {"beta_2": 0.5},
            {"epsilon": 0.5},
            {"correct_skipped": True},
        )
    ),
    ({"optimizer": "lazy_adamw", "weight_decay": 0.2}, lazy_adamw(weight_decay=0.2)),
]


def updated(optimizer):
    """A row after two updates, with steps between; one number of it passes 0."""
    rows_UD = tf.constant([[0.05, -2.0, 3.0]])
    state = {
        name: tf.fill([1, slot.columns or 3], slot.initial)
        for name, slot in optimizer.slots.items()
    }
    for number in (1, 4):
        gradients_UD = tf.constant([[1.0, -0.5, 0.1]]) / number
        step = tf.constant(number, tf.int64)
        change_UD, state = optimizer.rule(rows_UD, gradients_UD, state, tf.constant(0.1), step)
        rows_UD += change_UD
    return rows_UD.numpy().tolist()


@pytest.mark.parametrize(
    ("values", "expected"), RULES, ids=["-".join(map(str, values.values())) for values, _ in RULES]
)
def test_flags_reach_their_rule(values, expected):
    found = learning.make_optimizer(OptimizerConfig(**values))
    assert found.slots == expected.slots
    assert found.learning_rate == expected.learning_rate > 0
    assert updated(found) == updated(expected)
    if len(values) > 1:
        default = OptimizerConfig(optimizer=values["optimizer"])
        assert updated(found) != updated(learning.make_optimizer(default))


def test_no_flag_of_the_optimizer_is_left_out():
    """Those of rules are above; the others are below."""
    below = {"learning_rate", "schedule", "warmup", "clip_row_norm", "clip_global_norm"}
    above = {name for values, _ in RULES for name in values}
    assert above | below == {field.name for field in dataclasses.fields(OptimizerConfig)}
    assert {values["optimizer"] for values, _ in RULES} == learning.OPTIMIZERS.keys()


def test_gradients_are_clipped_as_asked():
    """By row first, then all together."""
    gradients = {"a": tf.constant([[3.0, 4.0], [0.0, 1.0]]), "b": tf.constant([[0.0, 2.0]])}
    whole = [[3, 4], [0, 1], [0, 2]]
    by_row = [[1.2, 1.6], [0, 1], [0, 2]]
    for values, expected in (
        ({}, whole),
        ({"clip_row_norm": 2.0}, by_row),
        ({"clip_global_norm": 1.0}, whole / np.linalg.norm(whole)),
        ({"clip_row_norm": 2.0, "clip_global_norm": 1.5}, np.array(by_row) / 2),
    ):
        found = learning.make_optimizer(OptimizerConfig(**values)).clip(gradients)
        np.testing.assert_allclose(np.concatenate([*found.values()]), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, [0.3, 0.225, 0.15, 3e-5]),
        ({"learning_rate": 2.0}, [2, 1.5, 1, 2e-4]),
        ({"learning_rate": 2.0, "schedule": "constant"}, [2, 2, 2, 2]),
        ({"learning_rate": 2.0, "schedule": "cosine"}, [2, 1 + 0.5**0.5, 1, 2e-4]),
        ({"learning_rate": 2.0, "warmup": 0.5}, [2e-4, 1, 2, 2e-4]),
    ],
)
def test_the_course_of_the_learning_rate(values, expected):
    rate = learning.make_learning_rate(OptimizerConfig(**values))
    assert [rate(done) for done in (0.0, 0.25, 0.5, 1.0)] == pytest.approx(expected)
