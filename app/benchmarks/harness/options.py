"""The settings of the benchmarks: a dataclass for each case, whose fields are its flags."""

from __future__ import annotations

import dataclasses
from typing import Any

from ...config.setting import fault, setting
from ...config.settings import MOST_ROWS, fields
from ...errors import UsageError


def _as_in_training(name: str) -> object:
    """Return a field with the default, help and limits of the flag with this name in training."""
    field = fields()[name]
    return dataclasses.field(default=field.default, metadata=field.metadata)


def _train_flags(sides: str = "Lexrow") -> object:
    """Return a field for more flags of lexrow.train; `sides` are named in its help."""
    return setting("", f"More flags of lexrow.train, for {sides}.")


def _folder(what: str) -> str:
    """Return a field for a folder in which to keep `what` (words for its help)."""
    return setting("", f"A folder in which to keep {what}.", path=True)


def _peers(default: str, what: str = "") -> str:
    """Return a field for comma-separated peers; `what` follows in the help."""
    return setting(default, f"Comma-separated peers to run beside Lexrow{what}; empty runs none.")


def _count(default: int, help: str, maximum: int = 1_000_000) -> int:
    """Return a field for a whole number from 1 to `maximum`."""
    return setting(default, help, bounds=(1, maximum))


def _numbers(
    default: str, help: str, least: int = 1, most: int = MOST_ROWS, required: bool = False
) -> str:
    """Return a field for whole numbers, comma-separated, at least one of them if `required`."""
    field = setting(default, help, bounds=(least, most), numbers=int)
    return dataclasses.field(default=default, metadata=field.metadata | {"required": required})


@dataclasses.dataclass(frozen=True)
class Options:
    """The settings of all cases. A UsageError is raised for a value that is not possible."""

    repeats: int = _count(1, "Runs of each side; the report has their medians.", 1000)
    json: str = setting("", "Write every number to this file.", path=True)
    plot: str = setting("", "Draw the comparison to this file (.png, .svg or .pdf).", path=True)

    def __post_init__(self) -> None:
        """Raise UsageError if a value is against the rules of its field."""
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            is_checked = value != "" or field.metadata.get("required", True)
            if is_checked and (wrong := fault(field, value)):
                raise UsageError(f"--{field.name}={value}: {wrong}")

    def measured(self) -> dict[str, Any]:
        """Return the settings by name, without `json` and `plot`, the files of the results."""
        return {name: value for name, value in vars(self).items() if name not in ("json", "plot")}

    def count_runs(self, noun: str = "run") -> str:
        """Return the number of runs for a title, as `one run` or `medians of 3 runs`.

        Args:
            noun: The word for a run, in the singular.
        """
        return f"medians of {self.repeats} {noun}s" if self.repeats > 1 else f"one {noun}"


@dataclasses.dataclass(frozen=True)
class WordsOptions(Options):
    """Word vectors from text, beside gensim."""

    corpus: str = _as_in_training("corpus")
    model: str = _as_in_training("model")
    loss: str = setting(
        "negative_sampling",
        "The output layer of both sides.",
        choices=("negative_sampling", "hierarchical_softmax"),
    )
    dim: int = _as_in_training("dim")
    window: int = _as_in_training("window")
    epochs: int = _as_in_training("epochs")
    min_count: int = _as_in_training("min_count")
    peers: str = _peers("gensim")
    train_flags: str = _train_flags()
    keep: str = _folder("the vectors and logs of every run")


@dataclasses.dataclass(frozen=True)
class SparseOptions(Options):
    """One step of an embedding table, beside Keras."""

    optimizers: str = setting(
        "sgd,momentum,adagrad,rowwise_adagrad,ftrl,lazy_adam,lazy_adamw",
        "Comma-separated optimizers to compare; empty compares none.",
    )
    peers: str = _peers(
        "hand,keras,keras_jit",
        ": a gather and scatter by hand (hand), stock Keras (keras), stock Keras with jit_compile "
        "(keras_jit), and TensorFlow's Adam with a dense gradient (dense, with lazy_adam)",
    )
    # The sizes of keras issue 4365.
    rows: int = _count(793_471, "Rows of the table.", MOST_ROWS)
    dim: int = _count(512, "Columns of the table.")
    steps: int = _count(100, "Steps in a timed block; a slow side makes fewer.")
    vocabularies: str = _numbers(
        "100000,1000000,8000000",
        "Comma-separated numbers of rows of further tables (128 columns), for which the step of "
        "Lexrow is compared; empty compares none.",
    )


@dataclasses.dataclass(frozen=True)
class PipelineOptions(Options):
    """Input pipelines of a classifier and of text, and whether training waits for them."""

    # As in the questions that users often ask; see `pipeline_case`.
    examples: int = _count(10_000, "Examples of the classifier.", 10**9)
    example_epochs: int = setting(
        10, "Epochs of the classifier; the first is not timed.", bounds=(2, 1_000_000)
    )
    corpus: str = _as_in_training("corpus")
    tokenizer: str = _as_in_training("tokenizer")
    min_count: int = _as_in_training("min_count")
    words: int = _count(2_000_000, "Most words of the corpus to convert to ids.", 10**12)
    epochs: int = _as_in_training("epochs")
    train_flags: str = _train_flags()
    peers: str = _peers(
        "naive,prefetch,parallel,generator,map",
        ": three inputs of the classifier (naive, prefetch, parallel) and two from text to ids "
        "(generator, map)",
    )


@dataclasses.dataclass(frozen=True)
class SoftmaxOptions(Options):
    """One step of an output layer, loss by loss, as the vocabulary grows."""

    losses: str = setting(
        "softmax,sampled_softmax,nce,hierarchical_softmax,class_softmax,class_equal_size,"
        "class_equal_frequency,class_three_levels,adaptive_softmax",
        "Comma-separated losses to measure: those of --loss, and the class softmax with other "
        "rules for its classes or with three levels.",
    )
    peers: str = _peers(
        "dense,copies",
        ": a dense full softmax (dense), and a class softmax in which every target gathers its "
        "own copy of its class (copies)",
    )
    vocabularies: str = _numbers(
        "10000,100000,1000000,10000000",
        "Comma-separated sizes of the vocabulary; words are drawn by Zipf's law.",
        least=2,
        required=True,
    )
    targets: str = _numbers(
        "400,40000", "Comma-separated numbers of targets in a step.", required=True
    )
    dim: int = _count(300, "Hidden units.")
    compute_dtype: str = setting(
        "float32",
        "Dtype of the matrix products of Lexrow; peers use float32.",
        choices=("float32", "bfloat16"),
    )
    steps: int = _count(20, "Timed steps; a slow side makes fewer.")


@dataclasses.dataclass(frozen=True)
class TablesOptions(Options):
    """Steps of a table that is stored in different places, beside peers with a large table."""

    sides: str = setting(
        "device,host,disk,sharded,dynamic,bfloat16",
        "Comma-separated kinds of table to measure; empty measures none.",
    )
    peers: str = _peers(
        "naive,torch",
        ": a table in numpy whose rows are moved at each step (naive), and torch (if installed, "
        "with lazy_adam)",
    )
    optimizers: str = setting("lazy_adam,rowwise_adagrad", "Comma-separated optimizers to measure.")
    hot_shares: str = _numbers(
        "1,10,50,100",
        "Comma-separated shares of the host table in the cache on the device, in percent.",
        least=0,
        most=100,
    )
    rows: int = _count(1_000_000, "Rows of the table.", MOST_ROWS)
    dim: int = _count(100, "Columns of the table.")
    ids: int = _count(4096, "Ids in a step.", 2**24)
    steps: int = _count(200, "Steps in a timed block, rounded up to whole chunks.")
    stage_steps: int = _as_in_training("stage_steps")
    folder: str = setting(
        "", "Folder for the table in a file; empty is the folder of temporary files.", path=True
    )


@dataclasses.dataclass(frozen=True)
class ClassifyOptions(Options):
    """Labels of texts, beside fastText."""

    corpus: str = setting("", "Labelled texts; each line is like `__label__a the text`.", path=True)
    labelled: str = setting(
        "",
        "Instead of --corpus: comma-separated LABEL:FILE, with the texts of this label in FILE, a "
        "text in each line.",
        path=True,
    )
    word_ngrams: str = _numbers("1,2", "Comma-separated values of --word_ngrams.", required=True)
    dim: int = _as_in_training("dim")
    epochs: int = _as_in_training("epochs")
    fasttext_rate: float = setting(
        0.5,
        "The learning rate of fastText. Its default of 0.1 is too low for few texts; its tutorial "
        "uses 0.1 to 1.",
        bounds=(1e-6, 1e3),
    )
    peers: str = _peers("fasttext")
    train_flags: str = _train_flags()
    keep: str = _folder("the texts, predictions and logs of all runs")


@dataclasses.dataclass(frozen=True)
class RecommendOptions(Options):
    """Items for users, beside implicit, EASE and cosines of items."""

    corpus: str = setting("", "Pairs to train on, in any layout of lexrow.train.", path=True)
    heldout: str = setting("", "Pairs to score on.", path=True)
    dim: int = _count(64, "Columns of a vector.")
    alpha: float = setting(
        10.0,
        "The confidence of ALS in a pair. Its default of 1 scores badly; Hu et al. 2008 use 40.",
        bounds=(0, 1e6),
    )
    regularization: float = setting(
        250.0, "The L2 penalty of EASE, a number of users.", bounds=(1e-3, 1e9)
    )
    top: str = _numbers("10,20", "Comma-separated lengths k of the scored lists.", required=True)
    new_users: int = setting(
        1000,
        "Users to leave out of one more training, a tenth of all at most. Their rows are then "
        "solved for. 0 leaves out none.",
        bounds=(0, 1_000_000),
    )
    peers: str = _peers("als,bpr")
    train_flags: str = _train_flags()
    keep: str = _folder("the vectors and logs of all runs")


@dataclasses.dataclass(frozen=True)
class ScalingOptions(Options):
    """Training by several processes on this machine, beside one process."""

    corpus: str = _as_in_training("corpus")
    dim: int = _as_in_training("dim")
    epochs: int = _as_in_training("epochs")
    min_count: int = _as_in_training("min_count")
    batch_tokens: int = _as_in_training("batch_tokens")
    workers: str = _numbers(
        "1,2", "Comma-separated numbers of workers; empty runs one process only."
    )
    sync_steps: str = _numbers(
        "64,256",
        "Comma-separated values of --sync_steps, each a further side for each number of workers "
        "above 1, in which every worker has a batch of its own; empty for none.",
    )
    servers: int = setting(
        2, "Parameter servers; 0 runs no --strategy=parameter_server.", bounds=(0, 1000)
    )
    vocabularies: str = _numbers(
        "100000,1000000,10000000",
        "Comma-separated numbers of rows, for which the bytes that replicas exchange are compared; "
        "empty compares none.",
        least=2,
    )
    columns: int = _count(16, "Columns of these tables.")
    modelled: str = _numbers(
        "2,4,8,16",
        "Comma-separated numbers of workers on machines of their own, whose speed a model "
        "predicts; empty predicts none.",
        least=2,
    )
    gigabits: str = _numbers("1,10,25,100", "Comma-separated speeds of their links, in Gbit/s.")
    message_us: float = setting(
        0.0,
        "Microseconds of an empty message between them; 0 stands for 1,400, as was once measured "
        "between two processes on two cores of an AMD EPYC.",
        bounds=(0, 1e9),
    )
    train_flags: str = _train_flags("all sides")
    keep: str = _folder("the workdirs and logs of all runs")
