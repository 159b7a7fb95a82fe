"""Settings by name: from flags to dataclasses and back, and the checks across them."""

from __future__ import annotations

import dataclasses
from typing import Any

from ..errors import UsageError
from . import Config
from .addresses import is_address
from .setting import fault

# Ids are numbers of 32 bits, in files and in tensors.
MOST_ROWS = 2**31 - 1


def by_name(config: Config) -> dict[str, Any]:
    """Every setting by its flag's name, in the order of the dataclasses."""
    return {
        field.name: getattr(part, field.name)
        for part in vars(config).values()
        for field in dataclasses.fields(part)
    }


def fields() -> dict[str, dataclasses.Field]:
    """The field behind every flag, by name."""
    parts = [field.default for field in dataclasses.fields(Config)]
    return {field.name: field for part in parts for field in dataclasses.fields(part)}


def default(field: dataclasses.Field, task: str) -> Any:
    """The value of a flag that is not given, in a run of this --task."""
    return field.metadata["by_task"].get(task, field.default)


def from_names(values: dict[str, Any]) -> Config:
    """The inverse of `by_name`; a name that is missing takes its default."""
    return Config(
        **{
            part.name: type(part.default)(
                **{
                    field.name: values[field.name]
                    for field in dataclasses.fields(part.default)
                    if field.name in values
                }
            )
            for part in dataclasses.fields(Config)
        }
    )


class MeansNothing(UsageError):
    """A value that means nothing beside another one, each given by its flag's name."""

    def __init__(self, flag: str, beside: str, message: str):
        super().__init__(message)
        self.flag, self.beside = flag, beside


def check(config: Config, needs_workdir: bool = True) -> None:
    """Check every value, and those that have to go together.

    Raises:
        UsageError: A value, or a combination of values, cannot be.
        MeansNothing: A value means nothing beside another one.
    """
    values = by_name(config)
    for name, field in fields().items():
        _check_setting(name, field, values)
    texts = config.run.task in fields()["row_tokens"].metadata["only"]
    if texts and config.input.batch_tokens % config.input.row_tokens:
        raise UsageError(
            f"--batch_tokens={config.input.batch_tokens} is no multiple of "
            f"--row_tokens={config.input.row_tokens}; change one of them"
        )
    check_micro_batches(config)
    streams = ("softmax", "class_softmax", "hierarchical_softmax", "adaptive_softmax", "one_vs_all")
    if config.optimizer.clip_global_norm and config.model.loss in streams:
        raise UsageError(
            f"--clip_global_norm={config.optimizer.clip_global_norm} needs all gradients of a step "
            f"at once, and --loss={config.model.loss} has them block by block; give "
            "--clip_row_norm, or another --loss"
        )
    if config.run.strategy in ("mirrored", "multi_worker"):
        _check_replicas(config)
    if config.run.strategy == "parameter_server":
        _check_servers(config)
    if config.table.table == "dynamic" and config.run.task in ("words", "language_model"):
        _check_dynamic(values)
    if config.run.task == "classify":
        _check_classify(config)
    if config.run.task == "recommend":
        _check_recommend(config, values["temperature"] != fields()["temperature"].default)
    hot_rows = config.table.hot_rows
    if hot_rows != "auto" and not is_number(hot_rows):
        raise UsageError(f"--hot_rows={hot_rows}: give a number of rows, or `auto`")
    if config.run.task == "language_model" and config.vocabulary.max_vocab_size in (1, 2):
        raise UsageError(
            f"--max_vocab_size={config.vocabulary.max_vocab_size}: a language model has <unk> and "
            "<eos> among them; give at least 3"
        )
    if config.input.map_parallelism == 0:
        raise UsageError("--map_parallelism=0: give at least 1, or -1")
    if service_address(config.input.data_service) and config.input.cache != "none":
        raise MeansNothing(
            "cache",
            "data_service",
            f"--cache={config.input.cache} keeps what is tokenised here, and with --data_service="
            f"{config.input.data_service} nothing is; pass --cache=none, or --data_service=",
        )
    windows(config.run.profile_steps)
    if 0 < config.run.profile_on_slow <= 1:
        raise UsageError(
            f"--profile_on_slow={config.run.profile_on_slow}: give more than 1, or 0 for none"
        )
    if needs_workdir and not (config.run.workdir or config.run.plan_only):
        raise UsageError("--workdir= is empty; name a folder for the run, such as data/runs/words")


def _check_setting(name: str, field: dataclasses.Field, values: dict[str, Any]) -> None:
    """Check one value, and whether it means anything to the others."""
    value, task = values[name], values["task"]
    usual = default(field, task)
    wrong = None if value == usual else fault(field, value)
    if wrong:
        raise UsageError(f"--{name}={value}: {wrong}")
    known = field.metadata["of_task"].get(task, ())
    if known and value not in known:
        message = f"--{name}={value}: not one of {', '.join(known)} for --task={task}"
        raise MeansNothing(name, "task", message)
    if field.metadata["only"] and value != usual:
        other, *known = field.metadata["only"]
        if values[other] not in known:
            message = f"means nothing to --{other}={values[other]}, only to {', '.join(known)}"
            raise MeansNothing(name, other, f"--{name}={value} {message}; leave it out")


def check_micro_batches(config: Config) -> None:
    """Raises UsageError for a batch that does not come apart as --micro_batches has it."""
    settings = config.input
    micro = max(1, settings.micro_batches)
    texts = config.run.task in fields()["row_tokens"].metadata["only"]
    unit = settings.row_tokens if texts else 1
    if micro > (most := settings.batch_tokens):
        raise UsageError(f"--micro_batches={micro}: give at most --batch_tokens={most}")
    if config.run.task != "classify" and settings.batch_tokens % (micro * unit):
        raise UsageError(
            f"--batch_tokens={settings.batch_tokens} is no multiple of {micro * unit}, which is "
            f"--micro_batches={micro}{f' rows of --row_tokens={unit}' if texts else ''}; change "
            "one of them"
        )
    shared = texts and config.model.loss == "negative_sampling"
    if shared and settings.micro_tokens % config.model.group_tokens:
        what = f"--batch_tokens={settings.batch_tokens}"
        what += f" over --micro_batches={micro}" if micro > 1 else ""
        raise UsageError(
            f"--group_tokens={config.model.group_tokens} does not divide {what}; change one of them"
        )


def _check_replicas(config: Config) -> None:
    strategy = config.run.strategy
    if config.table.table != "device":
        raise UsageError(
            f"--table={config.table.table}: --strategy={strategy} keeps a copy of the tables on "
            "every device; give --table=device, or another --strategy"
        )
    if config.model.class_devices > 1:
        raise MeansNothing(
            "class_devices",
            "strategy",
            f"--class_devices={config.model.class_devices} deals the classes over the devices, and "
            f"--strategy={strategy} keeps a copy of them on each; leave out one of the two",
        )
    if config.run.device and strategy == "mirrored":
        raise MeansNothing(
            "device",
            "strategy",
            f"--device={config.run.device}: --strategy=mirrored trains on all that there are; "
            "leave it out (CUDA_VISIBLE_DEVICES=0,1 names the GPUs to use)",
        )


def _check_servers(config: Config) -> None:
    if config.table.table in ("host", "dynamic"):
        raise UsageError(
            f"--table={config.table.table}: --strategy=parameter_server keeps the tables in the "
            "memory of its servers, a row for each id; give --table=device, or another --strategy"
        )
    if config.model.class_devices > 1:
        raise MeansNothing(
            "class_devices",
            "strategy",
            f"--class_devices={config.model.class_devices} deals classes over local devices, and "
            "--strategy=parameter_server deals all rows over its servers; leave out one of the two",
        )


def _check_classify(config: Config) -> None:
    settings = config.labelled
    if bool(settings.text_column) != bool(settings.label_column):
        raise UsageError(
            f"--text_column={settings.text_column} --label_column={settings.label_column}: name "
            "both, or neither for lines of labels and text"
        )
    if settings.label_separator and not settings.label_column:
        raise UsageError(
            f"--label_separator={settings.label_separator} is of the cells of --label_column; name "
            "that, or leave it out"
        )


def _check_recommend(config: Config, has_temperature: bool) -> None:
    if has_temperature and not (config.ratings.cosine and config.model.model == "mf"):
        raise MeansNothing(
            "temperature",
            "cosine" if config.model.model == "mf" else "model",
            f"--temperature={config.ratings.temperature} divides cosines, which are of --model=mf "
            "with --cosine only; leave it out",
        )


def _check_dynamic(values: dict[str, Any]) -> None:
    for name, known in (
        ("task", "words"),
        ("loss", "negative_sampling"),
        ("vocab", ""),
        ("cache", "none"),
        ("data_service", ""),
    ):
        if values[name] != known:
            message = (
                f"--{name}={values[name]} needs a vocabulary, which --table=dynamic does without; "
                f"give --{name}={known}, or another --table"
            )
            # Without its task or its loss, a flagfile would be about another model.
            if name in ("task", "loss"):
                raise UsageError(message)
            raise MeansNothing(name, "table", message)
    if values["min_count"] > 255:
        raise UsageError(
            f"--min_count={values['min_count']}: --table=dynamic counts words without a row up to "
            "255; give at most that"
        )


def service_address(data_service: str) -> str:
    """The HOST:PORT of a --data_service; empty if there is none. UsageError if it is malformed."""
    address = data_service.removeprefix("grpc://")
    if data_service and not is_address(address):
        raise UsageError(f"--data_service={data_service}: give HOST:PORT such as 127.0.0.1:5050")
    return address


def is_number(text: str, most: int = MOST_ROWS) -> bool:
    """Return whether a text is a number of rows, steps or the like, from 0 on."""
    return text.isascii() and text.isdecimal() and len(text) < 20 and int(text) <= most


def numbers(text: str) -> list[int]:
    """Return the whole numbers that a checked text lists between commas."""
    return [int(item) for item in text.split(",") if item.strip()]


def windows(profile_steps: str) -> list[tuple[int, int]]:
    """The windows, (start, stop) steps, of a --profile_steps. UsageError if it is malformed."""
    steps = profile_steps.split(",") if profile_steps else []
    numbers = [int(step) for step in steps if is_number(step.strip())]
    rising = all(one < other for one, other in zip(numbers, numbers[1:], strict=False))
    if len(numbers) < len(steps) or len(steps) % 2 or not rising:
        raise UsageError(
            f"--profile_steps={profile_steps}: give START,STOP such as 100,200, or several in "
            "rising order, such as 100,200,900,1000"
        )
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def changed(stored: dict[str, Any], wanted: dict[str, Any]) -> str | None:
    """The first flag that differs and is fixed for the life of a workdir, or None."""
    for name, field in fields().items():
        if field.metadata["fixed"] and name in stored and stored[name] != wanted[name]:
            return name
    return None
