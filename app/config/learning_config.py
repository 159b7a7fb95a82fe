"""Settings of what is learned, and how: model and optimizer."""

from __future__ import annotations

import dataclasses

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


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """What is learned."""

    model: str = setting(
        "skipgram",
        "`skipgram` predicts the context of a word, `cbow` a word from its context. To recommend: "
        "`mf` multiplies rows of users and items (matrix factorisation), `gmf`, `mlp` and `neumf` "
        "are those of neural collaborative filtering.",
        fixed=True,
        of_task={"words": ("skipgram", "cbow"), "recommend": ("mf", "gmf", "mlp", "neumf")},
    )
    loss: str = setting(
        "negative_sampling",
        "How the other words, labels or items enter the loss.",
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
        "Columns of a vector.",
        minimum=1,
        maximum=1_000_000,
        fixed=True,
        by_task={"recommend": 64},
    )
    window: int = setting(
        5,
        "Context tokens on each side at most; drawn from 1..window.",
        minimum=1,
        maximum=10_000,
        fixed=True,
        only=_WORDS,
    )
    negatives: int = setting(
        5,
        "Weight of the negative samples: as of so many a pair.",
        minimum=1,
        maximum=100_000,
        fixed=True,
        only=_NEGATIVES,
    )
    shared_negatives: int = setting(
        64,
        "Negative samples drawn for each group of centres.",
        minimum=1,
        maximum=1_000_000,
        fixed=True,
        only=_NEGATIVES,
    )
    group_tokens: int = setting(
        256,
        "Centre tokens that share their negative samples.",
        minimum=1,
        maximum=2**24,
        fixed=True,
        only=_NEGATIVES,
    )
    negative_power: float = setting(
        0.75,
        "Negatives are drawn in proportion to count ** this.",
        minimum=0,
        maximum=10,
        fixed=True,
        only=_NEGATIVES,
    )
    samples: int = setting(
        1024,
        "Words drawn in a step for all of its targets.",
        minimum=1,
        maximum=2**24,
        fixed=True,
        only=_SAMPLED,
    )
    sampler: str = setting(
        "log_uniform",
        "From what they are drawn: `log_uniform` over the ids, as of Zipf's law, or `unigram`, "
        "count ** 0.75.",
        choices=("log_uniform", "unigram"),
        fixed=True,
        only=_SAMPLED,
    )
    class_levels: int = setting(
        2,
        "2 for classes of words, 3 for classes of classes too.",
        minimum=2,
        maximum=3,
        fixed=True,
        only=_CLASSES,
    )
    class_rule: str = setting(
        "fewest_rows",
        "Which words go together: classes of equal size, of equal frequency, or of size "
        "1 / sqrt(p(word)), for which a step touches the fewest rows.",
        choices=("fewest_rows", "equal_size", "equal_frequency"),
        fixed=True,
        only=_CLASSES,
    )
    classes: int = setting(
        0,
        "Classes of words; 0 for as many as make a step touch the fewest rows.",
        minimum=0,
        maximum=2**31 - 1,
        fixed=True,
        only=_CLASSES,
    )
    class_devices: int = setting(
        1,
        "Devices, from --device on, over which the classes are dealt.",
        minimum=1,
        maximum=1024,
        fixed=True,
        only=_CLASSES,
    )
    cutoffs: str = setting(
        "",
        "Rising numbers of words, such as 2000,10000: the most frequent are in the head, those up "
        "to the next number in the first tail, and so on; empty chooses them.",
        minimum=1,
        maximum=2**31 - 1,
        fixed=True,
        only=("loss", "adaptive_softmax"),
        numbers=int,
    )
    cell: str = setting(
        "gru",
        "Of a language model: a gated recurrent unit, or long short-term memory.",
        choices=("gru", "lstm"),
        fixed=True,
        only=_LANGUAGE_MODEL,
    )
    hidden: int = setting(
        0,
        "Units of a language model; 0 for as many as --dim.",
        minimum=0,
        maximum=1_000_000,
        fixed=True,
        only=_LANGUAGE_MODEL,
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
        by_task={"recommend": "lazy_adam"},
    )
    learning_rate: float = setting(
        0.0, "The greatest learning rate; 0 takes the optimizer's own.", minimum=0, maximum=1e4
    )
    schedule: str = setting(
        "linear",
        "How the rate goes on from its greatest: `constant`, or to 0 as a straight line or a "
        "cosine.",
        choices=("constant", "linear", "cosine"),
    )
    warmup: float = setting(
        0.0,
        "Share of the training in which the rate first rises from 0, below 1.",
        minimum=0,
        below=1,
    )
    clip_row_norm: float = setting(
        0.0,
        "The greatest L2 norm that a row's gradient may have; 0 does not clip.",
        minimum=0,
        maximum=1e18,
    )
    clip_global_norm: float = setting(
        0.0,
        "The greatest L2 norm that all gradients of a step together may have; 0 does not clip.",
        minimum=0,
        maximum=1e18,
    )
    initial_accumulator: float = setting(
        0.1,
        "Where the accumulators of Adagrad and FTRL start.",
        minimum=1e-30,
        maximum=1e18,
        fixed=True,
        only=("optimizer", "adagrad", "rowwise_adagrad", "ftrl"),
    )
    momentum: float = setting(
        0.9, "Share of its velocity that a row keeps.", minimum=0, below=1, only=_MOMENTUM
    )
    nesterov: bool = setting(False, "Nesterov's momentum.", only=_MOMENTUM)
    beta_1: float = setting(
        0.9, "Decay of the first moment of Adam.", minimum=0, below=1, only=_ADAM
    )
    beta_2: float = setting(
        0.999, "Decay of the second moment of Adam.", minimum=0, below=1, only=_ADAM
    )
    epsilon: float = setting(
        1e-7,
        "Added to the root of the second moment of Adam.",
        minimum=1e-30,
        maximum=1e3,
        only=_ADAM,
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
        maximum=1e3,
        only=("optimizer", "lazy_adamw"),
    )
    l1: float = setting(
        0.0,
        "Strength of FTRL's L1 penalty, which makes numbers exactly 0 (lambda_1 of the paper).",
        minimum=0,
        maximum=1e6,
        fixed=True,
        only=_FTRL,
    )
    l2: float = setting(
        0.0,
        "Strength of FTRL's L2 penalty, which shrinks numbers (lambda_2 of the paper).",
        minimum=0,
        maximum=1e6,
        only=_FTRL,
    )
