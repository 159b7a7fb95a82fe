from __future__ import annotations

import dataclasses
import re

import pytest

from app.errors import UsageError
from app.settings import Config, checks, settings

DEFAULTS = {name: field.default for name, field in settings.fields().items()}
GIVEN = DEFAULTS | {"workdir": "run"}
LANGUAGE_MODEL = {"task": "language_model", "loss": "softmax"}


def test_every_setting_has_a_name_of_its_own():
    parts = vars(Config()).values()
    assert len(settings.fields()) == sum(len(dataclasses.fields(part)) for part in parts)


def test_settings_and_back():
    values = DEFAULTS | {"dim": 7, "corpus": "a.txt", "shuffle": False}
    made = settings.from_names(values)
    assert (made.model.dim, made.corpus.corpus, made.input.shuffle) == (7, "a.txt", False)
    assert settings.by_name(made) == values
    assert settings.from_names({}) == Config()


def test_every_setting_is_explained_and_its_default_passes():
    checks.check(settings.from_names(GIVEN))
    for name, field in settings.fields().items():
        assert field.metadata["help"].endswith("."), name
        assert type(field.default) in (bool, int, float, str), name


@pytest.mark.parametrize(
    "name", [name for name, field in settings.fields().items() if field.metadata["choices"]]
)
def test_a_choice_that_does_not_exist(name):
    with pytest.raises(UsageError, match=f"^--{name}=other: not one of "):
        checks.check(settings.from_names(GIVEN | {name: "other"}))


@pytest.mark.parametrize(
    ("name", "least"),
    [
        (name, field.metadata["bounds"][0])
        for name, field in settings.fields().items()
        if field.metadata["bounds"] and not field.metadata["numbers"]
    ],
)
def test_a_number_that_is_too_small(name, least):
    for value in (least - 1, float("nan")):
        with pytest.raises(UsageError, match=f"^--{name}={value}: give at least "):
            checks.check(settings.from_names(GIVEN | {name: value}))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"task": "classify", "loss": "softmax", "batch_tokens": 64, "micro_batches": 65},
            "--micro_batches=65: give at most --batch_tokens=64",
        ),
        ({"batch_tokens": 100}, "--batch_tokens=100 is no multiple of --row_tokens=32; change"),
        ({"batch_tokens": 16}, "--batch_tokens=16 is no multiple of --row_tokens=32; change"),
        ({"group_tokens": 4000}, "--group_tokens=4000 does not divide --batch_tokens=4096; change"),
        (
            {"tokenizer": "whitespace", "drop_numbers": True},
            "--drop_numbers=True means nothing to --tokenizer=whitespace, only to unicode",
        ),
        ({"heldout_share": 0.1}, "--heldout_share=0.1 means nothing to --task=words, only to lan"),
        (LANGUAGE_MODEL | {"heldout_share": 1.0}, "--heldout_share=1.0: give less than 1"),
        (
            LANGUAGE_MODEL | {"loss": "negative_sampling"},
            "--loss=negative_sampling: not one of auto, class_.* for --task=language_model",
        ),
        (LANGUAGE_MODEL | {"max_vocab_size": 2}, "--max_vocab_size=2: a language model has <unk>"),
        ({"task": "classify", "layers": "3"}, "--layers=3 means nothing to --task=classify"),
        (LANGUAGE_MODEL | {"model": "cbow"}, "--model=cbow means nothing to --task=language_model"),
        (LANGUAGE_MODEL | {"subsample": 0.1}, "--subsample=0.1 means nothing to --task=language_"),
        ({"map_parallelism": 0}, "--map_parallelism=0: give at least 1, or -1"),
        ({"warmup": 1.0}, "--warmup=1.0: give less than 1"),
        ({"optimizer": "momentum", "momentum": 1.0}, "--momentum=1.0: give less than 1"),
        ({"optimizer": "lazy_adam", "beta_1": 1.0}, "--beta_1=1.0: give less than 1"),
        ({"optimizer": "lazy_adam", "beta_2": 1.5}, "--beta_2=1.5: give less than 1"),
        ({"epsilon": 0.0}, "--epsilon=0.0: give at least 1e-30"),
        ({"seed": 2**31}, "--seed=2147483648: give at most 2147483647"),
        ({"profile_steps": "5"}, "--profile_steps=5: give START,STOP such as 100,200"),
        ({"profile_steps": "5,5"}, "--profile_steps=5,5: give START,STOP"),
        ({"profile_steps": "5,6,7"}, "--profile_steps=5,6,7: give START,STOP"),
        ({"profile_steps": "\u00b2,\u00b3"}, "--profile_steps=\u00b2,\u00b3: give START,STOP"),
        ({"workdir": ""}, "--workdir= is empty; name a folder for the run"),
    ],
)
def test_a_combination_that_cannot_be(values, message):
    with pytest.raises(UsageError, match=f"^{message}"):
        checks.check(settings.from_names(GIVEN | values))


def test_a_plan_needs_no_workdir():
    checks.check(settings.from_names(DEFAULTS | {"plan_only": True}))


def test_what_may_change_in_a_workdir():
    free = {
        "epochs",
        "learning_rate",
        "schedule",
        "warmup",
        "clip_row_norm",
        "clip_global_norm",
        "momentum",
        "beta_2",
        "weight_decay",
        "corpus",
        "cache",
        "device",
        "log_seconds",
        "keep_checkpoints",
    }
    for name in free:
        checks.check_fixed(GIVEN, settings.from_names(GIVEN | {name: "other"}))
    fixed = {
        "dim",
        "tokenizer",
        "min_count",
        "vocab",
        "seed",
        "steps_per_call",
        "optimizer",
        "initial_accumulator",
        "table_dtype",
    }
    checks.check_fixed(GIVEN, settings.from_names(GIVEN | {"correct_skipped": True}))  # no effect
    adam = GIVEN | {"optimizer": "lazy_adam"}
    with pytest.raises(UsageError, match="^--correct_skipped=True: --workdir=run was made with"):
        checks.check_fixed(adam, settings.from_names(adam | {"correct_skipped": True}))
    for name in fixed:
        with pytest.raises(UsageError, match=f"^--{name}=other: --workdir=run was made with"):
            checks.check_fixed(GIVEN, settings.from_names(GIVEN | {name: "other"}))
    checks.check_fixed({}, settings.from_names(GIVEN))
    as_text = {name: settings.as_text(value) for name, value in GIVEN.items()}
    checks.check_fixed(as_text, settings.from_names(GIVEN))


def test_a_setting_of_another_optimizer_is_refused():
    given = GIVEN | {"optimizer": "lazy_adam", "nesterov": True}
    message = "^--nesterov=True means nothing to --optimizer=lazy_adam, only to momentum; leave it"
    with pytest.raises(UsageError, match=message):
        checks.check(settings.from_names(given))
    checks.check(settings.from_names(given | {"optimizer": "momentum"}))


def test_what_a_setting_belongs_to_exists():
    fields = settings.fields()
    for field in fields.values():
        if field.metadata["only"]:
            other, *known = field.metadata["only"]
            least, most = fields[other].metadata["bounds"] or (0, -1)
            possible = fields[other].metadata["choices"] or range(least, most + 1)
            assert known and set(known) <= set(possible)


def test_every_number_has_both_bounds():
    for name, field in settings.fields().items():
        if type(field.default) in (int, float):
            least, most = field.metadata["bounds"]
            defaults = field.default, *(value for _, value in field.metadata["beside"])
            assert all(least <= value <= most for value in defaults), name


@pytest.mark.parametrize(
    ("name", "most"),
    [
        (name, field.metadata["bounds"][1])
        for name, field in settings.fields().items()
        if field.metadata["bounds"]
        and not (field.metadata["half_open"] or field.metadata["numbers"])
    ],
)
def test_a_number_that_is_too_large(name, most):
    for value in (most + 1 if most < 2**53 else 2 * most, 10**400, float("inf")):
        with pytest.raises(UsageError, match="^" + re.escape(f"--{name}={value}: give at most ")):
            checks.check(settings.from_names(GIVEN | {name: value}))


RECOMMEND = {"task": "recommend", "model": "mlp", "loss": "bpr", "optimizer": "lazy_adam"}
ADAPTIVE = {"loss": "adaptive_softmax"}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (RECOMMEND | {"layers": "64,0"}, "--layers=64,0: give at least 1"),
        (RECOMMEND | {"layers": "1000001"}, "--layers=1000001: give at most 1000000"),
        (RECOMMEND | {"layers": " , "}, "--layers= , : give numbers such as 64,32"),
        (RECOMMEND | {"layers": "1," * 101}, ".*: give at most 100 numbers"),
        (RECOMMEND | {"top": "10,x"}, "--top=10,x: 'x' is no whole number; give one"),
        (RECOMMEND | {"top": "1_0"}, "--top=1_0: '1_0' is no whole number; give one"),
        (RECOMMEND | {"top": str(2**31)}, "--top=2147483648: give at most 2147483647"),
        (RECOMMEND | {"min_rating": "good"}, "--min_rating=good: 'good' is no number; give one"),
        (RECOMMEND | {"min_rating": "nan"}, "--min_rating=nan: 'nan' is no number; give one"),
        (RECOMMEND | {"min_rating": "1e300"}, "--min_rating=1e300: give at most 1e\\+18"),
        (ADAPTIVE | {"cutoffs": "0"}, "--cutoffs=0: give at least 1"),
        (ADAPTIVE | {"cutoffs": "9" * 5000}, "--cutoffs=9+: '9{40}' is no whole number; give one"),
        (ADAPTIVE | {"cutoffs": "1," * 101}, ".*: give at most 100 numbers"),
    ],
)
def test_numbers_in_a_text_are_bounded(values, message):
    with pytest.raises(UsageError, match=f"^{message}$"):
        checks.check(settings.from_names(GIVEN | values))


def test_numbers_in_a_text():
    for values in (
        RECOMMEND | {"layers": "1, 1000000,", "min_rating": "-2.5"},
        ADAPTIVE | {"cutoffs": "10,20"},
        ADAPTIVE | {"cutoffs": ""},
    ):
        checks.check(settings.from_names(GIVEN | values))
    assert settings.numbers("1, 1000000,") == [1, 1_000_000]


@pytest.mark.parametrize("hot_rows", ["-1", "9" * 5000, str(2**31), "\u00b2", "", "x"])
def test_hot_rows_that_cannot_be(hot_rows):
    given = GIVEN | {"table": "host", "hot_rows": hot_rows}
    with pytest.raises(UsageError, match=f"^--hot_rows={hot_rows}: give a number of rows, or `aut"):
        checks.check(settings.from_names(given))


def test_steps_of_a_profile_that_no_run_has():
    with pytest.raises(UsageError, match="^--profile_steps=5,9+: give START,STOP"):
        settings.windows("5," + "9" * 5000)


def test_an_earlier_default_is_allowed_where_it_has_no_effect():
    """The flags of an older workdir have it."""
    given = RECOMMEND | {"loss": "bpr"}
    checks.check(settings.from_names(GIVEN | given | {"temperature": 0.15}))
    with pytest.raises(UsageError, match="^--temperature=0.3 means nothing to --loss=bpr"):
        checks.check(settings.from_names(GIVEN | given | {"temperature": 0.3}))


@pytest.mark.parametrize(
    ("values", "power", "rate", "accumulator"),
    [
        ({}, -0.3, 0.15, 0.1),
        ({"model": "cbow"}, -0.3, 0.4, 0.1),
        ({"learning_rate_power": -0.4}, -0.3, 0.0, 0.1),
        ({"loss": "hierarchical_softmax"}, -0.5, 0.0, 0.1),
        ({"optimizer": "sgd"}, -0.3, 0.0, 0.1),
        ({"task": "classify"}, -0.5, 0.16, 0.001),
        ({"task": "classify", "initial_accumulator": 0.1}, -0.5, 0.0, 0.001),
        ({"task": "classify", "optimizer": "lazy_adam"}, -0.5, 0.0, 0.001),
        ({"task": "recommend"}, -0.5, 0.0, 0.1),
    ],
)
def test_defaults_beside_other_values(values, power, rate, accumulator):
    defaults = settings.defaults(values)
    names = "learning_rate_power", "learning_rate", "initial_accumulator"
    assert tuple(defaults[name] for name in names) == (power, rate, accumulator)
    made = settings.by_name(checks.make_config(values))
    assert made == {**defaults, **values}


def test_defaults_name_settings_and_values_that_exist():
    fields = settings.fields()
    for field in fields.values():
        for others, value in field.metadata["beside"]:
            assert type(value) is type(field.default)
            for name, needed in others.items():
                possible = {
                    fields[name].default,
                    *(one for _, one in fields[name].metadata["beside"]),
                }
                assert needed in possible | set(fields[name].metadata["choices"])
