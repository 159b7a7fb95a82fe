"""The checks of settings: each value by itself, and values that must fit together."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

from absl import logging

from ..errors import NoEffectError, UsageError
from . import Config, RunConfig, flag_values
from .config import windows
from .flag_values import meant
from .setting import as_text, fault, is_whole_number

# Losses whose gradients are computed and applied block by block.
_STREAMED = (
    *("auto", "softmax", "class_softmax", "hierarchical_softmax", "adaptive_softmax", "one_vs_all"),
)
_NEURAL = "the neural recommenders are gone; leave it out"
# Values that people give who know an earlier version or the names of the flags, and the remedy.
_NO_CHOICES = {
    **{("model", name): _NEURAL for name in flag_values.GONE_MODELS},
    ("table", "file"): "a file stores the rows of --table=host; give --table=host and "
    "--table_file=FILE",
}
# By task, the end of the name of a function of Python, if it is another one.
_FUNCTIONS = {"classify": "classifier", "recommend": "recommender"}


def check(config: Config) -> None:
    """Raise UsageError unless every value is allowed and all values fit together.

    Raises:
        UsageError: A value or a combination of values is not possible.
        NoEffectError: A value has no effect beside another one.
    """
    values = flag_values.by_name(config)
    for name, field in flag_values.fields_of(type(config)).items():
        _check_setting(name, field, values, type(config))
    _check_batch(config)
    if config.run.strategy != "none":
        _check_strategy(config)
    _check_table(config)
    config.check()
    if config.input.map_parallelism == 0:
        raise UsageError("--map_parallelism=0: give at least 1, or -1")
    windows(config.run.profile_steps)


def check_workdir(settings: RunConfig) -> None:
    """Raise UsageError if `--workdir` is empty, unless `--plan_only` is given."""
    if not (settings.workdir or settings.plan_only):
        raise UsageError("--workdir= is empty; name a folder for the run, such as data/runs/words")


def check_fixed(stored: Mapping[str, Any], config: Config) -> None:
    """Raise UsageError if a setting has changed that is fixed for a workdir.

    Args:
        stored: Flag name -> value in the workdir; empty for a new one. A missing flag had its
            default.
        config: The settings of this run.

    Raises:
        UsageError: A fixed setting has changed that has an effect beside the others.
    """
    values = flag_values.by_name(config)
    former = {**flag_values.defaults(values), **stored} if stored else values
    for name, field in flag_values.fields_of(type(config)).items():
        is_same = former[name] == values[name] or not field.metadata["fixed"]
        # After a search for settings, no text is held out.
        is_same = is_same or (name == "heldout_share" and values.get("tune_seconds"))
        if not is_same and not flag_values.lacking(name, values):
            made = f"with {as_text(former[name])}; give that, or"
            if former[name] == "":
                made = "without it; leave it out, or give"
            run = f"--workdir={values['workdir']} was made {made} a new --workdir"
            raise UsageError(f"--{name}={as_text(values[name])}: {run}")


def make_config(values: Mapping[str, Any]) -> Config:
    """Make and check the configuration of a run for `training.run.train_and_evaluate`.

    Args:
        values: Flag name -> value, without --workdir. A setting that is missing has its default
            for the task.

    Raises:
        UsageError: A name, a value or its type is not allowed, or values do not fit together.
    """
    given = typed_values(values, values.get("task", "words"))
    return combine(given, {}, given.keys())


def typed_values(values: Mapping[str, Any], task: str) -> dict[str, Any]:
    """Return settings of a program for a task, each in the type of its flag.

    Raises:
        UsageError: There is no such setting, or a value has another type.
    """
    known = flag_values.fields()
    unknown = sorted(values.keys() - known.keys())
    if unknown:
        remedy = flag_values.GONE.get(unknown[0]) or meant(unknown[0], known)
        remedy = remedy.replace("--", "")
        remedy = remedy or f"help(lexrow.train_{_FUNCTIONS.get(task, task)}) lists them"
        raise UsageError(f"{unknown[0]!r} is no setting; {remedy}")
    return {name: flag_values.typed_value(name, value) for name, value in values.items()}


def combine(given: Mapping[str, Any], stored: Mapping[str, Any], typed: Collection[str]) -> Config:
    """Return the checked settings of a run: those given, then those stored, then the defaults.

    Settings that have no effect beside the others are left out if they are stored, or, with a log
    message, if they are given but not typed, as those of a flagfile.

    Args:
        given: Flag name -> value.
        stored: Flag name -> value in the workdir; empty for a new one.
        typed: The names of `given` that must have an effect.

    Raises:
        UsageError: A value is not allowed, or does not fit the data in the workdir.
    """
    task = given.get("task", stored.get("task", "words"))
    # Settings of another task may not be allowed; `check_fixed` then names the task.
    kept = dict(stored) if stored.get("task", task) == task else {}
    given = dict(given)
    while True:
        values = {"task": task} | kept | given
        config = flag_values.from_names(flag_values.defaults(values) | values)
        try:
            check_names({"task": task} | given)
            check(config)
            break
        except NoEffectError as error:
            # Without its --loss, a flagfile would describe another model.
            is_choice = error.flag in flag_values.task_of(values).choices
            if error.flag in typed or (is_choice and "task" not in typed):
                raise
            if error.flag in given:
                logging.info("ignored in the flagfile: %s", error)
            given.pop(error.flag, None)
            kept.pop(error.flag, None)
    check_fixed(stored, config)
    return config


def check_names(values: Mapping[str, Any]) -> None:
    """Raise NoEffectError if the task does not have one of the flags that are given."""
    flags = flag_values.fields_of(flag_values.task_of(values))
    flags_of = {task: flag_values.fields_of(kind) for task, kind in flag_values.TASKS.items()}
    for name in values.keys() - flags.keys():
        others = ", ".join(task for task, known in flags_of.items() if name in known)
        remedy = meant(name, flags) or "leave it out"
        given, task = f"--{name}={as_text(values[name])}", values.get("task", "words")
        if flag_values.is_gone(name, values[name]):
            raise UsageError(f"{given}: {_NEURAL}")
        message = f"{given}: --task={task} has no such flag, only {others}; {remedy}"
        raise NoEffectError(name, message)


def _check_setting(
    name: str, field: dataclasses.Field, values: Mapping[str, Any], task: type[Config]
) -> None:
    """Raise UsageError if a value is not allowed, NoEffectError if it has no effect here.

    Defaults are allowed without an effect.
    """
    value = values[name]
    wrong = _NO_CHOICES.get((name, value)) or fault(field, value)
    if wrong and name in task.choices:  # another task may have it
        raise NoEffectError(name, f"--{name}={value}: {wrong} for --task={values['task']}")
    if wrong:
        raise UsageError(f"--{name}={value}: {wrong}")
    other = flag_values.lacking(name, values)
    if other and value != flag_values.defaults(values)[name]:
        possible = ", ".join(flag_values.needed(name, other, flag_values.fields_of(task)))
        message = f"means nothing to --{other}={as_text(values[other])}, only to {possible}"
        raise NoEffectError(name, f"--{name}={value} {message}; leave it out")


def _check_batch(config: Config) -> None:
    """Raise UsageError if a batch cannot be divided, or its gradients cannot be clipped at once."""
    check_micro_batches(config)
    if config.optimizer.clip_global_norm and config.model.loss in _STREAMED:
        raise UsageError(
            f"--clip_global_norm={config.optimizer.clip_global_norm} needs all gradients of a step "
            f"at once, but --loss={config.model.loss} computes them block by block; give "
            "--clip_row_norm, or another --loss"
        )


def _check_table(config: Config) -> None:
    """Raise UsageError if a flag of the tables, or of a vocabulary that grows, is not possible."""
    hot_rows, table = config.table.hot_rows, config.table
    if hot_rows != "auto" and not is_whole_number(hot_rows):
        raise UsageError(f"--hot_rows={hot_rows}: give a number of rows, or `auto`")
    if not config.vocabulary.grow_vocab:
        return
    remedy = "cannot grow by more text; give --nogrow_vocab, or train in a new workdir"
    if table.table_file:
        raise UsageError(f"--table_file={table.table_file}: a table in a file {remedy}")
    if table.is_dynamic:
        raise UsageError(f"--table={table.table}: a table that gets rows as keys come {remedy}")
    if config.run.strategy != "none":
        raise UsageError(f"--strategy={config.run.strategy}: tables of several processes {remedy}")


def check_micro_batches(config: Config) -> None:
    """Check that a batch can be divided into `--micro_batches` equal parts of whole pools.

    Raises:
        UsageError: The batch cannot be divided, or --group_tokens does not divide a part. For
            --task=classify only a number above --batch_tokens is refused.
    """
    settings = config.input
    micro = max(1, settings.micro_batches)
    has_rows = "row_tokens" in flag_values.fields_of(type(config))
    unit = settings.row_tokens if has_rows else 1
    if micro > (most := settings.batch_tokens):
        raise UsageError(f"--micro_batches={micro}: give at most --batch_tokens={most}")
    if config.run.task != "classify" and most % (micro * unit):
        parts = [f"--micro_batches={micro}"] * (micro > 1) + [f"--row_tokens={unit}"] * has_rows
        raise UsageError(
            f"--batch_tokens={most} is no multiple of {' times '.join(parts)}; change one of them"
        )
    shared = has_rows and config.model.loss == "negative_sampling"
    centres = config.model.pool_centres
    if shared and settings.micro_tokens % centres:
        batch = f"--batch_tokens={settings.batch_tokens}"
        batch += f" over --micro_batches={micro}" if micro > 1 else ""
        raise UsageError(f"--group_tokens={centres} does not divide {batch}; change one of them")


def _check_strategy(config: Config) -> None:
    """Raise UsageError if a flag does not fit a strategy of several replicas."""
    if config.table.table != "device":
        raise UsageError(
            f"--table={config.table.table}: --strategy={config.run.strategy} keeps a copy of the "
            "tables on every device; give --table=device, or another --strategy"
        )
    steps, call = config.run.sync_steps, config.input.steps_per_call
    if steps > 1 and steps % call:
        raise UsageError(
            f"--sync_steps={steps} is no multiple of --steps_per_call={call}; give "
            f"{-(-steps // call) * call}, or 1"
        )
