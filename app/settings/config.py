"""The sections of settings that tasks share, and the base of the settings of every task."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, ClassVar

from ..errors import UsageError
from .setting import fixed_setting, is_whole_number, setting

# Flags that some tasks do not have.
HELDOUT = frozenset({"heldout", "heldout_share", "patience"})
PHRASES = frozenset({"phrases", "phrase_score", "phrase_threshold", "phrase_min_count"})
RECURRENT = frozenset({"cell", "hidden", "dropout", "tie_weights"})
# Flags of word vectors alone.
SKIPGRAM = frozenset(
    {"model", "window", "contexts", "min_ngram", "max_ngram", "ngram_buckets", "score_epochs"}
)

_PASSES = 4  # the most passes of --phrases: phrases of up to 16 words
_number_format = functools.partial(setting, choices=("float32", "bfloat16", "float16"), fixed=True)


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """The settings of the training itself."""

    workdir: str = setting(
        "", "The folder of the run. Run the same command again to resume.", path=True
    )
    task: str = fixed_setting(
        "words",
        "What to train: word vectors, a recurrent language model, a classifier of texts, or a "
        "recommender of items for users.",
        choices=("words", "language_model", "classify", "recommend"),
    )
    epochs: int = setting(5, "Passes over the training data.", bounds=(1, 1_000_000))
    patience: int = setting(
        0,
        "Stop after this many epochs without a better score on held-out data, and keep the best "
        "epoch. 0 trains all epochs.",
        bounds=(0, 1_000_000),
    )
    seed: int = fixed_setting(1, "The seed of all random numbers.", bounds=(0, 2**31 - 1))
    device: str = setting(
        "", "The device to train on, such as `GPU:0` or `CPU:0`. Empty: the first GPU, or the CPU."
    )
    intra_op_threads: int = setting(
        0, "Threads within one operation. 0 chooses by the number of cores.", bounds=(0, 1024)
    )
    score_epochs: bool = setting(
        True,
        "After each epoch, score the word vectors beside the training by the benchmarks that come "
        "with gensim, if it is installed.",
    )
    log_seconds: float = setting(10.0, "Seconds between two log lines.", bounds=(0, 31_536_000))
    checkpoint_minutes: float = setting(
        10.0, "Minutes between two checkpoints.", bounds=(0, 525_600)
    )
    keep_checkpoints: int = setting(
        3, "How many of the newest checkpoints to keep.", bounds=(1, 1_000_000)
    )
    plan_only: bool = setting(
        False, "Print what would be trained, with the memory it needs, and stop."
    )


@dataclasses.dataclass(frozen=True)
class DistributionConfig:
    """The settings of a run of several devices or processes."""

    strategy: str = setting(
        "none",
        "How the run is distributed: over all local devices (`mirrored`) or several machines "
        "(`multi_worker`), in step.",
        choices=("none", "mirrored", "multi_worker"),
    )
    sync_steps: int = setting(
        1,
        "Steps that each replica trains alone before all exchange the changes of their rows, a "
        "multiple of --steps_per_call. 1: the same vectors as on one device.",
        bounds=(1, 1_000_000),
    )
    sync_dtype: str = setting(
        "bfloat16",
        "The dtype of exchanged changes with --sync_steps above 1.",
        choices=("bfloat16", "float32"),
    )
    cluster_timeout: float = setting(
        120.0, "Seconds to wait for the other processes of a cluster.", bounds=(1, 604_800)
    )


@dataclasses.dataclass(frozen=True)
class ProfileConfig:
    """The settings of the profile that a run records."""

    profile_steps: str = setting(
        "", "Record a profile between these steps: START,STOP or START,STOP,START,STOP and so on."
    )


@dataclasses.dataclass(frozen=True)
class RunConfig(ProfileConfig, DistributionConfig, TrainingConfig):
    """The settings of the run: of its training, its processes and its profile."""


def windows(profile_steps: str) -> list[tuple[int, int]]:
    """Return the first step and the step after the last one of each window of `--profile_steps`.

    Raises:
        UsageError: The value is not a list of windows in rising order.
    """
    steps = profile_steps.split(",") if profile_steps else []
    numbers = [int(step) for step in steps if is_whole_number(step.strip())]
    rising = all(low < high for low, high in zip(numbers, numbers[1:], strict=False))
    if len(numbers) < len(steps) or len(steps) % 2 or not rising:
        raise UsageError(
            f"--profile_steps={profile_steps}: give START,STOP such as 100,200, or several in "
            "rising order, such as 100,200,900,1000"
        )
    return list(zip(numbers[::2], numbers[1::2], strict=True))


@dataclasses.dataclass(frozen=True)
class CorpusConfig:
    """The settings of the text: which files are read, and how they are split into tokens."""

    corpus: str = setting(
        "docstrings",
        "Files and glob patterns with commas between them, also compressed ones; a name with a "
        "comma is in double quotes. Or `docstrings` (of all installed packages), "
        "`docstrings:package,package`, or `text8`.",
        path=True,
    )
    text_column: str = fixed_setting(
        "", "The column of the texts in CSV, TSV, JSON lines or Parquet. Empty: files are the text."
    )
    documents: str = fixed_setting(
        "line",
        "Where a document ends, which no window crosses: at each line, or at the end of a file "
        "(`none`: windows also cross line ends). A block of text (--block_bytes) always ends one.",
        choices=("line", "file", "none"),
    )
    tokenizer: str = fixed_setting(
        "whitespace",
        "How text is split into tokens. `unicode` normalises (NFKC), and also splits at "
        "punctuation, between letters and digits, and at scripts without spaces.",
        choices=("whitespace", "unicode"),
    )
    fold_case: bool = fixed_setting(True, "Fold case.")
    drop_punctuation: bool = fixed_setting(True, "Drop punctuation tokens.")
    drop_numbers: bool = fixed_setting(False, "Drop tokens of digits.")
    invalid_utf8: str = fixed_setting(
        "replace",
        "What to do with bytes that are not UTF-8: replace them by U+FFFD, or stop.",
        choices=("replace", "error"),
    )
    data_dir: str = setting(
        "data/raw", "The folder for downloads and extracted docstrings.", path=True
    )


@dataclasses.dataclass(frozen=True)
class VocabularyConfig:
    """The settings of the vocabulary: which tokens get a row."""

    vocab: str = fixed_setting(
        "",
        "A vocab.tsv to use as the vocabulary. Empty: count the tokens of the corpus.",
        path=True,
    )
    min_count: int = fixed_setting(
        5, "Drop tokens, or users and items, that occur fewer times than this.", bounds=(1, 10**9)
    )
    max_vocab_size: int = fixed_setting(
        0, "Keep at most this many tokens, the most frequent. 0 keeps all.", bounds=(0, 2**31 - 1)
    )
    vocab_memory_entries: int = setting(
        50_000_000,
        "The most distinct tokens to hold while counting; beyond, the rarest are dropped.",
        bounds=(1000, 10**12),
    )
    grow_vocab: bool = setting(
        False,
        "Let the vocabulary of a finished run grow by the words (and labels) of another --corpus; "
        "old words keep their rows. Train for more --epochs.",
    )
    phrases: int = fixed_setting(
        0,
        "Passes over the text that join words which often follow each other to one token, such as "
        "`new_york`. 0: none.",
        bounds=(0, _PASSES),
    )
    phrase_score: str = fixed_setting(
        "word2phrase",
        "The score of a pair of words: word2phrase's, or normalised pointwise mutual information.",
        choices=("word2phrase", "npmi"),
    )
    phrase_threshold: float = fixed_setting(
        0.0,
        "Join pairs whose score is above this. 0: 100 for word2phrase, 0.5 for npmi.",
        bounds=(0, 10**12),
    )
    phrase_min_count: int = fixed_setting(
        5, "Join only pairs that occur at least so many times.", bounds=(1, 10**9)
    )

    @property
    def score_threshold(self) -> float:
        """The score above which a pair of words is a phrase; see `phrase_threshold`."""
        # 100 as in word2phrase.c. Above 0.5 pairs occur together more often than not.
        return self.phrase_threshold or {"word2phrase": 100.0, "npmi": 0.5}[self.phrase_score]


@dataclasses.dataclass(frozen=True)
class InputConfig:
    """The settings of the input: how data becomes batches of ids."""

    subsample: float = fixed_setting(
        1e-3, "Tokens above this share of the corpus are dropped at random. 0: none.", bounds=(0, 1)
    )
    batch_tokens: int = fixed_setting(
        4096,
        "The size of a batch: centre tokens, tokens to predict, words and n-grams of texts (less "
        "for few texts), or pairs of a user and an item.",
        bounds=(1, 2**24),
    )
    micro_batches: int = setting(
        0,
        "Equal parts of a batch, which draw their own samples and whose gradients are summed. "
        "Replicas share the parts. 0: one part for each replica.",
        bounds=(0, 4096),
    )
    row_tokens: int = fixed_setting(
        32,
        "Tokens in one row of a batch. Gradients of a language model go back this many tokens.",
        bounds=(1, 2**16),
    )
    steps_per_call: int = fixed_setting(
        16,
        "Training steps in one call of the compiled function.",
        bounds=(1, 1024),  # each is traced by itself: a call of 2,048 takes minutes until it runs
    )
    shuffle: bool = fixed_setting(True, "Shuffle the rows of a block of text.")
    heldout: str = fixed_setting(
        "", "Files like --corpus that the run is scored on after every epoch.", path=True
    )
    heldout_share: float = fixed_setting(
        0.05,
        "The share of the text, examples or pairs to score on when --heldout is empty. 0: none.",
        bounds=(0, 1),
        half_open=True,
    )
    cache: str = setting(
        "auto",
        "Whether token ids are kept in memory, so that text is tokenised only once. `auto`: if "
        "they take at most 1 GiB.",
        choices=("auto", "none", "memory"),
    )
    block_bytes: int = fixed_setting(
        2 << 20, "Bytes of a block of text, in which it is read and shuffled.", bounds=(1024, 2**30)
    )
    readers: int = fixed_setting(4, "Files read at the same time.", bounds=(1, 1024))
    map_parallelism: int = setting(
        -1, "Blocks tokenised at the same time. -1: automatic.", bounds=(-1, 1024)
    )
    prefetch: int = setting(
        -1, "Batches prepared ahead of the step. -1: automatic.", bounds=(-1, 10_000)
    )

    @property
    def micro_tokens(self) -> int:
        """The tokens of a micro-batch; all tokens of the batch if `micro_batches` is 0."""
        return self.batch_tokens // max(1, self.micro_batches)


@dataclasses.dataclass(frozen=True)
class LossConfig:
    """The settings of the loss, which is also the output layer."""

    loss: str = fixed_setting(
        "negative_sampling",
        "The loss, which is also the output layer. `auto`: class_softmax, or softmax if a step of "
        "it would touch all words as well.",
    )
    negatives: int = fixed_setting(
        5, "The total weight of the negative samples of a pair.", bounds=(1, 100_000)
    )
    shared_negatives: int = fixed_setting(
        0,
        "Negative samples in a pool that consecutive centre tokens share. 0: 32.",
        bounds=(0, 1_000_000),
    )
    group_tokens: int = fixed_setting(
        0,
        "Consecutive centre tokens that share a pool of negative samples. 0: 128.",
        bounds=(0, 2**24),
    )
    negative_power: float = fixed_setting(
        0.75, "Negative samples are drawn in proportion to count ** negative_power.", bounds=(0, 10)
    )
    samples: int = fixed_setting(
        1024, "Negative samples drawn in each step, shared by all targets.", bounds=(1, 2**24)
    )
    sampler: str = fixed_setting(
        "log_uniform",
        "The distribution of the samples: Zipf's law over the ids, or count ** 0.75.",
        choices=("log_uniform", "unigram"),
    )
    class_levels: int = fixed_setting(
        2, "2: classes of words. 3: classes of classes of words.", bounds=(2, 3)
    )
    class_rule: str = fixed_setting(
        "fewest_rows",
        "How words are divided into classes.",
        choices=("fewest_rows", "equal_size", "equal_frequency"),
    )
    classes: int = fixed_setting(
        0, "The number of classes. 0: with which a step touches fewest rows.", bounds=(0, 2**31 - 1)
    )
    cutoffs: str = fixed_setting(
        "",
        "Rising numbers of words, such as 2000,10000: the head has the 2,000 most frequent words, "
        "the first tail those up to 10,000. Empty: chosen by cost.",
        bounds=(1, 2**31 - 1),
        numbers=int,
    )

    @property
    def pool_samples(self) -> int:
        """The negative samples of a pool: `shared_negatives`, or the default of 32."""
        return self.shared_negatives or 32

    @property
    def pool_centres(self) -> int:
        """The centre tokens that share a pool: `group_tokens`, or the default of 128."""
        return self.group_tokens or 128


@dataclasses.dataclass(frozen=True)
class ModelConfig(LossConfig):
    """The settings of the model and its loss."""

    model: str = fixed_setting(
        "skipgram",
        "The model. `skipgram` predicts the context of a word, `cbow` a word from its context.",
        choices=("skipgram", "cbow"),
    )
    dim: int = fixed_setting(100, "The number of columns of a vector.", bounds=(1, 1_000_000))
    window: int = fixed_setting(
        5, "The most context tokens on each side; nearer ones count more.", bounds=(1, 10_000)
    )
    contexts: str = setting(
        "auto",
        "`drawn`: the number of context tokens is drawn for each token, as in word2vec. `auto`: a "
        "pair has the probability of being drawn as its weight, where the loss allows it.",
        choices=("auto", "drawn"),
    )
    min_ngram: int = fixed_setting(3, "The fewest characters of a subword.", bounds=(1, 100))
    max_ngram: int = fixed_setting(
        0,
        "The most characters of a subword, such as 6. With subwords, unseen words have vectors. 0: "
        "no subwords.",
        bounds=(0, 100),
    )
    ngram_buckets: int = fixed_setting(
        2_000_000, "Buckets that subwords are hashed into. 0: no subwords.", bounds=(0, 2**30)
    )
    cell: str = fixed_setting("gru", "The recurrent cell.", choices=("gru", "lstm"))
    hidden: int = fixed_setting(
        0, "The number of recurrent units. 0: the same as --dim.", bounds=(0, 1_000_000)
    )
    dropout: float = setting(
        0.0,
        "The share of the numbers of word vectors and of the cell's outputs that a step of "
        "training sets to 0; none between the steps of the cell.",
        bounds=(0, 1),
        half_open=True,
    )
    tie_weights: bool = fixed_setting(
        False, "Let a word have the same vector as an input and in the output layer."
    )
    compute_dtype: str = fixed_setting(
        "auto",
        "The number format of matrix products. `auto`: bfloat16 where the processor is faster with "
        "it. `float32` may be TensorFloat-32 on a GPU, `exact_float32` never is.",
        choices=("auto", "float32", "exact_float32", "bfloat16"),
    )

    @property
    def has_subwords(self) -> bool:
        """Whether words have rows of subwords besides their own."""
        return self.max_ngram > 0 and self.ngram_buckets > 0


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
    """The settings of the optimizer, which updates the rows."""

    optimizer: str = fixed_setting(
        "rowwise_adagrad",
        "The update rule of the rows.",
        choices=(
            *("sgd", "momentum", "adagrad", "rowwise_adagrad"),
            *("ftrl", "lazy_adam", "lazy_adamw"),
        ),
    )
    learning_rate: float = setting(
        0.0,
        "The peak learning rate. 0: the optimizer's default. If not given, it is one that suits "
        "the task, the model and --learning_rate_power.",
        bounds=(0, 1e4),
    )
    schedule: str = setting(
        "linear",
        "How the learning rate changes after its peak; all but `constant` end at 0.",
        choices=("constant", "linear", "cosine"),
    )
    warmup: float = setting(
        0.0, "The share of training until the peak learning rate.", bounds=(0, 1), half_open=True
    )
    clip_row_norm: float = setting(
        0.0, "The largest L2 norm of the gradient of a row. 0 does not clip.", bounds=(0, 1e18)
    )
    clip_global_norm: float = setting(
        0.0, "The largest L2 norm of all gradients of a step. 0 does not clip.", bounds=(0, 1e18)
    )
    initial_accumulator: float = fixed_setting(
        0.1, "The initial accumulators of Adagrad and FTRL.", bounds=(1e-30, 1e18)
    )
    learning_rate_power: float = setting(
        -0.5,
        "The power of row-wise Adagrad's accumulators that multiplies the learning rate; nearer to "
        "0, it falls less for frequent rows. If not given, -0.3 with --loss=negative_sampling.",
        bounds=(-0.5, 0),
    )
    momentum: float = setting(
        0.9, "The share of a row's velocity that a step keeps.", bounds=(0, 1), half_open=True
    )
    nesterov: bool = setting(False, "Use Nesterov's momentum.")
    beta_1: float = fixed_setting(
        0.9,
        "The decay of Adam's first moment; with 0 there is none.",
        bounds=(0, 1),
        half_open=True,
    )
    beta_2: float = setting(
        0.999, "The decay of Adam's second moment.", bounds=(0, 1), half_open=True
    )
    epsilon: float = setting(
        1e-7, "The number added to the square root of Adam's second moment.", bounds=(1e-30, 1e3)
    )
    correct_skipped: bool = fixed_setting(
        False, "Also decay the moments of a row for the steps that did not touch it."
    )
    weight_decay: float = setting(
        0.004, "The share of a touched row, times the rate, that is subtracted.", bounds=(0, 1e3)
    )
    l1: float = fixed_setting(
        0.0, "The strength of FTRL's L1 penalty, which makes numbers exactly 0.", bounds=(0, 1e6)
    )
    l2: float = setting(0.0, "The strength of FTRL's L2 penalty.", bounds=(0, 1e6))


@dataclasses.dataclass(frozen=True)
class TableConfig:
    """The settings of the tables: where the rows are stored, and in which number format."""

    table: str = setting(
        "device",
        "Where the rows are stored: in the memory of the device; in that of the machine or in a "
        "file (`host`), or over all local devices (`sharded`), with a cache on the device; or on "
        "the device, where ids get rows as they are seen, without a vocabulary (`dynamic`).",
        choices=("device", "host", "sharded", "dynamic"),
    )
    table_dtype: str = _number_format("float32", "The number format of the stored rows.")
    slot_dtype: str = _number_format(
        "float32", "The number format of the optimizer's slots (its state for each row)."
    )
    rounding: str = setting(
        "stochastic",
        "How rows and slots are rounded to 16 bits; `nearest` loses many small changes.",
        choices=("stochastic", "nearest"),
    )
    hot_rows: str = setting(
        "auto",
        "The rows of each table that stay on the device, the most frequent first. `auto`: as many "
        "as fit in --device_memory.",
    )
    stage_steps: int = setting(
        100, "Steps for which other rows are loaded to the device at once.", bounds=(1, 100_000)
    )
    device_memory: float = setting(
        0.0, "GB of device memory that a run may use. 0: all free memory.", bounds=(0, 1e6)
    )
    table_file: str = setting(
        "", "A file to store the rows in, if they exceed the memory of the machine.", path=True
    )
    table_gb: float = fixed_setting(
        2.0, "GB that the rows of a dynamic table may use, with slots and keys.", bounds=(1e-6, 1e6)
    )
    max_age: int = fixed_setting(
        0,
        "A word not seen in so many blocks of text (--block_bytes), or a user or an item not seen "
        "in so many steps, loses its row. 0: never; a full table removes the rows seen least.",
        bounds=(0, 10**9),
    )

    @property
    def is_cached(self) -> bool:
        """Whether the steps train on a cache of some rows."""
        return self.table in ("host", "sharded")

    @property
    def is_dynamic(self) -> bool:
        """Whether words, users and items get rows while training."""
        return self.table == "dynamic"


@dataclasses.dataclass(frozen=True)
class Config:
    """The sections of settings that every task has; each task has a subclass.

    Attributes:
        unused: The flags of these sections that the task does not have.
        choices: The values of `--loss` that the task has, the default first.
    """

    run: RunConfig = RunConfig()
    corpus: CorpusConfig = CorpusConfig()
    vocabulary: VocabularyConfig = VocabularyConfig()
    input: InputConfig = InputConfig()
    model: ModelConfig = ModelConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    table: TableConfig = TableConfig()

    unused: ClassVar[frozenset[str]] = frozenset()
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    def check(self) -> None:
        """Raise UsageError if values that are allowed by themselves do not fit this task."""

    @classmethod
    def learning_rate(cls, values: Mapping[str, Any]) -> float:
        """Return the default of --learning_rate beside the values of all other flags.

        The rates are measured (data/benchmarks/README.md): the power and the accumulators of
        row-wise Adagrad change the scale of its steps. 0 is the default of the optimizer.
        """
        if values["optimizer"] != "rowwise_adagrad":
            return 0.0
        if values["learning_rate_power"] == -0.3:
            return 0.4 if values.get("model") == "cbow" else 0.15
        return 0.16 if values["initial_accumulator"] == 0.001 else 0.0
