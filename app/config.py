"""Every setting of a run: frozen dataclasses, one per concern.

A field is a flag: `app.flags` turns its name, type, default and help into an absl flag, so that a
new setting is one new field here. Standard library only, so that any layer may import it.
"""

from __future__ import annotations

import dataclasses
from typing import Any


def setting(
    default: Any,
    help: str,
    choices: tuple[str, ...] = (),
    minimum: float | None = None,
    fixed: bool = False,
    only: tuple[str, ...] = (),
) -> Any:
    """A dataclass field that doubles as a flag.

    choices, minimum: what `settings.check` holds the value to. fixed: whether the value gives a
    meaning to what a workdir stores, so that a run cannot be resumed with another one. only: the
    name of another setting, and the values of it for which this one means anything.
    """
    metadata = {"help": help, "choices": choices, "minimum": minimum, "fixed": fixed, "only": only}
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


_MOMENTUM = ("optimizer", "momentum")
_ADAM = ("optimizer", "lazy_adam", "lazy_adamw")
_FTRL = ("optimizer", "ftrl")


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
    """How a row changes."""

    optimizer: str = setting(
        "rowwise_adagrad",
        "The rule that updates rows.",
        choices=(
            "sgd",
            "momentum",
            "adagrad",
            "rowwise_adagrad",
            "ftrl",
            "lazy_adam",
            "lazy_adamw",
        ),
        fixed=True,
    )
    learning_rate: float = setting(
        0.0, "The greatest learning rate; 0 takes the optimizer's own.", minimum=0
    )
    schedule: str = setting(
        "linear",
        "How the rate goes on from its greatest: `constant`, or to 0 as a straight line or a "
        "cosine.",
        choices=("constant", "linear", "cosine"),
    )
    warmup: float = setting(
        0.0, "Share of the training in which the rate first rises from 0, below 1.", minimum=0
    )
    clip_row_norm: float = setting(
        0.0, "The greatest L2 norm that a row's gradient may have; 0 does not clip.", minimum=0
    )
    clip_global_norm: float = setting(
        0.0,
        "The greatest L2 norm that all gradients of a step together may have; 0 does not clip.",
        minimum=0,
    )
    initial_accumulator: float = setting(
        0.1,
        "Where the accumulators of Adagrad and FTRL start.",
        minimum=1e-30,
        fixed=True,
        only=("optimizer", "adagrad", "rowwise_adagrad", "ftrl"),
    )
    momentum: float = setting(
        0.9, "Share of its velocity that a row keeps.", minimum=0, only=_MOMENTUM
    )
    nesterov: bool = setting(False, "Nesterov's momentum.", only=_MOMENTUM)
    beta_1: float = setting(0.9, "Decay of the first moment of Adam.", minimum=0, only=_ADAM)
    beta_2: float = setting(0.999, "Decay of the second moment of Adam.", minimum=0, only=_ADAM)
    epsilon: float = setting(
        1e-7, "Added to the root of the second moment of Adam.", minimum=1e-30, only=_ADAM
    )
    correct_skipped: bool = setting(
        False,
        "Decay the moments of a row by the steps in which it was not touched.",
        fixed=True,
        only=_ADAM,
    )
    weight_decay: float = setting(
        0.004,
        "Share of itself, times the learning rate, that a row loses in a step that touches it.",
        minimum=0,
        only=("optimizer", "lazy_adamw"),
    )
    l1: float = setting(
        0.0,
        "Strength of FTRL's L1 penalty, which makes numbers exactly 0 (lambda_1 of the paper).",
        minimum=0,
        fixed=True,
        only=_FTRL,
    )
    l2: float = setting(
        0.0,
        "Strength of FTRL's L2 penalty, which shrinks numbers (lambda_2 of the paper).",
        minimum=0,
        only=_FTRL,
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
    audit: bool = setting(
        True, "At the start, look for operations of the step that touch a whole table, and warn."
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
