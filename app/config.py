"""Every setting of a run: frozen dataclasses, one per concern, and their cross-checks.

A field is a flag: `app.flags` turns its name, type, default and help into an absl flag, so that a
new setting is one new field here. Standard library only, so that any layer may import it.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from app.errors import UsageError


def setting(
    default: Any,
    help: str,
    choices: tuple[str, ...] = (),
    minimum: float | None = None,
    fixed: bool = False,
) -> Any:
    """A dataclass field that doubles as a flag.

    choices, minimum: what `check` holds the value to. fixed: whether the value gives a meaning to
    what a workdir stores, so that a run cannot be resumed with another one.
    """
    metadata = {"help": help, "choices": choices, "minimum": minimum, "fixed": fixed}
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class CorpusConfig:
    """Which text is read, and what a token of it is."""

    corpus: str = setting(
        "docstrings",
        "Comma-separated files and globs (.gz, .bz2 and .xz too), or `docstrings`, "
        "`docstrings:package,package`, or `text8`.",
    )
    documents: str = setting(
        "line",
        "What bounds a document; no window crosses a boundary. `line`: every line is a document. "
        "`file` and `none`: windows cross line ends, and stop at the end of a file. A block of "
        "text (--block_bytes) ends a document in any case.",
        choices=("line", "file", "none"),
        fixed=True,
    )
    tokenizer: str = setting(
        "whitespace",
        "`whitespace` splits at white space; `unicode` normalises (NFKC) and splits at white "
        "space, punctuation and changes of script.",
        choices=("whitespace", "unicode"),
        fixed=True,
    )
    fold_case: bool = setting(True, "Fold case (tokenizer `unicode` only).", fixed=True)
    drop_punctuation: bool = setting(
        True, "Drop punctuation tokens (tokenizer `unicode` only).", fixed=True
    )
    drop_numbers: bool = setting(
        False, "Drop tokens of digits (tokenizer `unicode` only).", fixed=True
    )
    invalid_utf8: str = setting(
        "replace",
        "Bytes that are not UTF-8: `replace` them by U+FFFD and say how many, or stop (`error`).",
        choices=("replace", "error"),
        fixed=True,
    )
    data_dir: str = setting("data/raw", "Where downloads and extracted docstrings are kept.")


@dataclasses.dataclass(frozen=True)
class VocabularyConfig:
    """Which tokens get a row."""

    vocab: str = setting("", "A vocab.tsv to take the tokens from.", fixed=True)
    min_count: int = setting(5, "Drop tokens seen fewer times than this.", minimum=1, fixed=True)
    max_vocab_size: int = setting(
        0, "Keep at most this many tokens; 0 keeps all.", minimum=0, fixed=True
    )
    vocab_memory_entries: int = setting(
        50_000_000,
        "While counting, drop the rarest tokens whenever more distinct ones than this are held.",
        minimum=1000,
    )


@dataclasses.dataclass(frozen=True)
class InputConfig:
    """How text becomes batches of token ids."""

    subsample: float = setting(
        1e-3,
        "Frequent tokens are dropped at random above this share of the corpus; 0 keeps all.",
        minimum=0,
        fixed=True,
    )
    batch_tokens: int = setting(4096, "Centre tokens of a step.", minimum=1, fixed=True)
    row_tokens: int = setting(32, "Centre tokens of a row.", minimum=1, fixed=True)
    steps_per_call: int = setting(
        16, "Steps that one call of the compiled function makes.", minimum=1, fixed=True
    )
    shuffle: bool = setting(
        True,
        "Shuffle the rows of a block of text, so that a batch is not all from one document.",
        fixed=True,
    )
    cache: str = setting(
        "none",
        "Where token ids are kept between epochs, so that text is tokenised once: `memory`, "
        "`disk` (in the workdir) or `none`.",
        choices=("none", "memory", "disk"),
    )
    block_bytes: int = setting(
        2 << 20,
        "Text is read, tokenised and shuffled in blocks of so many bytes.",
        minimum=1024,
        fixed=True,
    )
    readers: int = setting(4, "Files read at a time.", minimum=1, fixed=True)
    map_parallelism: int = setting(-1, "Blocks tokenised at a time; -1: automatic.", minimum=-1)
    prefetch: int = setting(-1, "Batches made ahead of the step; -1: automatic.", minimum=-1)


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """What is learned."""

    model: str = setting(
        "skipgram",
        "`skipgram` predicts the context of a word, `cbow` a word from its context.",
        choices=("skipgram", "cbow"),
        fixed=True,
    )
    loss: str = setting(
        "negative_sampling",
        "How the other words of the vocabulary enter the loss.",
        choices=("negative_sampling",),
        fixed=True,
    )
    dim: int = setting(100, "Columns of a vector.", minimum=1, fixed=True)
    window: int = setting(
        5, "Context tokens on each side at most; drawn from 1..window.", minimum=1, fixed=True
    )
    negatives: int = setting(
        5, "Weight of the negative samples: as of so many a pair.", minimum=1, fixed=True
    )
    shared_negatives: int = setting(
        64, "Negative samples drawn for each group of centres.", minimum=1, fixed=True
    )
    group_tokens: int = setting(
        256, "Centre tokens that share their negative samples.", minimum=1, fixed=True
    )
    negative_power: float = setting(
        0.75, "Negatives are drawn in proportion to count ** this.", minimum=0, fixed=True
    )
    compute_dtype: str = setting(
        "auto",
        "Arithmetic of the matrix products: `auto` is bfloat16 where the processor has it.",
        choices=("auto", "float32", "bfloat16"),
        fixed=True,
    )


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
    """How a row changes."""

    optimizer: str = setting(
        "rowwise_adagrad",
        "The rule that updates rows.",
        choices=("sgd", "adagrad", "rowwise_adagrad"),
        fixed=True,
    )
    learning_rate: float = setting(
        0.0, "Rate at the start, falling to 0 linearly; 0 takes the optimizer's own.", minimum=0
    )
    initial_accumulator: float = setting(
        0.1, "What the accumulators of Adagrad start from.", minimum=1e-30, fixed=True
    )


@dataclasses.dataclass(frozen=True)
class TableConfig:
    """Where rows live."""

    table: str = setting(
        "device", "`device` keeps rows in the memory of the device.", choices=("device",)
    )
    table_dtype: str = setting(
        "float32",
        "Storage of the rows; arithmetic is float32.",
        choices=("float32",),
        fixed=True,
    )


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """The run itself."""

    workdir: str = setting("", "Where everything about the run is kept; run again to resume.")
    task: str = setting("words", "What is trained.", choices=("words",), fixed=True)
    epochs: int = setting(5, "Passes over the corpus.", minimum=1)
    seed: int = setting(1, "All random draws are functions of this and of the step.", fixed=True)
    device: str = setting("", "Such as `GPU:0` or `CPU:0`; the first GPU, if any, by default.")
    strategy: str = setting("none", "Distribution over devices.", choices=("none",))
    intra_op_threads: int = setting(
        0, "Threads within an operation; 0 chooses by the number of cores.", minimum=0
    )
    log_seconds: float = setting(10.0, "Seconds between two logged steps.", minimum=0)
    checkpoint_minutes: float = setting(10.0, "Minutes between two checkpoints.", minimum=0)
    keep_checkpoints: int = setting(3, "Newest checkpoints that are kept.", minimum=1)
    profile_steps: str = setting(
        "", "START,STOP: record a profile for TensorBoard between these two steps."
    )
    plan_only: bool = setting(False, "Print what would be trained, with its bytes, and stop.")


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything about a training run."""

    corpus: CorpusConfig = CorpusConfig()
    vocabulary: VocabularyConfig = VocabularyConfig()
    input: InputConfig = InputConfig()
    model: ModelConfig = ModelConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    table: TableConfig = TableConfig()
    run: RunConfig = RunConfig()


def settings(config: Config) -> dict[str, Any]:
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


def from_settings(values: dict[str, Any]) -> Config:
    """The inverse of `settings`; a name that is missing takes its default."""
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


def check(config: Config) -> None:
    """Raises UsageError for the first value, or combination of values, that cannot be."""
    for name, field in fields().items():
        value = settings(config)[name]
        choices, minimum = field.metadata["choices"], field.metadata["minimum"]
        if choices and value not in choices:
            raise UsageError(f"--{name}={value}: not one of {', '.join(choices)}")
        if minimum is not None and not value >= minimum:
            raise UsageError(f"--{name}={value}: give at least {minimum:g}")
    if config.input.batch_tokens % config.input.row_tokens:
        raise UsageError(
            f"--batch_tokens={config.input.batch_tokens} is no multiple of "
            f"--row_tokens={config.input.row_tokens}; change one of them"
        )
    if config.input.batch_tokens % config.model.group_tokens:
        raise UsageError(
            f"--group_tokens={config.model.group_tokens} does not divide "
            f"--batch_tokens={config.input.batch_tokens}; change one of them"
        )
    if not 0 <= config.run.seed < 2**31:
        raise UsageError(f"--seed={config.run.seed}: give a number from 0 to {2**31 - 1}")
    if config.input.map_parallelism == 0:
        raise UsageError("--map_parallelism=0: give at least 1, or -1")
    window = config.run.profile_steps
    if window:
        start, _, stop = window.partition(",")
        if not (start.isdecimal() and stop.isdecimal() and int(start) < int(stop)):
            raise UsageError(f"--profile_steps={window}: give START,STOP such as 100,200")
    if not config.run.workdir and not config.run.plan_only:
        raise UsageError("--workdir= is empty; name a folder for the run, such as data/runs/words")


def changed(stored: dict[str, Any], wanted: dict[str, Any]) -> str | None:
    """The first flag that differs and is fixed for the life of a workdir, or None."""
    for name, field in fields().items():
        if field.metadata["fixed"] and name in stored and stored[name] != wanted[name]:
            return name
    return None
