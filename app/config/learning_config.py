"""The settings of the model, its loss and the optimizer."""

from __future__ import annotations

import dataclasses
import functools

from .setting import setting

_WORDS, _LANGUAGE_MODEL = ("task", "words"), ("task", "language_model")
_SOFTMAX = (
    "class_softmax",
    "sampled_softmax",
    "nce",
    "hierarchical_softmax",
    "adaptive_softmax",
    "softmax",
)
_NEGATIVES = ("loss", "negative_sampling")
_SAMPLED = ("loss", "sampled_softmax", "nce")
_CLASSES = ("loss", "class_softmax")
_loss_setting = functools.partial(setting, subject="loss")


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """The settings of the model and its loss."""

    model: str = setting(
        "skipgram",
        "The model. words: `skipgram` predicts the context of a word, `cbow` predicts a word from "
        "its context. recommend: `mf` is matrix factorization; `gmf`, `mlp` and `neumf` are the "
        "models of neural collaborative filtering.",
        fixed=True,
        of_task={"words": ("skipgram", "cbow"), "recommend": ("mf", "gmf", "mlp", "neumf")},
    )
    loss: str = _loss_setting(
        "negative_sampling",
        "The loss, which is also the output layer: how words, labels or items are predicted.",
        fixed=True,
        of_task={
            "words": ("negative_sampling", *_SOFTMAX),
            "language_model": _SOFTMAX,
            "classify": (
                "softmax",
                "one_vs_all",
                "hierarchical_softmax",
                "class_softmax",
                "sampled_softmax",
            ),
            "recommend": ("in_batch_softmax", "bpr", "squared_error"),
        },
    )
    dim: int = setting(
        100,
        "The number of columns of a vector.",
        minimum=1,
        maximum=1_000_000,
        fixed=True,
        by_task={"recommend": 64},
    )
    window: int = setting(
        5,
        "The largest number of context tokens on each side. Each token draws a number up to this.",
        minimum=1,
        maximum=10_000,
        fixed=True,
        only=_WORDS,
    )
    negatives: int = _loss_setting(
        5,
        "The total weight of the negative samples, as if each pair had this many.",
        minimum=1,
        maximum=100_000,
        fixed=True,
        only=_NEGATIVES,
    )
    shared_negatives: int = _loss_setting(
        64,
        "Negative samples drawn for each group of centre tokens.",
        minimum=1,
        maximum=1_000_000,
        fixed=True,
        only=_NEGATIVES,
    )
    group_tokens: int = _loss_setting(
        256,
        "Centre tokens in a group, which shares its negative samples.",
        minimum=1,
        maximum=2**24,
        fixed=True,
        only=_NEGATIVES,
    )
    negative_power: float = _loss_setting(
        0.75,
        "Negative samples are drawn in proportion to count ** negative_power.",
        minimum=0,
        maximum=10,
        fixed=True,
        only=_NEGATIVES,
    )
    samples: int = _loss_setting(
        1024,
        "Negative samples drawn in each step, shared by all targets.",
        minimum=1,
        maximum=2**24,
        fixed=True,
        only=_SAMPLED,
    )
    sampler: str = _loss_setting(
        "log_uniform",
        "The distribution of the samples: `log_uniform` over the ids (Zipf's law), or `unigram` "
        "(count ** 0.75).",
        choices=("log_uniform", "unigram"),
        fixed=True,
        only=_SAMPLED,
    )
    class_levels: int = _loss_setting(
        2,
        "2: classes of words. 3: classes of classes of words.",
        minimum=2,
        maximum=3,
        fixed=True,
        only=_CLASSES,
    )
    class_rule: str = _loss_setting(
        "fewest_rows",
        "How words are divided into classes. `equal_size`: classes have equal size. "
        "`equal_frequency`: classes have equal frequency. `fewest_rows`: a class has size "
        "1 / sqrt(p(word)), with which a step touches the fewest rows.",
        choices=("fewest_rows", "equal_size", "equal_frequency"),
        fixed=True,
        only=_CLASSES,
    )
    classes: int = _loss_setting(
        0,
        "The number of classes. 0: the number with which a step touches the fewest rows.",
        minimum=0,
        maximum=2**31 - 1,
        fixed=True,
        only=_CLASSES,
    )
    class_devices: int = _loss_setting(
        1,
        "The number of devices that the classes are divided over, starting at --device.",
        minimum=1,
        maximum=1024,
        fixed=True,
        only=_CLASSES,
    )
    cutoffs: str = _loss_setting(
        "",
        "Rising numbers of words, such as 2000,10000. The 2,000 most frequent words are then the "
        "head, the words up to 10,000 the first tail cluster, and so on. Empty: chosen by cost.",
        minimum=1,
        maximum=2**31 - 1,
        fixed=True,
        only=("loss", "adaptive_softmax"),
        numbers=int,
    )
    cell: str = setting(
        "gru",
        "The recurrent cell: a gated recurrent unit, or long short-term memory.",
        choices=("gru", "lstm"),
        fixed=True,
        only=_LANGUAGE_MODEL,
    )
    hidden: int = setting(
        0,
        "The number of recurrent units. 0: the same as --dim.",
        minimum=0,
        maximum=1_000_000,
        fixed=True,
        only=_LANGUAGE_MODEL,
    )
    compute_dtype: str = setting(
        "auto",
        "The number format of matrix products. `auto`: bfloat16 if the processor supports it.",
        choices=("auto", "float32", "bfloat16"),
        fixed=True,
    )


_MOMENTUM = ("optimizer", "momentum")
_ADAM = ("optimizer", "lazy_adam", "lazy_adamw")
_FTRL = ("optimizer", "ftrl")


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
    """The settings of the optimizer, which updates the rows."""

    optimizer: str = setting(
        "rowwise_adagrad",
        "The update rule of the rows.",
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
        by_task={"recommend": "lazy_adam"},
    )
    learning_rate: float = setting(
        0.0, "The peak learning rate. 0: the optimizer's default.", minimum=0, maximum=1e4
    )
    schedule: str = setting(
        "linear",
        "How the learning rate changes after its peak: `constant`, or to 0 in a straight line "
        "(`linear`) or as a `cosine`.",
        choices=("constant", "linear", "cosine"),
    )
    warmup: float = setting(
        0.0,
        "The share of the training in which the learning rate rises from 0 to its peak.",
        minimum=0,
        below=1,
    )
    clip_row_norm: float = setting(
        0.0,
        "The largest L2 norm of the gradient of a row. 0 does not clip.",
        minimum=0,
        maximum=1e18,
    )
    clip_global_norm: float = setting(
        0.0,
        "The largest L2 norm of all gradients of a step together. 0 does not clip.",
        minimum=0,
        maximum=1e18,
    )
    initial_accumulator: float = setting(
        0.1,
        "The initial accumulators of Adagrad and FTRL.",
        minimum=1e-30,
        maximum=1e18,
        fixed=True,
        only=("optimizer", "adagrad", "rowwise_adagrad", "ftrl"),
    )
    momentum: float = setting(
        0.9,
        "The share of the velocity of a row that is kept in a step.",
        minimum=0,
        below=1,
        only=_MOMENTUM,
    )
    nesterov: bool = setting(False, "Use Nesterov's momentum.", only=_MOMENTUM)
    beta_1: float = setting(
        0.9, "The decay of Adam's first moment.", minimum=0, below=1, only=_ADAM
    )
    beta_2: float = setting(
        0.999, "The decay of Adam's second moment.", minimum=0, below=1, only=_ADAM
    )
    epsilon: float = setting(
        1e-7,
        "The number added to the square root of Adam's second moment.",
        minimum=1e-30,
        maximum=1e3,
        only=_ADAM,
    )
    correct_skipped: bool = setting(
        False,
        "Also decay the moments of a row for the steps that did not touch it.",
        fixed=True,
        only=_ADAM,
    )
    weight_decay: float = setting(
        0.004,
        "The share of a row, times the learning rate, that each step which touches it subtracts.",
        minimum=0,
        maximum=1e3,
        only=("optimizer", "lazy_adamw"),
    )
    l1: float = setting(
        0.0,
        "The strength of FTRL's L1 penalty, which makes numbers exactly 0 (lambda_1 of the paper).",
        minimum=0,
        maximum=1e6,
        fixed=True,
        only=_FTRL,
    )
    l2: float = setting(
        0.0,
        "The strength of FTRL's L2 penalty, which shrinks numbers (lambda_2 of the paper).",
        minimum=0,
        maximum=1e6,
        only=_FTRL,
    )
