"""The settings of the model, its loss and the optimizer."""

from __future__ import annotations

import dataclasses

from .setting import fixed_setting, setting

# Flags of word vectors alone, but for --model.
SKIPGRAM = frozenset({"model", "window", "contexts", "min_ngram", "max_ngram", "ngram_buckets"})


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
        0, "Negative samples drawn for each group of centre tokens. 0: 32.", bounds=(0, 1_000_000)
    )
    group_tokens: int = fixed_setting(
        0, "Centre tokens in a group, which shares its negative samples. 0: 128.", bounds=(0, 2**24)
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
    class_devices: int = fixed_setting(
        1, "Devices that the classes are divided over, from --device on.", bounds=(1, 1024)
    )
    cutoffs: str = fixed_setting(
        "",
        "Rising numbers of words, such as 2000,10000: the head has the 2,000 most frequent words, "
        "the first tail those up to 10,000. Empty: chosen by cost.",
        bounds=(1, 2**31 - 1),
        numbers=int,
    )

    @property
    def samples_of_group(self) -> int:
        """The negative samples of a group: `shared_negatives`, or the default of 32."""
        return self.shared_negatives or 32

    @property
    def centres_of_group(self) -> int:
        """The centre tokens of a group: `group_tokens`, or the default of 128."""
        return self.group_tokens or 128


@dataclasses.dataclass(frozen=True)
class ModelConfig(LossConfig):
    """The settings of the model and its loss."""

    model: str = fixed_setting(
        "skipgram",
        "The model. `skipgram` predicts the context of a word, `cbow` a word from its context. "
        "`mf` is matrix factorization; `gmf`, `mlp` and `neumf` are neural.",
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
    min_ngram: int = fixed_setting(
        3, "The fewest characters of a subword (with --max_ngram).", bounds=(1, 100)
    )
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
    beta_1: float = setting(0.9, "The decay of Adam's first moment.", bounds=(0, 1), half_open=True)
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
