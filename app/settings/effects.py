"""Which flags have an effect beside which values of other flags, and what older workdirs hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_ADAGRAD = ("adagrad", "rowwise_adagrad")
# A flag, its values, and the flags that have an effect with these values only.
_NEEDS: tuple[tuple[str, tuple[Any, ...], str], ...] = (
    ("strategy", ("mirrored", "multi_worker"), "sync_steps sync_dtype"),
    ("tokenizer", ("unicode",), "drop_numbers"),
    ("phrases", (1, 2, 3, 4), "phrase_score phrase_threshold phrase_min_count"),
    ("model", ("skipgram",), "contexts"),
    ("model", ("mlp", "neumf"), "layers"),
    (
        "loss",
        ("negative_sampling",),
        "negatives shared_negatives group_tokens negative_power",
    ),
    ("loss", ("sampled_softmax", "nce", "sampled_items"), "samples"),
    ("loss", ("sampled_softmax", "nce"), "sampler"),
    ("loss", ("class_softmax",), "class_levels class_rule classes class_devices"),
    ("loss", ("adaptive_softmax",), "cutoffs"),
    ("loss", ("sampled_items", "in_batch_softmax"), "cosine temperature start"),
    ("loss", ("sampled_items", "in_batch_softmax", "bpr"), "weighted"),
    ("loss", ("sampled_items",), "user_pairs"),
    ("loss", ("bpr",), "pair_negatives"),
    ("optimizer", (*_ADAGRAD, "ftrl"), "initial_accumulator"),
    ("optimizer", ("rowwise_adagrad",), "learning_rate_power"),
    ("optimizer", ("momentum",), "momentum nesterov"),
    ("optimizer", ("lazy_adam", "lazy_adamw"), "beta_1 beta_2 epsilon correct_skipped"),
    ("optimizer", ("lazy_adamw",), "weight_decay"),
    ("optimizer", ("ftrl",), "l1 l2"),
    ("table", ("host",), "hot_rows stage_steps table_file"),
    ("table", ("dynamic",), "table_gb max_age"),
    ("table", ("sharded",), "shard_rule"),
)
# Flag -> the flag that it needs, and the values of that flag.
NEEDS = {name: (other, values) for other, values, names in _NEEDS for name in names.split()}

# Earlier defaults, which the flags of older workdirs have. They are allowed without an effect.
FORMER = {
    "cache": "none",
    "contexts": "drawn",
    "group_tokens": 256,
    "learning_rate_power": -0.5,
    "shared_negatives": 64,
    "temperature": 0.15,
}
_NO_SERVERS = "parameter servers are gone; give --strategy=multi_worker for several machines"
# Flags of earlier versions that are gone: the value that had no effect and is ignored, and what to
# do about another one.
GONE = {
    "data_service": (
        "",
        "the tf.data service is gone, and each process reads its text itself; write the flag "
        "without a value, or leave it out",
    ),
    "exchange": ("step", f"{_NO_SERVERS}, and leave this flag out"),
    "ps": ("0", "parameter servers are gone; leave it out: the workers train in step"),
}
# Values of earlier versions that are gone, and what to do.
GONE_VALUES = {("strategy", "parameter_server"): _NO_SERVERS}
# What workdirs did that are older than these flags.
BEFORE = {"contexts": "drawn", "learning_rate_power": -0.5}


def has_effect(name: str, values: Mapping[str, Any]) -> bool:
    """Return whether a flag has an effect beside the values of the others."""
    other, known = NEEDS.get(name, ("task", (values["task"],)))
    return values[other] in known
