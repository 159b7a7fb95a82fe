"""The settings of the benchmarks: a dataclass a case, whose fields are flags of `app.bench`."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from ...config import setting
from ...config.setting import fault
from ...config.settings import MOST_ROWS, fields, is_number
from ...errors import UsageError


def _as_in_training(name: str) -> object:
    """A setting that both sides share: our trainer's flag of that name, its default included."""
    field = fields()[name]
    return dataclasses.field(default=field.default, metadata=field.metadata)


def _of_ours() -> object:
    return setting("", "More flags for our side, as on the command line of app.train.")


def _folder(what: str) -> str:
    return setting("", f"A folder in which to keep {what}.", path=True)


def _count(default: int, help: str, maximum: int = 1_000_000) -> int:
    return setting(default, help, minimum=1, maximum=maximum)


@dataclasses.dataclass(frozen=True)
class Options:
    """What every case can be told: how often, and where the results go."""

    repeats: int = _count(1, "Runs of each side; medians are reported.", 1000)
    json: str = setting("", "Write every number to this file.", path=True)
    plot: str = setting("", "Draw the comparison to this file (.png, .svg or .pdf).", path=True)


@dataclasses.dataclass(frozen=True)
class WordsOptions(Options):
    """Word vectors from text, beside gensim."""

    corpus: str = _as_in_training("corpus")
    model: str = _as_in_training("model")
    loss: str = setting(
        "negative_sampling",
        "How the other words enter the loss, for both sides.",
        choices=("negative_sampling", "hierarchical_softmax"),
    )
    dim: int = _as_in_training("dim")
    window: int = _as_in_training("window")
    epochs: int = _as_in_training("epochs")
    min_count: int = _as_in_training("min_count")
    peers: str = setting("gensim", "Comma-separated peers to run beside ours; empty runs none.")
    train_flags: str = _of_ours()
    keep: str = _folder("the vectors and logs of every run")


@dataclasses.dataclass(frozen=True)
class SparseOptions(Options):
    """One step of an embedding table, beside Keras."""

    optimizers: str = setting(
        "sgd,momentum,adagrad,rowwise_adagrad,ftrl,lazy_adam,lazy_adamw",
        "Comma-separated optimizers to compare; empty compares none.",
    )
    peers: str = setting(
        "hand,keras,keras_jit",
        "Comma-separated peers to run beside ours: a gather and scatter by hand, stock Keras, and "
        "stock Keras with jit_compile; empty runs none.",
    )
    # The sizes of keras issue 4365.
    rows: int = _count(793_471, "Rows of the table.", MOST_ROWS)
    dim: int = _count(512, "Columns of the table.")
    steps: int = _count(100, "Steps that are timed together; a slow side makes fewer.")
    vocabularies: str = setting(
        "100000,1000000,8000000",
        "Comma-separated numbers of rows (128 columns) between which our step is compared; empty "
        "compares none.",
    )


@dataclasses.dataclass(frozen=True)
class PipelineOptions(Options):
    """Input pipelines of a classifier and of text, and whether a training waits for them."""

    # The case that is often asked about has so many examples.
    examples: int = _count(10_000, "Examples of the classifier.", 10**9)
    example_epochs: int = setting(
        10,
        "Passes of the classifier over its examples; the first is not timed.",
        minimum=2,
        maximum=1_000_000,
    )
    corpus: str = _as_in_training("corpus")
    tokenizer: str = _as_in_training("tokenizer")
    min_count: int = _as_in_training("min_count")
    words: int = _count(2_000_000, "Words of the corpus that are turned into ids, at most.", 10**12)
    epochs: int = _as_in_training("epochs")
    train_flags: str = setting("", "More flags for the word trainer, as on its command line.")
    peers: str = setting(
        "naive,prefetch,parallel,generator,map",
        "Comma-separated peers to run beside ours: three ways to feed the classifier and two from "
        "text to ids; empty runs none.",
    )


@dataclasses.dataclass(frozen=True)
class SoftmaxOptions(Options):
    """One step of an output layer, loss by loss, as the vocabulary grows."""

    losses: str = setting(
        "softmax,sampled_softmax,nce,hierarchical_softmax,class_softmax,class_equal_size,"
        "class_equal_frequency,class_three_levels,adaptive_softmax",
        "Comma-separated losses to measure: those of --loss, and the class softmax with classes of "
        "the other rules or with three levels.",
    )
    peers: str = setting(
        "dense,copies",
        "Comma-separated peers to run beside ours: a dense full softmax, and a class softmax in "
        "which every target gathers its own copy of its class; empty runs none.",
    )
    vocabularies: str = setting(
        "10000,100000,1000000,10000000", "Comma-separated numbers of words, drawn by Zipf's law."
    )
    targets: str = setting("400,40000", "Comma-separated numbers of targets of a step.")
    dim: int = _count(300, "Hidden units.")
    compute_dtype: str = setting(
        "float32",
        "Arithmetic of our matrix products; that of peers is float32.",
        choices=("float32", "bfloat16"),
    )
    steps: int = _count(20, "Steps that are timed; a slow side makes fewer.")


@dataclasses.dataclass(frozen=True)
class TablesOptions(Options):
    """Steps of a table that lives in different places, beside what others do with a large one."""

    sides: str = setting(
        "device,host,disk,sharded,dynamic,bfloat16",
        "Comma-separated kinds of table to measure; empty measures none.",
    )
    peers: str = setting(
        "naive,torch",
        "Comma-separated peers to run beside ours: a table in numpy whose rows are moved at each "
        "step, and torch (where it is installed, with lazy_adam); empty runs none.",
    )
    optimizers: str = setting(
        "lazy_adam,rowwise_adagrad", "Comma-separated optimizers to measure them with."
    )
    hot_shares: str = setting(
        "1,10,50,100", "Comma-separated shares of the host table that stay on the device, per cent."
    )
    rows: int = _count(1_000_000, "Rows of the table.", MOST_ROWS)
    dim: int = _count(100, "Columns of the table.")
    ids: int = _count(4096, "Ids that a step looks up.", 2**24)
    steps: int = _count(200, "Steps that are timed together, rounded up to whole chunks.")
    stage_steps: int = _as_in_training("stage_steps")
    folder: str = setting(
        "",
        "Where the table in a file goes for the while; empty: where temporary files go.",
        path=True,
    )


@dataclasses.dataclass(frozen=True)
class ClassifyOptions(Options):
    """Labels of texts, beside fastText."""

    corpus: str = setting("", "Labelled texts, `__label__a the text` in each line.", path=True)
    labelled: str = setting(
        "",
        "Instead of --corpus: comma-separated LABEL:FILE, a file of texts for each label, one text "
        "a line.",
        path=True,
    )
    word_ngrams: str = setting("1,2", "Comma-separated lengths of the longest n-gram.")
    dim: int = _as_in_training("dim")
    epochs: int = _as_in_training("epochs")
    fasttext_rate: float = setting(
        0.5,
        "The learning rate of fastText: its own, 0.1, is too low for small sets (its tutorial "
        "takes 0.1 to 1).",
        minimum=1e-6,
        maximum=1e3,
    )
    peers: str = setting("fasttext", "Comma-separated peers to run beside ours; empty runs none.")
    train_flags: str = _of_ours()
    keep: str = _folder("the texts, predictions and logs of all runs")


@dataclasses.dataclass(frozen=True)
class RecommendOptions(Options):
    """Items for users, beside implicit."""

    corpus: str = setting("", "Pairs to train on, in any layout that app.train reads.", path=True)
    heldout: str = setting("", "Pairs to score on.", path=True)
    dim: int = _count(64, "Columns of a vector.")
    alpha: float = setting(
        10.0,
        "Confidence in a pair, of ALS: its own, 1, is far from the best (Hu et al. 2008 take 40).",
        minimum=0,
        maximum=1e6,
    )
    top: str = setting("10,20", "Comma-separated lengths k of the lists that are scored.")
    peers: str = setting("als,bpr", "Comma-separated peers to run beside ours; empty runs none.")
    train_flags: str = _of_ours()
    keep: str = _folder("the vectors and logs of all runs")


@dataclasses.dataclass(frozen=True)
class AdamOptions(Options):
    """Adam on the rows that a step touches, beside Adam on the whole table."""

    users: int = _count(5_000_000, "Rows of the users' table.", MOST_ROWS)
    dim: int = _count(64, "Columns of the tables.")
    pairs: int = _count(4096, "Pairs of a user and an item in a step.", 2**24)
    peers: str = setting(
        "dense,keras",
        "Comma-separated peers to run beside ours: TensorFlow's Adam with a dense gradient, and "
        "stock Keras; empty runs none.",
    )


@dataclasses.dataclass(frozen=True)
class ScalingOptions(Options):
    """The strategies of distribution beside one process, on this machine."""

    corpus: str = _as_in_training("corpus")
    dim: int = _as_in_training("dim")
    epochs: int = _as_in_training("epochs")
    min_count: int = _as_in_training("min_count")
    batch_tokens: int = _as_in_training("batch_tokens")
    workers: str = setting(
        "1,2", "Comma-separated numbers of processes that train; empty runs one process only."
    )
    servers: int = setting(
        2, "Parameter servers; 0 leaves --strategy=parameter_server out.", minimum=0, maximum=1000
    )
    vocabularies: str = setting(
        "100000,1000000,10000000",
        "Comma-separated numbers of rows between which the bytes that replicas exchange are "
        "compared; empty compares none.",
    )
    columns: int = _count(16, "Columns of those tables, of which each of two replicas has a copy.")
    modelled: str = setting(
        "2,4,8,16",
        "Comma-separated numbers of workers on machines of their own, whose speed is reckoned from "
        "what was measured; empty reckons none.",
    )
    gigabits: str = setting(
        "1,10,25,100",
        "Comma-separated speeds of their links, Gbit/s.",
    )
    message_us: float = setting(
        0.0,
        "Microseconds that a message takes on those, whatever its size; 0: as measured between two "
        "processes here.",
        minimum=0,
        maximum=1e9,
    )
    train_flags: str = setting("", "More flags for all sides, as on the command line of app.train.")
    keep: str = _folder("the workdirs and logs of all runs")


def check(options: Options) -> None:
    """Raises UsageError for the first value that cannot be."""
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if wrong := fault(field, value):
            raise UsageError(f"--{field.name}={value}: {wrong}")


def chosen(flag: str, value: str, known: Collection[str], what: str) -> list[str]:
    """The names in a comma-separated value, each once; UsageError for one that is not `known`."""
    names = items(value)
    for name in names:
        if name not in known:
            choices = ", ".join(known)
            raise UsageError(f"--{flag}={value}: {name} is no {what}; choose from {choices}")
    return names


def numbers(flag: str, value: str, what: str, least: int = 1) -> list[int]:
    """The numbers in a comma-separated value, in ascending order; UsageError for one too small."""
    for item in items(value):
        if not (is_number(item) and int(item) >= least):
            raise UsageError(
                f"--{flag}={value}: {item} is no number of {what}; give at least {least}"
                f" and at most {MOST_ROWS}"
            )
    return sorted({int(item) for item in items(value)})


def items(value: str) -> list[str]:
    """What is between commas, without white space and repetitions."""
    return list(dict.fromkeys(item.strip() for item in value.split(",") if item.strip()))
