import re

import pytest

from app.errors import UsageError
from app.settings import checks, config, flag_values, setting

TASKS = flag_values.TASKS
FIELDS = flag_values.fields()
DEFAULTS = flag_values.defaults({"task": "words"})
GIVEN = DEFAULTS | {"workdir": "run"}
LANGUAGE_MODEL = {"task": "language_model", "loss": "softmax"}
CLASSIFY = {"task": "classify"}
DYNAMIC = {"table": "dynamic"}
GROW = {"grow_vocab": True}


def with_task(name):
    """Return the first task that has a flag."""
    return {"task": next(n for n, kind in TASKS.items() if name in flag_values.fields_of(kind))}


def check(values):
    """Check settings that a person gives, beside the defaults of their task."""
    checks.check_names(values)
    checks.check(flag_values.from_names(flag_values.defaults(values) | {"workdir": "run"} | values))


@pytest.mark.parametrize("task", TASKS.values())
def test_every_flag_of_a_task_has_a_name_of_its_own(task):
    names = [name for section in vars(task()).values() for name in vars(section)]
    assert len(names) == len(set(names))
    assert task.unused | task.choices.keys() <= set(names)


def test_settings_and_back():
    values = DEFAULTS | {"dim": 7, "corpus": "a.txt", "shuffle": False}
    made = flag_values.from_names(values)
    assert (made.model.dim, made.corpus.corpus, made.input.shuffle) == (7, "a.txt", False)
    assert flag_values.by_name(made) == values
    for name, task in TASKS.items():
        assert flag_values.from_names({"task": name}) == task()


@pytest.mark.parametrize("task", TASKS)
def test_every_setting_is_explained_and_its_default_passes(task):
    check({"task": task})
    for name, field in flag_values.fields_of(TASKS[task]).items():
        assert field.metadata["help"].endswith("."), name
        assert type(field.default).__name__ == field.type, name
        assert setting.fault(field, field.default) is None, name
        if field.type in ("int", "float"):
            assert field.metadata["bounds"], name


@pytest.mark.parametrize(
    "name", [name for name, field in FIELDS.items() if field.metadata["choices"]]
)
def test_a_choice_that_does_not_exist(name):
    with pytest.raises(UsageError, match=f"^--{name}=other: not one of "):
        check(with_task(name) | {name: "other"})


@pytest.mark.parametrize(
    ("name", "least"),
    [
        (name, field.metadata["bounds"][0])
        for name, field in FIELDS.items()
        if field.metadata["bounds"] and not field.metadata["numbers"]
    ],
)
def test_a_number_that_is_too_small(name, least):
    for value in (least - 1, float("nan")):
        with pytest.raises(UsageError, match=f"^--{name}={value}: give at least "):
            check(with_task(name) | {name: value})


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
        ({"heldout_share": 0.3}, "--heldout_share=0.3: --task=words has no such flag, only lang"),
        (LANGUAGE_MODEL | {"heldout_share": 1.0}, "--heldout_share=1.0: give less than 1"),
        (
            LANGUAGE_MODEL | {"loss": "negative_sampling"},
            "--loss=negative_sampling: not one of auto, class_.* for --task=language_model",
        ),
        (LANGUAGE_MODEL | {"dropout": 1.0}, "--dropout=1.0: give less than 1"),
        ({"dropout": 0.5}, "--dropout=0.5: --task=words has no such flag, only language_model"),
        (
            LANGUAGE_MODEL | {"tie_weights": True, "hidden": 8},
            "--hidden=8: --tie_weights needs as many units as --dim=100 has columns; leave out one",
        ),
        *(
            (
                LANGUAGE_MODEL | {"tie_weights": True, "loss": f"{kind}_softmax"},
                f"--tie_weights=True means nothing to --loss={kind}_softmax, only to auto, softma",
            )
            for kind in ("adaptive", "hierarchical")
        ),
        (LANGUAGE_MODEL | {"max_vocab_size": 2}, "--max_vocab_size=2: a language model has <unk>"),
        (
            {"task": "classify", "top": "3"},
            "--top=3: --task=classify has no such flag, only recommend",
        ),
        (
            LANGUAGE_MODEL | {"model": "cbow"},
            "--model=cbow: --task=language_model has no such flag",
        ),
        (LANGUAGE_MODEL | {"subsample": 0.1}, "--subsample=0.1: --task=language_model has no "),
        ({"table": "file"}, "--table=file: .* give --table=host and --table_file=FILE"),
        ({"map_parallelism": 0}, "--map_parallelism=0: give at least 1, or -1"),
        ({"warmup": 1.0}, "--warmup=1.0: give less than 1"),
        ({"optimizer": "momentum", "momentum": 1.0}, "--momentum=1.0: give less than 1"),
        ({"optimizer": "lazy_adam", "beta_1": 1.0}, "--beta_1=1.0: give less than 1"),
        ({"optimizer": "lazy_adam", "beta_2": 1.5}, "--beta_2=1.5: give less than 1"),
        ({"optimizer": "lazy_adam", "epsilon": 0.0}, "--epsilon=0.0: give at least 1e-30"),
        ({"seed": 2**31}, "--seed=2147483648: give at most 2147483647"),
        ({"profile_steps": "5"}, "--profile_steps=5: give START,STOP such as 100,200"),
        ({"profile_steps": "5,5"}, "--profile_steps=5,5: give START,STOP"),
        ({"profile_steps": "5,6,7"}, "--profile_steps=5,6,7: give START,STOP"),
        ({"profile_steps": "\u00b2,\u00b3"}, "--profile_steps=\u00b2,\u00b3: give START,STOP"),
        ({"profile_steps": "2,4,4,8"}, "--profile_steps=2,4,4,8: give START,STOP such as 100,200"),
        ({"hot_rows": "5"}, "--hot_rows=5 means nothing to --table=device, only to host"),
        ({"min_ngram": 5, "max_ngram": 4}, "--min_ngram=5 is above --max_ngram=4"),
        ({"min_ngram": 2}, "--min_ngram=2 means nothing to --max_ngram=0, only to 1 to 100"),
        (
            {"ngram_buckets": 500},
            "--ngram_buckets=500 means nothing to --max_ngram=0, only to 1",
        ),
        ({"phrase_score": "npmi"}, "--phrase_score=npmi means nothing to --phrases=0, only to 1, "),
        (
            {"phrases": 1, "phrase_score": "npmi", "phrase_threshold": 3.0},
            "--phrase_threshold=3.0: give less than 1 for npmi",
        ),
        *(
            (DYNAMIC | {name: value}, f"--{name}={value} needs a vocabulary, and --table=dynamic")
            for name, value in (
                ("max_ngram", 4),
                ("phrases", 1),
                ("loss", "hierarchical_softmax"),
                ("cache", "memory"),
            )
        ),
        (DYNAMIC | {"min_count": 256}, "--min_count=256: --table=dynamic counts words without a "),
        (CLASSIFY | {"phrases": 1}, "--phrases=1: --task=classify has no such flag, only words"),
        (CLASSIFY | {"text_column": "a"}, "--text_column=a --label_column=: name both, or neither"),
        (CLASSIFY | {"label_separator": ";"}, "--label_separator=; separates the labels in a cell"),
        (CLASSIFY | {"weight_column": "w"}, "--weight_column=w: name --text_column and --label_co"),
        (CLASSIFY | {"label_prefix": ""}, "--label_prefix= is empty, so no label differs from a "),
        (
            CLASSIFY | {"label_prefix": "__weight__"},
            "--weight_prefix=__weight__: --label_prefix=__weight__ begins alike",
        ),
        (GROW | DYNAMIC, "--table=dynamic: a table that gets rows as keys come cannot grow"),
        (GROW | {"strategy": "mirrored"}, "--strategy=mirrored: tables of several processes can"),
        (
            GROW | {"table": "host", "table_file": "rows"},
            "--table_file=rows: a table in a file cannot grow",
        ),
        (
            GROW | {"task": "recommend"},
            "--grow_vocab=true: --task=recommend has no such flag, only",
        ),
    ],
)
def test_a_combination_that_cannot_be(values, message):
    with pytest.raises(UsageError, match=f"^{message}"):
        check(values)


def test_a_plan_needs_no_workdir():
    checks.check_workdir(config.RunConfig(plan_only=True))
    with pytest.raises(UsageError, match="^--workdir= is empty; name a folder for the run"):
        checks.check_workdir(config.RunConfig())


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
        checks.check_fixed(GIVEN, flag_values.from_names(GIVEN | {name: "other"}))
    fixed = {
        "dim",
        "max_ngram",
        "tokenizer",
        "min_count",
        "vocab",
        "seed",
        "steps_per_call",
        "optimizer",
        "initial_accumulator",
        "table_dtype",
    }
    made = flag_values.from_names(GIVEN | {"correct_skipped": True})
    checks.check_fixed(GIVEN, made)  # it has no effect
    adam = GIVEN | {"optimizer": "lazy_adam"}
    with pytest.raises(UsageError, match="^--correct_skipped=true: --workdir=run was made with"):
        checks.check_fixed(adam, flag_values.from_names(adam | {"correct_skipped": True}))
    for name in fixed:
        with pytest.raises(UsageError, match=f"^--{name}=other: --workdir=run was made with"):
            checks.check_fixed(GIVEN, flag_values.from_names(GIVEN | {name: "other"}))
    checks.check_fixed({}, flag_values.from_names(GIVEN))


@pytest.mark.parametrize(
    ("given", "name", "former"),
    [
        ({"task": "recommend", "cosine": False}, "temperature", 0.15),
        ({"max_ngram": 0}, "min_ngram", 5),
        ({"max_ngram": 0}, "ngram_buckets", 7),
        ({"tokenizer": "whitespace"}, "fold_case", False),
        ({"tokenizer": "whitespace"}, "drop_punctuation", False),
    ],
)
def test_a_stored_value_without_an_effect_is_not_compared(given, name, former):
    values = flag_values.defaults(given) | given | {"workdir": "run"}
    checks.check_fixed(values | {name: former}, flag_values.from_names(values))
    others = {"cosine": True, "max_ngram": 6, "tokenizer": "unicode"}
    values |= {key: others[key] for key in given.keys() & others.keys()}
    with pytest.raises(UsageError, match=f"^--{name}=.* was made with"):
        checks.check_fixed(values | {name: former}, flag_values.from_names(values))


def test_a_setting_of_another_optimizer_is_refused():
    given = GIVEN | {"optimizer": "lazy_adam", "nesterov": True}
    message = "^--nesterov=True means nothing to --optimizer=lazy_adam, only to momentum; leave it"
    with pytest.raises(UsageError, match=message):
        checks.check(flag_values.from_names(given))
    checks.check(flag_values.from_names(given | {"optimizer": "momentum"}))


def test_flags_that_others_need_exist_with_their_values():
    needs = flag_values.NEEDS.items()
    for name, other, values in [(n, *pair) for n, needed in needs for pair in needed.items()]:
        if FIELDS[other].type == "bool":
            continue
        least, most = FIELDS[other].metadata["bounds"] or (0, -1)
        tasks = [task for task in TASKS.values() if name in flag_values.fields_of(task)]
        choices = [flag_values.fields_of(task)[other].metadata["choices"] for task in tasks]
        assert values and set(values) <= set(set().union(*choices) or range(least, most + 1)), name
    assert needs and flag_values.BEFORE
    for name, value in flag_values.BEFORE.items():
        assert setting.fault(FIELDS[name], value) is None


@pytest.mark.parametrize(
    ("name", "most"),
    [
        (name, field.metadata["bounds"][1])
        for name, field in FIELDS.items()
        if field.metadata["bounds"]
        and not (field.metadata["half_open"] or field.metadata["numbers"])
    ],
)
def test_a_number_that_is_too_large(name, most):
    for value in (most + 1 if most < 2**53 else 2 * most, 10**400, float("inf")):
        with pytest.raises(UsageError, match="^" + re.escape(f"--{name}={value}: give at most ")):
            check(with_task(name) | {name: value})


RECOMMEND = {"task": "recommend", "loss": "bpr", "optimizer": "lazy_adam"}
ADAPTIVE = {"loss": "adaptive_softmax"}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (RECOMMEND | {"top": " , "}, "--top= , : give numbers such as 20"),
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
        check(values)


def test_numbers_in_a_text():
    for values in (
        RECOMMEND | {"top": "1, 1000000,", "min_rating": "-2.5"},
        ADAPTIVE | {"cutoffs": "10,20"},
        ADAPTIVE | {"cutoffs": ""},
    ):
        check(values)
    assert setting.numbers("1, 1000000,") == [1, 1_000_000]


@pytest.mark.parametrize("hot_rows", ["-1", "9" * 5000, str(2**31), "\u00b2", "", "x"])
def test_hot_rows_that_cannot_be(hot_rows):
    given = GIVEN | {"table": "host", "hot_rows": hot_rows}
    with pytest.raises(UsageError, match=f"^--hot_rows={hot_rows}: give a number of rows, or `aut"):
        checks.check(flag_values.from_names(given))


def test_steps_of_a_profile_that_no_run_has():
    with pytest.raises(UsageError, match="^--profile_steps=5,9+: give START,STOP"):
        config.windows("5," + "9" * 5000)


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
    defaults = flag_values.defaults(values)
    names = "learning_rate_power", "learning_rate", "initial_accumulator"
    assert tuple(defaults[name] for name in names) == (power, rate, accumulator)
    assert flag_values.by_name(checks.make_config(values)) == {**defaults, **values}
