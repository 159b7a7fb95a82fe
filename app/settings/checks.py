"""The checks of settings: each value by itself, and values that must fit together."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ..errors import NoEffectError, UsageError
from . import Config, RunConfig
from .foreign_names import meant
from .labelled_checks import check_labelled
from .setting import fault, same
from .settings import (
    as_text,
    by_name,
    default,
    defaults,
    fields,
    from_names,
    is_whole_number,
    tasks_of,
    typed_value,
    windows,
)
from .subword_checks import check_subwords
from .vocabulary_checks import check_vocabulary

# Losses whose gradients are computed and applied block by block.
_STREAMED = (
    *("auto", "softmax", "class_softmax", "hierarchical_softmax", "adaptive_softmax", "one_vs_all"),
)


def check(config: Config, needs_workdir: bool = True) -> None:
    """Raise UsageError unless every value is allowed and all values fit together.

    Args:
        config: The settings of a run.
        needs_workdir: Whether an empty `--workdir` is an error.

    Raises:
        UsageError: A value or a combination of values is not possible.
        NoEffectError: A value has no effect beside another one.
    """
    values = by_name(config)
    for name, field in fields().items():
        _check_setting(name, field, values)
    _check_batch(config)
    if config.run.strategy != "none":
        _check_strategy(config)
    if config.table.is_dynamic and config.run.task in ("words", "language_model"):
        _check_dynamic(values)
    if config.run.task == "words":
        check_subwords(config.model)
    if config.run.task == "classify":
        check_labelled(config.labelled, config.corpus.text_column)
    if config.run.task == "recommend":
        temperature = fields()["temperature"]
        usual = temperature.default, *temperature.metadata["former"]
        _check_recommend(config, values["temperature"] not in usual)
    _check_table_and_input(config)
    check_vocabulary(config)
    windows(config.run.profile_steps)
    if 0 < config.run.profile_on_slow <= 1:
        raise UsageError(
            f"--profile_on_slow={config.run.profile_on_slow}: give more than 1, or 0 for none"
        )
    if needs_workdir:
        check_workdir(config.run)


def check_workdir(settings: RunConfig) -> None:
    """Raise UsageError if `--workdir` is empty, unless `--plan_only` is given.

    Args:
        settings: How to run.
    """
    if not (settings.workdir or settings.plan_only):
        raise UsageError("--workdir= is empty; name a folder for the run, such as data/runs/words")


def check_fixed(stored: Mapping[str, Any], config: Config) -> None:
    """Raise UsageError if a setting has changed that is fixed for a workdir.

    Args:
        stored: Flag name -> value in the workdir, also as text. A missing flag had its default.
        config: The settings of this run.

    Raises:
        UsageError: A fixed setting has changed that has an effect beside the others.
    """
    values = by_name(config)
    for name, field in fields().items():
        other, *known = field.metadata["only"] or (name, values[name])
        has_effect = field.metadata["fixed"] and values[other] in known
        former = stored.get(name, default(field, values) if stored else values[name])
        if has_effect and not same(field, as_text(former), as_text(values[name])):
            made = f"with {former}; give that, or"
            if not as_text(former):
                made = "without it; leave it out, or give"
            run = f"--workdir={values['workdir']} was made {made} a new --workdir"
            raise UsageError(f"--{name}={values[name]}: {run}")


def make_config(values: Mapping[str, Any]) -> Config:
    """Make and check the configuration of a run for `training.run.train_and_evaluate`.

    Args:
        values: Flag name -> value, without --workdir. A setting that is missing has its default
            for the task.

    Raises:
        UsageError: A name, a value or its type is not allowed, or values do not fit together.
    """
    known = fields()
    unknown = sorted(values.keys() - known.keys())
    if unknown:
        remedy = meant(unknown[0], known).replace("--", "")
        remedy = remedy or "`lexrow train --help` lists them"
        raise UsageError(f"{unknown[0]!r} is no setting; {remedy}")
    given = {name: typed_value(name, value) for name, value in values.items()}
    config = from_names(defaults(given) | given)
    check(config, needs_workdir=False)
    return config


def _has_token_rows(config: Config) -> bool:
    """Return whether the task makes batches of rows of `--row_tokens` tokens."""
    return config.run.task in fields()["row_tokens"].metadata["only"]


def _check_batch(config: Config) -> None:
    """Raise UsageError if a batch cannot be divided, or its gradients cannot be clipped at once."""
    if _has_token_rows(config) and config.input.batch_tokens % config.input.row_tokens:
        raise UsageError(
            f"--batch_tokens={config.input.batch_tokens} is no multiple of "
            f"--row_tokens={config.input.row_tokens}; change one of them"
        )
    check_micro_batches(config)
    if config.optimizer.clip_global_norm and config.model.loss in _STREAMED:
        raise UsageError(
            f"--clip_global_norm={config.optimizer.clip_global_norm} needs all gradients of a step "
            f"at once, but --loss={config.model.loss} computes them block by block; give "
            "--clip_row_norm, or another --loss"
        )


def _check_table_and_input(config: Config) -> None:
    """Raise UsageError if a flag of the tables, the vocabulary or the input is not possible."""
    hot_rows = config.table.hot_rows
    if hot_rows != "auto" and not is_whole_number(hot_rows):
        raise UsageError(f"--hot_rows={hot_rows}: give a number of rows, or `auto`")
    check_score_users(config.ratings.score_users)
    if config.run.task == "language_model" and config.vocabulary.max_vocab_size in (1, 2):
        raise UsageError(
            f"--max_vocab_size={config.vocabulary.max_vocab_size}: a language model has <unk> and "
            "<eos> among them; give at least 3"
        )
    if config.input.map_parallelism == 0:
        raise UsageError("--map_parallelism=0: give at least 1, or -1")


def check_score_users(text: str) -> None:
    """Raise UsageError if a value of --score_users is not allowed.

    Args:
        text: The value.

    Raises:
        UsageError: It is no number above 0, `all` or `auto`.
    """
    if text not in ("auto", "all") and (not is_whole_number(text) or not int(text)):
        raise UsageError(f"--score_users={text}: give a number of users, `all` or `auto`")


def _check_setting(name: str, field: dataclasses.Field, values: dict[str, Any]) -> None:
    """Raise UsageError if a value is not allowed, NoEffectError if it has no effect here.

    Defaults, also earlier ones, are always allowed. A choice of another task raises NoEffectError.
    """
    value, task = values[name], values["task"]
    usual = default(field, values)
    wrong = None if value == usual else fault(field, value)
    if wrong:
        raise UsageError(f"--{name}={value}: {wrong}")
    known = field.metadata["of_task"].get(task, ())
    if known and value not in known:
        message = f"--{name}={value}: not one of {', '.join(known)} for --task={task}"
        raise NoEffectError(name, "task", message)
    if field.metadata["only"] and value not in (usual, *field.metadata["former"]):
        other, *known = field.metadata["only"]
        if task not in tasks_of(field):  # although the other flag may have its default there
            other, known = "task", tasks_of(field)
        if values[other] not in known:
            possible = ", ".join(map(as_text, known))
            message = f"means nothing to --{other}={values[other]}, only to {possible}"
            raise NoEffectError(name, other, f"--{name}={value} {message}; leave it out")


def check_micro_batches(config: Config) -> None:
    """Check that a batch can be divided into `--micro_batches` equal parts of whole groups.

    Args:
        config: The settings of a run.

    Raises:
        UsageError: The batch cannot be divided, or --group_tokens does not divide a part. For
            --task=classify only a number above --batch_tokens is refused.
    """
    settings = config.input
    micro = max(1, settings.micro_batches)
    has_rows = _has_token_rows(config)
    unit = settings.row_tokens if has_rows else 1
    if micro > (most := settings.batch_tokens):
        raise UsageError(f"--micro_batches={micro}: give at most --batch_tokens={most}")
    if config.run.task != "classify" and settings.batch_tokens % (micro * unit):
        raise UsageError(
            f"--batch_tokens={settings.batch_tokens} is no multiple of {micro * unit}, which is "
            f"--micro_batches={micro}{f' rows of --row_tokens={unit}' if has_rows else ''}; change "
            "one of them"
        )
    shared = has_rows and config.model.loss == "negative_sampling"
    group = config.model.centres_of_group
    if shared and settings.micro_tokens % group:
        batch = f"--batch_tokens={settings.batch_tokens}"
        batch += f" over --micro_batches={micro}" if micro > 1 else ""
        raise UsageError(f"--group_tokens={group} does not divide {batch}; change one of them")


def _check_strategy(config: Config) -> None:
    """Raise UsageError if a flag does not fit a strategy of several replicas or servers."""
    strategy, classes_over = config.run.strategy, config.model.class_devices
    possible, storage = ["device"], "a copy of the tables on every device"
    if strategy == "parameter_server":
        possible = ["device", "sharded"]
        storage = "the tables in the memory of its servers, a row for each id"
    if config.table.table not in possible:
        raise UsageError(
            f"--table={config.table.table}: --strategy={strategy} keeps {storage}; give "
            "--table=device, or another --strategy"
        )
    if classes_over > 1:
        raise NoEffectError(
            "class_devices",
            "strategy",
            f"--class_devices={classes_over} divides classes over local devices, but "
            f"--strategy={strategy} keeps {storage}; leave out one of the two",
        )
    steps, call = config.run.sync_steps, config.input.steps_per_call
    if steps > 1 and steps % call:
        raise UsageError(
            f"--sync_steps={steps} is no multiple of --steps_per_call={call}; give "
            f"{-(-steps // call) * call}, or 1"
        )
    if config.run.device and strategy == "mirrored":
        raise NoEffectError(
            "device",
            "strategy",
            f"--device={config.run.device}: --strategy=mirrored trains on all local devices; "
            "leave it out (CUDA_VISIBLE_DEVICES=0,1 names the GPUs to use)",
        )


def _check_recommend(config: Config, has_temperature: bool) -> None:
    """Raise NoEffectError if a --temperature is given but the model has no cosines."""
    if has_temperature and not (config.ratings.cosine and config.model.model == "mf"):
        raise NoEffectError(
            "temperature",
            "cosine" if config.model.model == "mf" else "model",
            f"--temperature={config.ratings.temperature} divides cosines, which only "
            "--model=mf with --cosine computes; leave it out",
        )


def _check_dynamic(values: dict[str, Any]) -> None:
    """Raise UsageError for a flag that needs a counted vocabulary, or a --min_count above 255."""
    for name, allowed, *also in (
        ("task", "words"),
        ("loss", "negative_sampling"),
        ("max_ngram", 0),
        ("vocab", ""),
        ("cache", "none", "auto"),
        ("phrases", 0),
    ):
        if values[name] not in (allowed, *also):
            message = (
                f"--{name}={values[name]} needs a vocabulary, and --table=dynamic has none; "
                f"give --{name}={allowed}, or another --table"
            )
            # With another task or loss, a flagfile would describe another model.
            if name in ("task", "loss", "max_ngram"):
                raise UsageError(message)
            raise NoEffectError(name, "table", message)
    if values["min_count"] > 255:
        raise UsageError(
            f"--min_count={values['min_count']}: --table=dynamic counts words without a row up to "
            "255; give at most 255"
        )
